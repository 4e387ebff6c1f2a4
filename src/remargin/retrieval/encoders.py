"""The model that a function of this room is given: a loaded one, or the name of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remargin.errors import InputError

if TYPE_CHECKING:
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.model.encoder import BiEncoder, EncodingPrecision


def as_encoder(
    model: str | Path | BiEncoder, precision: EncodingPrecision = "auto", **lengths: int | None
) -> BiEncoder:
    """An encoder that is loaded already, or the one in a folder or of the hub.

    Args:
        model: the encoder, its folder, or its Hugging Face name.
        precision: the numeric precision to compute in; for a name only.
        lengths: `query_length` or `document_length`, instead of what the model says; for a name only.

    Raises:
        InputError: for a cross-encoder, which would load, but whose vectors are useless.

    Example:
        >>> as_encoder(model_folder, document_length=9).document_length
        9
    """
    from remargin.model.cross_encoder import is_cross_encoder
    from remargin.model.encoder import BiEncoder

    if not isinstance(model, str | Path):
        if precision != "auto" or any(length is not None for length in lengths.values()):
            raise InputError("a loaded model has its precision and lengths", do="give them when you load it")
        return model
    if is_cross_encoder(model):
        raise InputError(f"{model} is a cross-encoder", do="re-rank with it (`remargin rerank`), or give an encoder")
    return BiEncoder.from_pretrained(model, precision=precision, **lengths)  # type: ignore[arg-type]


def as_reranker(
    model: str | Path | BiEncoder | CrossEncoder, precision: EncodingPrecision = "auto"
) -> BiEncoder | CrossEncoder:
    """A model that is loaded already, or the encoder or cross-encoder in a folder or of the hub."""
    from remargin.model.cross_encoder import CrossEncoder, is_cross_encoder

    if isinstance(model, str | Path) and is_cross_encoder(model):
        return CrossEncoder.from_pretrained(model, precision=precision)
    return as_encoder(model, precision)  # type: ignore[arg-type]  # a loaded one is handed back, whatever it is
