"""Arithmetic on weights: points on the line between two encoders, and the mean of several.

An encoder that was fine-tuned a little too far is often better a part of the way back to where it started, at home and
on other texts (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022; the mean of several is a "model
soup", ICML 2022). It costs no training: the weights are all there is to compute with.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remargin.errors import InputError
from remargin.model.encoder import BiEncoder
from remargin.model.folder import local_folder, read_settings

DO = "blend models of which one was trained from the other, or all from the same one"
# What a transformer's config says about computing that the shapes of its weights do not show.
COMPUTING = (
    "model_type", "hidden_act", "activation", "hidden_activation", "layer_norm_eps", "norm_eps", "rms_norm_eps",
    "num_attention_heads", "n_heads", "position_embedding_type", "rope_theta", "rope_parameters", "global_rope_theta",
    "local_rope_theta", "sliding_window", "local_attention", "global_attn_every_n_layers",
    "relative_attention_num_buckets",
)  # fmt: skip
UNUSED = "backbone.pooler."  # in some checkpoints and not in others; a projection is a copy of it, and is blended


@torch.no_grad()
def blended(start: BiEncoder, trained: BiEncoder, weight: float, into: BiEncoder | None = None) -> BiEncoder:
    """The encoder with the weights `weight` x trained + (1 - `weight`) x start, in float32.

    A weight of 0 gives the weights of `start`, 1 those of `trained`, bit for bit. Maximum lengths and prefixes are
    those of `trained`.

    Args:
        start: the encoder before training.
        trained: the same encoder after training.
        weight: of the trained weights, 0 to 1.
        into: a copy of `trained` to put the weights into, which spares making one for each of several points.

    Raises:
        InputError: if the weight is not between 0 and 1, or the encoders are not of one kind; see `require_alike`.

    Example:
        >>> start, trained = (BiEncoder.from_pretrained(model_folder) for _ in range(2))
        >>> bias = trained.backbone.encoder.layer[0].output.dense.bias.data.fill_(1.0)
        >>> blended(start, trained, 0.25).backbone.encoder.layer[0].output.dense.bias[:2].tolist()
        [0.25, 0.25]
    """
    if not 0 <= weight <= 1:
        raise InputError(f"a weight of {weight}", do="use 0 (only the start) to 1 (only the trained model)")
    require_alike(start, trained)
    result = copy.deepcopy(trained) if into is None else into
    theirs, ours = start.state_dict(), trained.state_dict()
    for name, target in result.state_dict().items():
        if name in theirs and target.is_floating_point():
            # From the nearer end, which makes both ends and weights that are equal exact.
            target.copy_(torch.lerp(_like(theirs[name], target), _like(ours[name], target), weight))
    result.name = ""  # what is kept beside the trained model, such as its fusion with BM25, is not of this one
    return result.eval()


@torch.no_grad()
def average(models: Sequence[BiEncoder]) -> BiEncoder:
    """The encoder whose weights are the mean of several encoders' weights, in float32: a uniform model soup.

    For training runs of several seeds or settings from one start, or several checkpoints of one training run. Maximum
    lengths and prefixes are those of the first.

    Args:
        models: one encoder or more, of one kind.

    Raises:
        InputError: without any encoder, and if they are not of one kind; see `require_alike`.

    Example:
        >>> models = [BiEncoder.from_pretrained(model_folder) for _ in range(3)]
        >>> for number, model in enumerate(models):
        ...     _ = model.backbone.encoder.layer[0].output.dense.bias.data.fill_(number)
        >>> average(models).backbone.encoder.layer[0].output.dense.bias[:2].tolist()
        [1.0, 1.0]
    """
    if not models:
        raise InputError("no models to average", do="give one or more")
    first, *others = models
    for other in others:
        require_alike(first, other)
    result = copy.deepcopy(first)
    states = [other.state_dict() for other in others]
    for name, mean in result.state_dict().items():
        if mean.is_floating_point():
            present = [state[name] for state in states if name in state]
            for count, weights in enumerate(present, start=2):  # a running mean: of equal weights it is exact
                mean.add_(_like(weights, mean) - mean, alpha=1 / count)
    result.name = ""
    return result.eval()


def require_alike(first: BiEncoder, second: BiEncoder) -> None:
    """See that the weights of two encoders stand for the same thing, so that numbers between them make sense.

    Architecture, tokenizer, pooling and similarity must be the same. Maximum lengths may differ, as many models that
    were trained elsewhere do not say theirs. So may prefixes, if the first has none: but one that was trained with a
    prefix is another encoder without it.

    Raises:
        InputError: that names the difference.

    Example:
        >>> require_alike(BiEncoder.from_pretrained(model_folder, "mean"), BiEncoder.from_pretrained(model_folder))
        Traceback (most recent call last):
        remargin.errors.InputError: the models differ in pooling: mean and cls; blend models of which one ...
    """
    one, other = ({**_settings(model), **_shapes(model)} for model in (first, second))
    for name in [*one, *(name for name in other if name not in one)]:
        if one.get(name) != other.get(name):
            values = "" if name == "tokenizer" else f": {one.get(name, 'none')} and {other.get(name, 'none')}"
            raise InputError(f"the models differ in {name}{values}", do=DO)
    for name in ("query_prefix", "document_prefix"):
        mine, theirs = getattr(first, name), getattr(second, name)
        if mine and mine != theirs:
            raise InputError(f"the models differ in {name}: {mine!r} and {theirs!r}", do=DO)


def similarity_trained(name: str | Path) -> bool:
    """Whether a model was trained to encode texts, and is no raw backbone such as BERT after pre-training.

    The folder says so if it has modules of sentence-transformers, which every tool that trains encoders writes: they
    say how token vectors become one. A raw backbone is no good start to go back to, so blending keeps all of what
    training did to it.

    Args:
        name: a folder, or a name of the Hugging Face hub.

    Example:
        >>> similarity_trained(raw_folder), similarity_trained(model_folder)
        (False, True)
    """
    return read_settings(local_folder(name)).pooling is not None


def _settings(model: BiEncoder) -> dict[str, Any]:
    config: Any = model.backbone.config
    computing = {f"architecture ({name})": getattr(config, name) for name in COMPUTING if hasattr(config, name)}
    used = {"pooling": model.pooling, "similarity": model.similarity, "tokenizer": model.tokenizer.fingerprint}
    return {**computing, **used}


def _shapes(model: BiEncoder) -> dict[str, Any]:
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith(UNUSED)}
    return {f"the shape of {name}": tuple(weight.shape) for name, weight in weights.items()}


def _like(weights: Tensor, target: Tensor) -> Tensor:
    return weights.to(target.device, target.dtype)
