"""Models in layouts of their own, and an index of sparse vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers

from remargin import BiEncoder
from remargin.data.source import Text
from remargin.model.layouts.splade import Splade
from remargin.model.loading import load_model
from remargin.model.ranker import Ranker
from remargin.retrieval.searching import load_index
from remargin.retrieval.sparse import HEADER as SPARSE
from remargin.retrieval.sparse import index_sparse

from .models import TEXTS
from .mutations import HEADER, JSON, TENSORS
from .running import Case, Reader, require_finite
from .world import World


def _load(name: Path | str) -> None:
    model = load_model(name)
    if isinstance(model, BiEncoder):
        require_finite(model.encode_queries(TEXTS), model.encode_documents(TEXTS))
    else:
        require_finite(model.scores(model.encode_queries(TEXTS), model.encode_documents(TEXTS)))


def _case(folder: Path, *names: str, read: Reader = _load) -> Case:
    formats = {name: TENSORS if name.endswith(".safetensors") else JSON for name in names}
    return Case(folder, formats, (read,), count=150)


def _backbone(world: World, name: str, prefix: str = "", **more: torch.Tensor) -> Path:
    """The tiny backbone with other weights beside its own."""
    folder = world.folder(name)
    world.encoder.hf_tokenizer.save_pretrained(folder)
    world.encoder.backbone.config.save_pretrained(folder)
    weights = {f"{prefix}{name}": weight for name, weight in world.encoder.backbone.state_dict().items()}
    everything = {**weights, **{name.replace("__", "."): weight for name, weight in more.items()}}
    safetensors.torch.save_file(everything, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def ance(world: World) -> Case:
    head = {"embeddingHead__weight": torch.randn(16, 32), "embeddingHead__bias": torch.randn(16)}
    norm = {"norm__weight": torch.randn(16), "norm__bias": torch.randn(16)}
    return _case(_backbone(world, "ance", **head, **norm), "config.json", "model.safetensors")


def dpr(world: World) -> Case:
    """Two folders; each may be damaged beside a whole one."""
    folder, names = world.folder("dpr"), []
    raw = transformers.AutoConfig.from_pretrained(world.model).to_dict()
    shape = {name: raw[name] for name in transformers.DPRConfig().to_dict() if name in raw and name != "model_type"}
    config = transformers.DPRConfig(**{**shape, "projection_dim": 12})
    kinds = {"question": transformers.DPRQuestionEncoder, "context": transformers.DPRContextEncoder}
    for half, kind in kinds.items():
        kind(config).save_pretrained(folder / half)
        world.encoder.hf_tokenizer.save_pretrained(folder / half)
        names += [f"{half}/config.json", f"{half}/model.safetensors"]

    def load(folder: Path) -> None:
        _load(f"{folder / 'question'}+{folder / 'context'}")

    return _case(folder, *names, read=load)


def colbert(world: World) -> Case:
    folder = _backbone(world, "colbert", "bert.", linear__weight=torch.randn(16, 32))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    said = {"query_maxlen": 9, "doc_maxlen": 20, "query_token_id": "how", "doc_token_id": "the"}
    (folder / "artifact.metadata").write_text(json.dumps(said))
    return _case(folder, "config.json", "artifact.metadata", "model.safetensors")


def _splade(world: World, name: str) -> Path:
    folder = world.folder(name)
    world.encoder.hf_tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(world.model)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    types = {"": "base.modules.transformer.Transformer", "1_P": "sparse_encoder.modules.splade_pooling.SpladePooling"}
    modules = [{"path": path, "type": f"sentence_transformers.{type}"} for path, type in types.items()]
    (folder / "1_P").mkdir()
    (folder / "1_P" / "config.json").write_text(json.dumps({"pooling_strategy": "max"}))
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def splade(world: World) -> Case:
    names = ("config.json", "modules.json", "1_P/config.json", "model.safetensors")
    return _case(_splade(world, "splade"), *names)


def sparse_index(world: World) -> Case:
    model = load_model(_splade(world, "splade-of-index"))
    assert isinstance(model, Splade)
    index_sparse(model, [Text(f"d{i}", text) for i, text in enumerate(TEXTS)], world.root / "sparse")

    def search(folder: Path, given: Ranker | None = model) -> None:
        for ranking in load_index(folder, given).search({"q": TEXTS[0]}, 3).rankings.values():
            require_finite(np.array(list(ranking.values())))

    def with_its_own_model(folder: Path) -> None:
        search(folder, None)

    return Case(world.root / "sparse", {SPARSE: HEADER}, (search, with_its_own_model), count=300)


TARGETS = [ance, dpr, colbert, splade, sparse_index]
