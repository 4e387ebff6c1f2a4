"""Small random decoders in the very layouts of Qwen3-Embedding and E5-Mistral, and sentence-transformers' scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from .checkpoints import Scores, sentence_transformer, spread

TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
WORDS = "the a of margins adapt query document returns value list text model train test file"
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": 48, "max_position_embeddings": 200, "initializer_range": 0.3,
}  # fmt: skip


def qwen3_embedding(folder: Path, raw: Path | None = None, task: str = TASK) -> tuple[str, Scores]:
    """Byte-level tokens with <|endoftext|> behind them, an idle chat template, and prompts by their names."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [start + word for word in WORDS.split() for start in ("", "Ġ")]
    backend = Tokenizer(_byte_pairs(words, [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = _template(backend, "$A <|endoftext|>", "<|endoftext|>")
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), ends])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|endoftext|>", eos_token="<|im_end|>", padding_side="left",
        model_max_length=131_072,
    )  # fmt: skip
    tokenizer.chat_template = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
    config = transformers.Qwen3Config(vocab_size=len(tokenizer), eos_token_id=0, bos_token_id=0, **SIZES)
    spread(transformers.Qwen3Model(config), 0).save_pretrained(folder)
    _change(folder / "config.json", architectures=["Qwen3ForCausalLM"])  # though it has no weights of a head
    prompts = {"query": task, "document": ""}
    return _write(folder, tokenizer, prompts)


def e5_mistral(folder: Path, raw: Path | None = None) -> tuple[str, Scores]:
    """Words with a mark before them, <s> and </s>, attention to 8 tokens, weights in several files, other prompts."""
    words = [f"▁{word}" for word in WORDS.split()]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(set("".join(words)))]
    backend = Tokenizer(_byte_pairs(words, first, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.post_processor = _template(backend, "<s> $A </s>", "<s>", "</s>")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>",
        padding_side="left",
    )  # fmt: skip
    config = transformers.MistralConfig(vocab_size=len(tokenizer), sliding_window=8, **SIZES)
    spread(transformers.MistralModel(config), 1).save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").is_file()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 96, "do_lower_case": False}))
    return _write(folder, tokenizer, {"web_search_query": f"{TASK} "})


LAYOUTS = {"Qwen3-Embedding": qwen3_embedding, "E5-Mistral": e5_mistral}


def _byte_pairs(words: Sequence[str], first: Sequence[str], **options: Any) -> Any:
    """Byte-pair encoding with these words among its tokens, each put together from its beginning."""
    merges = dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word)))
    tokens = dict.fromkeys([*first, *(start + letter for start, letter in merges)])
    return models.BPE({token: id for id, token in enumerate(tokens)}, list(merges), **options)


def _template(backend: Tokenizer, single: str, *specials: str) -> Any:
    ids = [(special, backend.token_to_id(special)) for special in specials]
    pair = f"{single} {single.replace('$A', '$B')}"
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def _write(folder: Path, tokenizer: Any, prompts: dict[str, str]) -> tuple[str, Scores]:
    """The rest of the folder, as sentence-transformers 2 to 4 wrote it."""
    tokenizer.save_pretrained(folder)
    names = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    flags = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
    pooling = {f"pooling_mode_{flag}": False for flag in flags}
    pooling |= {"word_embedding_dimension": 32, "pooling_mode_lasttoken": True, "include_prompt": True}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    card = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(card))
    return str(folder), sentence_transformer(folder)


def _change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of a model's weights."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}
