"""The teacher of a study, and what it costs: a cross-encoder trained on its triplets, or scores that came with them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from remargin.cross_encoder import CrossEncoder
from remargin.data.collection import Collection
from remargin.data.tables import Rejects
from remargin.data.triplets import read_id_triplets
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.experiments.hardware import Energy
from remargin.experiments.results import MEASURE, made_on
from remargin.experiments.study import Study
from remargin.files import read_header, write_header
from remargin.retrieval.rerank import rerank
from remargin.retrieval.search import search
from remargin.teaching import cost_of, taught_before, teach
from remargin.training.teacher import TeacherSettings, train_cross_encoder

FORMAT = "remargin-teacher-1"
DEPTH = 100  # documents that the teacher re-ranks to show what it is worth


def taught_triplets(study: Study, triplets: Path) -> Path:
    """Triplets with the teacher's scores. The teacher is trained first, unless the triplets have scores already."""
    if _has_scores(triplets):
        _report_given(study, triplets)
        return triplets
    scored = study.work / "taught.tsv"
    if not (scored.exists() and (study.out / "teacher" / "teacher.json").exists()):
        backbone = study.models[0]  # of all that the study ever had
        study.may_work("the teacher", backbone)
        study.say("training a teacher")
        train, dev, test = (Collection.load(study.data or "", split) for split in ("train", "dev", "test"))
        teacher = CrossEncoder.from_pretrained(study.paths[backbone])
        with Energy() as energy:
            bm25 = study.first_stage
            settings = TeacherSettings(epochs=1)  # each query has several triplets
            folder = study.work / "teacher"
            trained = train_cross_encoder(
                teacher, train, triplets, folder, settings, dev, bm25, skip_bad=True, overwrite=True, say=study.say
            )
            teacher = CrossEncoder.from_pretrained(folder)
            taught = taught_before(triplets, scored, teacher, train)
            if taught is None:
                study.say(f"the teacher scores {triplets.name}")
                taught = teach(triplets, scored, teacher, train, skip_bad=True, overwrite=True)
        first = search(test, "bm25", k=DEPTH)
        unfit = set(teacher.too_long(test.queries))  # stay as BM25 has them
        queries = {id: text for id, text in test.queries.items() if id not in unfit}
        ranked = rerank(teacher, first, test.documents, queries, DEPTH)
        evaluation = evaluate(Run({**first.rankings, **ranked.rankings}), test.qrels, [MEASURE])
        evaluation.save(study.out / "teacher" / "test.csv.gz", overwrite=True)
        header = {
            "format": FORMAT,
            "backbone": backbone,
            "settings": asdict(settings),
            "dev": trained.best,
            "test": evaluation.means[MEASURE],
            "first stage": evaluate(first, test.qrels, [MEASURE]).means[MEASURE],
            "seconds": {"training": trained.seconds, "scoring": taught.seconds},
            "pairs": taught.pairs,
            "triplets left out": taught.rejected,
            "joules": energy.joules,
            **made_on(),
        }
        write_header(study.out / "teacher" / "teacher.json", header)
        study.say(f"the teacher: {MEASURE} {header['test']:.4f} on test, re-ranking BM25's first {DEPTH}")
    return scored


def _has_scores(triplets: Path) -> bool:
    """Whether a teacher has been there: `remargin teach`, or the one whose scores are published for MS MARCO."""
    first = next(read_id_triplets(triplets, Rejects()), None)
    return first is not None and first.scores is not None


def _report_given(study: Study, triplets: Path) -> None:
    """What is known of a teacher whose scores were given: what `teach` wrote beside them, if it did."""
    path, cost = study.out / "teacher" / "teacher.json", cost_of(triplets)
    if path.exists():
        return
    seconds = {} if cost is None else {"training": cost.teacher_seconds or 0.0, "scoring": cost.seconds}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_header(path, {"format": FORMAT, "given": triplets.name, "test": None, "seconds": seconds, **made_on()})


def teacher_report(study: Study) -> dict[str, Any]:
    """What the teacher is worth and what it cost."""
    return read_header(study.out / "teacher" / "teacher.json", FORMAT, "run `remargin reproduce baselines`")
