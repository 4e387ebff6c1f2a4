"""The teacher of a study, and what it costs: a cross-encoder trained on its triplets, or scores that came with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from remargin.data.collection import Collection
from remargin.data.tables import Rejects
from remargin.data.triplets import read_id_triplets
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.files.headers import write_header
from remargin.files.parts import remove_parts
from remargin.files.shapes import Finite
from remargin.model.cross_encoder import CrossEncoder
from remargin.retrieval.reranking import rerank
from remargin.retrieval.searching import search
from remargin.study.files import ON_DISK, StudyFiles
from remargin.study.hardware import Energy
from remargin.study.plan import Plan
from remargin.study.results import MEASURE, NotTrained, made_on
from remargin.study.teacher_trials import TrialRecord, Trials, best_teacher
from remargin.teacher.scoring import Taught, cost_of, score_triplets, taught_before

FORMAT = "remargin-teacher-1"
FOLDER, REPORT = "teacher", "teacher.json"
OTHER_TRIALS = "training with other learning rates and lengths"
DEPTH = 100  # documents that the teacher re-ranks to show what it is worth


TeacherHeader = TypedDict(
    "TeacherHeader",
    {
        "format": str,
        "given": NotRequired[str],  # the table of scores that it is known by alone; then most of the rest is missing
        "backbone": NotRequired[str],
        "settings": NotRequired[dict[str, float | str | None]],
        "dev": NotRequired[Finite | None],
        "others": NotRequired[list[TrialRecord]],  # that dev did not choose
        "seconds": dict[str, Finite],
        "pairs": NotRequired[int],
        "triplets left out": NotRequired[int],
        "joules": NotRequired[Finite | None],
        "test": Finite | None,
        "first stage": NotRequired[Finite],
        "hardware": NotRequired[str],
        "versions": NotRequired[dict[str, str | None]],
        "date": NotRequired[str],
    },
)


@dataclass(frozen=True)
class Teacher:
    """Scores a study's triplets. It is trained first, unless they have scores already.

    Attributes:
        data: the study's collection.
        out: the study's folder; what the teacher is worth is written there.
        work: where it and its scores are kept.
        backbone: the name of the one that it is trained from: the first that the study ever had.
        backbones: their folders or hub names.
        plan: has the grids of its learning rate and its length, from which dev chooses.
        say: gets a line for people now and then.
    """

    data: str
    out: Path
    work: Path
    backbone: str
    backbones: Mapping[str, str]
    plan: Plan
    say: Callable[[str], None]

    def scored(self, triplets: Path, first_stage: Callable[[], Run]) -> Path:
        """The triplets with scores. `first_stage` gives BM25's documents for the dev queries."""
        if _has_scores(triplets):
            self._report_given(triplets)
            return triplets
        scored = self.work / "taught.tsv"
        remove_parts(scored)
        if not (scored.exists() and (self.out / FOLDER / REPORT).exists()):
            if self.backbone not in self.backbones:
                do = f"name its backbone: --model {self.backbone}=PATH"
                raise NotTrained("the teacher is not there", file=self.out, do=do)
            path = self.backbones[self.backbone]
            self.say("training a teacher")
            train, dev, test = (Collection.load(self.data, split) for split in ("train", "dev", "test"))
            resumed = any(self.work.glob("*teacher-*"))  # then the energy before is not known
            trials = Trials(path, train, dev, triplets, first_stage(), self.work, self.say)
            with Energy() as energy:
                best, others = best_teacher(self.plan.teacher_rates, self.plan.teacher_epochs, trials)
                teacher = CrossEncoder.from_pretrained(best.folder)
                taught = self._score(teacher, triplets, scored, train)
            choosing = {OTHER_TRIALS: fsum(trial.seconds for trial in others)} if others else {}
            cost = {
                "backbone": self.backbone,
                "settings": asdict(best.settings),
                "dev": best.dev,
                "others": [trial.record() for trial in others],
                "seconds": {"training": best.seconds, **choosing, "scoring": taught.seconds},
                "pairs": taught.pairs,
                "triplets left out": taught.rejected,
                "joules": None if resumed else energy.joules,
            }
            self._report(teacher, test, cost)
        return scored

    def _score(self, teacher: CrossEncoder, triplets: Path, scored: Path, train: Collection) -> Taught:
        before = taught_before(triplets, scored, teacher, train)
        if before is not None:
            return before
        self.say(f"the teacher scores {triplets.name}")
        return score_triplets(triplets, scored, teacher, train, skip_bad=True, overwrite=True)

    def _report(self, teacher: CrossEncoder, test: Collection, cost: Mapping[str, Any]) -> None:
        """Write what the teacher is worth, re-ranking BM25's documents, beside what it cost."""
        first = search(test, "bm25", k=DEPTH)
        unfit = set(teacher.too_long(test.queries))  # stay as BM25 has them
        queries = {id: text for id, text in test.queries.items() if id not in unfit}
        ranked = rerank(replace(test, queries=queries), teacher, first, DEPTH)
        evaluation = evaluate(Run({**first.rankings, **ranked.rankings}), test.qrels, [MEASURE])
        evaluation.save(self.out / FOLDER / "test.csv.gz", overwrite=True)
        worth = {
            "test": evaluation.means[MEASURE],
            "first stage": evaluate(first, test.qrels, [MEASURE]).means[MEASURE],
        }
        write_header(self.out / FOLDER / REPORT, {"format": FORMAT, **cost, **worth, **made_on()})
        self.say(f"the teacher: {MEASURE} {worth['test']:.4f} on test, re-ranking BM25's first {DEPTH}")

    def _report_given(self, triplets: Path) -> None:
        """Write what is known of a teacher whose scores were given: what `teach` wrote beside them, if it did."""
        path, cost = self.out / FOLDER / REPORT, cost_of(triplets)
        if path.exists():
            return
        seconds = {} if cost is None else {"training": cost.teacher_seconds or 0.0, "scoring": cost.seconds}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_header(path, {"format": FORMAT, "given": triplets.name, "test": None, "seconds": seconds, **made_on()})


def _has_scores(triplets: Path) -> bool:
    """Whether a teacher has been there: `remargin teach`, or the one whose scores are published for MS MARCO."""
    first = next(read_id_triplets(triplets, Rejects()), None)
    return first is not None and first.scores is not None


def teacher_report(out: Path, files: StudyFiles = ON_DISK) -> dict[str, Any]:
    """What the teacher of the study in a folder is worth and what it cost."""
    path, remedy = out / FOLDER / REPORT, "run `remargin reproduce baselines`"
    report = files.header(path, TeacherHeader, FORMAT, remedy)
    if report["test"] is None and "given" not in report:
        raise InputError("says neither what the teacher is worth nor where its scores are from", file=path, do=remedy)
    return dict(report)
