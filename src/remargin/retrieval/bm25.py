"""BM25, the first stage and the baseline, through bm25s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remargin.errors import InputError
from remargin.evaluation.runs import Run

# Snowball's names and those of the stop word lists that bm25s has for them.
LANGUAGES = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es", "portuguese": "pt", "italian": "it",
    "russian": "ru", "swedish": "sv", "dutch": "nl", "norwegian": "no",
}  # fmt: skip


class BM25:
    """An index of texts for BM25 in Lucene's variant, with Snowball stems and without stop words.

    Example:
        >>> index = BM25({"d1": "margins adapt to documents", "d2": "queries find documents", "d3": "nothing here"})
        >>> index.search({"q": "adapting margins"}, k=2).rankings["q"].keys()
        dict_keys(['d1'])
    """

    def __init__(
        self, documents: Mapping[str, str], k1: float = 0.9, b: float = 0.4, language: str = "english"
    ) -> None:
        import bm25s
        import Stemmer

        if language not in LANGUAGES:
            raise InputError(f"no stop words for {language!r}", do=f"use one of {', '.join(sorted(LANGUAGES))}")
        self._tokenize = bm25s.tokenize
        self._options = {"stopwords": LANGUAGES[language], "stemmer": Stemmer.Stemmer(language), "show_progress": False}
        self._ids = np.array(list(documents), object)
        self._index = bm25s.BM25(method="lucene", k1=k1, b=b)
        self._index.index(self._tokenize(list(documents.values()), **self._options), show_progress=False)

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query; fewer, where fewer share a word with it."""
        if not queries:
            return Run({})
        tokens: Any = self._tokenize(list(queries.values()), **self._options)
        depth = min(k, len(self._ids))
        rows, scores = self._index.retrieve(tokens, k=depth, show_progress=False, sorted=True, n_threads=-1)
        found = {}
        for query, row, score in zip(queries, rows, scores, strict=True):
            matching = score > 0
            ids = self._ids[np.asarray(row)[matching]]
            found[query] = dict(zip(ids.tolist(), score[matching].tolist(), strict=True))
        return Run.of(found)
