"""One reader each, and a small file or folder that it reads: cheap enough for a hundred thousand inputs.

Where a whole verb runs on the damaged file, see the other modules.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remargin import Run
from remargin.data.collection import open_source
from remargin.data.id_triplets import IdTriplets
from remargin.data.scores import read_teacher_scores
from remargin.data.tables import Rejects
from remargin.data.triplets import read_triplets
from remargin.evaluation.comparison import read_query_scores
from remargin.serving.judgments import Judgments

from .mutations import BINARY, JSON_LINES, Format
from .running import Case, require_finite
from .running import read_only_case as _case
from .sources import CSV, _read
from .world import WORDS, World

PAIRS = [["query_id", "query", "document_id", "title", "text"]] + [
    [f"q{i}", f"how is a {word}?", f"d{i}", word.title(), f"the {word} of a file"] for i, word in enumerate(WORDS)
]
JUDGED = {"dev": range(4, 6), "test": range(6, 8)}


def _lines(rows: list[list[str]], between: str = "\t") -> str:
    return "".join(between.join(row) + "\n" for row in rows)


def _pairs(world: World, kind: str, write: Callable[[Path], object], format: Format) -> Case:
    """A table of pairs."""
    folder = world.folder(f"pairs-{kind}")
    write(folder / f"pairs.{kind}")
    return _collection(folder, format, lambda folder: f"pairs:{folder / f'pairs.{kind}'}")


def _collection(folder: Path, format: Format, data: Callable[[Path], str]) -> Case:
    """What `--data` names; once, what is bad in it is an error, and once it is skipped."""

    def read(folder: Path) -> None:
        _read(data(folder), skip=False)

    def skip(folder: Path) -> None:
        _read(data(folder), skip=True)

    return _case(folder, format, read, skip)


def tsv(world: World) -> Case:
    return _pairs(world, "tsv", lambda path: path.write_text(_lines(PAIRS)), BINARY)


def comma_separated(world: World) -> Case:
    return _pairs(world, "csv", lambda path: CSV.write(path, PAIRS), CSV)


def jsonl(world: World) -> Case:
    rows = [dict(zip(PAIRS[0], row, strict=True)) for row in PAIRS[1:]]
    return _pairs(world, "jsonl", lambda path: JSON_LINES.write(path, rows), JSON_LINES)


def gzipped(world: World) -> Case:
    rows = [dict(zip(PAIRS[0], row, strict=True)) for row in PAIRS[1:]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return _pairs(world, "jsonl.gz", lambda path: path.write_bytes(gzip.compress(text.encode(), mtime=0)), BINARY)


def parquet(world: World) -> Case:
    columns = {name: [row[i] for row in PAIRS[1:]] for i, name in enumerate(PAIRS[0])}
    return _pairs(world, "parquet", lambda path: pq.write_table(pa.table(columns), path), BINARY)


def _judgments(world: World, name: str, text: Callable[[int], str]) -> Case:
    folder = world.folder(name)
    (folder / "qrels").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl"):
        (folder / file).write_bytes((world.beir / file).read_bytes())
    for split, numbers in JUDGED.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(map(text, numbers)))

    def read(folder: Path) -> None:
        source = open_source(folder, Rejects())
        for split in source.splits():
            assert all(isinstance(judgment.grade, int) for judgment in source.judgments(split))

    return _case(folder, BINARY, read, files=tuple(f"qrels/{split}.tsv" for split in JUDGED))


def qrels(world: World) -> Case:
    return _judgments(world, "qrels", lambda i: f"q{i}\td{i}\t1\nq{i}\td{i - 1}\t0\n")


def qrels_of_trec(world: World) -> Case:
    return _judgments(world, "qrels-trec", lambda i: f"q{i} 0 d{i} 2\nq{i} 0 d{i - 1} -1\n")


def run_file(world: World) -> Case:
    folder = world.folder("run-file")
    ranked = [f"q{i} Q0 d{i + rank} {rank} {9.5 - rank} bm25\n" for i in range(3) for rank in range(3)]
    (folder / "run.trec").write_text("".join(ranked))

    def load(folder: Path) -> None:
        found = Run.load(folder / "run.trec")
        assert all(score - score == 0 for ranking in found.rankings.values() for score in ranking.values()), "no number"
        assert all(id.split() == [id] for id in found.rankings), "an id with white space"

    def as_scores(folder: Path) -> None:
        list(read_teacher_scores(folder / "run.trec", Rejects(skip=True)))

    return _case(folder, BINARY, load, as_scores)


def teacher_scores(world: World) -> Case:
    folder = world.folder("teacher-scores")
    rows = [[f"q{i}", f"d{i}", f"{i}.25"] for i in range(4)]
    (folder / "plain.tsv").write_text(_lines(rows))
    (folder / "named.csv").write_text(_lines([["query_id", "document_id", "score"], *rows], ","))

    def read(folder: Path) -> None:
        for name in ("plain.tsv", "named.csv"):
            require_finite(*(pa.array([s.score]).to_numpy() for s in read_teacher_scores(folder / name, Rejects())))

    return _case(folder, BINARY, read)


def values_by_query(world: World) -> Case:
    """Measures of each query, as `evaluate --per-query` writes them and `compare` reads them."""
    folder = world.folder("values")
    (folder / "values.csv").write_text("query,nDCG@10,RR\nq1,0.5,1.0\nq2,0.25,0.5\n'=q3,0.0,0.0\n")

    def read(folder: Path) -> None:
        read_query_scores(folder / "values.csv")

    return _case(folder, CSV, read)


def triplet_tables(world: World) -> Case:
    folder = world.folder("triplet-tables")
    ids = [["q0", "d0", "d1"], ["q1", "d1", "d2"]]
    scored = [["query_id", "positive_id", "negative_id", "positive_score", "negative_score"]]
    (folder / "ids.tsv").write_text(_lines(ids))
    (folder / "scored.tsv").write_text(_lines([*scored, *([*row, "1.5", "0.5"] for row in ids)]))
    texts = [{"query": "a", "positive": "b", "negatives": ["c", "d"], "scores": [3.5, 1, -1]}] * 2
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))

    def read(folder: Path) -> None:
        IdTriplets.read(folder / "ids.tsv", Rejects())
        IdTriplets.read(folder / "scored.tsv", Rejects())
        list(read_triplets(folder / "texts.jsonl", Rejects(), ids=False)[1])

    return _case(folder, BINARY, read)


def _text_file(world: World, name: str, text: str) -> Case:
    folder = world.folder(f"text-{name}")
    (folder / name).write_text(text)

    def read(folder: Path) -> None:
        _read(f"files:{folder}", skip=False)

    return _case(folder, BINARY, read)


BODY = "some words that are under this heading"


def markdown(world: World) -> Case:
    code = f"```\n# no\n```\n[a](b) {BODY} 2\n\nC\n---\n{BODY}\n"
    return _text_file(world, "a.md", f"---\ntitle: A\n---\n# One\n{BODY}\n## Two `x` **b**\n{code}<!-- no -->\n")


def restructured_text(world: World) -> Case:
    second = f"Second\n------\n.. note:: :ref:`x <y>`\n\n   {BODY} 5\n"
    return _text_file(world, "b.rst", f"=====\nFirst\n=====\n{BODY} 4\n\n{second}")


def html(world: World) -> Case:
    head = "<!doctype html><html><head><meta charset='utf-8'><title>T</title></head>"
    body = f"<body><nav>no</nav><h1 id='a'>Page</h1><p>{BODY} 6</p><script>no()</script><h2>B&amp;C</h2>{BODY}<pre>x\n"
    return _text_file(world, "c.html", head + body)


def docstrings(world: World) -> Case:
    folder = world.folder("code")
    body = "A longer text of some words that says what this does, and when it should be used."
    function = "    def f(self, x=1):\n        return x\n"
    code = f'"""A module.\n\n{body}\n"""\nclass A:\n    """A class.\n\n    {body}\n    """\n{function}'
    (folder / "module.py").write_text(code)
    return _collection(folder, BINARY, lambda folder: f"docstrings:{folder}")


def data_set(world: World) -> Case:
    """As `save_to_disk` of the datasets package writes it."""
    datasets = pytest.importorskip("datasets")
    rows = [dict(zip(PAIRS[0], row, strict=True)) for row in PAIRS[1:]]
    datasets.Dataset.from_list(rows).save_to_disk(world.root / "data-set")
    return _collection(world.root / "data-set", BINARY, lambda folder: f"datasets:{folder}")


def votes(world: World) -> Case:
    """As `serve --collect` keeps them, and reads them when it starts again."""
    folder = world.folder("votes")
    judgments = Judgments(folder / "votes.jsonl")
    for i, grade in enumerate((1, -1, 1, -1)):
        judgments.vote(f"query {i}", f"d{i}", "a text", grade, "after")  # type: ignore[arg-type]
    judgments.close()

    def read(folder: Path) -> None:
        found = Judgments(folder / "votes.jsonl")
        found.of("query 0")
        found.close()

    return Case(folder, dict.fromkeys(("votes.jsonl", "votes.down.jsonl"), JSON_LINES), (read,), reads_only=True)


TARGETS = [
    tsv,
    comma_separated,
    jsonl,
    gzipped,
    parquet,
    qrels,
    qrels_of_trec,
    run_file,
    teacher_scores,
    values_by_query,
    triplet_tables,
    markdown,
    restructured_text,
    html,
    docstrings,
    data_set,
    votes,
]
