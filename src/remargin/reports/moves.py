"""What moved: queries whose first relevant document rose or fell most in training. A table for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from remargin.evaluation.runs import Run
from remargin.files.shapes import Count
from remargin.reports.suspicious import shorten
from remargin.reports.tables import Block, Cell, Table

SHOWN = 70  # characters of a query on a line of the terminal
NOWHERE = "not found"


@dataclass(frozen=True)
class Move:
    """The rank of a query's first relevant document before and after training; None if it was not among the ranked.

    Example:
        >>> move = Move("q1", "how to sort", "list.sort", "Sort the list in place.", 7, 1)
        >>> move.gain > 0, move.line()
        (True, "  'how to sort' -> list.sort: 7 -> 1")
    """

    query: str
    text: str
    document: str
    document_text: str
    before: Count | None
    after: Count | None

    @property
    def gain(self) -> float:
        """The difference in reciprocal rank."""
        before, after = (0 if rank is None else 1 / rank for rank in (self.before, self.after))
        return after - before

    def line(self) -> str:
        """The move on a line of the terminal."""
        text = self.text if len(self.text) <= SHOWN else self.text[: SHOWN - 1] + "…"
        return f"  {text!r} -> {self.document}: {_rank(self.before)} -> {_rank(self.after)}"


class Moved(TypedDict):
    """How many queries rose and fell, and those that moved most, as report.json has it."""

    rose: Count
    fell: Count
    most: list[Move]


def moves(
    before: Run,
    after: Run,
    qrels: Mapping[str, Mapping[str, int]],
    texts: Mapping[str, str],
    queries: Mapping[str, str],
) -> list[Move]:
    """Every query whose first relevant document has another rank after training, the largest gains first.

    Args:
        before, after: rankings of the same queries.
        qrels: their judgments.
        texts: of the documents, by id.
        queries: the queries' texts, by id.

    Example:
        >>> before, after = Run.of({"q": {"a": 0.9, "b": 0.1}}), Run.of({"q": {"b": 0.8, "a": 0.2}})
        >>> [move] = moves(before, after, {"q": {"b": 1}}, {"a": "first", "b": "second"}, {"q": "which?"})
        >>> move.document, move.before, move.after
        ('b', 2, 1)
    """
    changed = []
    for query, judged in qrels.items():
        relevant = {document for document, grade in judged.items() if grade > 0}
        (was, old), (now, new) = (_first(run.rankings.get(query, {}), relevant) for run in (before, after))
        if was != now:
            document = new or old
            assert document is not None
            changed.append(Move(query, shorten(queries[query]), document, shorten(texts[document]), was, now))
    return sorted(changed, key=lambda move: -move.gain)


def summed_up(changed: Sequence[Move], rose: int = 3, fell: int = 2) -> Moved:
    """What report.json keeps of moves in the order of `moves`: counts, and the moves that are largest, up and down.

    >>> up, down = Move("q1", "", "a", "", 2, 1), Move("q2", "", "a", "", 1, None)
    >>> summary = summed_up([up, up, down], rose=1)
    >>> summary["rose"], summary["fell"], [move["query"] for move in summary["most"]]
    (2, 1, ['q1', 'q2'])
    """
    up, down = ([move for move in changed if sign * move.gain > 0] for sign in (1, -1))
    most: Any = [asdict(move) for move in up[:rose] + down[: -fell - 1 : -1]]  # as it is read back
    return {"rose": len(up), "fell": len(down), "most": most}


def move_lines(moved: Moved) -> Iterator[str]:
    """Lines for the terminal: what rose, and what fell."""
    for title, half in _halves(moved):
        yield f"{title}, by the rank of the first relevant document:"
        yield from (move.line() for move in half)


def move_tables(moved: Moved) -> list[Table]:
    """A table of what rose and what fell; no table if nothing moved.

    >>> move_tables({"rose": 0, "fell": 0, "most": []})
    []
    """
    blocks = [Block(title, [_row(move) for move in half]) for title, half in _halves(moved)]
    note = "Ranks of the first relevant document, where they changed most."
    header = ["query", "relevant document", "rank before", "after"]
    return [Table("What rose and what fell", header, blocks, [note])] if blocks else []


def _row(move: Move) -> list[Cell]:
    return [Cell(move.text), Cell(f"{move.document}: {move.document_text}"), _cell(move.before), _cell(move.after)]


def _halves(moved: Moved) -> list[tuple[str, list[Move]]]:
    most = [Move(**move) for move in moved["most"]]  # type: ignore[arg-type]
    up, down = ([move for move in most if sign * move.gain > 0] for sign in (1, -1))
    halves = [(f"{moved['rose']:,} queries rose", up), (f"{moved['fell']:,} queries fell", down)]
    return [(title, half) for title, half in halves if half]


def _first(ranking: Mapping[str, float], relevant: set[str]) -> tuple[int | None, str | None]:
    for rank, document in enumerate(ranking, start=1):
        if document in relevant:
            return rank, document
    return None, None


def _rank(rank: int | None) -> str:
    return NOWHERE if rank is None else f"{rank:,}"


def _cell(rank: int | None) -> Cell:
    return Cell(_rank(rank)) if rank is None else Cell(_rank(rank), value=rank)
