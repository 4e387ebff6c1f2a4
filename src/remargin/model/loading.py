"""A model to search with, from whatever names it: an encoder, two of them, or one that makes no single vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.model.cross_encoder import is_cross_encoder
from remargin.model.encoder import BiEncoder, EncodingPrecision
from remargin.model.folder import is_decoder, local_folder
from remargin.model.layouts.base import layout_of, open_encoder
from remargin.model.names import two_names
from remargin.model.ranker import Ranker
from remargin.model.two_encoders import TwoEncoders
from remargin.model.weights import require_safetensors


def load_model(name: str | Path, said: bool = True, **options: Any) -> BiEncoder | Ranker:
    """The model of a name, by the layout of its folder: an encoder, two encoders (`TwoEncoders`), or a `Ranker`.

    Args:
        name: a folder, "minilm", a name of the hub, or two of them: QUERIES+DOCUMENTS.
        said: refuse an encoder whose pooling or similarity neither its folder nor the options say.
        options: of `BiEncoder.from_pretrained`; those that are not given, or None, are the model's own.

    Raises:
        InputError: for a cross-encoder, for a model that cannot be loaded, and as `said`.

    Example:
        >>> load_model(model_folder, query_length=16).query_length
        16
    """
    given = {option: value for option, value in options.items() if value is not None}
    both = two_names(name)
    if both is not None:
        for one, side in zip(both, ("queries", "documents"), strict=True):
            _require_said(local_folder(one), side, given, said)
        return TwoEncoders.from_pretrained(name, **given)
    folder = local_folder(name)
    layout = layout_of(folder)
    if layout is not None and layout.ranker is not None:
        return layout.ranker(folder, str(name), **given)
    if names_cross_encoder(name):
        raise InputError(f"{name} is a cross-encoder", do="re-rank with it (`remargin rerank`), or give an encoder")
    _require_said(folder, None, given, said)
    return BiEncoder.from_pretrained(name, **given)


def names_cross_encoder(name: str | Path) -> bool:
    """Whether a name is of a cross-encoder. ANCE's checkpoints say so of themselves, and are none.

    >>> names_cross_encoder(model_folder)
    False
    """
    return two_names(name) is None and is_cross_encoder(name) and layout_of(local_folder(name)) is None


def load_encoder(
    model: BiEncoder | str | Path, precision: EncodingPrecision = "auto", said: bool = True, **options: Any
) -> BiEncoder:
    """The encoder of a folder or of a name, as `load_model`; an encoder itself is returned as it is.

    Lengths and prefixes that are given replace the model's own.

    Raises:
        InputError: as `load_model`, and for a model that has no single vector of a text.

    Example:
        >>> load_encoder(model_folder, query_length=16).query_length
        16
    """
    if isinstance(model, BiEncoder):
        return model
    if two_names(model) is None:
        folder = local_folder(model)
        layout = layout_of(folder)
        if layout is not None and layout.ranker is not None:
            open_encoder(folder)  # which says what is wrong
    loaded = load_model(model, said, precision=precision, **options)
    assert isinstance(loaded, BiEncoder)
    return loaded


def _require_said(folder: Path, side: Any, given: dict[str, Any], said: bool) -> None:
    """Refuse an encoder that does not say how it is used: a wrong guess would give wrong numbers in silence."""
    if not said:
        return
    saved = open_encoder(folder, side).settings
    require_safetensors(saved.transformer)  # without weights, nothing else matters
    own = {"pooling": saved.pooling, "similarity": saved.similarity}
    lacking = [name for name, value in own.items() if value is None and given.get(name, "auto") == "auto"]
    if lacking:
        problem = f"does not say the {' and the '.join(lacking)} of its encoder"
        pooling = "--pooling last" if is_decoder(saved.transformer) else "--pooling mean (or cls)"
        such = {"pooling": pooling, "similarity": "--similarity dot (or cosine)"}
        raise InputError(problem, file=folder, do=f"give {' and '.join(such[name] for name in lacking)}")
