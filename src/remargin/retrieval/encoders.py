"""The model that a function of this room is given: a loaded one, or the name of one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remargin.errors import InputError, refuse_idle

if TYPE_CHECKING:
    from remargin.files.executor import Executor
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.model.encoder import BiEncoder, EncodingPrecision
    from remargin.model.ranker import Ranker

log = logging.getLogger(__name__)
Model = TypeVar("Model", "BiEncoder", "CrossEncoder")
OF_QUERIES = ("query_length", "query_prefix")  # no matter to the vectors of documents
AS_GIVEN = (*OF_QUERIES, "pooling")  # what an index keeps if it was given, because the model may not say it


def given_texts(
    query_length: int | None,
    document_length: int | None,
    query_prefix: str | None,
    document_prefix: str | None,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
) -> dict[str, Any]:
    """Those options that are given of how an encoder is used, by their names: lengths, prefixes, pooling, and so on.

    >>> given_texts(None, 128, None, "")
    {'document_length': 128, 'document_prefix': ''}
    """
    return {name: value for name, value in locals().items() if value is not None}


def as_model(
    model: str | Path | BiEncoder | Ranker, precision: EncodingPrecision = "auto", **texts: Any
) -> BiEncoder | Ranker:
    """A model that is loaded already, or the one of a name: an encoder, two of them, or one without single vectors.

    Args:
        model: the model, its folder, or its name; of two encoders, QUERIES+DOCUMENTS.
        precision: the numeric precision to compute in; for a name only.
        texts: what is given of how it is used (see `given_texts`), instead of what the model says; for a name only.

    Raises:
        InputError: as `load_model`; such as for a folder that does not say how its encoder is used.

    Example:
        >>> as_model(model_folder, query_length=9).query_length
        9
    """
    from remargin.model.loading import load_model
    from remargin.model.ranker import Ranker

    if isinstance(model, str | Path):
        loaded = load_model(model, precision=precision, **texts)
        return loaded if isinstance(loaded, Ranker) else _said(loaded)
    if precision != "auto" or texts:
        raise InputError("a loaded model has its precision, lengths and prefixes", do="give them when you load it")
    return model


def _said(encoder: BiEncoder) -> BiEncoder:
    if encoder.dims is not None:
        warn_untrained(encoder.name, encoder.dims, encoder.whole_dimension, encoder.trained_dims)
    return encoder


def warn_untrained(model: str, dims: int, whole: int, trained: Sequence[int]) -> None:
    """Warn if vectors are truncated to a dimension that their model was not trained for."""
    if dims not in (whole, *trained):
        smaller = [str(size) for size in trained if size < whole]
        only = f"was trained for {', '.join(smaller)}" if smaller else "was not trained for that"
        log.warning("vectors are truncated to %d numbers; model %s %s (`remargin fit --dims`)", dims, model, only)


def as_encoder(model: str | Path | BiEncoder, precision: EncodingPrecision = "auto", **texts: Any) -> BiEncoder:
    """As `as_model`, but an encoder, which gives a text one vector.

    Raises:
        InputError: as `as_model`, and for other models.

    Example:
        >>> as_encoder(model_folder, document_length=9).document_length
        9
    """
    from remargin.model.loading import load_encoder

    if isinstance(model, str | Path):
        return _said(load_encoder(model, precision, **texts))
    return as_model(model, precision, **texts)  # type: ignore[return-value]


def names_ranker(model: str | Path | BiEncoder | Ranker) -> bool:
    """Whether a model, or the one of a name, makes no single vectors: a ColBERT or SPLADE model.

    >>> names_ranker(model_folder)
    False
    """
    from remargin.model.folder import local_folder
    from remargin.model.layouts.base import layout_of
    from remargin.model.names import two_names
    from remargin.model.ranker import Ranker

    if not isinstance(model, str | Path):
        return isinstance(model, Ranker)
    if two_names(model) is not None:
        return False
    layout = layout_of(local_folder(model))
    return layout is not None and layout.ranker is not None


def as_reranker(
    model: str | Path | BiEncoder | Ranker | CrossEncoder, precision: EncodingPrecision = "auto", **texts: Any
) -> BiEncoder | Ranker | CrossEncoder:
    """A model that is loaded already, or that of a name, which may be a cross-encoder; `texts` are for the others."""
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.model.loading import names_cross_encoder

    if isinstance(model, CrossEncoder) or (isinstance(model, str | Path) and names_cross_encoder(model)):
        refuse_idle("a cross-encoder", texts)
        return model if isinstance(model, CrossEncoder) else CrossEncoder.from_pretrained(model, precision=precision)
    return as_model(model, precision, **texts)


def for_workers(model: Model, executor: Executor) -> Model:
    """The model as the workers of an executor are sent it: from the CPU, as they may have no GPU, or another one."""
    if executor.device is None or model.device.type == "cpu":
        return model
    return copy.deepcopy(model).to("cpu")
