"""The judged queries of a collection: the page marks their relevant documents, and offers some as examples."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from remargin.data.collection import open_source
from remargin.data.source import SPLITS
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.serving.limits import EXAMPLES, QUERY_CHARACTERS

log = logging.getLogger(__name__)


class Known:
    """Judged queries, found by their texts, however spaced and whatever their case.

    Example:
        >>> known = Known({"How do margins adapt?": {"d1": 1, "d2": 0}}, ["How do margins adapt?"])
        >>> known.relevant("how do  margins adapt?"), known.relevant("something else")
        ({'d1'}, None)
    """

    def __init__(self, judged: Mapping[str, Mapping[str, int]], examples: Sequence[str] = ()) -> None:
        self._relevant: dict[str, set[str]] = defaultdict(set)
        for query, grades in judged.items():
            self._relevant[_key(query)] |= {id for id, grade in grades.items() if grade > 0}
        self.examples = list(examples)

    def __len__(self) -> int:
        return len(self._relevant)

    def relevant(self, query: str) -> set[str] | None:
        """The documents that were judged relevant for a query; None if it is none of the collection's."""
        return self._relevant.get(_key(query))


def _key(query: str) -> str:
    return " ".join(query.casefold().split())


def read_known(data: str) -> Known:
    """The judged queries of all splits of a collection, and examples of the test split, the same ones each time.

    None, and a warning, if the collection cannot be read; none, without one, if it has no judgments.

    Example:
        >>> known = read_known("docstrings:json")
        >>> len(known) >= len(known.examples) > 0
        True
    """
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    examples: list[str] = []
    try:
        source = open_source(data, Rejects(skip=True))
        texts = {query.id: query.text for query in source.queries()}
        splits = [split for split in ("test", "dev", "train") if split in source.splits()]
        for split in (*splits, *(other for other in source.splits() if other not in SPLITS)):
            judgments = [judgment for judgment in source.judgments(split) if judgment.query in texts]
            for judgment in judgments:
                judged[texts[judgment.query]][judgment.document] = judgment.grade
            if not examples:
                queries = list(dict.fromkeys(texts[judgment.query] for judgment in judgments))
                queries = [query for query in queries if query.strip() and len(query) <= QUERY_CHARACTERS]
                examples = random.Random(0).sample(queries, min(EXAMPLES, len(queries)))
    except InputError as error:
        log.warning("relevant documents are not marked (%s)", error)
        return Known({})
    return Known(judged, examples)
