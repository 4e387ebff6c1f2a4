"""Model folders: what sentence-transformers reads and writes, plus the lengths that only we keep apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from remargin.errors import InputError, first_line
from remargin.files.checksums import sha256, verify_files
from remargin.files.headers import read_header, read_json, write_header
from remargin.files.shapes import Checksums, Finite, Size, mismatch, stays_inside
from remargin.model.names import bundled_minilm, named_minilm, what_works
from remargin.model.untrusted import refuse_untrusted

if TYPE_CHECKING:
    from torch import nn

    from remargin.losses.inputs import Similarity
    from remargin.model.encoder import Pooling

# Module names end the same in every version of sentence-transformers; we write those that every version reads.
MODULES = "sentence_transformers.models."
ACTIVATIONS = {"linear": "torch.nn.modules.linear.Identity", "pooler": "torch.nn.modules.activation.Tanh"}
WEIGHTS = "*.safetensors"
HUB_FILES = ["*.json", WEIGHTS, "*.txt", "*.model"]
OURS = "remargin_model.json"  # in every folder that we wrote
FORMAT = "remargin-model-1"
INTACT = "use an intact model folder"
MODULES_FILE = "modules.json"
BIDIRECTIONAL = ("bert-generation", "xlnet")  # generate text, too, but their tokens see the whole text
ORDER = ["Transformer", "Pooling", "Dense", "Normalize"]
LONGEST_DEFAULT = 512  # tokens of a text, if the folder does not say; few encoders were trained on longer ones
LONGEST_PATH = 255  # characters of where a module is; systems allow no longer name
UNLIMITED = 1e9  # tokens: transformers writes 1e30 for a tokenizer without a maximum
# Families that count positions from behind the padding token, and so have fewer than their config says.
COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "mpnet")


@dataclass
class Settings:
    """What a model folder says about how its encoder is to be used. None: it does not say."""

    transformer: Path
    pooling: Pooling | None = None
    similarity: Similarity = "cosine"
    query_length: int | None = None
    document_length: int | None = None
    max_length: int | None = None  # of any text, as sentence-transformers has it
    query_prefix: str = ""
    document_prefix: str = ""
    dense: Path | None = None
    lower_case: bool = False

    def projection(self) -> nn.Linear | None:
        """The projection that the folder holds."""
        if self.dense is None:
            return None
        import safetensors
        import safetensors.torch
        from torch import nn

        require_safetensors(self.dense)
        try:
            weights = safetensors.torch.load_file(self.dense / "model.safetensors")
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(f"cannot be read ({error})", file=self.dense, do=INTACT) from None
        weight, bias = weights.get("linear.weight"), weights.get("linear.bias")
        has_bias = _field(_read(self.dense / "config.json", dict), "bias", bool, self.dense / "config.json", True)
        if weight is None or has_bias != (bias is not None) or set(weights) - {"linear.weight", "linear.bias"}:
            names = ", ".join(sorted(weights))
            raise InputError(f"not one linear layer: it has {names}", file=self.dense, do="use another model")
        projection = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        projection.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
        return projection.float()


def local_folder(name: str | Path, weights: bool = True) -> Path:
    """The folder of that name, MiniLM's if the name is `minilm`, or a local copy of the hub's model of that name.

    Without `weights`, what the hub has of them is not fetched.

    Raises:
        InputError: if there is no such folder, and the hub has no such model or cannot be reached: it says what works;
            and if the folder asks for code of its own or leads to files elsewhere.
    """
    if named_minilm(name):
        return bundled_minilm()
    folder = Path(name)
    if folder.is_dir():
        refuse_untrusted(folder)
        return folder
    if str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:  # the hub's names have one slash at most
        raise InputError("no such folder", file=name, do=what_works(str(name)))
    import huggingface_hub

    wanted = [pattern for pattern in HUB_FILES if weights or pattern != WEIGHTS]
    try:
        folder = Path(huggingface_hub.snapshot_download(str(name), allow_patterns=wanted))
    except Exception as error:  # the hub's errors, and those of the network under it
        raise InputError(
            f"no model {str(name)!r}: no folder here has that name, and {_reason(error)}", do=what_works(str(name))
        ) from None
    refuse_untrusted(folder)
    return folder


def _reason(error: BaseException) -> str:
    """Why the hub did not give a model."""
    import httpx
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    raised = [error]
    while (cause := raised[-1].__cause__ or raised[-1].__context__) is not None:
        raised.append(cause)
    reasons: list[tuple[tuple[type[BaseException], ...], str]] = [
        ((GatedRepoError,), "the Hugging Face hub wants you to log in for it"),
        ((RepositoryNotFoundError,), "the Hugging Face hub has no model of that name"),
        ((HFValidationError,), "it is no name that the Hugging Face hub could have"),
        ((OfflineModeIsEnabled,), "the Hugging Face hub is switched off (HF_HUB_OFFLINE)"),
        ((LocalEntryNotFoundError, httpx.TransportError, ConnectionError), "the Hugging Face hub cannot be reached"),
    ]
    known = (reason for kinds, reason in reasons if any(isinstance(each, kinds) for each in raised))
    return next(known, f"the Hugging Face hub did not help ({first_line(error)})")


def require_safetensors(folder: Path) -> None:
    """Refuse a folder whose weights are pickles, or that has none."""
    if not any(folder.glob("*.safetensors")):
        pickled = next((p.name for p in folder.glob("*.bin")), None)
        problem = f"only pickled weights ({pickled}), which are never read" if pickled else "no weights"
        of_run = (folder / name for name in ("model", "best"))  # where `fit` puts them
        inside = next((model for model in of_run if (model / OURS).is_file()), None)
        raise InputError(problem, file=folder, do=f"use {inside}" if inside else "use a model with .safetensors")


def refuse_decoder(folder: Path) -> None:
    """Refuse a language model that generates text, such as Qwen3 or Gemma.

    A token of a decoder attends only to tokens before it, so the vector of the first is the same for every text.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config = _read(folder / "config.json", dict, missing={})
    kind = config.get("model_type")
    generates = kind in [*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES] and kind not in [*MODEL_FOR_MASKED_LM_MAPPING_NAMES]
    if (generates and kind not in BIDIRECTIONAL) or config.get("is_decoder") is True:
        problem = f"is a decoder ({kind}), which generates text; decoders are not supported"
        raise InputError(problem, file=folder, do="name an encoder, such as BERT, MPNet or ModernBERT")


def refuse_more_layers_than_weights(folder: Path) -> None:
    """Refuse a config that asks for more layers than there are tensors: transformers would build them without end."""
    import safetensors

    config = _read(folder / "config.json", dict, missing={})
    try:
        tensors = 0
        for path in folder.glob("*.safetensors"):
            with safetensors.safe_open(path, "np") as file:
                tensors += len(file.keys())
    except (safetensors.SafetensorError, OSError):
        return  # whoever loads them says what is wrong
    for name in ("num_hidden_layers", "n_layers"):
        layers = config.get(name)
        if isinstance(layers, int | float) and layers > max(tensors, 1):
            problem = f"{name} is {layers}, but there are only {tensors} weights"
            raise InputError(problem, file=folder / "config.json", do=INTACT)


def read_settings(folder: Path) -> Settings:
    """What a folder says: a plain Hugging Face one little, one of sentence-transformers or of ours all of it."""
    modules = read_modules(folder)
    if modules is None:
        return Settings(transformer=folder)
    if not {"Transformer", "Pooling"} <= set(modules) or list(modules) != [m for m in ORDER if m in modules]:
        problem = f"modules {', '.join(modules)}: Transformer, Pooling, and then Dense and Normalize are supported"
        raise InputError(problem, file=folder / MODULES_FILE, do="use another model")
    about = folder / "config_sentence_transformers.json"
    card = _read(about, dict, missing={})
    prompts = _field(card, "prompts", dict[str, str | None], about, {})
    default_prompt = _field(card, "default_prompt_name", str, about, "")
    similarity: Any = _field(card, "similarity_fn_name", str, about, "cosine")
    bert_file, ours_file = modules["Transformer"] / "sentence_bert_config.json", folder / OURS
    ours, bert = _read(ours_file, dict, missing={}), _read(bert_file, dict, missing={})
    if "Normalize" in modules and similarity == "dot":
        similarity = "cosine"  # the dot product of unit vectors
    if similarity not in ("cosine", "dot"):
        problem = f"similarity {similarity!r} is not supported"
        raise InputError(problem, file=folder / "config_sentence_transformers.json", do="use cosine or dot")
    return Settings(
        transformer=modules["Transformer"],
        pooling=_pooling(modules["Pooling"], modules.get("Dense"), has_prompts=any(prompts.values())),
        similarity=similarity,
        query_length=_field(ours, "query_length", Size, ours_file),
        document_length=_field(ours, "document_length", Size, ours_file),
        max_length=_field(bert, "max_seq_length", Size, bert_file) or _tokenizer_length(modules["Transformer"]),
        query_prefix=_prompt(prompts, "query", default_prompt),
        document_prefix=_prompt(prompts, "document", "passage", "corpus", default_prompt),
        dense=modules.get("Dense"),
        lower_case=_field(bert, "do_lower_case", bool, bert_file, False),
    )


def read_text_settings(folder: Path) -> tuple[int, int, str, str]:
    """The lengths of queries and documents and their prefixes as `BiEncoder.from_pretrained` takes them from a folder.

    Reads no weights, and needs no torch.

    >>> read_text_settings(model_folder)
    (64, 64, '', '')
    """
    saved = read_settings(folder)
    config = _read(saved.transformer / "config.json", dict, missing={})
    positions, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    longest = saved.max_length or LONGEST_DEFAULT
    if isinstance(positions, int) and positions > 0:
        from_padding = config.get("model_type") in COUNTED_FROM_PADDING and isinstance(padding, int)
        longest = min(longest, positions - padding - 1 if from_padding else positions)
    lengths = saved.query_length or longest, saved.document_length or longest
    return *lengths, saved.query_prefix, saved.document_prefix


def _tokenizer_length(transformer: Path) -> int | None:
    """Where sentence-transformers 6 keeps the maximum length of a model that it saves; None if that is no limit."""
    file = transformer / "tokenizer_config.json"
    length = _field(_read(file, dict, missing={}), "model_max_length", Size | Finite, file)
    return None if length is None or not 1 <= length < UNLIMITED else int(length)


def _prompt(prompts: dict[str, str | None], *names: str) -> str:
    """The first of these prompts that there is, be it empty; null stands for none."""
    given = (prompts.get(name) for name in names)
    return next((prompt for prompt in given if prompt is not None), "")


def read_modules(folder: Path) -> dict[str, Path] | None:
    """The modules of a sentence-transformers folder and where each of them is; None if the folder is not one."""
    file = folder / MODULES_FILE
    if not file.is_file():
        return None
    modules: dict[str, Path] = {}
    for module in _read(file, list):
        kind = str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else ""
        if kind not in ORDER or kind in modules:
            problem = f"has a module that is not supported: {module.get('type') if kind else module}"
            raise InputError(problem, file=file, do="use another model")
        path = module.get("path", "")
        if not isinstance(path, str) or len(path) > LONGEST_PATH or not stays_inside(path):
            problem = f"path {path!r:.80} of module {kind} does not lead to a place in the folder"
            raise InputError(problem, file=file, do="use another model")
        modules[kind] = folder / path
    return modules


def _pooling(pooling: Path, dense: Path | None, has_prompts: bool) -> Pooling:
    config = _read(pooling / "config.json", dict)
    old_names = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    old_modes = [
        old_names.get(key, key) for key, on in config.items() if key.startswith("pooling_mode_") and on is True
    ]
    mode = config.get("pooling_mode", old_modes[0] if len(old_modes) == 1 else old_modes)
    if mode not in ("cls", "mean") or (has_prompts and config.get("include_prompt") is False):
        problem = f"pooling {mode!r}" + ("" if config.get("include_prompt", True) else " without the prompt")
        raise InputError(f"{problem} is not supported", file=pooling / "config.json", do="use cls or mean")
    if dense is None:
        return "cls" if mode == "cls" else "mean"
    config = _read(dense / "config.json", dict)
    head = next((h for h, name in ACTIVATIONS.items() if name == config.get("activation_function")), None)
    if head is None or config.get("use_residual"):
        problem = f"a Dense module with {config.get('activation_function')} is not supported"
        raise InputError(problem, file=dense / "config.json", do="use Identity or Tanh, without residual")
    return f"{mode}+{head}"  # type: ignore[return-value]


def write_settings(folder: Path, settings: Settings, projection: nn.Linear | None, hidden_size: int) -> None:
    """Everything beside the transformer and the tokenizer: modules, pooling, projection, prompts, lengths.

    The lengths come last, with the checksums of all files in the folder.
    """
    assert settings.pooling is not None
    mode, _, head = settings.pooling.partition("+")
    names = ["Transformer", "Pooling", *(["Dense"] if projection is not None else [])]
    names += ["Normalize"] if settings.similarity == "cosine" else []
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(names) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": MODULES + name}
        for i, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    for path in paths[1:]:
        (folder / path).mkdir()
    _write(folder / MODULES_FILE, modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": settings.document_length, "do_lower_case": False})
    pooling = {
        "word_embedding_dimension": hidden_size,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_mean_tokens": mode == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    _write(folder / paths[1] / "config.json", pooling)
    if projection is not None:
        import safetensors.torch

        dense = {
            "in_features": projection.in_features,
            "out_features": projection.out_features,
            "bias": projection.bias is not None,
            "activation_function": ACTIVATIONS[head],
        }
        _write(folder / paths[2] / "config.json", dense)
        weights = {f"linear.{name}": tensor.contiguous() for name, tensor in projection.state_dict().items()}
        safetensors.torch.save_file(weights, folder / paths[2] / "model.safetensors")
    prompts = {"query": settings.query_prefix, "document": settings.document_prefix}
    card = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": settings.similarity}
    _write(folder / "config_sentence_transformers.json", card)
    lengths = {"query_length": settings.query_length, "document_length": settings.document_length}
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    write_header(
        folder / OURS, {"format": FORMAT, **lengths, "sha256": {name: sha256(folder / name) for name in files}}
    )


class ModelHeader(TypedDict):
    """The lengths of a model that we wrote, and the checksums of its files."""

    format: str
    query_length: Size
    document_length: Size
    sha256: Checksums


def verify_model(folder: Path, remedy: str) -> None:
    """See that a model is as it was written. To load one it need not be: people may change what they like.

    Raises:
        InputError: if a file is missing, or was changed since.
    """
    verify_files(folder, read_header(folder / OURS, ModelHeader, FORMAT, remedy)["sha256"], remedy)


def _read(path: Path, kind: type, missing: Any = None) -> Any:
    """The JSON in a file, which must be of a kind; or what stands for it if there is no such file."""
    if missing is not None and not path.is_file():
        return missing
    content = read_json(path, INTACT)
    if not isinstance(content, kind):
        raise InputError(f"not a JSON {kind.__name__}", file=path, do=INTACT)
    return content


def _field(content: dict[str, Any], name: str, hint: Any, file: Path, missing: Any = None) -> Any:
    """A field of what a file holds, which must fit a type hint; or what stands for it if it is missing or null."""
    value = content.get(name)
    if value is None:
        return missing
    if problem := mismatch(value, hint, name):
        raise InputError(problem, file=file, do=INTACT)
    return value


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
