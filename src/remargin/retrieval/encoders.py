"""The model that a function of this room is given: a loaded one, or the name of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remargin.errors import InputError, refuse_idle

if TYPE_CHECKING:
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.model.encoder import BiEncoder, EncodingPrecision
    from remargin.retrieval.vectors import Made

OF_QUERIES = ("query_length", "query_prefix")  # no matter to the vectors of documents


def given_texts(
    query_length: int | None, document_length: int | None, query_prefix: str | None, document_prefix: str | None
) -> dict[str, Any]:
    """Those lengths and prefixes that are given, by their names.

    >>> given_texts(None, 128, None, "")
    {'document_length': 128, 'document_prefix': ''}
    """
    return {name: value for name, value in locals().items() if value is not None}


def as_encoder(model: str | Path | BiEncoder, precision: EncodingPrecision = "auto", **texts: Any) -> BiEncoder:
    """An encoder that is loaded already, or the one in a folder, of PyPI ("minilm") or of the hub.

    Args:
        model: the encoder, its folder, or its name.
        precision: the numeric precision to compute in; for a name only.
        texts: lengths and prefixes that are given (see `given_texts`), instead of what the model says; for a name only.

    Raises:
        InputError: for a cross-encoder, which would load, but whose vectors are useless.

    Example:
        >>> as_encoder(model_folder, document_length=9).document_length
        9
    """
    from remargin.model.cross_encoder import is_cross_encoder
    from remargin.model.encoder import BiEncoder

    if not isinstance(model, str | Path):
        if precision != "auto" or texts:
            raise InputError("a loaded model has its precision, lengths and prefixes", do="give them when you load it")
        return model
    if is_cross_encoder(model):
        raise InputError(f"{model} is a cross-encoder", do="re-rank with it (`remargin rerank`), or give an encoder")
    return BiEncoder.from_pretrained(model, precision=precision, **texts)


def as_reranker(
    model: str | Path | BiEncoder | CrossEncoder, precision: EncodingPrecision = "auto", **texts: Any
) -> BiEncoder | CrossEncoder:
    """A model that is loaded already, or the encoder or cross-encoder of a name; `texts` are for an encoder."""
    from remargin.model.cross_encoder import CrossEncoder, is_cross_encoder

    if isinstance(model, CrossEncoder) or (isinstance(model, str | Path) and is_cross_encoder(model)):
        refuse_idle("a cross-encoder", texts)
        return model if isinstance(model, CrossEncoder) else CrossEncoder.from_pretrained(model, precision=precision)
    return as_encoder(model, precision, **texts)


def index_encoder(
    made: Made, folder: str | Path, model: str | Path | BiEncoder | None = None, **texts: Any
) -> BiEncoder:
    """The encoder to search an index with: its own, or the one that is given, with the index's lengths and prefixes.

    Args:
        made: how the index's vectors were made.
        folder: the index, for messages.
        model: the encoder, its folder, or its name, if it is no longer where it was.
        texts: as for `as_encoder`; those that the index keeps must be the same.

    Raises:
        InputError: for lengths or prefixes that are not the index's.
    """
    from remargin.retrieval.index_folder import load_model

    kept = {"document_length": made.length, "document_prefix": made.prefix}
    kept |= {name: getattr(made, name) for name in OF_QUERIES if getattr(made, name) is not None}
    for name, value in texts.items():
        if kept.get(name, value) != value:
            problem = f"the index was made with a {name.replace('_', ' ')} of {kept[name]!r}, not {value!r}"
            raise InputError(problem, file=folder, do=f"leave out --{name.replace('_', '-')}, or make the index again")
    if model is None:
        return load_model(replace(made, **{name: value for name, value in texts.items() if name in OF_QUERIES}))
    return as_encoder(model, **(texts | kept if isinstance(model, str | Path) else texts))
