"""The runs behind the paper's tables and figures: each is trained once, measured, and kept on disk.

    out/
      study.json              the collection, the models, the plan, with hashes
      runs/KEY/run.json       what came of a run: validations, time, energy, memory, hardware, versions
      runs/KEY/test.csv.gz    the measures of every test query; last.csv.gz those of the last model instead of the best
      runs/KEY/zero-shot/     the same on other collections
      runs/KEY/targets.csv.gz the targets of the first and last batches
      work/                   tokens, triplets and models while they are needed; may be deleted

A run that is there is not trained again, so what was stopped goes on where it was, and tables can be made anew from the
small files alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, TypeVar

from remargin.errors import InputError
from remargin.experiments.columns import file_name, find_column, require_distinct, stems, test_name
from remargin.experiments.plan import Plan
from remargin.experiments.rankings import Rankings
from remargin.experiments.results import (
    FILE,
    LAST,
    TEST,
    ZERO_SHOT_LAST,
    NotTrained,
    Result,
    backbone_path,
)
from remargin.experiments.specs import RunSpec
from remargin.experiments.study_file import RUNS, WORK, describe, read_study, take_folder
from remargin.experiments.teacher import Teacher
from remargin.experiments.trainer import TARGETS, train
from remargin.experiments.training_set import TrainingSet
from remargin.files.atomic import locked, new_file, remove_left
from remargin.files.checksums import sha256
from remargin.files.headers import read_header, write_header
from remargin.model.encoder import BiEncoder
from remargin.model.folder import verify_model
from remargin.progress import tell
from remargin.report.zero_shot import Column

TRAIN = "run `remargin reproduce` with --data again"
KEPT_MODELS = 24
QUERIES = "remargin-queries-1"
SecondTeacher = Callable[[], RunSpec]
T = TypeVar("T")


class KeptQueries(TypedDict):
    """The texts of the test queries, by id."""

    format: str
    texts: dict[str, str]


class Study:
    """Trains and measures on one collection, and remembers.

    Args:
        out: the folder.
        data: the collection: needs train, dev and test queries. None reads the folder without ever training.
        models: backbones, folders or hub names, by the names that the tables give them.
        plan: how much to train.
        zero_shot: other collections, see `find_column`.
        triplets: a table of ids to train on, instead of BM25's negatives. If it has scores, they are the teacher's.
        also_test: further collections for tables 3 and 4, as TREC-DL 2020 beside 2019 in the paper.
        say: gets a line for people now and then.
        own_grids: that the plan's margins, temperatures and scales are for this time alone; the folder keeps its own.
    """

    def __init__(
        self,
        out: str | Path,
        data: str | None = None,
        models: Mapping[str, str] | None = None,
        plan: Plan | None = None,
        zero_shot: Sequence[str] = (),
        triplets: Path | None = None,
        also_test: Sequence[str] = (),
        say: Callable[[str], None] = tell,
        own_grids: bool = False,
    ) -> None:
        self.out, self.say = Path(out), say
        self.work = self.out / WORK
        self.backbones = dict(models or {})
        self._training: TrainingSet | None = None
        self._rankings: Rankings | None = None
        if data is None:
            self.header = read_study(self.out)
            self.plan = Plan.of(self.header["plan"])
            self.columns, self._tests = _collections(self.header["zero_shot"], self.header.get("also_test", []))
            return
        self.plan = plan or Plan()
        self.columns, self._tests = _collections(zero_shot, also_test)
        own = find_column(data)
        _check_names(own, self.backbones, self.columns, list(self._tests.values()))
        header = describe(own, self.backbones, self.plan, self.columns, list(self._tests.values()), triplets)
        self.header = take_folder(self.out, header, own_grids)
        (data,) = own.parts
        teacher = Teacher(data, self.out, self.work, self.models[0], self.backbones, say)
        self._training = TrainingSet(own.name, data, self.backbones, self.plan, self.work, teacher, triplets, say)
        self._rankings = Rankings(data, self._tests, self.columns, self.plan.relevant, say)

    @property
    def name(self) -> str:
        """The collection's name."""
        return str(self.header["data"])

    @property
    def models(self) -> list[str]:
        """The names of the backbones, of all that the study ever had."""
        return list(self.header["models"])

    @property
    def can_train(self) -> bool:
        """Whether the collection is at hand."""
        return self._training is not None

    @property
    def training(self) -> TrainingSet:
        """What runs are trained on."""
        if self._training is None:
            raise NotTrained("its collection is not at hand", file=self.out, do=TRAIN)
        return self._training

    @property
    def rankings(self) -> Rankings:
        """What runs are measured on."""
        if self._rankings is None:
            raise NotTrained("its collection is not at hand", file=self.out, do=TRAIN)
        return self._rankings

    @property
    def tests(self) -> dict[str, str]:
        """What to measure of every row of tables 3 and 4, and the names of these collections."""
        return {TEST: self.name} | {what: column.name for what, column in self._tests.items()}

    def stems(self, column: Column) -> list[str]:
        """The names of the files that have a column's scores. An older study does not know them."""
        known: dict[str, list[str]] = self.header.get("stems", {})
        return known.get(column.name) or stems(column)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out, and remove what killed ones left; see `locked`."""
        with locked(self.out):
            remove_left(self.out, deep=True)
            yield

    def of_models(self, make: Callable[[str], T]) -> dict[str, T]:
        """Apply `make` to each backbone, without those that lack runs; raise NotTrained if none is left."""
        found = self.where_trained(self.models, make)
        if not found:
            raise NotTrained("no backbone has all runs of this table", file=self.out, do=TRAIN)
        return found

    def where_trained(self, names: Iterable[str], make: Callable[[str], T]) -> dict[str, T]:
        """Apply `make` to each name, without those that lack a run which cannot be trained now.

        So a study that is not finished shows what it has, and a second backbone can be in some tables alone.
        """
        found = {}
        for name in names:
            try:
                found[name] = make(name)
            except NotTrained as lacking:
                self.say(f"{name} is left out: {lacking.problem}; {lacking.do}")
        return found

    def require_trainable(self, what: str, model: str | None = None) -> None:
        """See that something can be trained or measured: with the collection, and a backbone if it needs one."""
        if not self.can_train:
            raise NotTrained(f"{what} is not there", file=self.out, do=TRAIN)
        if model is not None:
            backbone_path(self.backbones, model, what, self.out)

    def run(self, spec: RunSpec, *wanted: str, second_teacher: SecondTeacher | None = None) -> Result:
        """What came of a run; it is trained and measured now if it was not before.

        Args:
            spec: the run.
            wanted: what to measure of it: TEST, LAST, ...
            second_teacher: the run whose model scores the pairs of a batch, for one with two teachers.
        """
        result = Result.load(self.out / RUNS / spec.key, spec)
        lacking = [what for what in wanted if result is None or not result.scores.get(what)]
        if result is not None:  # it is not trained again, whenever it was stopped
            shutil.rmtree(self.work / "fits" / spec.key / "checkpoint", ignore_errors=True)
        if result is not None and not lacking:
            return result
        self.require_trainable(f"the run {spec.key}", spec.model)
        fitted = self.work / "fits" / spec.key
        if result is None or not (fitted / "best").exists():
            if result is not None:  # its scores are of a model that is no more
                lacking += [what for what in result.scores if what in self.rankings and what not in lacking]
            (self.out / RUNS / spec.key / FILE).unlink(missing_ok=True)  # killed from here on, it counts as not done
            self._forget_models(fitted)
            result = self._train(spec, fitted, second_teacher)
            if (fitted / TARGETS).exists():
                with new_file(result.folder / f"{TARGETS}.gz", overwrite=True) as out:
                    out.write((fitted / TARGETS).read_bytes())
            result.save()
            shutil.rmtree(fitted / "checkpoint", ignore_errors=True)
        for what in lacking:
            model = fitted / ("last" if what in (LAST, ZERO_SHOT_LAST) else "best")
            verify_model(model, f"delete {fitted} and go on")
            self._measure(result, what, model, spec.model)
            result.save()
        return result

    def model(self, spec: RunSpec) -> Path:
        """The folder of a run's best model; if that is no more, of the same training again, which is not measured."""
        kept, again = (self.work / folder / spec.key / "best" for folder in ("fits", "again"))
        if not kept.exists() and not again.exists():
            self.require_trainable(f"the model of {spec.key}", spec.model)
            unfinished = self.work / "again" / f"{spec.key}.unfinished"
            self._train(spec, unfinished)
            shutil.rmtree(unfinished / "checkpoint", ignore_errors=True)
            unfinished.rename(again.parent)
        return kept if kept.exists() else again

    def untrained(self, model: str, *wanted: str) -> Result:
        """A backbone as it is."""
        return self._as_it_is(f"{file_name(model)}-untrained", model, wanted)

    def bm25(self, *wanted: str) -> Result:
        """BM25."""
        return self._as_it_is("bm25", None, wanted)

    def queries(self) -> dict[str, str]:
        """The texts of the test queries, from the collection or as they were when it was last at hand; else none."""
        kept = self.work / "queries.json"
        if self.can_train:
            write_header(kept, {"format": QUERIES, "texts": self.rankings.queries})
            return self.rankings.queries
        return read_header(kept, KeptQueries, QUERIES, f"delete {kept}")["texts"] if kept.exists() else {}

    def _as_it_is(self, key: str, model: str | None, wanted: Sequence[str]) -> Result:
        """What needs no training, measured."""
        folder = self.out / RUNS / key
        result = Result.load(folder, None) or Result(None, folder)
        lacking = [what for what in wanted if not result.scores.get(what)]
        for what in lacking:
            self.require_trainable(key, model)
            self._measure(result, what, None if model is None else Path(self.backbones[model]), model or "")
        if lacking:
            result.save()
        return result

    def _train(self, spec: RunSpec, fitted: Path, second_teacher: SecondTeacher | None = None) -> Result:
        second = None if second_teacher is None else self.model(second_teacher())
        result = train(spec, self.training, fitted, self.out / RUNS / spec.key, second)
        result.folder.mkdir(parents=True, exist_ok=True)
        learned = f"at step {result.best_step} of {result.steps}"
        when = learned if result.best_step else "at best, never above the model before training"
        self.say(
            f"{spec.key}, rate {spec.rate:g}, seed {spec.seed}: dev {result.dev:.4f} {when}, {result.seconds:.0f} s"
        )
        return result

    def _measure(self, result: Result, what: str, model: Path | None, backbone: str) -> None:
        """Write the measures of every query, ranked by a model, or by BM25 without one."""
        result.scores[what] = {}
        encoder = None if model is None else BiEncoder.from_pretrained(model)
        for name, evaluation in self.rankings.measure(what, encoder, backbone):
            path = result.folder / name
            evaluation.save(path, overwrite=True)
            result.scores[what][name] = sha256(path)

    def _forget_models(self, but: Path) -> None:
        """Only so many models are kept."""
        old = sorted((f for f in (self.work / "fits").glob("*") if f != but), key=lambda f: f.stat().st_mtime)
        for folder in old[: max(0, len(old) - KEPT_MODELS + 1)]:
            shutil.rmtree(folder)


def _collections(zero_shot: Sequence[str], also_test: Sequence[str]) -> tuple[list[Column], dict[str, Column]]:
    """The collections of table 5, and the further ones of tables 3 and 4 by what they are called in a run's scores."""
    tests = [find_column(data) for data in also_test]
    require_distinct([column.name for column in tests], "collection", "--also-test")
    return [find_column(data) for data in zero_shot], {test_name(column): column for column in tests}


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
