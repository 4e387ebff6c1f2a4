"""Texts as tokens: the tokenizer, and what it makes. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray

from remargin.errors import InputError, first_line
from remargin.model.folder import (
    LONGEST_DEFAULT,
    asks_for_lower_case,
    local_folder,
    read_text_settings,
    transformer_folder,
)

LONGER = "give a longer length (--length)"


Kind = Literal["documents", "queries"]
Truncate = Literal["only_second", "longest_first"]


@dataclass
class TextSettings:
    """How texts become tokens: maximum lengths in tokens, and prefixes."""

    query_length: int = 30
    document_length: int = 200
    query_prefix: str = ""
    document_prefix: str = ""

    @classmethod
    def for_model(
        cls,
        model: str | Path,
        query_length: int | None = None,
        document_length: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
    ) -> TextSettings:
        """To train a model: what is given, and for the rest what the model's folder says, but at most 512 tokens.

        >>> TextSettings.for_model(model_folder, query_length=9)
        TextSettings(query_length=9, document_length=64, query_prefix='', document_prefix='')
        """
        given = (query_length, document_length, query_prefix, document_prefix)
        if None not in given:
            return cls(*given)  # type: ignore[arg-type]
        own = cls(*read_text_settings(local_folder(model, weights=False)))
        return cls(
            query_length or min(own.query_length, LONGEST_DEFAULT),
            document_length or min(own.document_length, LONGEST_DEFAULT),
            own.query_prefix if query_prefix is None else query_prefix,
            own.document_prefix if document_prefix is None else document_prefix,
        )

    def of(self, kind: Kind) -> tuple[int, str]:
        """Length and prefix of documents or queries."""
        if kind == "documents":
            return self.document_length, self.document_prefix
        return self.query_length, self.query_prefix


@dataclass(frozen=True)
class Tokens:
    """Several texts' token ids end to end, and how many each text has."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def together(cls, parts: Sequence[Tokens]) -> Tokens:
        """All texts of several lots, one lot after another."""
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.lengths for part in parts]))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each text begins."""
        return np.cumsum(self.lengths) - self.lengths


@dataclass(frozen=True)
class PairTokens:
    """Queries and documents read together: their tokens, which of the two each token is of, and how many
    documents were truncated.
    """

    tokens: Tokens
    types: NDArray[Any]
    truncated: int


class Tokenizer:
    """A Hugging Face fast tokenizer without padding, which truncates at a given length and counts what it truncates.

    It carries its own copy of the tokenizer, so no setting of a shared one can change its output.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = tokenizers.Tokenizer.from_str(backend.to_str())
        self._backend.no_padding()
        self._backend.no_truncation()
        self._truncating = lru_cache(maxsize=8)(partial(_truncating, self._backend))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        return Tokenizer, (self._backend,)  # the copies that truncate are made again

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Tokenizer:
        """The tokenizer of a model: a folder or a hub name. Loads no weights."""
        return cls.of(load_tokenizer(name))

    @classmethod
    def of(cls, tokenizer: Any) -> Tokenizer:
        """From a transformers tokenizer."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            do = "use a model with a tokenizer.json"
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer", do=do)
        return cls(backend)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides which tokens a text becomes."""
        clean = tokenizers.Tokenizer.from_str(self._backend.to_str())
        clean.no_truncation()
        return hashlib.sha256(clean.to_str().encode()).hexdigest()

    @property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

    def __call__(self, texts: Sequence[str], length: int) -> tuple[Tokens, int]:
        """The texts' tokens, special tokens included, at most `length` each; and how many texts were truncated."""
        shortest = self.special_tokens + 1
        if length < shortest:
            do = f"this tokenizer needs at least {shortest}"
            raise InputError(f"a length of {length} tokens leaves no room for text", do=do)
        encodings = self._truncating(length).encode_batch_fast(list(texts))
        return _joined(encodings), len(_overflowing(encodings))

    def pairs(self, pairs: Sequence[tuple[str, str]], length: int, truncate: Truncate = "only_second") -> PairTokens:
        """Each query and its document as one text of at most `length` tokens.

        Only documents are truncated; with "longest_first", for pairs of two documents, the longer one of each pair.

        >>> pairs = tokenizer.pairs([("how do margins adapt", "the value of the text")], length=9)
        >>> pairs.tokens.lengths.tolist(), pairs.types.tolist(), pairs.truncated
        ([9], [0, 0, 0, 0, 0, 0, 1, 1, 1], 1)
        """
        queries = list(dict.fromkeys(query for query, _ in pairs)) if truncate == "only_second" else []
        for query, room in zip(queries, self.room(queries, length).tolist(), strict=True):
            if room < 1:
                shown = query if len(query) < 50 else f"{query[:45]}..."
                raise InputError(f"query {shown!r} leaves no room for a document in {length} tokens", do=LONGER)
        encodings = self._truncating(length, truncate).encode_batch_fast(list(pairs))
        tokens = _joined(encodings)
        types = np.fromiter(chain.from_iterable(e.type_ids for e in encodings), np.uint8, len(tokens.ids))
        return PairTokens(tokens, types, len(_overflowing(encodings)))

    def room(self, queries: Sequence[str], length: int) -> NDArray[np.int64]:
        """How many tokens of a document fit beside each query into `length` tokens; none if it is below 1."""
        encodings = self._backend.encode_batch_fast(list(queries), add_special_tokens=False)
        taken = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        return length - self._backend.num_special_tokens_to_add(is_pair=True) - taken

    def passages(self, text: str, length: int, overlap: int) -> list[str]:
        """A text as stretches of at most `length` tokens, each `overlap` tokens into the one before, split at words.

        >>> tokenizer.passages("a b c d e", length=3, overlap=1)
        ['a b c', 'c d e']
        """
        if not 0 <= overlap < length:
            raise InputError(f"an overlap of {overlap} tokens in passages of {length}", do="make it smaller")
        encoding = self._backend.encode(text, add_special_tokens=False)
        words, offsets, count = encoding.word_ids, encoding.offsets, len(encoding)
        firsts = [i for i in range(1, count) if words[i] is None or words[i] != words[i - 1]]  # where words begin
        passages, start = [], 0
        while start + length < count:
            end = (
                _last_between(firsts, start, start + length) or start + length
            )  # a word that is too long is split after all
            passages.append(text[offsets[start][0] : offsets[end - 1][1]])
            start = _last_between(firsts, start, end - overlap) or end
        return [*passages, text[offsets[start][0] :]] if passages else [text]

    def passage_lengths(self, prefix: str, length: int) -> tuple[int, int]:
        """As many tokens of a text as fit into `length`, beside a prefix and special tokens; and a quarter of them.

        >>> tokenizer.passage_lengths("", 14)
        (12, 3)
        """
        room = length - len(self([prefix], length)[0].ids)
        return room, room // 4

    def in_passages(
        self, texts: Sequence[str], prefix: str, length: int, passage_length: int, overlap: int
    ) -> tuple[Tokens, NDArray[np.uint32], int]:
        """Tokens of texts, of which those with more than `passage_length` tokens are split into passages.

        Args:
            texts: the texts.
            prefix: put before every passage.
            length: maximum number of tokens, with the prefix and special tokens.
            passage_length: maximum number of tokens of a passage itself.
            overlap: how many tokens neighbouring passages share.

        Returns:
            The tokens, the place of the text that each passage belongs to, and how many passages were truncated.

        Example:
            >>> tokens, owners, truncated = tokenizer.in_passages(["a b c d e", "a b"], "", 5, 3, 1)
            >>> tokens.lengths.tolist(), owners.tolist(), truncated
            ([5, 5, 4], [0, 0, 1], 0)
        """
        whole = length - self.passage_lengths(prefix, length)[0] + passage_length
        first = self._truncating(whole).encode_batch_fast([prefix + text for text in texts])
        longer = _overflowing(first) if passage_length > 0 else []  # a prefix may leave no room at all
        split = {place: self.passages(texts[place], passage_length, overlap) for place in longer}
        passages = [prefix + passage for of_text in split.values() for passage in of_text]
        others = iter(self._truncating(length).encode_batch_fast(passages))
        counts = [len(split.get(place, [""])) for place in range(len(texts))]
        encodings = [
            encoding
            for place, count in enumerate(counts)
            for encoding in (islice(others, count) if place in split else [first[place]])
        ]
        owners = np.repeat(np.arange(len(texts), dtype=np.uint32), counts)
        return _joined(encodings), owners, len(_overflowing(encodings))

    @property
    def special_tokens(self) -> int:
        """How many tokens are added to every text."""
        return self._backend.num_special_tokens_to_add(is_pair=False)


def _joined(encodings: Sequence[tokenizers.Encoding]) -> Tokens:
    """Encoded texts, end to end."""
    lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
    return Tokens(np.fromiter(chain.from_iterable(e.ids for e in encodings), np.uint32, int(lengths.sum())), lengths)


def _overflowing(encodings: Sequence[tokenizers.Encoding]) -> list[int]:
    """The places of the texts that were truncated."""
    return [place for place, encoding in enumerate(encodings) if encoding.overflowing]


def _truncating(backend: tokenizers.Tokenizer, length: int, strategy: str = "longest_first") -> tokenizers.Tokenizer:
    """A copy that truncates at a length. Another thread with another length has a copy of its own."""
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.enable_truncation(length, strategy=strategy)
    return copy


def _last_between(places: list[int], low: int, high: int) -> int | None:
    """The largest of some ascending places that is above `low` and at most `high`."""
    place = bisect_right(places, high)
    return places[place - 1] if place and places[place - 1] > low else None


def load_tokenizer(name: str | Path) -> Any:
    """A model's tokenizer as transformers loads it, without the padding or truncation that was saved with it."""
    from transformers import AutoTokenizer

    do = "name a folder with a tokenizer.json, or a model of the Hugging Face hub"
    folder = local_folder(name, weights=False)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(transformer_folder(folder), trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        reason = first_line(error)
        raise InputError(f"no tokenizer found for model {str(name)!r} ({reason})", do=do) from None
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise InputError(f"the tokenizer of model {str(name)!r} has no vocabulary", do=do)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
        _try(backend, name, do)
        if asks_for_lower_case(transformer_folder(folder)):
            _lower_case(backend)
    return tokenizer


def _lower_case(backend: tokenizers.Tokenizer) -> None:
    """Have a tokenizer that keeps case put texts in lower case first."""
    if backend.encode("A").ids != backend.encode("a").ids:
        first = tokenizers.normalizers.Lowercase()
        theirs = backend.normalizer
        backend.normalizer = tokenizers.normalizers.Sequence([first] if theirs is None else [first, theirs])


def _try(backend: tokenizers.Tokenizer, name: str | Path, do: str) -> None:
    """See that a tokenizer works at all: one that is damaged panics when it is used, not when it is loaded."""
    try:
        backend.encode_batch_fast(["a text"])
        backend.encode_batch_fast([("a query", "a text")])
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(f"the tokenizer of model {str(name)!r} is damaged ({first_line(error)})", do=do) from None


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' progress bars and load reports: we check and say what matters ourselves."""
    from transformers.utils import logging as their_logging

    verbosity, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        their_logging.set_verbosity(verbosity)
        if bars:
            their_logging.enable_progress_bar()
