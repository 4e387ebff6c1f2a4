"""Suspicious negatives: documents that a model scores as high as a query's positive. A table for people to judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Finite
from remargin.reports.tables import Block, Cell, Table, number

FILE = "suspicious.json"
FORMAT = "remargin-suspicious-1"
LONGEST = 200  # characters of a text; what is longer is cut
REMEDY = "mine again, or delete it"


@dataclass(frozen=True)
class Suspicious:
    """A query, its positive, and a document that is not known to be relevant but scores as high as the positive.

    The texts are shortened.

    Example:
        >>> found = Suspicious("q1", "d1", "d2", 0.5, 0.6, "how to sort", "sorted(x)", "list.sort()")
        >>> round(found.ratio, 2)
        1.2
    """

    query: str
    positive: str
    negative: str
    positive_score: Finite
    negative_score: Finite
    query_text: str
    positive_text: str
    negative_text: str

    @property
    def ratio(self) -> float:
        """The negative's score as a multiple of the positive's."""
        return score_ratio(self.positive_score, self.negative_score)


def score_ratio(positive: float, negative: float) -> float:
    """The negative's score as a multiple of the positive's, or 1 plus the relative excess if that is below 0.

    >>> score_ratio(0.5, 0.75), score_ratio(-0.5, -0.25), score_ratio(0.0, 0.1)
    (1.5, 1.5, inf)
    """
    excess = negative - positive
    if positive == 0:
        return 1.0 if excess <= 0 else math.inf
    return 1 + excess / abs(positive)


class SuspiciousHeader(TypedDict):
    """Suspicious negatives on disk, the most suspicious first."""

    format: str
    suspicious: list[Suspicious]


def shorten(text: str, longest: int = LONGEST) -> str:
    """A text on one line, cut if it is long.

    >>> shorten("one  line\\nand another", longest=10)
    'one line …'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 2].rstrip() + " …"


def write_suspicious(path: Path, found: Sequence[Suspicious]) -> None:
    """Write suspicious negatives to a file, or replace it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / FILE
    >>> write_suspicious(path, [Suspicious("q1", "d1", "d2", 0.5, 0.6, "how to sort", "sorted(x)", "list.sort()")])
    >>> read_suspicious(path)[0].negative
    'd2'
    """
    write_header(path, {"format": FORMAT, "suspicious": [asdict(one) for one in found]})


def read_suspicious(path: Path) -> list[Suspicious]:
    """What `write_suspicious` wrote.

    Raises:
        InputError: if it is missing, something else, or not as it was written.
    """
    header = read_header(path, SuspiciousHeader, FORMAT, REMEDY)
    return [Suspicious(**one) for one in header["suspicious"]]  # type: ignore[arg-type]


def suspicious_table(found: Sequence[Suspicious]) -> Table:
    """A table of suspicious negatives: texts and scores.

    >>> found = [Suspicious("q1", "d1", "d2", 0.5, 0.6, "how to sort", "sorted(x)", "list.sort()")]
    >>> [cell.text for cell in suspicious_table(found).blocks[0].rows[0]]
    ['how to sort', 'sorted(x)', '0.500', 'list.sort()', '0.600']
    """
    rows = [
        [
            Cell(one.query_text),
            Cell(one.positive_text),
            number(one.positive_score),
            Cell(one.negative_text),
            number(one.negative_score),
        ]
        for one in found
    ]
    note = (
        "Documents that are not known to be relevant, but that the encoder scores at least as high as the query's "
        "positive; the most suspicious first. If they do answer the query, add them to the judgments, or mine with a "
        "bound (`remargin mine --bound 0.95`). Where the positive's own score is low, the positive may be wrong."
    )
    header = ["query", "positive", "positive's score", "possible false negative", "its score"]
    return Table("Possible false negatives", header, [Block("", rows)], [note])


def suspicious_tables(folder: Path) -> list[Table]:
    """The table of the suspicious negatives in the folder of a training run, if there are some.

    >>> suspicious_tables(Path("nowhere"))
    []
    """
    path = folder / FILE
    found = read_suspicious(path) if path.is_file() else []
    return [suspicious_table(found)] if found else []
