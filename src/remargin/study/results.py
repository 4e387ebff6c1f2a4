"""What came of training runs, and the small files that keep it: all tables and figures are made from them alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

from remargin.errors import InputError
from remargin.evaluation.comparison import Scores
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Checksums, Count, FieldsOf, Finite
from remargin.progress import tell
from remargin.study.columns import Column, file_name, stems, test_columns
from remargin.study.dev_scores import FILE as DEV
from remargin.study.dev_scores import FORMAT as DEV_FORMAT
from remargin.study.dev_scores import DevHeader, DevScores
from remargin.study.files import ON_DISK, StudyFiles, open_files
from remargin.study.hardware import hardware
from remargin.study.header import RUNS, WORK, read_study
from remargin.study.plan import Plan
from remargin.study.specs import RunSpec
from remargin.study.targets import TARGETS, BatchTargets
from remargin.versions import versions

T = TypeVar("T")
FORMAT = "remargin-run-1"
FILE = "run.json"
MEASURE, RECALL = "nDCG@10", "R@1000"
HITS = "Success@100"  # what the paper calls Hits@100
TRAIN = "run `remargin reproduce` with --data again"
QUERIES, QUERIES_FORMAT = "queries.json", "remargin-queries-1"
TEST, LAST, ZERO_SHOT, ZERO_SHOT_LAST = "test", "last", "zero-shot", "zero-shot-last"  # what can be measured of a run


class NotTrained(InputError):
    """A training run that a table needs is not there."""


def made_on() -> dict[str, Any]:
    """The hardware, the versions of packages, and the date."""
    return {"hardware": hardware(), "versions": versions(), "date": time.strftime("%Y-%m-%d")}


class KeptQueries(TypedDict):
    """The texts of the test queries, by id."""

    format: str
    texts: dict[str, str]


class RunHeader(TypedDict):
    """run.json: a `Result`, what it was made on and with, and when."""

    format: str
    spec: Annotated[dict[str, Any], FieldsOf(RunSpec)] | None
    curve: list[tuple[Count, dict[str, Finite]]]
    steps: Count
    triplets: Count
    best_step: Count
    best_triplets: Count
    seconds: Finite
    joules: Finite | None
    peak_bytes: Count | None
    scores: dict[str, Checksums]
    hardware: str
    versions: dict[str, str | None]
    date: str


@dataclass
class Result:
    """What came of a run: the validations, when the model was best, what it cost, and where its scores are."""

    spec: RunSpec | None
    folder: Path
    curve: list[tuple[int, dict[str, float]]] = field(default_factory=list, repr=False)
    steps: int = 0
    triplets: int = 0
    best_step: int = 0
    best_triplets: int = 0
    seconds: float = 0.0
    joules: float | None = None
    peak_bytes: int | None = None
    scores: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)  # files and checksums, by what
    about: dict[str, Any] = field(default_factory=made_on, repr=False)  # what it was made on and with, and when
    files: StudyFiles = field(default=ON_DISK, repr=False, compare=False)

    @property
    def trained(self) -> list[tuple[int, dict[str, float]]]:
        """The validations after training began: the one before it says nothing about a loss."""
        return [(step, values) for step, values in self.curve if step > 0]

    @property
    def dev(self) -> float:
        """The best validation."""
        values = [values[MEASURE] for _, values in self.trained if MEASURE in values]
        if not values:
            raise InputError(f"has no validations by {MEASURE}", file=self.folder / FILE, do=_again(self.folder))
        return max(values)

    @property
    def seconds_to_best(self) -> float:
        """The time until the best model was there: a share of the whole."""
        return self.seconds * self.best_step / max(1, self.steps)

    @property
    def joules_to_best(self) -> float | None:
        """The energy until the best model was there: the same share; None where none was recorded."""
        return None if self.joules is None else self.joules * self.best_step / max(1, self.steps)

    def test(self, what: str = TEST) -> Scores:
        """Measures of every query, of the best model or of the last."""
        return self.files.scores(self.folder / next(iter(self._files(what))))

    def zero_shot(self, what: str = ZERO_SHOT) -> dict[str, Scores]:
        """The same on the other collections, by their file names."""
        return {
            Path(name).name.removesuffix(".csv.gz"): self.files.scores(self.folder / name) for name in self._files(what)
        }

    def dev_scores(self) -> DevScores | None:
        """The measures of every dev query at each validation of `trained`; None where a study has means alone."""
        path, do = self.folder / DEV, _again(self.folder)
        if not self.files.has(path):
            return None
        scores = DevScores.of(self.files.header(path, DevHeader, DEV_FORMAT, do), path, do)
        measures = {*self.trained[0][1]} if self.trained else set()
        if [*scores.steps] != [step for step, _ in self.trained] or scores.values.keys() != measures:
            raise InputError("is not of the same validations as run.json", file=path, do=do)
        return scores

    def targets(self) -> list[BatchTargets]:
        """The similarities behind the targets of the first and last batches, of a run with distributed targets."""
        return self.files.targets(self.folder / f"{TARGETS}.gz")

    def _files(self, what: str) -> dict[str, str]:
        """The files that have some scores."""
        if not self.scores.get(what):
            raise InputError(f"has no scores of {what}", file=self.folder / FILE, do=_again(self.folder))
        return self.scores[what]

    @classmethod
    def load(cls, folder: Path, spec: RunSpec | None, files: StudyFiles = ON_DISK) -> Result | None:
        """What `save` wrote, if it is there.

        Raises:
            InputError: if a file of scores is missing or was changed, or if it is of another run.
        """
        if not files.has(folder / FILE):
            return None
        do = _again(folder)
        header = files.header(folder / FILE, RunHeader, FORMAT, do)
        if spec is not None and any(getattr(spec, name) != value for name, value in (header["spec"] or {}).items()):
            raise InputError("is of another run than its name says", file=folder / FILE, do=do)
        for name, checksum in ((n, c) for files in header["scores"].values() for n, c in files.items()):
            if not files.intact(folder / name, checksum):
                raise InputError("is not as it was written", file=folder / name, do=do)
        curve = [(step, values) for step, values in header["curve"]]
        if len({frozenset(values) for _, values in curve}) > 1:
            raise InputError("its validations are not all by the same measures", file=folder / FILE, do=do)
        return cls(
            spec,
            folder,
            curve,
            steps=header["steps"],
            triplets=header["triplets"],
            best_step=header["best_step"],
            best_triplets=header["best_triplets"],
            seconds=header["seconds"],
            joules=header["joules"],
            peak_bytes=header["peak_bytes"],
            scores=header["scores"],
            about={"hardware": header["hardware"], "versions": header["versions"], "date": header["date"]},
            files=files,
        )

    def save(self) -> None:
        """Write run.json. The scores lie beside it already."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("folder", "files", "spec")}
        content["spec"] = None if self.spec is None else asdict(self.spec)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_header(self.folder / FILE, {"format": FORMAT, **content.pop("about"), **json.loads(json.dumps(content))})


def _again(folder: Path) -> str:
    return f"delete {folder}, and give the same command again"


def untrained_key(model: str | None) -> str:
    """The name of the folder of a backbone without training, or of BM25 (None)."""
    return "bm25" if model is None else f"{file_name(model)}-untrained"


class Results:
    """The results of a study, to be read. Nothing is ever trained or written here.

    Attributes:
        out: the study's folder.
        header: what the study is about; see `StudyHeader`.
        say: gets a line on each backbone and system that a table has to leave out.
        files: the study's small files.
        at_hand: the backbones that could train what is missing; None if the collection is not at hand.
    """

    def __init__(
        self,
        out: Path,
        header: Mapping[str, Any],
        say: Callable[[str], None] = tell,
        files: StudyFiles = ON_DISK,
        at_hand: Collection[str] | None = None,
    ) -> None:
        self.out, self.header, self.say, self.files, self.at_hand = out, header, say, files, at_hand
        self.plan = Plan.of(header["plan"])
        self.columns, self._tests = test_columns(header["zero_shot"], header.get("also_test", []))

    @classmethod
    def open(cls, out: str | Path, say: Callable[[str], None] = tell) -> Results:
        """The results in a study's folder, as `remargin reproduce` wrote it or packed."""
        return cls(Path(out), read_study(Path(out)), say, open_files(Path(out)))

    @property
    def name(self) -> str:
        """The collection's name."""
        return str(self.header["data"])

    @property
    def models(self) -> list[str]:
        """The names of the backbones, of all that the study ever had."""
        return list(self.header["models"])

    @property
    def tests(self) -> dict[str, str]:
        """What to measure of every system, and the names of these test collections."""
        return {TEST: self.name} | {what: column.name for what, column in self._tests.items()}

    def stems(self, column: Column) -> list[str]:
        """The names of the files that have a column's scores. An older study does not know them."""
        known: dict[str, list[str]] = self.header.get("stems", {})
        return known.get(column.name) or stems(column)

    def folder(self, key: str) -> Path:
        """Where a run's files are."""
        return self.out / RUNS / key

    def run(self, spec: RunSpec, *wanted: str) -> Result:
        """A training run's result, with some measurements.

        Raises:
            NotTrained: if the run or one of the measurements is not there.
        """
        return self._required(spec.key, spec, spec.model, wanted)

    def untrained(self, model: str, *wanted: str) -> Result:
        """The measurements of a backbone without training."""
        return self._required(untrained_key(model), None, model, wanted)

    def bm25(self, *wanted: str) -> Result:
        """The measurements of BM25."""
        return self._required(untrained_key(None), None, None, wanted)

    def has(self, spec: RunSpec, *wanted: str) -> bool:
        """Whether a run is trained, with some measurements."""
        return self._measured(spec.key, wanted)

    def has_untrained(self, model: str | None, *wanted: str) -> bool:
        """Whether a backbone without training, or BM25, has some measurements."""
        return self._measured(untrained_key(model), wanted)

    def all_runs(self) -> Iterator[Result]:
        """Every training run that there is."""
        for path in self.files.paths(self.out / RUNS, FILE):
            header = self.files.header(path, RunHeader, FORMAT, _again(path.parent))
            if header["spec"] is not None:
                result = Result.load(path.parent, RunSpec(**header["spec"]), self.files)
                assert result is not None
                yield result

    def of_models(self, make: Callable[[str], T]) -> dict[str, T]:
        """Apply `make` to each backbone, without those that lack runs; raise NotTrained if none is left."""
        made = self.where_trained(self.models, make)
        if not made:
            raise NotTrained("no backbone has all runs of this table", file=self.out, do=TRAIN)
        return made

    def where_trained(self, names: Iterable[str], make: Callable[[str], T]) -> dict[str, T]:
        """Apply `make` to each name, without those that lack a run.

        So a study that is not finished shows what it has, and a second backbone can be in some tables alone.
        """
        made = {}
        for name in names:
            try:
                made[name] = make(name)
            except NotTrained as lacking:
                self.say(f"{name} is left out: {lacking.problem}; {lacking.do}")
        return made

    def queries(self) -> dict[str, str]:
        """The texts of the test queries, as they were when the collection was last at hand; else none."""
        kept = self.out / WORK / QUERIES
        return read_header(kept, KeptQueries, QUERIES_FORMAT, f"delete {kept}")["texts"] if kept.exists() else {}

    def not_trained(self, what: str, model: str | None) -> NotTrained:
        """The error for something that is not there, with what to do about it."""
        lacks_backbone = self.at_hand is not None and model is not None and model not in self.at_hand
        do = f"name its backbone: --model {model}=PATH" if lacks_backbone else TRAIN
        return NotTrained(f"{what} is not there", file=self.out, do=do)

    def _required(self, key: str, spec: RunSpec | None, model: str | None, wanted: Iterable[str]) -> Result:
        result = Result.load(self.folder(key), spec, self.files)
        if result is None or not all(result.scores.get(what) for what in wanted):
            raise self.not_trained(key if spec is None else f"the run {key}", model)
        return result

    def _measured(self, key: str, wanted: Iterable[str]) -> bool:
        path = self.folder(key) / FILE
        if not self.files.has(path):
            return False
        scores = self.files.header(path, RunHeader, FORMAT, _again(path.parent))["scores"]
        return all(scores.get(what) for what in wanted)
