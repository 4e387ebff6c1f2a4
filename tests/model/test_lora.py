"""LoRA: PEFT's forward and backward passes, its files, and what is left of an encoder when the changes are merged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from remargin import BiEncoder, InputError
from remargin.model.compute import Compute
from remargin.model.lora import FOLDER, Lora, LoraLinear, adapted_layers, save_scaled, state_bytes
from remargin.model.packing import pack
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

TEXTS = ["how do margins adapt", "the value of the text", "a list", "to a file of the model " * 4]
CPU = torch.device("cpu")


def changed(model: BiEncoder, rank: int = 4) -> Lora:
    """With changes that are some: they begin as none."""
    lora = Lora(model, rank, seed=0)
    generator = torch.Generator().manual_seed(1)
    for layer in adapted_layers(model.backbone).values():
        torch.nn.init.normal_(layer.lora_b, std=0.1, generator=generator)
    return lora


def gradients(model: BiEncoder, engine: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    compute = Compute(model, engine=engine)
    vectors = compute(pack(model.tokenizer(TEXTS, 60)[0]))
    of = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(2))
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = zip(compute.masters, compute.gradients(vectors, of), strict=True)
    return vectors.detach(), {names[id(master)]: gradient for master, gradient in found}


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "modernbert"])
def test_vectors_and_gradients_are_those_of_peft(family: str, engine: Any, tiny_model: Any) -> None:
    peft = pytest.importorskip("peft")
    model = BiEncoder.from_pretrained(tiny_model(family), pooling="mean", device="cpu")
    theirs = copy.deepcopy(model)
    changed(model)
    layers = adapted_layers(model.backbone)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(layers), lora_dropout=0.0)
    theirs.backbone = peft.get_peft_model(theirs.backbone, config)
    for name, layer in layers.items():
        twin: Any = theirs.backbone.get_submodule(f"base_model.model.{name}")
        twin.lora_A["default"].weight.data.copy_(layer.lora_a)
        twin.lora_B["default"].weight.data.copy_(layer.lora_b)
    vectors, found = gradients(model, engine)
    tokens, _ = theirs.tokenizer(TEXTS, 60)
    mask = torch.arange(int(tokens.lengths.max())) < torch.from_numpy(tokens.lengths)[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = torch.from_numpy(tokens.ids.astype(np.int64))
    expected = theirs(ids, mask.long())
    torch.testing.assert_close(vectors, expected.detach(), atol=2e-5, rtol=1e-4)
    expected.backward(torch.randn(vectors.shape, generator=torch.Generator().manual_seed(2)))
    assert len(found) == 2 * len(layers)
    for name in layers:
        twin = theirs.backbone.get_submodule(f"base_model.model.{name}")
        for own, of_twin in (("lora_a", twin.lora_A["default"]), ("lora_b", twin.lora_B["default"])):
            wanted = of_twin.weight.grad
            torch.testing.assert_close(found[f"backbone.{name}.{own}"], wanted, atol=1e-5, rtol=1e-3)
    assert all(gradient.abs().max() > 0 for gradient in found.values())


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_saved_model_is_merged_and_its_adapter_is_pefts(family: str, tiny_model: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model(family), pooling="mean", device="cpu")
    before = model.encode_documents(TEXTS)
    lora = changed(model)
    vectors = model.encode_documents(TEXTS)
    assert np.abs(vectors - before).max() > 1e-2
    model.save(tmp_path / "model")
    assert next(iter(adapted_layers(model.backbone).values())).lora_b.requires_grad  # it goes on being trained
    for again in (BiEncoder.from_pretrained(tmp_path / "model", device="cpu"), copy.deepcopy(model)):
        np.testing.assert_allclose(again.encode_documents(TEXTS), vectors, atol=1e-6)
    rival = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(rival.encode(TEXTS), vectors, atol=1e-5)
    packed = Compute(model).eval()
    np.testing.assert_allclose(model._similar(packed(pack(model.tokenizer(TEXTS, 64)[0]))).detach(), vectors, atol=1e-5)
    lora.merge()
    np.testing.assert_allclose(model.encode_documents(TEXTS), vectors, atol=1e-6)
    peft = pytest.importorskip("peft")
    for factor in (1.0, 0.25):
        save_scaled(tmp_path / "model" / FOLDER, factor, tmp_path / f"{factor}")
        backbone = AutoModel.from_pretrained(tiny_model(family))
        adapted = peft.PeftModel.from_pretrained(backbone, tmp_path / f"{factor}").merge_and_unload()
        start = BiEncoder.from_pretrained(tiny_model(family), device="cpu")
        wanted = {
            name: torch.lerp(weight, model.backbone.get_parameter(name), factor)
            for name, weight in start.backbone.named_parameters()
        }
        for name, weight in adapted.named_parameters():
            torch.testing.assert_close(weight, wanted[name], atol=1e-6, rtol=1e-5)


def test_without_changes_all_is_as_before_to_the_bit(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean+linear", device="cpu")
    before, trained = model.state_dict(), [name for name, weight in model.named_parameters() if weight.requires_grad]
    vectors = model.encode_documents(TEXTS)
    lora = Lora(model, 4, seed=0)
    assert (model.encode_documents(TEXTS) == vectors).all()
    learned = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name for name in learned if "lora" not in name} == {"projection.weight", "projection.bias"}
    assert not any("pooler" in name or "embeddings" in name for name in learned)
    assert len(lora.learned) == len(learned)
    lora.detach()
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == trained
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert not any(isinstance(module, LoraLinear) for module in model.modules())


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("rank", [None, 4])
def test_memory_is_what_it_says(rank: int | None, family: str, tiny_model: Any) -> None:
    """Every tensor that training holds beside activations, counted after a step."""
    model = BiEncoder.from_pretrained(tiny_model(family), pooling="mean", device="cpu")
    weights = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    lora = None if rank is None else Lora(model, rank, seed=0)
    tokens, _ = model.tokenizer(TEXTS, 60)
    optimiser = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad])
    with Engine(model, FitSettings(), CPU, torch.bfloat16, tokens.lengths) as engine:
        with engine.embed(engine.split(tokens)) as vectors:
            vectors.square().sum().backward()
        optimiser.step()
        copies = sum(weight.nbytes for weight in engine.compute.parameters())
        states = [state for of in optimiser.state.values() for state in of.values() if state.ndim]
        held = [*model.parameters(), *engine.compute.parameters(), *engine._buffers, *states, *engine.compute.trained]
        found = sum(tensor.nbytes for tensor in held)  # what is trained has a gradient like itself for a moment
    size, trained = engine.compute.trained[0].itemsize, sum(weight.numel() for weight in engine.masters)
    held_weights = sum(weight.numel() for weight in model.parameters())
    assert state_bytes(trained, held_weights, copies, size) == pytest.approx(found, rel=0.02)  # norms are in float32
    if lora is not None:
        assert found < state_bytes(weights, held_weights, copies, size) / 2
        line = lora.describe(copies, size, eight_bit=False)
        assert line.startswith(f"LoRA of rank {rank} trains 0.0")
        assert f"{found / 1e6:,.1f} MB for weights" in line


def test_ranks_that_make_no_sense_are_refused(tiny_model: Any) -> None:
    with pytest.raises(InputError, match=r"LoRA of rank 32: the smallest layer has 32; use a smaller --lora"):
        Lora(BiEncoder.from_pretrained(tiny_model("bert")), 32, seed=0)
    with pytest.raises(InputError, match="lora is 0; it is a rank of at least 1"):
        FitSettings(lora=0)
