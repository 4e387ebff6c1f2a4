"""The paper's table 5: models on collections that they were not trained on, beside what others published.

    remargin benchmark --model before=MINILM after=runs/x/best --data scifact cranfield --out zero-shot

Every system ranks every collection in full; each query's scores are written as soon as they are there. The tables are
made from those files alone: an interrupted measurement resumes, and published cells can be made again.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from remargin.data.benchmarks import BEIR
from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.comparison import BEST, CompareSettings, read_query_scores
from remargin.evaluation.measures import evaluate, judged_cutoff
from remargin.files.atomic import locked, new_file, refuse_existing, remove_left
from remargin.files.checksums import sha256
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Count
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.model.loading import load_model
from remargin.model.ranker import Ranker
from remargin.paper.published import PublishedRow, published_zero_shot
from remargin.paper.zero_shot_table import (
    ALPHA,
    FEWEST,
    MEASURE,
    RECALL_100,
    Measured,
    Measurements,
    zero_shot_tables,
)
from remargin.progress import tell
from remargin.reports.sections import Section
from remargin.reports.tables import Table
from remargin.retrieval.encoders import given_texts, warn_untrained
from remargin.retrieval.searching import search
from remargin.study.columns import Column, file_name, find_column, judgments_hash, require_distinct, stems
from remargin.study.hardware import hardware
from remargin.study.header import is_study
from remargin.versions import versions

DEPTH = 1000
REFERENCE = "TAS-B"  # what the paper compares with over data sets
BM25 = "BM25"
SETTINGS = "settings.json"
FORMAT = "remargin-zero-shot-1"
AGAIN = "choose another place, or measure it all again (--overwrite)"


@dataclass(frozen=True)
class _System:
    label: str
    model: BiEncoder | Ranker | None = None  # None is BM25
    name: str = BM25
    settings: Mapping[str, Any] = field(default_factory=lambda: {"index": "bm25"})


class Counted(TypedDict):
    """What was counted on one collection, beside the scores; the fields of `Measured`."""

    judged: dict[str, float | None]
    documents: Count
    queries: Count
    skipped: Count
    self_matches: Count
    missing: Count


class ScoresHeader(TypedDict):
    """How the scores of one system on one collection were made."""

    format: str
    settings: dict[str, Any]
    sha256: str
    found: Counted


@dataclass(frozen=True)
class _Work:
    """One system and one collection that it is to be measured on."""

    system: _System
    column: Column
    part: str
    path: Path  # of its files, without ending
    settings: dict[str, Any]


def benchmark(
    model: Mapping[str, str | Path],
    data: Sequence[str],
    out: str | Path,
    measure: str = MEASURE,
    bm25: bool = True,
    in_domain: str | None = None,
    reference: str | None = None,
    bound: float = 0.05,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = tell,
) -> dict[str, Table]:
    """Measure models on collections and write the table to a folder. What is in the folder already is not done again.

    Args:
        model: folders or Hugging Face names of models, by the names of their rows: encoders, pairs of them
            (QUERIES+DOCUMENTS), ColBERT and SPLADE.
        data: the collections, see `find_column`; without any, all of BEIR that the paper has.
        out: the folder: a section for `remargin report`, with all tables as Markdown, LaTeX and CSV; settings.json; and
            scores/SYSTEM/ with a CSV of every query for each collection.
        measure: that the table shows.
        bm25: measure BM25 as well.
        in_domain: a collection like the training data, with a column of its own that is not part of the mean.
        reference: the published row for the TOST over data sets; without, TAS-B if it has enough of the columns.
        bound: the largest difference that does not matter.
        pooling, similarity: of all encoders, instead of what their folders say.
        dims: truncate the vectors of all encoders to so many numbers.
        skip_bad: set bad input aside, and count it.
        overwrite: measure all again.
        say: gets a line for people after each measurement.

    Returns:
        Tables by the name of their file: table, recall, judged, tost.

    Raises:
        InputError: for unknown models or collections, names used twice, and a folder with scores of other settings.

    Example:
        >>> import tempfile
        >>> tables = benchmark({"tiny": model_folder}, ["docstrings:json"], tempfile.mkdtemp(), say=lambda line: None)
        >>> [row[0].text for row in tables["table"].blocks[-1].rows], tables["table"].header
        (['BM25', 'tiny'], ['system', 'json', 'mean'])
    """
    if is_study(Path(out)):
        raise InputError("is a study", file=Path(out), do="choose another place")
    columns = [find_column(name) for name in data or [benchmark.short for benchmark in BEIR]]
    extra = find_column(in_domain) if in_domain else None
    all_columns = [*columns, extra] if extra else columns
    _check_names([column.name for column in all_columns], "collection", "--data")
    _check_names([BM25] * bm25 + list(model), "system", "--model")
    rows = published_zero_shot() if measure == MEASURE else []
    row = _reference(rows, columns, reference)
    CompareSettings(bound=bound)  # complains about a bad bound now, not after the work
    measures = list(dict.fromkeys([measure, RECALL_100]))
    for name in measures:
        judged_cutoff(name)  # and about an unknown measure
    out = Path(out)
    refuse_existing(out, overwrite=True, marker=SETTINGS)
    judgments = {
        (part, column.split): judgments_hash(part, column.split, skip_bad)
        for column in all_columns
        for part in column.parts
    }
    systems = _systems(model, bm25, given_texts(None, None, None, None, pooling, similarity, dims))
    work = list(_plan(systems, all_columns, out / "scores", judgments, measures))
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        remove_left(out, deep=True)
        saved = {} if overwrite else {one.path: _saved(one, skip_bad) for one in work}
        done = {path: measured for path, measured in saved.items() if measured is not None}
        about = _about(systems, measure, bound, skip_bad)
        _write_json(out / SETTINGS, about)
        for (part, split), group in itertools.groupby(work, key=lambda one: (one.part, one.column.split)):
            waiting = [one for one in group if one.path not in done]
            if waiting:
                collection = Collection.load(part, split, skip_bad)  # once for all systems, and one at a time
                done |= {one.path: _measure(one, collection, measures, say) for one in waiting}
        results: dict[str, dict[str, list[Measured]]] = {system.label: {} for system in systems}
        for one in work:
            results[one.system.label].setdefault(one.column.name, []).append(done[one.path])
        tables = zero_shot_tables(results, columns, extra, measure, rows, row, bound)
        Section("zero-shot", "Zero-shot", tables=list(tables.values()), settings=about).save(out, overwrite=True)
        _write_json(out / SETTINGS, about | {"collections": _counts(results, all_columns)})
    return tables


def _check_names(names: Sequence[str], kind: str, flag: str) -> None:
    if not names:
        raise InputError(f"no {kind} to measure", do=f"give {flag}")
    if BEST in names:
        raise InputError(f"a {kind} cannot be called {BEST!r}", do=f"name it otherwise: {flag} NAME=VALUE")
    require_distinct(names, kind, flag)


def _reference(rows: Sequence[PublishedRow], columns: Sequence[Column], name: str | None) -> PublishedRow | None:
    row = next((row for row in rows if row.system == (name or REFERENCE)), None)
    if name is None:
        return row
    if row is None:
        do = f"choose one of {', '.join(row.system for row in rows)}" if rows else f"show {MEASURE}"
        raise InputError(f"no published row {name!r}", do=do)
    common = [column.name for column in columns if column.name in row.cells]
    if len(common) < FEWEST:
        problem = f"{len(common)} columns in common with {name}, too few for a test over data sets"
        raise InputError(problem, do=f"add collections that it has, {FEWEST} at least: {', '.join(row.cells)}")
    return row


def _systems(models: Mapping[str, str | Path], bm25: bool, used: Mapping[str, Any]) -> list[_System]:
    systems = [_System(BM25)] if bm25 else []
    for label, name in models.items():
        model = load_model(name, lengths=PAPER_LENGTHS, **used)
        if isinstance(model, BiEncoder) and model.dims is not None:
            warn_untrained(model.name, model.dims, model.whole_dimension, model.trained_dims)
        settings = {
            "index": "exact",
            "fingerprint": model.fingerprint(),
            **asdict(model.text_settings),
            "dims": used.get("dims"),
        }
        folder = Path(name)
        systems.append(_System(label, model, folder.absolute().name if folder.is_dir() else str(name), settings))
    return systems


def _plan(
    systems: Sequence[_System],
    columns: Sequence[Column],
    out: Path,
    judgments: Mapping[tuple[str, str], str],
    measures: list[str],
) -> Iterator[_Work]:
    """All that is to be measured, collection by collection."""
    for column in columns:
        for part, stem in zip(column.parts, stems(column), strict=True):
            asked = {"judgments": judgments[part, column.split], "split": column.split}
            for system in systems:
                settings = {**system.settings, **asked, "measures": measures, "depth": DEPTH}
                yield _Work(system, column, part, out / file_name(system.label) / stem, settings)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)  # with_suffix would take the .3 of margin-0.3 for an ending


def _saved(work: _Work, skip_bad: bool) -> Measured | None:
    """What was measured before, with the very same settings."""
    scores, about = _beside(work.path, ".csv"), _beside(work.path, ".json")
    if not about.exists():
        return None
    header = read_header(about, ScoresHeader, FORMAT, AGAIN)
    different = sorted(name for name in work.settings if header["settings"].get(name) != work.settings[name])
    if different:
        raise InputError(f"was measured with another {' and '.join(different)}", file=scores, do=AGAIN)
    if header["found"]["skipped"] and not skip_bad:
        raise InputError("bad input was skipped for it", file=scores, do="do so again (--skip-bad)")
    if lacking := {*work.settings["measures"]} - header["found"]["judged"].keys():
        raise InputError(f"does not say how many documents were judged for {min(lacking)}", file=about, do=AGAIN)
    if not scores.exists() or sha256(scores) != header["sha256"]:
        raise InputError("is not as it was written", file=scores, do=AGAIN)
    return Measured(read_query_scores(scores), **header["found"])


def _measure(work: _Work, collection: Collection, measures: list[str], say: Callable[[str], None]) -> Measured:
    """Rank, evaluate, and write the scores of every query. The header comes last: with it, all is there."""
    started = time.perf_counter()
    truncating: Any = {} if work.system.model is None else {"passage_length": "off"}  # as the paper does
    run = search(collection, work.system.settings["index"], work.system.model, DEPTH, **truncating)
    evaluation = evaluate(run, collection.qrels, measures)
    scores, about = _beside(work.path, ".csv"), _beside(work.path, ".json")
    about.unlink(missing_ok=True)
    evaluation.save(scores, overwrite=True)
    counted: Counted = {
        "judged": {name: None if math.isnan(share) else share for name, share in evaluation.judged.items()},
        "documents": len(collection.documents),
        "queries": len(collection.queries),
        "skipped": collection.rejects.count,
        "self_matches": len(collection.self_matches),
        "missing": len(evaluation.missing),
    }
    header = {"format": FORMAT, "settings": work.settings, "sha256": sha256(scores), "found": counted}
    write_header(about, header)
    seconds = time.perf_counter() - started
    say(f"{work.path.name}, {work.system.label}: {measures[0]} {evaluation.means[measures[0]]:.3f}, {seconds:.0f} s")
    return Measured(read_query_scores(scores), **counted)  # as it will be read next time: with six digits


def _about(systems: Sequence[_System], measure: str, bound: float, skip_bad: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "measure": measure,
        "bound": bound,
        "alpha": ALPHA,
        "depth": DEPTH,
        "skip_bad": skip_bad,
        "systems": {system.label: {"name": system.name, **system.settings} for system in systems},
        "device": hardware(),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _counts(results: Measurements, columns: Sequence[Column]) -> dict[str, Any]:
    """The size of every collection; the same for all systems."""
    first = next(iter(results.values()))
    counted = ("documents", "queries", "skipped", "self_matches")
    return {
        stem: {"column": column.name, "split": column.split, **{name: getattr(part, name) for name in counted}}
        for column in columns
        for stem, part in zip(stems(column), first[column.name], strict=True)
    }


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with new_file(path, overwrite=True) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
