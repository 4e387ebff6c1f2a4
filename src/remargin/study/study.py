"""A study: trains and measures the runs that experiments declare, each once, and keeps the results on disk.

    out/
      study.json              the collection, the models, the plan, with hashes
      runs/KEY/run.json       what came of a run: validations, time, energy, memory, hardware, versions
      runs/KEY/test.csv.gz    the measures of every test query; last.csv.gz those of the last model instead of the best
      runs/KEY/zero-shot/     the same on other collections
      runs/KEY/blend.json     the path from the start to the trained weights on dev; test@0.5.csv.gz: measures on it
      runs/KEY/dev.json       the measures of every dev query at each validation
      runs/KEY/targets.csv.gz the targets of the first and last batches
      work/                   tokens, triplets and models while they are needed; may be deleted

A run that is there is not trained again, so an interrupted study resumes, and tables can be made anew from the small
files alone; see `Results`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import locked, new_file, remove_folder, remove_left
from remargin.files.checksums import sha256
from remargin.files.headers import write_header
from remargin.model.blend import blended, similarity_trained
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.model.folder import verify_model
from remargin.progress import tell
from remargin.study.blending import CHOSEN, find_blend, model_at, point_of
from remargin.study.blending import FILE as BLEND
from remargin.study.columns import Column, find_column, require_distinct, test_columns
from remargin.study.dev_scores import FILE as DEV
from remargin.study.dev_scores import DevLog
from remargin.study.header import WORK, describe, read_study, take_folder
from remargin.study.plan import Plan
from remargin.study.rankings import Rankings
from remargin.study.results import (
    FILE,
    LAST,
    QUERIES,
    QUERIES_FORMAT,
    ZERO_SHOT_LAST,
    Result,
    Results,
    untrained_key,
)
from remargin.study.specs import RunSpec
from remargin.study.targets import TARGETS
from remargin.study.teacher import Teacher
from remargin.study.trainer import MakeLoss, no_other_loss, train
from remargin.study.training_set import TrainingSet

KEPT_MODELS = 24


class Study:
    """Trains and measures on one collection. `results` has what is there.

    Args:
        out: the folder.
        data: the collection: needs train, dev and test queries.
        models: backbones, folders or hub names, by the names that the tables give them.
        plan: how much to train.
        zero_shot: other collections, see `find_column`.
        triplets: a table of ids or "irds:NAME", instead of BM25's negatives. If it has scores, they are the teacher's.
        also_test: further test collections, as TREC-DL 2020 beside 2019.
        first_stage: a run of the validation queries, which is re-ranked instead of BM25's.
        say: gets a progress message now and then.
        own_grids: that the plan's margins, temperatures and scales are for this time alone; the folder keeps its own.
        make_loss: builds the losses that the settings of `fit` do not have.
        jobs: how many runs share the device; with more than one, the energy of a run is not known.
        begin: make the folder this study's own; without, it must be (for the other processes of a scheduler).
    """

    def __init__(
        self,
        out: str | Path,
        data: str,
        models: Mapping[str, str] | None = None,
        plan: Plan | None = None,
        zero_shot: Sequence[str] = (),
        triplets: Path | None = None,
        also_test: Sequence[str] = (),
        say: Callable[[str], None] = tell,
        own_grids: bool = False,
        make_loss: MakeLoss = no_other_loss,
        jobs: int = 1,
        begin: bool = True,
        first_stage: Path | None = None,
    ) -> None:
        self.out, self.say, self.plan = Path(out), say, plan or Plan()
        self.work, self.backbones = self.out / WORK, dict(models or {})
        self._make_loss, self.jobs = make_loss, jobs
        self.given: dict[str, Any] = {
            "out": self.out, "data": data, "models": self.backbones, "plan": self.plan, "zero_shot": zero_shot,
            "triplets": triplets, "also_test": also_test, "own_grids": own_grids, "make_loss": make_loss,
            "first_stage": first_stage,
        }  # fmt: skip
        own, (columns, tests) = find_column(data), test_columns(zero_shot, also_test)
        if self.plan.full_validation:
            refuse_idle("full validation", [] if first_stage is None else ["first_stage"])
        if begin:
            _check_names(own, self.backbones, columns, list(tests.values()))
            header = describe(own, self.backbones, self.plan, columns, list(tests.values()), triplets, first_stage)
            header = take_folder(self.out, header, own_grids)
        else:
            header = read_study(self.out)
        now = {"plan": self.plan.plain(), "zero_shot": _names(columns), "also_test": _names(tests.values())}
        self.results = Results(self.out, {**header, **now}, say, at_hand=self.backbones.keys())
        (data,) = own.parts
        teacher = Teacher(data, self.out, self.work, self.results.models[0], self.backbones, say)
        self.training = TrainingSet(
            own.name, data, self.backbones, self.plan, self.work, teacher, triplets, say, first_stage
        )
        self.rankings = Rankings(data, tests, columns, self.plan.relevant, say, self.plan.index)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out, and remove what killed ones left; see `locked`."""
        with locked(self.out):
            remove_left(self.out, deep=True)
            for checkpoint in (self.work / "fits").glob("*/checkpoint"):
                if (self.results.folder(checkpoint.parent.name) / FILE).exists():  # the run was killed at its very end
                    remove_folder(checkpoint)
            yield

    def keep_queries(self) -> None:
        """Keep the texts of the test queries for figures that show them."""
        write_header(self.work / QUERIES, {"format": QUERIES_FORMAT, "texts": self.rankings.queries})

    def run(self, spec: RunSpec, *wanted: str, second_teacher: RunSpec | None = None) -> Result:
        """The result of a run; what is missing of it is trained and measured now.

        Args:
            spec: the run.
            wanted: what to measure of it: TEST, LAST, ...
            second_teacher: the run whose model scores the pairs of a batch, for one with two teachers.
        """
        folder, fitted = self.results.folder(spec.key), self.work / "fits" / spec.key
        result = Result.load(folder, spec)
        lacking = [what for what in wanted if result is None or not result.scores.get(what)]
        if result is not None and not lacking:
            return result
        self._require_backbone(f"the run {spec.key}", spec.model)
        if result is None or not (fitted / "best").exists():
            if result is not None:  # its scores are of a model that is no more
                lacking += [what for what in result.scores if what in self.rankings and what not in lacking]
            for name in (FILE, BLEND, DEV):  # killed from here on, it counts as not done
                (folder / name).unlink(missing_ok=True)
            self._forget_models(fitted)
            result = self._train(spec, fitted, second_teacher)
            if (fitted / TARGETS).exists():
                with new_file(folder / f"{TARGETS}.gz", overwrite=True) as out:
                    out.write((fitted / TARGETS).read_bytes())
            dev = DevLog(fitted / DEV).scores([step for step, _ in result.trained])
            if dev is not None:  # else training began before there were such files
                dev.save(folder / DEV)
            result.save()
            remove_folder(fitted / "checkpoint")
        for what in lacking:
            point = point_of(what)
            path = fitted / ("last" if what in (LAST, ZERO_SHOT_LAST) or point is not None else "best")
            verify_model(path, f"delete {fitted}, and give the same command again")
            model = BiEncoder.from_pretrained(path, lengths=PAPER_LENGTHS)
            self._measure(result, what, model if point is None else self._blended(result, model, point), spec.model)
            result.save()
        return result

    def _blended(self, result: Result, trained: BiEncoder, point: str) -> BiEncoder:
        """A run's model at a point between its start and its end. Dev chooses when that is first asked for."""
        assert result.spec is not None
        model = result.spec.model
        start = BiEncoder.from_pretrained(self.backbones[model], seed=result.spec.seed, lengths=PAPER_LENGTHS)
        if point == CHOSEN and not (result.folder / BLEND).exists():
            raw = not similarity_trained(self.backbones[model])
            find_blend(start, trained, self.training.validator(model), raw).save(result.folder)
        return model_at(start, trained, point, result)

    def prepare_run(self, spec: RunSpec) -> Path:
        """What a run trains on, made if it is not there: for a second round, by the first round's model half-way."""
        return self.training.prepared_for(spec, lambda: self._half_way(spec))

    def _half_way(self, spec: RunSpec) -> BiEncoder:
        first = spec.first_round
        assert first is not None
        start = BiEncoder.from_pretrained(self.backbones[spec.model], seed=spec.seed, lengths=PAPER_LENGTHS)
        return blended(start, BiEncoder.from_pretrained(self.model(first).parent / "last"), 0.5)

    def model(self, spec: RunSpec) -> Path:
        """The folder of a run's best model; if that is no more, of the same training again, which is not measured."""
        kept, again = (self.work / folder / spec.key / "best" for folder in ("fits", "again"))
        if not kept.exists() and not again.exists():
            self._require_backbone(f"the model of {spec.key}", spec.model)
            unfinished = self.work / "again" / f"{spec.key}.unfinished"
            self._train(spec, unfinished)
            remove_folder(unfinished / "checkpoint")
            unfinished.rename(again.parent)
        return kept if kept.exists() else again

    def measure_untrained(self, model: str | None, *wanted: str) -> Result:
        """The measurements of a backbone without training, or of BM25 (None); what is missing is measured now."""
        key = untrained_key(model)
        folder = self.results.folder(key)
        result = Result.load(folder, None) or Result(None, folder)
        lacking = [what for what in wanted if not result.scores.get(what)]
        for what in lacking:
            if model is not None:
                self._require_backbone(key, model)
            encoder = None if model is None else BiEncoder.from_pretrained(self.backbones[model], lengths=PAPER_LENGTHS)
            self._measure(result, what, encoder, model or "")
        if lacking:
            result.save()
        return result

    def _require_backbone(self, what: str, model: str) -> None:
        if model not in self.backbones:
            raise self.results.not_trained(what, model)

    def _train(self, spec: RunSpec, fitted: Path, second_teacher: RunSpec | None = None) -> Result:
        second = None if second_teacher is None else self.model(second_teacher)
        self.prepare_run(spec)
        result = train(spec, self.training, fitted, self.results.folder(spec.key), second, self._make_loss)
        if self.jobs > 1:
            result.joules = None  # the device counts what all runs use together
        result.folder.mkdir(parents=True, exist_ok=True)
        learned = f"at step {result.best_step} of {result.steps}"
        when = learned if result.best_step else "at best, never above the model before training"
        self.say(
            f"{spec.key}, rate {spec.rate:g}, seed {spec.seed}: dev {result.dev:.4f} {when}, {result.seconds:.0f} s"
        )
        return result

    def _measure(self, result: Result, what: str, encoder: BiEncoder | None, backbone: str) -> None:
        """Write the measures of every query, ranked by a model, or by BM25 without one."""
        result.scores[what] = {}
        for name, evaluation in self.rankings.measure(what, encoder, backbone):
            path = result.folder / name
            evaluation.save(path, overwrite=True)
            result.scores[what][name] = sha256(path)

    def _forget_models(self, but: Path) -> None:
        """Remove the oldest models: only a limited number is kept."""
        old = sorted((f for f in (self.work / "fits").glob("*") if f != but), key=lambda f: f.stat().st_mtime)
        for folder in old[: max(0, len(old) - KEPT_MODELS + 1)]:
            remove_folder(folder)


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]


def _check_names(
    own: Column, backbones: Mapping[str, str], zero_shot: Sequence[Column], also_test: Sequence[Column]
) -> None:
    """Files and columns of tables are called after them, so no two may have one name."""
    require_distinct(backbones, "model", "--model")
    require_distinct([column.name for column in (own, *zero_shot)], "collection", "--zero-shot")
    require_distinct([column.name for column in (own, *also_test)], "collection", "--also-test")
    for column in (own, *also_test):
        if len(column.parts) > 1:
            raise InputError(f"{column.name} has several parts", do="train and test on one collection")
