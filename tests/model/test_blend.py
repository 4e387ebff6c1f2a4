"""Blending and averaging weights: against plain arithmetic, at both ends, and what cannot be blended."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, InputError
from remargin.model.blend import average, blended, require_alike, similarity_trained

TEXTS = ["how do margins adapt?", "the value of a text"]
FAMILIES = [("bert", "mean"), ("distilbert", "cls"), ("roberta", "cls+linear"), ("mpnet", "cls+linear")]


def moved(model: BiEncoder, seed: int) -> BiEncoder:
    """A copy as training leaves one: every trainable weight is a little elsewhere."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.05)
    return other


def numbers(model: BiEncoder) -> dict[str, np.ndarray]:
    return {name: weight.numpy() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize(("family", "pooling"), FAMILIES)
def test_blended_weights_are_the_formulas(family: str, pooling: Any, tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model(family), pooling=pooling)
    trained = moved(start, seed=1)
    result, a, b = numbers(blended(start, trained, 0.3)), numbers(start), numbers(trained)
    assert result.keys() == a.keys()
    assert ("projection.weight" in result) == ("+" in pooling)
    changed = 0
    for name in a:
        slow = 0.3 * b[name].astype(np.float64) + 0.7 * a[name].astype(np.float64)
        np.testing.assert_allclose(result[name], slow, atol=1e-7, rtol=1e-6)
        assert result[name].dtype == a[name].dtype
        changed += not np.array_equal(a[name], b[name])
    assert changed > 10


def test_the_ends_are_exact_and_nothing_given_is_changed(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model(), pooling="mean+linear")
    trained = moved(start, seed=1)
    before = start.fingerprint(), trained.fingerprint()
    assert before[0] != before[1]
    ends = [blended(start, trained, weight) for weight in (0.0, 1.0)]
    assert tuple(end.fingerprint() for end in ends) == before
    np.testing.assert_array_equal(ends[0].encode_queries(TEXTS), start.encode_queries(TEXTS))
    blended(start, trained, 0.5)
    assert (start.fingerprint(), trained.fingerprint()) == before


def test_weights_that_training_left_alone_stay_the_same(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model())
    same = copy.deepcopy(start)
    for weight in (0.1, 0.3, 0.7, 0.9):
        assert blended(start, same, weight).fingerprint() == start.fingerprint()
    assert average([start, same, same]).fingerprint() == start.fingerprint()


def test_one_copy_serves_every_point(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model(), pooling="mean")
    trained = moved(start, seed=1)
    walker, vectors = copy.deepcopy(trained), []
    for weight in (0.0, 0.5, 1.0):
        assert blended(start, trained, weight, into=walker) is walker
        vectors.append(walker.encode_queries(TEXTS))
        np.testing.assert_array_equal(vectors[-1], blended(start, trained, weight).encode_queries(TEXTS))
    assert len({array.tobytes() for array in vectors}) == 3


def test_the_average_is_the_mean_whatever_the_order(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model(), pooling="mean+linear")
    models = [moved(start, seed) for seed in range(4)]
    result, parts = numbers(average(models)), [numbers(model) for model in models]
    backwards = numbers(average(models[::-1]))
    for name in result:
        slow = sum(part[name].astype(np.float64) for part in parts) / 4
        np.testing.assert_allclose(result[name], slow, atol=2e-7, rtol=1e-6)
        np.testing.assert_allclose(backwards[name], slow, atol=2e-7, rtol=1e-6)
    assert average(models[:1]).fingerprint() == models[0].fingerprint()
    halves = blended(models[0], models[1], 0.5)
    for name, weights in numbers(average(models[:2])).items():
        np.testing.assert_allclose(weights, numbers(halves)[name], atol=1e-7)
    with pytest.raises(InputError, match="no models to average"):
        average([])


def test_lengths_and_prefixes_are_the_trained_models(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model())
    trained = BiEncoder.from_pretrained(tiny_model(), query_length=9, document_length=17, query_prefix="query: ")
    assert blended(start, trained, 0.5).text_settings == trained.text_settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mean"}, "the models differ in pooling: cls and mean"),
        ({"similarity": "dot"}, "the models differ in similarity: cosine and dot"),
        ({"pooling": "cls+linear"}, r"the models differ in pooling: cls and cls\+linear"),
    ],
)
def test_models_that_are_used_otherwise_are_refused(options: Any, message: str, tiny_model: Any) -> None:
    first, second = BiEncoder.from_pretrained(tiny_model()), BiEncoder.from_pretrained(tiny_model(), **options)
    with pytest.raises(InputError, match=message):
        blended(first, second, 0.5)
    with pytest.raises(InputError, match="the models differ in"):
        average([first, first, second])


def test_models_of_another_kind_are_refused(tiny_model: Any) -> None:
    bert = BiEncoder.from_pretrained(tiny_model())
    with pytest.raises(InputError, match=r"differ in architecture \(model_type\): bert and distilbert"):
        require_alike(bert, BiEncoder.from_pretrained(tiny_model("distilbert")))
    with pytest.raises(
        InputError, match=r"the shape of backbone.embeddings.position_embeddings.weight: \(64, 32\) and"
    ):
        require_alike(bert, BiEncoder.from_pretrained(tiny_model(positions=128)))
    heads = copy.deepcopy(bert)
    heads.backbone.config.num_attention_heads = 2
    with pytest.raises(InputError, match=r"architecture \(num_attention_heads\): 4 and 2"):
        require_alike(bert, heads)
    words = copy.deepcopy(bert)
    words.hf_tokenizer.backend_tokenizer.add_tokens(["remargin"])
    words.tokenizer = type(words.tokenizer).of(words.hf_tokenizer)
    with pytest.raises(InputError, match="the models differ in tokenizer; blend models of which one was trained"):
        require_alike(bert, words)
    prefixed = BiEncoder.from_pretrained(tiny_model(), query_prefix="query: ")
    require_alike(bert, prefixed)
    with pytest.raises(InputError, match="differ in query_prefix: 'query: ' and ''"):
        require_alike(prefixed, bert)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_weights_beyond_the_ends_are_refused(weight: float, tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model())
    with pytest.raises(InputError, match=r"a weight of .*; use 0 \(only the start\) to 1"):
        blended(model, model, weight)


def test_a_pooler_that_only_one_has_does_not_count(tiny_model: Any) -> None:
    start = BiEncoder.from_pretrained(tiny_model())
    trained = moved(start, seed=1)
    assert start.backbone.pooler is not None
    trained.backbone.pooler = None
    assert blended(start, trained, 1.0).fingerprint() == trained.fingerprint()
    assert blended(trained, start, 1.0).fingerprint() == start.fingerprint()
    one, other = numbers(average([start, trained])), numbers(average([trained, start]))
    assert set(one) - set(other) == {"backbone.pooler.dense.weight", "backbone.pooler.dense.bias"}
    for name, weights in other.items():
        np.testing.assert_allclose(weights, one[name], atol=1e-7)


def test_who_was_trained_to_encode(tiny_model: Any, minilm: Path, tmp_path: Path) -> None:
    assert similarity_trained(minilm)
    assert not similarity_trained(tiny_model())
    BiEncoder.from_pretrained(tiny_model()).save(tmp_path / "saved")
    assert similarity_trained(tmp_path / "saved")
    with pytest.raises(InputError, match="no such folder"):
        similarity_trained(tmp_path / "nowhere")
