"""What came of a run, and the small files that keep it: from them alone every table and figure can be made again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from remargin.errors import InputError
from remargin.evaluation.comparison import Scores, read_query_scores
from remargin.experiments.hardware import hardware
from remargin.experiments.specs import RunSpec
from remargin.files.checksums import sha256
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Checksums, Count, FieldsOf, Finite
from remargin.versions import versions

FORMAT = "remargin-run-1"
FILE = "run.json"
MEASURE, RECALL = "nDCG@10", "R@1000"
HITS = "Success@100"  # what the paper calls Hits@100
WITHOUT, WITH = "without in-batch negatives", "with in-batch negatives"
TEST, LAST, ZERO_SHOT, ZERO_SHOT_LAST = "test", "last", "zero-shot", "zero-shot-last"  # what can be measured of a run


class NotTrained(InputError):
    """A run that a table needs is not there, and cannot be trained without the collection and its backbone."""


def backbone_path(backbones: Mapping[str, str], model: str, what: str, study: Path) -> str:
    """The folder or hub name of a backbone, without which something cannot be made."""
    if model not in backbones:
        raise NotTrained(f"{what} is not there", file=study, do=f"name its backbone: --model {model}=PATH")
    return backbones[model]


def made_on() -> dict[str, Any]:
    """The hardware, the versions of packages, and the date."""
    return {"hardware": hardware(), "versions": versions(), "date": time.strftime("%Y-%m-%d")}


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

    def test(self, what: str = TEST) -> Scores:
        """Measures of every query, of the best model or of the last."""
        return read_query_scores(self.folder / next(iter(self._files(what))))

    def zero_shot(self, what: str = ZERO_SHOT) -> dict[str, Scores]:
        """The same on the other collections, by their file names."""
        return {
            Path(name).name.removesuffix(".csv.gz"): read_query_scores(self.folder / name) for name in self._files(what)
        }

    def _files(self, what: str) -> dict[str, str]:
        """The files that have some scores."""
        if not self.scores.get(what):
            raise InputError(f"has no scores of {what}", file=self.folder / FILE, do=_again(self.folder))
        return self.scores[what]

    @classmethod
    def load(cls, folder: Path, spec: RunSpec | None) -> Result | None:
        """What `save` wrote, if it is there.

        Raises:
            InputError: if a file of scores is missing or was changed, or if it is of another run.
        """
        if not (folder / FILE).exists():
            return None
        do = _again(folder)
        header = read_header(folder / FILE, RunHeader, FORMAT, do)
        if spec is not None and any(getattr(spec, name) != value for name, value in (header["spec"] or {}).items()):
            raise InputError("is of another run than its name says", file=folder / FILE, do=do)
        for name, checksum in ((n, c) for files in header["scores"].values() for n, c in files.items()):
            if not (folder / name).exists() or sha256(folder / name) != checksum:
                raise InputError("is not as it was written", file=folder / name, do=do)
        curve = [(step, values) for step, values in header["curve"]]
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
        )

    def save(self) -> None:
        """Write run.json. The scores lie beside it already."""
        content = asdict(self)
        content.pop("folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_header(self.folder / FILE, {"format": FORMAT, **content.pop("about"), **json.loads(json.dumps(content))})


def _again(folder: Path) -> str:
    return f"delete {folder} and go on"
