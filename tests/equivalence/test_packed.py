"""Packed = padded: the engine's encoder against transformers' own, output and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remargin.model import products
from remargin.model.compute import Compute, _Padded
from remargin.model.encoder import Pooling
from remargin.model.packing import Kernels, attend, pack
from remargin.model.tokenizer import Tokens

LENGTHS = np.array([3, 17, 1, 30, 8, 8, 29, 2])
SMALL = {"vocab_size": 60, "max_position_embeddings": 40}
GROUPED = ("eurobert", "qwen3", "mistral", "llama")  # several query heads share keys and values
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}


def backbone(kind: str) -> nn.Module:
    import transformers as t

    torch.manual_seed(0)
    made: Any
    if kind == "distilbert":
        made = t.DistilBertModel(t.DistilBertConfig(dim=32, n_layers=3, n_heads=2, hidden_dim=48, **SMALL))
    elif kind == "electra":
        made = t.ElectraModel(t.ElectraConfig(embedding_size=16, **SMALL, **SIZES))
    elif kind == "modernbert":
        special = {f"{name}_token_id": i for i, name in enumerate(("pad", "eos", "bos", "cls", "sep"))}
        config = t.ModernBertConfig(local_attention=8, global_attn_every_n_layers=2, **special, **SMALL, **SIZES)
        made = t.ModernBertModel(config)
    elif kind in GROUPED:
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}
        special |= {"sliding_window": 8} if kind == "mistral" else {}
        config = t.AutoConfig.for_model(kind, num_key_value_heads=1, head_dim=24, **special, **SMALL, **SIZES)
        made = t.AutoModel.from_config(config)
    else:
        names = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "mpnet": "MPNet"}
        config = getattr(t, f"{names[kind]}Config")(**SMALL, **SIZES)
        made = getattr(t, f"{names[kind]}Model")(config)
    for parameter in made.parameters():  # biases and norms start at 0 and 1, where mistakes would not show
        parameter.data += 0.05 * torch.randn_like(parameter)
    if getattr(made, "pooler", None) is not None:
        made.pooler.requires_grad_(False)
    return made  # type: ignore[no-any-return]


class Model(nn.Module):
    """What the engine needs of a BiEncoder, around a backbone of any family."""

    def __init__(self, kind: str, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.backbone = backbone(kind)
        self.pooling = pooling
        self.projection = nn.Linear(32, 32) if "+" in pooling else None

    def forward(self, tokens: Tokens) -> Tensor:
        """As transformers pads, in one rectangle."""
        mask = torch.arange(int(tokens.lengths.max()))[None] < torch.from_numpy(tokens.lengths)[:, None]
        padding = getattr(self.backbone.config, "pad_token_id", 0) or 0
        ids = torch.full(mask.shape, padding)
        ids[mask] = torch.from_numpy(tokens.ids)
        hidden = self.backbone(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        if self.pooling.startswith("mean"):
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        elif self.pooling.startswith("last"):
            pooled = hidden[torch.arange(len(hidden)), torch.from_numpy(tokens.lengths) - 1]
        else:
            pooled = hidden[:, 0]
        if self.projection is not None:
            pooled = self.projection(pooled)
        return pooled.tanh() if self.pooling.endswith("+pooler") else pooled  # type: ignore[no-any-return]


def texts(seed: int = 0) -> Tokens:
    rng = np.random.default_rng(seed)
    return Tokens(rng.integers(5, 60, LENGTHS.sum()), LENGTHS)


def gradients(model: Model, vectors: Tensor, of: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    vectors.backward(of)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


DECODERS = ("qwen3", "mistral", "llama")
FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "electra", "mpnet", "modernbert", "eurobert")
POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "cls+linear", "mean+pooler", "last")
POOLED: list[tuple[str, Pooling]] = [(kind, pooling) for kind in FAMILIES for pooling in POOLINGS]
POOLED += [(kind, pooling) for kind in DECODERS for pooling in ("last", "last+linear")]  # type: ignore[misc]


@pytest.mark.parametrize(("kind", "pooling"), POOLED)
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_packed_is_padded(kind: str, pooling: Pooling, engine: Any) -> None:
    model = Model(kind, pooling).eval()
    tokens = texts()
    expected = model(tokens)
    of = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    wanted = gradients(model, expected, of)
    compute = Compute(model, engine=engine)
    assert compute.packed == (engine == "packed")
    packed = pack(tokens, multiple=64, longest=30, texts=len(LENGTHS) + 4)
    vectors = compute(packed)
    torch.testing.assert_close(vectors, expected, atol=2e-5, rtol=1e-4)
    with_fillers = compute(packed._replace(fillers=0))  # as CUDA graphs run it
    of_fillers = torch.zeros(packed.fillers, of.shape[1])
    for a, b in zip(
        compute.gradients(with_fillers, torch.cat([of, of_fillers])), compute.gradients(vectors, of), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    vectors = compute(packed)
    names = {id(p): name for name, p in model.named_parameters()}
    found = dict(zip((names[id(p)] for p in compute.masters), compute.gradients(vectors, of), strict=True))
    assert set(wanted) <= set(found)
    for name, gradient in found.items():
        gradient = gradient.to_dense()
        torch.testing.assert_close(gradient, wanted.get(name, torch.zeros_like(gradient)), atol=1e-4, rtol=1e-3)
    assert all(wanted[name].abs().max() > 0 for name in wanted if "key.bias" not in name and ".k" not in name)


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def distance(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().cpu().float(), b.detach().cpu().float()
    return float((a - b).norm() / b.norm())


PLAIN = [(kind, dtype, False) for kind in FAMILIES for dtype in (torch.float32, torch.bfloat16)]
COMPILED = [(kind, torch.bfloat16, True) for kind in ("bert", "distilbert", "mpnet")]


@GPU
@pytest.mark.parametrize(("kind", "dtype", "compiled"), PLAIN + COMPILED)
def test_gpu_is_cpu(kind: str, dtype: torch.dtype, compiled: bool) -> None:
    """The CPU's path in float32 against the GPU's, in float32 and in bfloat16, compiled and not."""
    model = Model(kind).eval()
    tokens = texts()
    plain = Compute(model)
    expected = plain(pack(tokens))
    of = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    wanted = plain.gradients(expected, of)
    on_gpu = Compute(model.to("cuda"), dtype, engine="packed")
    run = torch.compile(on_gpu, dynamic=True) if compiled else on_gpu
    vectors = run(pack(tokens, multiple=64, longest=30).to(torch.device("cuda")))
    close = 1e-4 if dtype == torch.float32 else 0.03
    assert distance(vectors, expected) < close
    for found, gradient in zip(on_gpu.gradients(vectors, of.cuda()), wanted, strict=True):
        if gradient.norm() > 1e-3 * max(g.norm() for g in wanted):
            assert distance(found, gradient) < 3 * close


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["bert", "distilbert", "mpnet"])
def test_frozen_for_encoding_is_the_same(kind: str, dtype: torch.dtype) -> None:
    model = Model(kind).eval()
    tokens = texts()
    expected = model(tokens)
    frozen = Compute(model, dtype).freeze()
    assert not any(isinstance(layer.qkv, nn.Linear) for layer in frozen.body.layers)
    assert not frozen.sources
    close = 1e-5 if dtype == torch.float32 else 0.02
    assert distance(frozen(pack(tokens)), expected) < close


@pytest.mark.parametrize("kind", ["bert", "mpnet", "modernbert"])  # masks of texts, of heads too, and of windows
@pytest.mark.parametrize("texts_at_once", [1, 3])
def test_attention_of_a_few_texts_at_a_time_is_that_of_all(
    kind: str, texts_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, original, seen = Model(kind).eval(), products._products, list[int]()
    compute, heads = Compute(model, torch.bfloat16).freeze(), model.backbone.config.num_attention_heads

    def watched(q: Tensor, *others: Any) -> Tensor:
        seen.append(len(q))
        return original(q, *others)

    for tokens in (texts(), Tokens(np.arange(40, dtype=np.int32), np.array([8] * 5))):  # the latter need no mask
        packed = pack(tokens)
        whole = compute(packed)
        with monkeypatch.context() as patched, torch.no_grad():
            patched.setattr(products, "_products", watched)
            patched.setattr(products, "CACHED_SCORES", texts_at_once * heads * packed.longest**2)
            parts = compute(packed)
        assert max(seen) == texts_at_once
        assert sum(seen) % len(tokens.lengths) == 0
        torch.testing.assert_close(parts, whole, rtol=0, atol=0)
        seen.clear()


def test_what_dropout_drops_does_not_depend_on_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch over the token budget is computed twice, the second time with gradients."""
    monkeypatch.setattr(products, "CACHED_SCORES", 1)
    model = Model("bert").train()
    compute, packed, calls = Compute(model, torch.bfloat16, attention_dropout=True).train(), pack(texts()), list[int]()
    original = products._products
    monkeypatch.setattr(products, "_products", lambda q, *others: (calls.append(len(q)), original(q, *others))[1])
    assert compute.body.layers[0].weight_dropout > 0
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            compute(packed)
    assert set(calls) == {len(packed.bounds) - 1}


@pytest.mark.parametrize(("kind", "engine"), [("modernbert", "packed"), ("bert", "padded"), ("mpnet", "padded")])
def test_training_others_models_keeps_sums_in_float32(kind: str, engine: Any) -> None:
    model = Model(kind).eval()
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(texts())
    compute = Compute(model, torch.bfloat16, engine)
    packed = pack(texts())
    hidden = compute.body(packed)
    assert distance(compute(packed), expected) < 2e-3
    assert hidden.dtype == torch.float32
    assert compute.freeze().body(packed).dtype == torch.bfloat16
    assert distance(compute(packed), expected) < 0.02


def test_attention_dropout_that_is_only_a_number_is_left_out_too() -> None:
    from transformers import LongformerConfig, LongformerModel

    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    backbone = LongformerModel(LongformerConfig(vocab_size=50, attention_window=[4], **size))
    [attention] = [
        m for m in _Padded(backbone, torch.float32, False).modules() if type(m).__name__ == "LongformerSelfAttention"
    ]
    assert attention.dropout == 0.0


@pytest.mark.parametrize(
    ("kind", "kernels", "words"),
    [
        ("bert", Kernels(attend, attend), "our kernels"),
        ("bert", Kernels(None, attend), "varlen attention"),
        ("bert", Kernels(), "but for the attention"),
        ("mpnet", Kernels(attend, attend), "but for the attention"),
        ("modernbert", Kernels(attend, attend), "our kernels"),
        ("eurobert", Kernels(attend, attend), "our kernels"),
        ("qwen3", Kernels(attend, attend), "varlen attention"),
        ("llama", Kernels(attend, None), "but for the attention"),
    ],
)
def test_the_attention_that_a_gpu_would_use_is_named(kind: str, kernels: Kernels, words: str) -> None:
    compute = Compute(Model(kind).eval(), torch.bfloat16)
    compute.kernels = kernels
    assert compute.describe(torch.device("cuda")) == f"packed ({words}), bfloat16"
    assert compute.describe(torch.device("cpu")) == "packed (but for the attention), bfloat16"
