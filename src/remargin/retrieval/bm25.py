"""BM25, the first stage and the baseline, through bm25s."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.errors import InputError, first_line
from remargin.evaluation.runs import Run
from remargin.files.atomic import new_folder
from remargin.files.checksums import Sums
from remargin.files.headers import format_of, read_header, read_json, require_shape, write_header
from remargin.files.shapes import BlockSums, Count
from remargin.progress import is_live
from remargin.retrieval.kept_texts import KeptTexts, keep_texts
from remargin.retrieval.languages import (
    AUTO,
    ENGLISH,
    LANGUAGES,
    STOP_WORDS,
    check_language,
    choose_language,
    words_and_ngrams,
)

HEADER = "remargin_bm25.json"
FORMAT = "remargin-bm25-3"
BEFORE = "remargin-bm25-2"  # without texts
TEXTS = "texts"  # the folder of the texts, if they are kept
FEW = 5000  # texts, which are no work to be shown
REMEDY = "build it again with `remargin index --index bm25`"


class BM25Header(TypedDict):
    """How a BM25 index was made, and the checksums of its files."""

    format: str
    data: str
    k1: float
    b: float
    language: str
    ids: IdsSize
    sums: BlockSums
    texts: NotRequired[bool]  # whether the folder has them


class BM25:
    """An index of texts for BM25 in Lucene's variant, of the terms that `terms_of` finds.

    Example:
        >>> index = BM25({"d1": "margins adapt to documents", "d2": "queries find documents", "d3": "nothing here"})
        >>> index.search({"q": "adapting margins"}, k=2).rankings["q"].keys()
        dict_keys(['d1'])

    Args:
        documents: texts by their ids.
        k1: term-frequency saturation: how soon repeated words stop counting.
        b: length normalisation: how much long documents are held back, 0 to 1.
        language: of the texts, one of `LANGUAGES`, or "auto": n-grams of characters if the documents are in scripts
            without spaces, else English. Queries are treated as the documents were.
    """

    def __init__(self, documents: Mapping[str, str], k1: float = 0.9, b: float = 0.4, language: str = AUTO) -> None:
        check_parameters(k1, b)
        language = choose_language(language, documents.values())
        self._build(list(documents), terms_of(list(documents.values()), language), k1, b, language)

    @classmethod
    def of_terms(
        cls, ids: Sequence[str], terms: Terms, k1: float = 0.9, b: float = 0.4, language: str = ENGLISH
    ) -> BM25:
        """An index of documents of which only the terms are at hand, as `terms_of` gave them.

        >>> index = BM25.of_terms(["d1", "d2"], terms_of(["margins adapt to documents", "queries find them"]))
        >>> index.search({"q": "adapting margins"}).rankings["q"].keys()
        dict_keys(['d1'])
        """
        check_parameters(k1, b)
        self = cls.__new__(cls)
        self._build(ids, terms, k1, b, language)
        return self

    def _build(self, ids: Sequence[str], terms: Terms, k1: float, b: float, language: str) -> None:
        if not any(terms.ids):
            raise InputError("the documents have no words but stop words", do="check the texts and --language")
        self.data = ""  # the collection, where an index was saved with its name
        self.texts: KeptTexts | None = None  # where an index was saved with them
        self._ids: Sequence[str] | Ids = ids
        self._parameters = {"k1": k1, "b": b, "language": language}
        self._index = _bm25s().BM25(method="lucene", k1=k1, b=b)
        self._index.index(terms, show_progress=is_live() and len(ids) > FEW)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def language(self) -> str:
        """The language that documents and queries are split into terms by; never "auto"."""
        return str(self._parameters["language"])

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query; fewer, where fewer share a word with it."""
        if not queries:
            return Run({})
        tokens = terms_of(list(queries.values()), self.language)
        depth = min(k, len(self._ids))
        shown = is_live() and len(queries) > FEW
        rows, scores = self._index.retrieve(
            tokens, k=depth, show_progress=shown, sorted=True, n_threads=-1, backend_selection="numpy"
        )
        rankings = {}
        for query, row, score in zip(queries, np.asarray(rows), scores, strict=True):
            matching = score > 0
            ids = [self._ids[r] for r in row[matching].tolist()]
            rankings[query] = dict(zip(ids, score[matching].tolist(), strict=True))
        return Run.of(rankings)

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in it."""
        return len(set(documents).difference(self._ids))

    def save(
        self, folder: str | Path, data: str = "", overwrite: bool = False, texts: Iterable[str] | None = None
    ) -> None:
        """Write a folder that `load` maps into memory, with the texts of all documents if they are given."""
        with new_folder(folder, overwrite, HEADER) as out:
            self._index.save(out / "bm25s", show_progress=False)
            (out / "ids").mkdir()
            writer = IdWriter(out / "ids")
            writer.add(list(self._ids))
            if texts is not None:
                (out / TEXTS).mkdir()
                for _ in keep_texts(out / TEXTS, 0, texts):
                    pass
            header = {"format": FORMAT, "data": data, **self._parameters, "ids": writer.close()}
            header |= {"texts": texts is not None}
            sums = {str(file.relative_to(out)): Sums.of(file) for file in sorted(out.glob("*/*"))}
            write_header(out / HEADER, {**header, "sums": sums})

    @classmethod
    def load(cls, folder: str | Path, remedy: str = REMEDY) -> BM25:
        """An index that `save` wrote, memory-mapped; the remedy is what to do about one that is damaged.

        Raises:
            InputError: if the folder holds none, or it is damaged.
        """
        folder = Path(folder)
        format = BEFORE if format_of(folder / HEADER) == BEFORE else FORMAT
        header = read_header(folder / HEADER, BM25Header, format, remedy)
        self = cls.__new__(cls)
        self.data = header["data"]
        self._parameters = {"k1": header["k1"], "b": header["b"], "language": header["language"]}
        for name, sums in header["sums"].items():
            Sums(*sums).verify(folder / name, remedy)
        self._ids = ids = Ids(folder / "ids", **header["ids"])
        self.texts = KeptTexts(folder / TEXTS, ids) if header.get("texts") else None
        self._index = _loaded(folder / "bm25s", len(self._ids), remedy)
        return self


class Terms(NamedTuple):
    """The terms of texts: a list of numbers for each text, and the number of each term."""

    ids: list[list[int]]
    vocab: dict[str, int]


def terms_of(texts: list[str], language: str = ENGLISH) -> Terms:
    """What BM25 compares of texts.

    In languages with a list of stop words, these are lower-cased Snowball stems of words, without stop words; in the
    others, words and n-grams of characters, stemmed if there is a stemmer: see `words_and_ngrams`.

    >>> tokens = terms_of(["Margins adapt to the margin"])
    >>> names = {number: term for term, number in tokens.vocab.items()}
    >>> [names[number] for number in tokens.ids[0]]
    ['margin', 'adapt', 'margin']
    >>> list(terms_of(["图书馆 opened"], "chinese").vocab)
    ['图书', '书馆', 'open']
    """
    import Stemmer

    check_language(language)
    name = LANGUAGES[language]
    stemmer = None if name is None else Stemmer.Stemmer(name)
    if language in STOP_WORDS:
        shown = is_live() and len(texts) > FEW
        tokens = _bm25s().tokenize(texts, stopwords=STOP_WORDS[language], stemmer=stemmer, show_progress=shown)
        return Terms(tokens.ids, tokens.vocab)
    words: dict[str, int] = {}
    numbers = [[words.setdefault(word, len(words)) for word in words_and_ngrams(text)] for text in texts]
    if stemmer is None:
        return Terms(numbers, words)
    vocabulary: dict[str, int] = {}
    stems = [vocabulary.setdefault(stem, len(vocabulary)) for stem in stemmer.stemWords(list(words))]
    return Terms([[stems[number] for number in of_text] for of_text in numbers], vocabulary)


def check_parameters(k1: float, b: float) -> None:
    """Refuse parameters for which BM25 is not defined."""
    if not (0 <= k1 < math.inf and 0 <= b <= 1):
        raise InputError(f"k1 = {k1}, b = {b}", do="use k1 of at least 0 and b between 0 and 1")


class BM25sParameters(TypedDict):
    """What bm25s says of an index in its own file."""

    k1: float
    b: float
    delta: float
    method: Literal["lucene"]
    idf_method: Literal["lucene"]
    dtype: Literal["float32"]
    int_dtype: Literal["int32"]
    num_docs: Count
    version: str
    backend: Literal["numpy"]


def _loaded(folder: Path, documents: int, remedy: str) -> Any:
    """The index as bm25s loads it; what it would believe and then stumble over is checked before."""
    parameters = read_json(folder / "params.index.json", remedy)
    require_shape(parameters, BM25sParameters, FORMAT, folder / "params.index.json", remedy)
    try:
        index = _bm25s().BM25.load(folder, mmap=True, load_corpus=False)
        numbers = [number for word, number in index.vocab_dict.items() if word]  # the empty word has no column
        columns = range(len(index.scores["indptr"]) - 1)
        whole = parameters["num_docs"] == documents and all(type(n) is int and n in columns for n in numbers)
    except Exception as error:  # bm25s raises whatever its parts raise
        raise InputError(f"bm25s cannot load it ({first_line(error)})", file=folder, do=remedy) from None
    if not whole:
        raise InputError("its parts do not belong together", file=folder, do=remedy)
    return index


def _bm25s() -> Any:
    """The library, kept from starting JAX: where that is installed, it takes most of a GPU's memory for itself."""
    hidden = "jax" not in sys.modules
    if hidden:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        if hidden:
            del sys.modules["jax"]
    return bm25s
