"""The small files of a study, from which alone its tables and figures are made: in a folder, or packed.

A packed study has the same files in two tables: `runs.jsonl.gz` has every header and every list of targets, a line
each, and `scores.csv.gz` the measures of every query. `pack.json` has their checksums.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar, cast

from remargin.data.tables import cell_text, spreadsheet_cell
from remargin.errors import InputError
from remargin.evaluation.comparison import Scores, read_query_scores
from remargin.files.atomic import new_file, new_folder
from remargin.files.checksums import sha256, verify_files
from remargin.files.headers import check_header, read_header, read_json, write_header
from remargin.files.shapes import Checksums, Count, Finite, mismatch
from remargin.files.unpacking import open_binary
from remargin.study.header import FILE as STUDY
from remargin.study.header import RUNS
from remargin.study.targets import BatchTargets, read_targets

PACK, PACKED_RUNS, PACKED_SCORES = "pack.json", "runs.jsonl.gz", "scores.csv.gz"
FORMAT = "remargin-packed-study-1"
AGAIN = "pack the study again"
KEPT = (RUNS, "teacher")  # folders of a study whose files are packed
T = TypeVar("T")


class StudyFiles(Protocol):
    """Reads the small files of a study by their paths in its folder."""

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""

    def paths(self, folder: Path, name: str) -> Iterator[Path]:
        """All files of some name, one level below a folder."""

    def header(self, path: Path, shape: type[T], format: str, remedy: str) -> T:
        """A header; see `read_header`."""

    def scores(self, path: Path) -> Scores:
        """The measures of every query."""

    def targets(self, path: Path) -> list[BatchTargets]:
        """The targets of some batches."""

    def intact(self, path: Path, checksum: str) -> bool:
        """Whether a file is there as it was written."""


class OnDisk:
    """The files as they lie in a study's folder."""

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path.exists()

    def paths(self, folder: Path, name: str) -> Iterator[Path]:
        """All files of some name, one level below a folder."""
        yield from sorted(folder.glob(f"*/{name}"))

    def header(self, path: Path, shape: type[T], format: str, remedy: str) -> T:
        """A header; see `read_header`."""
        return read_header(path, shape, format, remedy)

    def scores(self, path: Path) -> Scores:
        """The measures of every query."""
        return read_query_scores(path)

    def targets(self, path: Path) -> list[BatchTargets]:
        """The targets of some batches."""
        return read_targets(path)

    def intact(self, path: Path, checksum: str) -> bool:
        """Whether a file has its checksum."""
        return path.exists() and sha256(path) == checksum


ON_DISK = OnDisk()


class PackHeader(TypedDict):
    """The checksums of the two tables."""

    format: str
    sha256: Checksums


class PackedFile(TypedDict):
    """A line of `runs.jsonl.gz`: a header with its checksum, or the targets of some batches."""

    path: str
    content: dict[str, Any] | list[tuple[Count, Finite, Finite, Finite]]


class Packed:
    """The files of a packed study, read into memory. Its tables are checked as a whole, and line by line.

    Attributes:
        all_content, all_scores: what the files hold, by their paths.
    """

    def __init__(self, out: Path) -> None:
        verify_files(out, read_header(out / PACK, PackHeader, FORMAT, AGAIN)["sha256"], AGAIN)
        try:
            with io.TextIOWrapper(open_binary(out / PACKED_RUNS), encoding="utf-8") as file:
                records = [_checked(json.loads(line)) for line in file]
            self.all_content = {out / record["path"]: record["content"] for record in records}
            self.all_scores: dict[Path, dict[str, dict[str, float]]] = {}
            with io.TextIOWrapper(open_binary(out / PACKED_SCORES), encoding="utf-8", newline="") as file:
                rows = csv.reader(file)
                _, _, *measures = next(rows)
                for path, query, *values in rows:
                    scores = self.all_scores.setdefault(out / path, {})
                    for measure, value in zip(measures, values, strict=True):
                        if value:
                            scores.setdefault(measure, {})[cell_text(query)] = _finite(value)
        except (
            OSError,
            EOFError,
            RecursionError,
            csv.Error,
            zlib.error,
            ValueError,
            KeyError,
            TypeError,
            StopIteration,
        ) as error:
            raise InputError(f"is damaged ({error})", file=out, do=AGAIN) from None

    def has(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path in self.all_content or path in self.all_scores

    def paths(self, folder: Path, name: str) -> Iterator[Path]:
        """All files of some name, one level below a folder."""
        yield from (path for path in self.all_content if path.parent.parent == folder and path.name == name)

    def header(self, path: Path, shape: type[T], format: str, remedy: str) -> T:
        """A header; see `read_header`."""
        content = self.all_content.get(path)
        if not isinstance(content, dict):
            raise InputError("not found", file=path, do=remedy)
        return check_header(dict(content), path, shape, format, remedy)

    def scores(self, path: Path) -> Scores:
        """The measures of every query."""
        return self.all_scores[path]

    def targets(self, path: Path) -> list[BatchTargets]:
        """The targets of some batches."""
        content = self.all_content.get(path)
        if not isinstance(content, list):
            raise InputError("not found", file=path, do=AGAIN)
        return [BatchTargets(*row) for row in content]

    def intact(self, path: Path, checksum: str) -> bool:
        """Whether the file is there: the checksum of its table has been compared."""
        return path in self.all_scores


def _checked(record: Any) -> PackedFile:
    """A line of the table of files, if it is one."""
    if problem := mismatch(record, PackedFile):
        raise ValueError(problem)
    return cast(PackedFile, record)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a score of {text}")
    return value


def is_packed(out: Path) -> bool:
    """Whether a folder has a packed study."""
    return (out / PACK).exists()


def open_files(out: Path) -> StudyFiles:
    """The files of the study in a folder."""
    return Packed(out) if is_packed(out) else ON_DISK


def pack_study(study: Path, out: Path, overwrite: bool = False) -> Path:
    """Write a study's small files as two tables into a folder of their own.

    Models, tokens, checkpoints and what can be drawn again stay behind.

    Raises:
        InputError: if the study is packed already or has no runs, or `out` exists.
    """
    if is_packed(study):
        raise InputError("is packed already", file=study, do="name the study as `remargin reproduce` wrote it")
    if not any((study / RUNS).glob("*/*")):
        raise InputError("has no runs to pack", file=study, do="name a study that `remargin reproduce` wrote")
    with new_folder(out, overwrite, PACK) as folder:
        (folder / STUDY).write_bytes((study / STUDY).read_bytes())
        content, scores = io.StringIO(), dict[str, Scores]()
        for path in sorted(path for name in KEPT for path in (study / name).rglob("*") if path.is_file()):
            place = path.relative_to(study).as_posix()
            if path.suffix == ".json":
                content.write(json.dumps({"path": place, "content": read_json(path, AGAIN)}) + "\n")
            elif path.name.startswith("targets."):
                content.write(json.dumps({"path": place, "content": read_targets(path)}) + "\n")
            else:
                scores[place] = read_query_scores(path)
        for name, text in {PACKED_RUNS: content.getvalue(), PACKED_SCORES: _score_table(scores)}.items():
            with new_file(folder / name) as file:
                file.write(text.encode())
        sums = {name: sha256(folder / name) for name in (PACKED_RUNS, PACKED_SCORES)}
        write_header(folder / PACK, {"format": FORMAT, "sha256": sums})
    return out


def _score_table(scores: Mapping[str, Scores]) -> str:
    """A line for each file and query, a column for each measure; empty where a file lacks the measure."""
    measures = list(dict.fromkeys(measure for of_file in scores.values() for measure in of_file))
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "query", *measures])
    for place, of_file in scores.items():
        for query in next(iter(of_file.values())):
            table.writerow(
                [
                    place,
                    spreadsheet_cell(query),
                    *(of_file[name][query] if name in of_file else "" for name in measures),
                ]
            )
    return text.getvalue()
