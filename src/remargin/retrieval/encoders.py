"""The model that a function of this room is given: a loaded one, or the name of one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remargin.errors import InputError, refuse_idle

if TYPE_CHECKING:
    from remargin.files.executor import Executor
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.model.encoder import BiEncoder, EncodingPrecision

Model = TypeVar("Model", "BiEncoder", "CrossEncoder")
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


def for_workers(model: Model, executor: Executor) -> Model:
    """The model as the workers of an executor are sent it: from the CPU, as they may have no GPU, or another one."""
    if executor.device is None or model.device.type == "cpu":
        return model
    return copy.deepcopy(model).to("cpu")
