"""Small random checkpoints in the very layouts in which the paper's systems were published, and their own scores.

Random weights prove a layout: that every weight has its place, and every text becomes the same tokens. They say nothing
about quality.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from remargin import BiEncoder
from remargin.evaluation.runs import Run

Scores = Callable[[Sequence[str], Sequence[str]], NDArray[Any]]
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "initializer_range": 0.3,
}


def tokens(folder: Path, texts: Sequence[str], length: int) -> dict[str, torch.Tensor]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return dict(tokenizer(list(texts), padding=True, truncation=True, max_length=length, return_tensors="pt"))


def with_tokenizer(folder: Path, raw: Path) -> Path:
    transformers.AutoTokenizer.from_pretrained(raw).save_pretrained(folder)
    return folder


def vocabulary(raw: Path) -> int:
    return len(transformers.AutoTokenizer.from_pretrained(raw))


def spread(model: torch.nn.Module, seed: int) -> Any:
    """Other weights than those that a new model has, which hardly tell one text from another."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weight + 0.15 * torch.randn_like(weight) if "norm" not in name.lower() else weight)
    return model.eval()


def dpr(folder: Path, raw: Path, projection: int = 0) -> tuple[str, Scores]:
    """Two folders, as facebook/dpr-question_encoder-single-nq-base and dpr-ctx_encoder-single-nq-base are."""
    config = transformers.DPRConfig(vocab_size=vocabulary(raw), projection_dim=projection, **TINY)
    kinds = {"question": transformers.DPRQuestionEncoder, "context": transformers.DPRContextEncoder}
    models = {name: spread(kind(config), seed) for seed, (name, kind) in enumerate(kinds.items())}
    for name, model in models.items():
        model.save_pretrained(folder / name)
        with_tokenizer(folder / name, raw)

    def vectors(name: str, texts: Sequence[str]) -> NDArray[Any]:
        with torch.no_grad():
            return np.asarray(models[name](**tokens(folder / name, texts, 64)).pooler_output)

    return f"{folder / 'question'}+{folder / 'context'}", lambda q, d: vectors("question", q) @ vectors("context", d).T


class AnceEncoder(transformers.PreTrainedModel):
    """The names of the weights are those of the published checkpoint."""

    config_class = transformers.RobertaConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.roberta = transformers.RobertaModel(config)
        self.embeddingHead = torch.nn.Linear(config.hidden_size, 48)
        self.norm = torch.nn.LayerNorm(48)
        self.post_init()


def ance(folder: Path, raw: Path) -> tuple[str, Scores]:
    """One folder, as castorini/ance-msmarco-passage is, with the architecture that ANCE's own code writes."""
    config = transformers.RobertaConfig(vocab_size=vocabulary(raw), pad_token_id=1, **TINY)
    model = spread(AnceEncoder(config), 0)
    torch.nn.init.normal_(model.norm.weight)
    torch.nn.init.normal_(model.norm.bias)
    model.save_pretrained(folder)
    with_tokenizer(folder, raw)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "architectures": ["RobertaForSequenceClassification"]}))

    def vectors(texts: Sequence[str]) -> NDArray[Any]:
        with torch.no_grad():
            first = model.roberta(**tokens(folder, texts, 64)).last_hidden_state[:, 0]
            return np.asarray(model.norm(model.embeddingHead(first)))

    return str(folder), lambda q, d: vectors(q) @ vectors(d).T


def ance_of_sentence_transformers(folder: Path, raw: Path) -> tuple[str, Scores]:
    """As msmarco-roberta-base-ance-firstp is: a cased tokenizer after do_lower_case, Dense and LayerNorm."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Pooling, Transformer

    cased = shutil.copytree(raw, folder.with_name("cased"))
    tokenizer = json.loads((cased / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (cased / "tokenizer.json").write_text(json.dumps(tokenizer))
    body = Transformer(str(cased), max_seq_length=60, do_lower_case=True)
    dense = Dense(32, 48, activation_function=torch.nn.Identity())
    norm = LayerNorm(48)
    torch.nn.init.normal_(norm.norm.weight)
    model = SentenceTransformer(modules=[body, Pooling(32, pooling_mode="cls"), dense, norm], device="cpu")
    spread(model, 0)
    model.similarity_fn_name = "dot"
    model.save(str(folder))
    bert = folder / "sentence_bert_config.json"
    bert.write_text(json.dumps({**json.loads(bert.read_text()), "do_lower_case": True, "max_seq_length": 60}))
    return str(folder), sentence_transformer(folder)


def sentence_transformer(folder: Path) -> Scores:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return lambda q, d: np.asarray(model.similarity(model.encode_query(list(q)), model.encode_document(list(d))))


def of_sentence_transformers(folder: Path, raw: Path, pooling: str, similarity: str = "dot") -> tuple[str, Scores]:
    """A backbone, a pooling and a similarity, as msmarco-distilbert-base-tas-b is."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    modules = [Transformer(str(raw)), Pooling(32, pooling_mode=pooling)]
    model = spread(SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=similarity), 0)
    model.save(str(folder))
    return str(folder), sentence_transformer(folder)


def contriever(folder: Path, raw: Path) -> tuple[str, Scores]:
    """As facebook/contriever is: a plain BERT whose weights are a pickle, and a pooling that only its README says."""
    model = spread(transformers.AutoModel.from_pretrained(raw), 0)
    model.config.save_pretrained(folder)
    with_tokenizer(folder, raw)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")

    def vectors(texts: Sequence[str]) -> NDArray[Any]:
        inputs = tokens(folder, texts, 64)
        mask = inputs["attention_mask"][..., None]
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state.masked_fill(mask == 0, 0.0)
        return np.asarray(hidden.sum(1) / mask.sum(1))

    return str(folder), lambda q, d: vectors(q) @ vectors(d).T


def papers(folder: Path, raw: Path) -> tuple[str, Scores]:
    """A backbone with the paper's pooling for its family, as `fit` writes it."""
    model = BiEncoder.from_pretrained(raw, seed=3)
    spread(model, 0)
    model.save(folder)
    return str(folder), sentence_transformer(folder)


def splade(folder: Path, raw: Path, older: bool = False) -> tuple[str, Scores]:
    """A SparseEncoder, as sentence-transformers 6 writes it, or as naver/splade-v3 is (`older`)."""
    from sentence_transformers import SparseEncoder

    model = spread(SparseEncoder(str(raw), device="cpu"), 0)
    model.save(str(folder))
    if older:
        types = ("sparse_encoder.models.MLMTransformer", "sparse_encoder.models.SpladePooling")
        modules = zip(json.loads((folder / "modules.json").read_text()), types, strict=True)
        named = [{**module, "type": f"sentence_transformers.{type}"} for module, type in modules]
        (folder / "modules.json").write_text(json.dumps(named))
        lengths = {"max_seq_length": 64, "do_lower_case": False}
        (folder / "sentence_bert_config.json").write_text(json.dumps(lengths))

    def scores(queries: Sequence[str], documents: Sequence[str]) -> NDArray[Any]:
        loaded = SparseEncoder(str(folder), device="cpu")
        similarity = loaded.similarity(loaded.encode_query(list(queries)), loaded.encode_document(list(documents)))
        return np.asarray(similarity.to_dense())

    return str(folder), scores


def stanford(folder: Path, raw: Path) -> tuple[str, Scores]:
    """As colbert-ir/colbertv2.0 is: HF_ColBERT, with linear.weight beside the backbone, and artifact.metadata."""
    import safetensors.torch

    tokenizer = transformers.AutoTokenizer.from_pretrained(raw)
    tokenizer.add_tokens(["[unused0]", "[unused1]", *'!"#$%&*+/;<=>@[\\]^`{|}~'])
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(tokenizer), **TINY), add_pooling_layer=False)
    spread(model, 0)
    model.config.architectures = ["HF_ColBERT"]
    model.config.save_pretrained(folder)
    weights = {f"bert.{name}": weight for name, weight in model.state_dict().items()}
    weights["linear.weight"] = torch.randn(16, 32)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "architectures": ["HF_ColBERT"]}))
    said = {"query_maxlen": 16, "doc_maxlen": 40, "query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
    (folder / "artifact.metadata").write_text(json.dumps({**said, "mask_punctuation": True}))
    return str(folder), _multi_vector(folder)


def pylate(folder: Path, raw: Path, **changed: Any) -> tuple[str, Scores]:
    """As lightonai/GTE-ModernColBERT-v1 is: modules of PyLate, whose prefixes are tokens."""
    import safetensors.torch

    stanford(folder, raw)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    linear = weights.pop("linear.weight")
    weights = {name.removeprefix("bert."): weight for name, weight in weights.items()}
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "1_Dense").mkdir()
    safetensors.torch.save_file({"linear.weight": linear}, folder / "1_Dense" / "model.safetensors")
    dense = {"in_features": 32, "out_features": 16, "bias": False, "use_residual": False}
    written = {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
        ],
        "1_Dense/config.json": {**dense, "activation_function": "torch.nn.modules.linear.Identity"},
        "sentence_bert_config.json": {"max_seq_length": 63, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "ColBERT",
            "prompts": {"query": "", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "MaxSim",
            "query_prefix": "[unused0]",
            "document_prefix": "[unused1]",
            "query_length": 16,
            "document_length": 40,
            "attend_to_expansion_tokens": False,
            "skiplist_words": [word for word in "!?.,;" if word in tokenizer.get_vocab()],
            "do_query_expansion": True,
            **changed,
        },
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "artifact.metadata").unlink()
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "architectures": ["BertModel"]}))
    return str(folder), _multi_vector(folder)


def _multi_vector(folder: Path) -> Scores:
    from sentence_transformers import MultiVectorEncoder

    def scores(queries: Sequence[str], documents: Sequence[str]) -> NDArray[Any]:
        model = MultiVectorEncoder(str(folder), device="cpu")
        return np.asarray(model.similarity(model.encode_query(list(queries)), model.encode_document(list(documents))))

    return scores


def assert_same(found: Run, expected: Run) -> None:
    """Every score is the same, but for rounding."""
    assert found.rankings.keys() == expected.rankings.keys()
    for query, ranking in expected.rankings.items():
        assert found.rankings[query].keys() == ranking.keys()
        largest = max(map(abs, ranking.values()))
        for document, score in ranking.items():
            assert found.rankings[query][document] == pytest.approx(score, abs=2e-5 * max(1, largest))
