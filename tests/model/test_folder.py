"""Model folders that somebody else wrote: what they say is checked before it is believed."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers

from remargin import BiEncoder, InputError
from remargin.model.cross_encoder import CrossEncoder, is_cross_encoder
from remargin.model.folder import verify_model
from remargin.model.tokenizer import Tokenizer


@pytest.fixture
def saved(tiny_model: Any, tmp_path: Path) -> Path:
    """A folder as `save` writes it."""
    BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean+linear").save(tmp_path / "model")
    return tmp_path / "model"


def change(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


@pytest.mark.parametrize("path", [None, 5, ["a"], "..", "../other", "/etc", "1_Pooling/../../other", "a\0b"])
def test_modules_stay_in_the_folder(path: Any, saved: Path) -> None:
    modules = json.loads((saved / "modules.json").read_text())
    modules[1]["path"] = path
    (saved / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"modules.json: path .* of module Pooling does not lead to a place in"):
        BiEncoder.from_pretrained(saved)
    with pytest.raises(InputError, match="of module Pooling does not lead"):
        Tokenizer.from_pretrained(saved)


def test_a_folder_of_the_hub_links_to_its_blobs(saved: Path, tmp_path: Path) -> None:
    """The hub's cache has every file behind a link: that is no way out of the folder."""
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    for number, path in enumerate(path for path in saved.rglob("*") if path.is_file()):
        link = snapshot / path.relative_to(saved)
        link.parent.mkdir(parents=True, exist_ok=True)
        path.rename(blobs / str(number))
        link.symlink_to(os.path.relpath(blobs / str(number), link.parent))
    assert BiEncoder.from_pretrained(snapshot).pooling == "mean+linear"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "1_Pooling/config.json", "tokenizer.json"])
def test_no_other_link_leads_out_of_the_folder(file: str, saved: Path, tmp_path: Path) -> None:
    (saved / file).rename(tmp_path / "elsewhere")
    (saved / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{file}: is a link that leads out of the model's folder; copy the file"):
        BiEncoder.from_pretrained(saved)
    (tmp_path / "elsewhere").unlink()
    with pytest.raises(InputError, match=f"{file}: is a link that leads nowhere"):
        BiEncoder.from_pretrained(saved)


AUTO = {"AutoModel": "evil.Model", "AutoTokenizer": ["evil.Tokenizer", None]}


@pytest.mark.parametrize(
    ("file", "values", "problem"),
    [
        ("config.json", {"auto_map": AUTO}, "asks for code of its own"),
        ("config.json", {"text_config": {"auto_map": {"AutoConfig": "somebody/else--evil.Config"}}}, "code of its own"),
        ("tokenizer_config.json", {"auto_map": AUTO, "tokenizer_class": "Evil"}, "asks for code of its own"),
        ("config.json", {"attn_implementation": "somebody/kernel@main:f"}, "asks for code from 'somebody/kernel"),
        ("adapter_config.json", {"base_model_name_or_path": "somebody/else"}, "is an adapter to a model"),
        ("model.safetensors.index.json", {"weight_map": {"a": "../x.safetensors"}}, "weights in '../x.safetensors'"),
        ("model.safetensors.index.json", {"weight_map": {"a": "/etc/passwd"}}, "weights in '/etc/passwd'"),
    ],
)
def test_code_and_files_of_others_are_refused(file: str, values: dict[str, Any], problem: str, saved: Path) -> None:
    (saved / "evil.py").write_text("raise SystemExit('ran')")
    if not (saved / file).exists():
        (saved / file).write_text("{}")
    change(saved / file, **values)
    for load in (BiEncoder.from_pretrained, CrossEncoder.from_pretrained, Tokenizer.from_pretrained):
        with pytest.raises(InputError, match=f"{file}: .*{problem}") as refused:
            load(saved)
        assert len(str(refused.value).splitlines()) == 1


def test_pickled_weights_are_never_read(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"only pickled weights \(pytorch_model.bin\), which are never read"):
        BiEncoder.from_pretrained(saved)
    with pytest.raises(InputError, match="only pickled weights"):
        CrossEncoder.from_pretrained(saved)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config_sentence_transformers.json", {"prompts": "query: "}),
        ("config_sentence_transformers.json", {"prompts": ["a"]}),
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}),
        ("config_sentence_transformers.json", {"default_prompt_name": ["query"]}),
        ("config_sentence_transformers.json", {"similarity_fn_name": {}}),
        ("remargin_model.json", {"query_length": "30"}),
        ("remargin_model.json", {"document_length": 12.5}),
        ("remargin_model.json", {"document_length": -1}),
        ("remargin_model.json", {"document_length": True}),
        ("sentence_bert_config.json", {"do_lower_case": "yes"}),
        ("2_Dense/config.json", {"bias": "no"}),
    ],
)
def test_values_of_another_type_are_named(file: str, values: dict[str, Any], saved: Path) -> None:
    change(saved / file, **values)
    name = next(iter(values))
    with pytest.raises(InputError, match=rf"{file}: {name}.* is .*, not .*; use an intact model folder"):
        BiEncoder.from_pretrained(saved)


FILES = ["modules.json", "config.json", "tokenizer.json", "remargin_model.json", "1_Pooling/config.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_json_that_is_nested_too_deeply(file: str, content: str, saved: Path) -> None:
    (saved / file).write_text(content)
    with pytest.raises(InputError):
        BiEncoder.from_pretrained(saved)
    is_cross_encoder(saved)  # without an error: whoever loads it says what is wrong


@pytest.mark.parametrize("layers", [2**31, 10**30])
def test_layers_without_end_are_refused(layers: float, saved: Path) -> None:
    change(saved / "config.json", num_hidden_layers=layers)
    with pytest.raises(InputError, match=r"config.json: num_hidden_layers is .*, but there are only \d+ weights"):
        BiEncoder.from_pretrained(saved)


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_attention_heads"])
@pytest.mark.parametrize("value", [0, -1, -2, False])
def test_a_model_has_layers_and_heads(name: str, value: int, saved: Path) -> None:
    change(saved / "config.json", **{name: value})
    with pytest.raises(InputError, match=rf"config.json: {name} is {value}, not 1 or more; use an intact model"):
        BiEncoder.from_pretrained(saved)


@pytest.mark.parametrize("name", ["num_hidden_layers", "hidden_dropout_prob", "layer_norm_eps", "attention_dropout"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_refused(name: str, value: float, saved: Path) -> None:
    change(saved / "config.json", **{name: value})
    with pytest.raises(InputError, match=rf"config.json: {name} is -?(nan|inf), which is no finite number"):
        BiEncoder.from_pretrained(saved)


def test_a_model_that_computes_no_numbers_says_so(saved: Path) -> None:
    change(saved / "config.json", layer_norm_eps=-9.0)
    model = BiEncoder.from_pretrained(saved)
    for encode in (model.encode_queries, model.encode_documents, model.encode_passages):
        with pytest.raises(InputError, match="gives vectors with numbers that are not finite; use an intact model"):
            encode(["a text"])


def test_lengths_may_be_changed_by_hand(saved: Path) -> None:
    change(saved / "remargin_model.json", document_length=40)
    assert BiEncoder.from_pretrained(saved).document_length == 40
    with pytest.raises(InputError, match=r"remargin_model.json: header damaged"):
        verify_model(saved, "save it again")


DECODERS: dict[str, type[transformers.PreTrainedConfig]] = {
    "qwen3": transformers.Qwen3Config,
    "gemma3_text": transformers.Gemma3TextConfig,
    "llama": transformers.LlamaConfig,
    "gpt2": transformers.GPT2Config,
}


@pytest.mark.parametrize("kind", DECODERS)
def test_decoders_are_refused_by_name(kind: str, tiny_model: Any, tmp_path: Path) -> None:
    """Their first token sees no other: [CLS] pooling would give every text the same vector."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 200, "head_dim": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    config = DECODERS[kind](**sizes)
    shutil.copytree(tiny_model("bert"), tmp_path, dirs_exist_ok=True)  # for its tokenizer
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    for load in (BiEncoder.from_pretrained, CrossEncoder.from_pretrained):
        with pytest.raises(InputError, match=rf"is a decoder \({kind}\), which generates text.*; name an encoder"):
            load(tmp_path)


def test_an_encoder_that_is_set_up_as_a_decoder_is_refused(tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(tiny_model("bert"), tmp_path, dirs_exist_ok=True)
    change(tmp_path / "config.json", is_decoder=True)
    with pytest.raises(InputError, match=r"is a decoder \(bert\)"):
        BiEncoder.from_pretrained(tmp_path)
