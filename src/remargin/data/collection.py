"""A collection: documents, queries and relevance judgments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from remargin.data.beir import BeirFolder
from remargin.data.docstrings import Docstrings
from remargin.data.hf_datasets import open_dataset
from remargin.data.irds import IrDataset
from remargin.data.pair_columns import parse_options
from remargin.data.pairs import Pairs
from remargin.data.source import Source, checked_texts, unknown_id
from remargin.data.tables import Rejects
from remargin.data.text_files import TextFiles
from remargin.errors import InputError

KINDS = "pairs:FILE, files:FOLDER, datasets:FOLDER, docstrings:PACKAGE or irds:NAME"


def has_queries(source: Source, split: str) -> bool:
    """Whether a split has judgments: tables and docstrings name all three, but a small one has an empty dev split."""
    return split in source.splits() and any(True for _ in source.judgments(split))


def open_source(data: str | Path, rejects: Rejects | None = None) -> Source:
    """The source that a `--data` string names:

    | string                    | meaning                                                                 |
    |---------------------------|-------------------------------------------------------------------------|
    | `path/to/folder`          | a BEIR folder, gzipped or not, or what `remargin prepare` wrote         |
    | `irds:NAME`               | a data set of ir_datasets                                               |
    | `docstrings:A,B`          | docstrings of `stdlib`, of installed packages, or of a folder of code   |
    | `pairs:FILE`              | a table with a query column and a document column; see `Pairs`          |
    | `files:FOLDER`            | a folder of Markdown, reStructuredText, HTML and plain text files       |
    | `datasets:FOLDER_OR_NAME` | a table of pairs of the `datasets` package; see `open_dataset`          |
    """
    rejects = rejects or Rejects()
    kind, colon, rest = str(data).partition(":")
    if not str(data).strip():
        raise InputError("no collection is named", do=f"give a BEIR folder, {KINDS}")
    if colon and kind in ("irds", "docstrings", "pairs", "files", "datasets") and not rest:
        raise InputError(f"nothing after {kind}:", do="see `remargin prepare --help` for what --data takes")
    if colon and kind == "irds":
        return IrDataset(rest)
    if colon and kind == "docstrings":
        return Docstrings(rest.split(","), rejects)
    if colon and kind == "pairs":
        return Pairs(rest, rejects)
    if colon and kind == "files":
        return TextFiles(rest)
    if colon and kind == "datasets":
        return open_dataset(rest, rejects)
    return BeirFolder(Path(data), rejects)


def named_paths(data: str | Path) -> list[Path]:
    """The files and folders that a `--data` string names, whether they are there or not.

    >>> [str(path) for path in named_paths("pairs:faq.csv?id=nr&corpus=docs.jsonl")]
    ['faq.csv', 'docs.jsonl']
    >>> named_paths("datasets:faq?split=train"), named_paths("irds:beir/scifact")
    ([PosixPath('faq')], [])
    """
    kind, colon, rest = str(data).partition(":")
    if colon and kind == "pairs":
        name, _, options = rest.partition("?")
        corpus = parse_options(Path(name), options).get("corpus")
        return [Path(name), *([Path(corpus)] if corpus else [])]
    if colon and kind == "docstrings":
        return [Path(part) for part in rest.split(",")]
    if colon and kind == "irds":
        return []
    return [Path(rest.partition("?")[0] if colon and kind in ("files", "datasets") else data)]


@dataclass
class Collection:
    """Documents, the queries of one split, and their judgments, in memory.

    Example:
        >>> collection = Collection.load("docstrings:json", split="train")
        >>> query = next(iter(collection.queries))
        >>> set(collection.qrels[query]) <= set(collection.documents)
        True
    """

    name: str
    split: str
    documents: dict[str, str] = field(repr=False)
    queries: dict[str, str] = field(repr=False)
    qrels: dict[str, dict[str, int]] = field(repr=False)
    rejects: Rejects = field(default_factory=Rejects, repr=False)
    notes: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, data: str | Path, split: str = "test", skip_bad: bool = False) -> Collection:
        """Read a collection into memory.

        Args:
            data: a BEIR folder, "pairs:FILE", "files:FOLDER", "datasets:FOLDER", "docstrings:PACKAGES" or "irds:NAME";
                see `open_source`.
            split: "train", "dev" or "test", or whatever other split the collection has.
            skip_bad: set bad input aside in `rejects` instead of raising an InputError.

        Raises:
            InputError: for bad input, with its file, line and id.
        """
        rejects = Rejects(skip=skip_bad)
        source = open_source(data, rejects)
        if split not in source.splits():
            have = ", ".join(source.splits()) or "none"
            do = "choose one of those" if source.splits() else "judgments belong into its qrels folder: SPLIT.tsv"
            raise InputError(f"no split {split!r}; it has: {have}", file=data, do=do)
        documents = {item.id: item.text for item in checked_texts(source.documents(), "document", rejects)}
        if not documents:
            raise InputError("there are no documents in it", file=data, do=rejects.describe() or "choose another")
        texts = {item.id: item.text for item in checked_texts(source.queries(), "query", rejects)}
        qrels: dict[str, dict[str, int]] = {}
        for judgment in source.judgments(split):
            if judgment.query not in texts:
                rejects.add(unknown_id(judgment, "query"))
            elif judgment.document not in documents:
                rejects.add(unknown_id(judgment, "document"))
            else:
                qrels.setdefault(judgment.query, {})[judgment.document] = judgment.grade
        if not qrels:
            do = rejects.describe() or "choose another split"
            raise InputError(f"split {split!r} has no judgments", file=data, do=do)
        queries = {id: text for id, text in texts.items() if id in qrels}
        return cls(str(data), split, documents, queries, qrels, rejects, source.notes)

    def sample(self, queries: int, seed: int) -> Collection:
        """The collection with at most `queries` of its queries, drawn with the seed, in their order.

        >>> collection = Collection.load("docstrings:json", split="test")
        >>> list(collection.sample(2, seed=0).queries) == list(collection.sample(2, seed=0).qrels)
        True
        """
        ids = list(self.queries)
        if len(ids) > queries:
            rng = np.random.default_rng(seed)
            ids = [ids[i] for i in sorted(rng.choice(len(ids), queries, replace=False))]
        return replace(self, queries={id: self.queries[id] for id in ids}, qrels={id: self.qrels[id] for id in ids})

    @cached_property
    def self_matches(self) -> frozenset[str]:
        """The ids of queries that are documents of the collection themselves.

        In some collections (ArguAna and Quora of BEIR) queries were taken from the documents. Such a query finds itself
        first, which says nothing, so search and evaluation leave its own document out. BEIR leaves out any document
        with the query's id; but elsewhere ids coincide by accident, as with query 1 and document 1. So here a document
        is the query itself if it has the query's id, contains the query's text (however spaced), and was not judged
        for the query.

        Example:
            >>> texts = {"a": "Dogs bark.", "b": "Cats  purr. Loudly.", "c": "Fish are mute."}
            >>> queries = {"a": "Dogs bark.", "b": "Cats purr.", "c": "Birds sing."}
            >>> Collection("", "test", texts, queries, {"a": {"a": 1}, "b": {"c": 1}, "c": {"b": 1}}).self_matches
            frozenset({'b'})
        """
        return frozenset(
            id
            for id, query in self.queries.items()
            if id in self.documents
            and id not in self.qrels.get(id, {})
            and " ".join(query.split()) in " ".join(self.documents[id].split())
        )


def open_collection(data: str | Path | Collection, split: str = "test", skip_bad: bool = False) -> Collection:
    """The collection that a verb works on, loaded unless it is already; a warning counts the bad input it skipped.

    Args:
        data: a collection, or what `Collection.load` takes.
        split: the split to load; of a collection that is loaded already, its own.
        skip_bad: set bad input aside, count it, and continue.

    Raises:
        InputError: for bad input, with its file, line and id.

    Example:
        >>> collection = open_collection("docstrings:json", "train")
        >>> open_collection(collection, "train") is collection
        True
    """
    if isinstance(data, Collection):
        return data
    collection = Collection.load(data, split, skip_bad)
    collection.rejects.warn()
    return collection
