"""Model folders of all kinds, with every file of theirs that says something."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from remargin import BiEncoder, blend
from remargin.model.cross_encoder import OURS, CrossEncoder, is_cross_encoder
from remargin.model.tokenizer import Tokenizer

from .mutations import HEADER, JSON, TENSORS, Format
from .running import Case, require_finite
from .world import World

TEXTS = ["how do margins adapt?", "the value of a text"]


def bi_encoder(folder: Path) -> None:
    model = BiEncoder.from_pretrained(folder, device="cpu")
    require_finite(model.encode_queries(TEXTS), model.encode_documents(TEXTS))


def cross_encoder(folder: Path) -> None:
    require_finite(CrossEncoder.from_pretrained(folder, device="cpu").score([(TEXTS[0], TEXTS[1])] * 2))


def tokenizer(folder: Path) -> None:
    found = Tokenizer.from_pretrained(folder)
    found(TEXTS, 16)
    found.fingerprint  # noqa: B018


def kind(folder: Path) -> None:
    is_cross_encoder(folder)


def _case(folder: Path, *files: str) -> Case:
    """All files of a folder, or only some of them."""
    every = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    formats: dict[str, Format] = {}
    for name, path in every.items():
        if path.suffix == ".safetensors":
            formats[name] = TENSORS
        elif path.suffix == ".json":
            formats[name] = HEADER if path.name == OURS else JSON
    chosen = {name: format for name, format in formats.items() if not files or Path(name).name in files}
    return Case(folder, chosen, (bi_encoder, cross_encoder, tokenizer, kind), count=200)


def plain_model(world: World) -> Case:
    return _case(world.model)


def saved_cls(world: World) -> Case:
    world.encoder.save(world.root / "cls")
    return _case(world.root / "cls")


def saved_cls_linear(world: World) -> Case:
    model = BiEncoder.from_pretrained(world.model, "cls+linear", query_prefix="query: ", document_prefix="text: ")
    model.save(world.root / "cls-linear")
    return _case(world.root / "cls-linear")


def saved_mean_dot(world: World) -> Case:
    BiEncoder.from_pretrained(world.model, "mean", "dot", query_length=8).save(world.root / "mean")
    return _case(world.root / "mean")


def older_layout(world: World) -> Case:
    """As older versions of sentence-transformers wrote it."""
    folder = world.folder("older")
    shutil.copytree(world.model, folder / "0_Transformer")
    (folder / "1_Pooling").mkdir()
    names = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(names.items())
    ]
    lengths = {"max_seq_length": 64, "do_lower_case": True}
    card = {"__version__": {"sentence_transformers": "2.0.0"}, "prompts": {}, "default_prompt_name": None}
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    contents = {
        "modules.json": modules,
        "config_sentence_transformers.json": card,
        "0_Transformer/sentence_bert_config.json": lengths,
        "1_Pooling/config.json": pooling,
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    return _case(folder)


def saved_cross_encoder(world: World) -> Case:
    world.cross_encoder.save(world.root / "cross-encoder")
    return _case(world.root / "cross-encoder")


def weights_in_parts(world: World) -> Case:
    """Weights in several files, and an index that says in which."""
    folder = world.root / "parts"
    shutil.copytree(world.model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    backbone = world.encoder.backbone
    backbone.save_pretrained(folder, max_shard_size="40KB")
    return _case(folder, "model.safetensors.index.json")


def models_to_blend(world: World) -> Case:
    """Two of one kind, of which the second is damaged."""
    folder, dev = world.folder("pair"), world.dev
    for name in ("start", "trained"):
        BiEncoder.from_pretrained(world.model, "mean+linear", device="cpu").save(folder / name)

    def blend_both(folder: Path) -> None:
        made = blend(folder / "start", folder / "trained", 0.5, folder / "blended")
        require_finite(made.model.encode_queries(TEXTS), made.model.encode_documents(TEXTS))

    def choose(folder: Path) -> None:
        made = blend(folder / "start", folder / "trained", data=dev)
        require_finite(made.model.encode_queries(TEXTS))

    case = _case(folder / "trained")
    files = {f"trained/{name}": format for name, format in case.files.items()}
    return Case(folder, files, (blend_both, choose), count=150)


TARGETS = [
    plain_model,
    saved_cls,
    saved_cls_linear,
    saved_mean_dot,
    older_layout,
    saved_cross_encoder,
    weights_in_parts,
    models_to_blend,
]
