"""Collections to measure on, the columns of tables: what strings stand for them, and the names of their files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remargin.data.benchmarks import BEIR, MS_MARCO, TREC_DL
from remargin.data.collection import open_source
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.files.atomic import on_disk
from remargin.files.hashes import collection_fingerprint


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and the collections whose means it is the mean of, as `--data` strings.

    >>> Column("faq", ("pairs:faq.csv",))
    Column(name='faq', parts=('pairs:faq.csv',), split='test')
    """

    name: str
    parts: tuple[str, ...]
    split: str = "test"


def find_column(data: str) -> Column:
    """The column of a collection, or of a whole benchmark.

    Args:
        data: whatever `Collection.load` takes; or a benchmark by its short or full name or its name in BEIR, which then
            comes from ir_datasets. A folder with BEIR's name for a benchmark is that benchmark, CQADupStack with its
            twelve folders inside. NAME=DATA names the column otherwise.

    Example:
        >>> find_column("SciFact")
        Column(name='SCF', parts=('irds:beir/scifact/test',), split='test')
        >>> find_column("faq=pairs:questions.csv")
        Column(name='faq', parts=('pairs:questions.csv',), split='test')
    """
    name, text = split_name(data)
    column = _benchmark(text) or Column(_own_name(text), (text,))
    return Column(name or column.name, column.parts, column.split)


def split_name(text: str) -> tuple[str | None, str]:
    """The name in NAME=VALUE, if there is one, and the value.

    >>> split_name("after=runs/x/model"), split_name("pairs:faq.csv?query=question")
    (('after', 'runs/x/model'), (None, 'pairs:faq.csv?query=question'))
    """
    name, equals, value = text.partition("=")
    if not equals or set(name) & set(":/?") or Path(text).exists():
        return None, text
    if not name.strip() or not value.strip():
        raise InputError(f"nothing {'after' if name.strip() else 'before'} the = of {text!r}", do="write NAME=VALUE")
    return name.strip(), value.strip()


def file_name(name: str) -> str:
    """A name as part of a file name.

    >>> file_name("beir/nfcorpus/dev")
    'beir-nfcorpus-dev'
    """
    return re.sub(r"[^\w.@+,-]+", "-", name).strip(".")


def stems(column: Column) -> list[str]:
    """A file name for each part of a column, without ending.

    >>> stems(find_column("CDS"))[:2]
    ['CDS-android', 'CDS-english']
    """
    if len(column.parts) == 1:
        return [file_name(column.name)]
    return [file_name(f"{column.name}-{Path(part).name}") for part in column.parts]


def test_name(column: Column) -> str:
    """What a further test collection of tables 3 and 4 is called among the scores of a run.

    >>> test_name(find_column("DL20"))
    'test-DL20'
    """
    return f"test-{file_name(column.name)}"


def test_columns(zero_shot: Sequence[str], also_test: Sequence[str]) -> tuple[list[Column], dict[str, Column]]:
    """The collections for zero-shot tables, and further test collections by their names among the scores of a run."""
    tests = [find_column(data) for data in also_test]
    require_distinct([column.name for column in tests], "collection", "--also-test")
    return [find_column(data) for data in zero_shot], {test_name(column): column for column in tests}


def require_distinct(names: Iterable[str], what: str, flag: str) -> None:
    """See that names differ as parts of file names, too.

    >>> require_distinct(["e5 base", "e5-base"], "model", "--model")
    Traceback (most recent call last):
    remargin.errors.InputError: two models are called 'e5-base'; give each model its own name: --model NAME=VALUE
    """
    seen: set[str] = set()
    for name in names:
        if not file_name(name):
            raise InputError(f"a {what} cannot be called {name!r}", do=f"name it otherwise: {flag} NAME=VALUE")
        if file_name(name) in seen:
            raise InputError(f"two {what}s are called {name!r}", do=f"give each {what} its own name: {flag} NAME=VALUE")
        seen.add(file_name(name))


def _benchmark(text: str) -> Column | None:
    """The benchmark that a name, an irds: string or a folder stands for."""
    path = on_disk(text) if text.strip() else None
    for benchmark in (*BEIR, MS_MARCO, *TREC_DL):
        in_beir = [name.split("/")[1] for name in benchmark.irds if name.startswith("beir/")][:1]
        if path is not None and path.is_dir():
            if path.absolute().name in in_beir:
                forums = [path / Path(name).name for name in benchmark.irds]
                parts = forums if len(forums) > 1 and all(forum.is_dir() for forum in forums) else [path]
                if len(parts) == len(forums):
                    return Column(benchmark.short, tuple(map(str, parts)), benchmark.split)
        elif [text] == benchmark.data or text.lower() in map(str.lower, (benchmark.short, benchmark.name, *in_beir)):
            return Column(benchmark.short, tuple(benchmark.data), benchmark.split)
    return None


def _own_name(text: str) -> str:
    kind, colon, rest = text.partition(":")
    if (path := on_disk(text)) and path.is_dir():
        return path.absolute().name
    if colon and kind == "files":
        return Path(rest).absolute().name
    return Path(rest.partition("?")[0]).name.partition(".")[0] if kind == "pairs" else rest if colon else text


def judgments_hash(data: str, split: str, skip_bad: bool = False) -> str:
    """A hash of a split's judgments: cheap, and shows at the start whether the collection has that split at all.

    >>> judgments_hash("docstrings:json", "test") == judgments_hash("docstrings:json", "test")
    True
    """
    source = open_source(data, Rejects(skip_bad))
    if split not in source.splits():
        have = ", ".join(source.splits()) or "none"
        raise InputError(f"no split {split!r}; it has: {have}", file=data, do="choose another collection")
    digest, empty = hashlib.blake2b(digest_size=16), True
    for query, document, grade, *_ in source.judgments(split):
        digest.update(f"{query}\t{document}\t{grade}\n".encode())
        empty = False
    if empty:
        raise InputError(f"no judgments in split {split!r}", file=data, do="choose another collection")
    return digest.hexdigest()


def texts_hash(data: str) -> str:
    """A hash of a collection's documents and queries. It reads them all.

    >>> texts_hash("docstrings:json") == texts_hash("docstrings:json")
    True
    """
    source = open_source(data, Rejects())
    documents, queries = (((item.id, item.text) for item in kind) for kind in (source.documents(), source.queries()))
    return collection_fingerprint(documents, queries)
