"""Encoding: the vectors of texts, written to a folder block by block. Interrupted encoding resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdWriter
from remargin.data.source import Text
from remargin.data.tables import batches
from remargin.errors import InputError, refuse_idle
from remargin.files.arrays import append_array
from remargin.files.atomic import locked, naming, put_in_place, refuse_existing
from remargin.files.checksums import Sums
from remargin.files.hashes import texts_fingerprint
from remargin.files.headers import write_header
from remargin.files.journal import JOURNAL, Block, Journal
from remargin.model.ahead import ahead
from remargin.model.encoder import BiEncoder, EncodingPrecision, encoding_dtype
from remargin.model.tokenizer import Kind, Tokens
from remargin.progress import track
from remargin.retrieval.encoders import OF_QUERIES, as_encoder, given_texts
from remargin.retrieval.texts import collection_texts, counted_rejects
from remargin.retrieval.vectors import FORMAT, HEADER, Dtype, Made, Vectors, finite, text_hashes

TEXTS_AT_ONCE = 4096
OWNERS = "owners.bin"


def encode(
    data: str | Path,
    model: str | Path | BiEncoder,
    out: str | Path,
    kind: Kind = "documents",
    dtype: Dtype = "float32",
    precision: EncodingPrecision = "auto",
    passage_length: int | str = "auto",
    passage_overlap: int | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Vectors:
    """Write the vectors of a collection's documents, or of its queries, to a folder, as `remargin encode` does.

    If encoding is interrupted, the same call resumes it, to the same bytes.

    Args:
        data: the collection, as `Collection.load` takes it. Its texts are never in memory all at once.
        model: the encoder, its folder, or its Hugging Face name.
        out: the folder to write.
        kind: "documents", or "queries" for those of all splits.
        dtype: of the numbers on disk: "float32", or "float16" for half the size.
        precision: the numeric precision to compute in: "auto" (bf16 on a GPU, 32 on a CPU), "32" or "bf16".
        passage_length: split documents into passages of this many tokens, with a vector for each. "auto" splits
            documents that are longer than the model reads, into passages as long as that; "off" truncates them.
        passage_overlap: how many tokens neighbouring passages share; a quarter of a passage if not given.
        query_length, document_length: maximum lengths in tokens, instead of what the model says.
        query_prefix, document_prefix: put before every text, instead of what the model says. Documents keep what is
            given for queries, so that an index of them is searched with it.
        pooling: how token vectors become one, such as "mean", and `similarity`, "cosine" or "dot": instead of what the
            model's folder says. One that does not say them is refused without.
        skip_bad: skip bad input, and count it in a warning.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, settings that do not fit the model, and an `out` that is there already.

    Example:
        >>> import tempfile
        >>> vectors = encode("docstrings:json", model_folder, Path(tempfile.mkdtemp()) / "vectors", dtype="float16")
        >>> vectors.made.data, 0 < len(vectors.ids) <= len(vectors.matrix)
        ('docstrings:json', True)
    """
    if kind not in ("documents", "queries"):
        raise InputError(f"nothing called {kind!r} to encode", do="use documents or queries")
    refuse_existing(Path(out), overwrite, HEADER)
    given = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity)
    encoder = as_encoder(model, precision, **given)
    made = Made.by(encoder, str(data), kind, dtype, passage_length, passage_overlap)
    made = replace(made, pooling=given.get("pooling"))
    if kind == "documents":
        made = replace(made, **{name: value for name, value in given.items() if name in OF_QUERIES})
    else:
        refuse_idle("queries", [name for name in ("document_length", "document_prefix") if name in given])
    with counted_rejects(skip_bad) as rejects:
        texts = collection_texts(data, kind, rejects)
        return encode_texts(encoder, texts, out, made, overwrite, only_longer=passage_length == "auto")


def encode_texts(
    model: BiEncoder,
    texts: Iterable[Text],
    out: str | Path,
    made: Made | None = None,
    overwrite: bool = False,
    only_longer: bool = False,
) -> Vectors:
    """Write the vectors of texts to a folder. If interrupted, the same call resumes, to the same bytes.

    What is done lies in a hidden folder beside `out` until all is there. It is used again only for the same model,
    settings and texts, and if its bytes are intact: blocks before the first that changed or was damaged are kept.

    Args:
        model: the encoder.
        texts: each with its own id; see `remargin.data.source.checked_texts`.
        out: the folder.
        made: settings, as `Made.by(model, ...)` gives them.
        overwrite: replace `out` if it is there.
        only_longer: write no passages, if `made` asks for some, where no text is longer than a passage.

    Example:
        >>> import tempfile
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> texts = [Text("d1", "one text"), Text("d2", "another")]
        >>> vectors = encode_texts(model, texts, Path(tempfile.mkdtemp()) / "vectors")
        >>> vectors.matrix.shape == (2, model.dimension), list(vectors.ids)
        (True, ['d1', 'd2'])
    """
    out = Path(out).resolve()
    refuse_existing(out, overwrite, HEADER)
    made = made or Made.by(model)
    by = model if made.kind == "documents" else model.of_queries
    if made.model_fingerprint != model.fingerprint():
        raise InputError("these settings were made for another model", do="use Made.by(model, ...)")
    computed_in = str(encoding_dtype(model.precision, model.device))
    name = hashlib.blake2b(json.dumps([made.on_disk(), computed_in]).encode(), digest_size=8).hexdigest()
    folder = out.parent / f".{out.name}.{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), naming(out):
        work = _Work(folder, made)
        blocks = batches(track(texts, "encoding"), TEXTS_AT_ONCE)
        try:
            for planned in ahead(work.plan(block, by) for block in blocks):  # tokenised while others are encoded
                work.write(planned, by)
            work.close(only_longer)
        except BaseException:
            if not (folder / JOURNAL).stat().st_size:  # there is nothing to resume
                shutil.rmtree(folder)
            raise
        put_in_place(folder, out, overwrite, HEADER)
        (out / JOURNAL).unlink()  # not before all is in place: with it, nothing has to be encoded again
        vectors = Vectors.mapped(out)
        if vectors.owners is None:
            (out / OWNERS).unlink(missing_ok=True)
    return vectors


class _Planned(NamedTuple):
    """Some texts, and either their block as it was encoded before, or their tokens."""

    texts: list[Text]
    key: str
    done: Block | None
    tokens: Tokens | None = None
    owners: NDArray[np.uint32] | None = None
    truncated: int = 0


class _Work:
    """A folder that is being filled: vectors, the text that each belongs to, and a journal of both."""

    def __init__(self, folder: Path, made: Made) -> None:
        self._folder = folder
        self._made = made
        for name in Ids.FILES:
            (folder / name).unlink(missing_ok=True)
        self._ids = IdWriter(folder)
        self._hashes: list[NDArray[np.uint64]] = []
        self._names = ["vectors.bin"] if made.passage_length is None else ["vectors.bin", OWNERS]
        self._journal = Journal(folder / JOURNAL, [folder / name for name in self._names])
        self._texts = self._rows = self._truncated = 0

    def plan(self, texts: list[Text], model: BiEncoder) -> _Planned:
        """Look up the next block in the journal, or make its tokens."""
        self._hashes.append(text_hashes(texts))
        key = texts_fingerprint((text.id, text.text) for text in texts)
        done = self._journal.find(key)
        if done is not None:
            return _Planned(texts, key, done, truncated=done.numbers.get("truncated", 0))
        return _Planned(texts, key, None, *_tokens(model, [text.text for text in texts], self._made))

    def write(self, block: _Planned, model: BiEncoder) -> None:
        """Encode a block and write it, unless that was done before."""
        if block.done is not None:
            self._rows += len(block.done.contents[0]) // (self._made.dimension * np.dtype(self._made.dtype).itemsize)
        elif block.tokens is not None and block.owners is not None:
            with np.errstate(over="ignore"):
                vectors = finite(model.encode_tokens(block.tokens).astype(self._made.dtype), self._made)
            contents = [vectors, block.owners + np.uint32(self._texts)][: len(self._names)]
            self._journal.add(block.key, contents, truncated=block.truncated)
            self._rows += len(vectors)
        self._texts += len(block.texts)
        self._truncated += block.truncated
        self._ids.add([text.id for text in block.texts])

    def close(self, only_longer: bool) -> None:
        """Write the ids and the header; the folder is then complete."""
        if not self._texts:
            raise InputError("there are no texts to encode", do="name another collection")
        self._journal.close()
        fits: dict[str, int] = {}
        if only_longer and self._rows == self._texts and self._made.passage_length is not None:
            fits = {"fits": self._made.passage_length}
            self._made, self._names = self._made.whole, self._names[:1]
        append_array(self._folder / "hashes.bin", 0, np.concatenate(self._hashes))
        header = {"format": FORMAT, "made": self._made.on_disk(), "rows": self._rows, "truncated": self._truncated}
        header |= {"ids": self._ids.close(), **fits}
        files = [self._folder / name for name in (*self._names, "hashes.bin", *Ids.FILES)]
        write_header(self._folder / HEADER, {**header, "sums": {file.name: Sums.of(file) for file in files}})


def _tokens(model: BiEncoder, texts: list[str], made: Made) -> tuple[Tokens, NDArray[np.uint32], int]:
    """Tokens of texts or their passages, the text that each belongs to, and how many texts were truncated."""
    if made.passage_length is not None:
        how = made.prefix, made.length, made.passage_length, made.passage_overlap
        return model.tokenizer.in_passages(texts, *how)
    tokens, truncated = model.tokenizer([made.prefix + text for text in texts], made.length)
    return tokens, np.arange(len(texts), dtype=np.uint32), truncated
