"""An encoder to search with, from whatever names it."""

from __future__ import annotations

from pathlib import Path

from remargin.errors import InputError
from remargin.model.cross_encoder import is_cross_encoder
from remargin.model.encoder import BiEncoder, EncodingPrecision


def load_encoder(
    model: BiEncoder | str | Path,
    precision: EncodingPrecision = "auto",
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
) -> BiEncoder:
    """The encoder of a folder or of a name, such as "minilm"; an encoder itself is returned as it is.

    Lengths and prefixes that are given replace the model's own.

    Raises:
        InputError: for a cross-encoder: it would load, but its vectors are useless.

    Example:
        >>> load_encoder(model_folder, query_length=16).query_length
        16
    """
    if isinstance(model, BiEncoder):
        return model
    if is_cross_encoder(model):
        raise InputError(f"{model} is a cross-encoder", do="re-rank with it (`remargin rerank`), or give an encoder")
    return BiEncoder.from_pretrained(
        model,
        precision=precision,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
    )
