"""Collections and triplets from ir_datasets, by name: `irds:beir/scifact/test`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from remargin.data.source import LARGEST_GRADE, SPLITS, Judgment, Text
from remargin.errors import InputError, first_line

# The names that data sets have for our splits.
_NAMES = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}


def irds_name(text: str | Path) -> str | None:
    """The name of a data set of ir_datasets in a text such as `irds:beir/scifact`; None for any other text.

    >>> irds_name(Path("irds:msmarco-passage/train/triples-small")), irds_name("triplets.tsv")
    ('msmarco-passage/train/triples-small', None)
    """
    kind, colon, rest = str(text).partition(":")
    return rest if colon and kind == "irds" else None


def doc_pairs(name: str) -> Iterator[tuple[str, str, str]]:
    """The ids of a data set's docpairs, one by one: of the query, its positive, and its negative.

    Raises:
        InputError: at once if the data set is not known or has no docpairs; later if it cannot be read.
    """
    dataset = _known(name)
    if not dataset.has_docpairs():
        do = "choose one that has, such as irds:msmarco-passage/train/triples-small"
        raise InputError(f"irds:{name} has no docpairs", do=do)
    return ((pair.query_id, pair.doc_id_a, pair.doc_id_b) for pair in _guarded(name, dataset.docpairs_iter))


def scored_documents(name: str) -> Iterator[tuple[str, str, float]]:
    """The first-stage run of a data set, one document at a time: the ids of query and document, and the score.

    Raises:
        InputError: at once if the data set is not known or has no run; later if it cannot be read.
    """
    dataset = _known(name)
    if not dataset.has_scoreddocs():
        do = "choose one that has, such as irds:msmarco-passage/trec-dl-2019/judged"
        raise InputError(f"irds:{name} has no first-stage run", do=do)
    return ((doc.query_id, doc.doc_id, float(doc.score)) for doc in _guarded(name, dataset.scoreddocs_iter))


def _find(name: str) -> Any:
    """The data set of that name; None if there is none."""
    try:
        import ir_datasets
    except ImportError:
        raise InputError("irds: needs ir_datasets", do="pip install 'remargin[irds]'") from None
    try:
        return ir_datasets.load(name)
    except KeyError:
        return None


def _known(name: str) -> Any:
    """The data set of that name, or an InputError."""
    dataset = _find(name)
    if dataset is None:
        raise InputError(f"ir_datasets knows no data set {name!r}", do="see its catalogue for the names")
    return dataset


def _guarded(name: str, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The items of ir_datasets; an error inside it, such as a failed download, becomes an InputError."""
    try:
        yield from iterate()
    except Exception as error:
        problem = f"ir_datasets could not read irds:{name} ({first_line(error)})"
        raise InputError(problem, do="check your connection, and its documentation for what it needs") from error


class IrDataset:
    """A data set of ir_datasets. The last part of a name such as beir/scifact/test is taken as its split.

    The other splits are then its siblings (beir/scifact/train). A name that ends otherwise (trec-dl-2019/judged) and
    has judgments of its own is a test split, so that nothing trains on it by accident.
    """

    def __init__(self, name: str) -> None:
        self.notes: dict[str, int] = {}
        self._name = name
        self._dataset = _known(name)
        if not self._dataset.has_docs():
            raise InputError(f"irds:{name} has no documents", do="choose a data set that has")
        self._parts = self._find_splits(name)

    def _find_splits(self, name: str) -> dict[str, Any]:
        parent, _, last = name.rpartition("/")
        own = next((split for split, names in _NAMES.items() if last in names), None)
        if own is None and self._dataset.has_qrels():
            return {"test": self._dataset}
        stem = name if own is None else parent
        parts = {}
        for split in SPLITS:
            candidates = (_find(f"{stem}/{alias}") for alias in _NAMES[split])
            part = next((d for d in candidates if d is not None and d.has_qrels() and d.has_queries()), None)
            if part is not None:
                parts[split] = part
        if own is not None:
            parts[own] = self._dataset
        return parts

    def documents(self) -> Iterator[Text]:
        """Documents as ir_datasets iterates them, with its default text (title and body)."""
        for doc in _guarded(self._name, self._dataset.docs_iter):
            yield Text(doc.doc_id, doc.default_text().strip())

    def queries(self) -> Iterator[Text]:
        """The queries of all splits; one that several splits share comes once."""
        seen: set[str] = set()
        for part in self._parts.values():
            for query in _guarded(self._name, part.queries_iter):
                if query.query_id not in seen:
                    seen.add(query.query_id)
                    yield Text(query.query_id, query.default_text().strip())

    def splits(self) -> list[str]:
        """The splits that the catalogue has judgments for."""
        return [split for split in SPLITS if split in self._parts]

    def judgments(self, split: str) -> Iterator[Judgment]:
        """The split's judgments. Of two for the same pair the first counts; `notes` says how often they differ."""
        grades: dict[tuple[str, str], int] = {}
        for qrel in _guarded(self._name, self._parts[split].qrels_iter):
            pair, grade = (qrel.query_id, qrel.doc_id), int(qrel.relevance)
            if abs(grade) > LARGEST_GRADE:
                problem = f"document {qrel.doc_id!r} has grade {grade}, and {LARGEST_GRADE:,} is the most"
                raise InputError(problem, file=f"irds:{self._name}", id=qrel.query_id, do="choose another data set")
            if pair not in grades:
                grades[pair] = grade
                yield Judgment(*pair, grade)
            elif grades[pair] != grade:
                note = "judgments dropped because an earlier one has another grade"
                self.notes[note] = self.notes.get(note, 0) + 1
