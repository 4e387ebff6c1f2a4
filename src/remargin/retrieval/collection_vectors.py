"""The vectors of a collection's texts: `encode`, in this process or in shards by many workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import refuse_existing
from remargin.files.executor import Executor
from remargin.model.encoder import BiEncoder, EncodingPrecision
from remargin.model.tokenizer import Kind
from remargin.retrieval.encoders import OF_QUERIES, as_encoder, given_texts
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.shards import encode_shards
from remargin.retrieval.texts import collection_texts, counted_rejects
from remargin.retrieval.vectors import HEADER, Dtype, Made, Vectors


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
    dims: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    executor: Executor | None = None,
    shard_size: int | None = None,
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
        dims: truncate vectors to so many numbers, before they are brought to unit length; best to those that the model
            was trained for (`fit --dims`).
        skip_bad: skip bad input, and count it in a warning.
        overwrite: replace `out` if it is there.
        executor: where to encode, such as a `RayExecutor`: in shards, which lie in a hidden folder beside `out` until
            all are there. The bytes are those that one worker would have written.
        shard_size: with an executor, texts in a shard; 65,536 if not given.

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
    given = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity, dims)
    encoder = as_encoder(model, precision, **given)
    made = Made.by(encoder, str(data), kind, dtype, passage_length, passage_overlap)
    made = replace(made, pooling=given.get("pooling"))
    if kind == "documents":
        made = replace(made, **{name: value for name, value in given.items() if name in OF_QUERIES})
    else:
        refuse_idle("queries", [name for name in ("document_length", "document_prefix") if name in given])
    with counted_rejects(skip_bad) as rejects:
        texts, only_longer = collection_texts(data, kind, rejects), passage_length == "auto"
        if executor is None:
            refuse_idle("encoding in one process", [] if shard_size is None else ["shard_size"])
            return encode_texts(encoder, texts, out, made, overwrite, only_longer)
        return encode_shards(encoder, texts, out, executor, made, overwrite, only_longer, shard_size)
