"""Model folders: what sentence-transformers reads and writes, plus the lengths that only we keep apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from remargin.errors import InputError, first_line
from remargin.files.checksums import sha256, verify_files
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Checksums, Finite, Size, stays_inside
from remargin.model.names import bundled_minilm, named_minilm, what_works
from remargin.model.parts import OURS, field_of, first_prompt, read_part
from remargin.model.untrusted import refuse_untrusted

if TYPE_CHECKING:
    from torch import nn

    from remargin.losses.inputs import Similarity
    from remargin.model.pooling import Pooling

# Module names end the same in every version of sentence-transformers; we write those that every version reads.
MODULES = "sentence_transformers.models."
ACTIVATIONS = {"linear": "torch.nn.modules.linear.Identity", "pooler": "torch.nn.modules.activation.Tanh"}
WEIGHTS = "*.safetensors"
HUB_FILES = ["*.json", WEIGHTS, "*.txt", "*.model", "artifact.metadata"]
FORMAT = "remargin-model-1"
MODULES_FILE = "modules.json"
CARD = "config_sentence_transformers.json"  # prompts and similarity
BIDIRECTIONAL = ("bert-generation", "xlnet")  # generate text, too, but their tokens see the whole text
OLD_POOLING = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "lasttoken"}  # and how it is called now
ORDER = ["Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"]
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
    similarity: Similarity | None = None
    query_length: int | None = None
    document_length: int | None = None
    max_length: int | None = None  # of any text, as sentence-transformers has it
    query_prefix: str = ""
    document_prefix: str = ""
    dense: Path | None = None
    norm: Path | None = None
    dims: tuple[int, ...] = ()  # that vectors can be truncated to

    def texts(
        self, longest: int | None, lengths: tuple[int, int] | None, given: Mapping[str, Any]
    ) -> tuple[int, int, str, str]:
        """Lengths and prefixes of queries and documents: those that are given, or the folder's, or the longest.

        Args:
            longest: how many tokens the backbone takes; None if there is no limit.
            lengths: instead of those of a folder that remargin did not write.
            given: `query_length` and the like.
        """
        own = lengths or 2 * (self.max_length or LONGEST_DEFAULT,)
        query, document = (min(length, longest or length) for length in own)
        prefixes = (given.get("query_prefix"), given.get("document_prefix"))
        return (
            given.get("query_length") or self.query_length or query,
            given.get("document_length") or self.document_length or document,
            self.query_prefix if prefixes[0] is None else prefixes[0],
            self.document_prefix if prefixes[1] is None else prefixes[1],
        )


def local_folder(name: str | Path, weights: bool = True, pickles: bool = False) -> Path:
    """The folder of that name, MiniLM's if the name is `minilm`, or a local copy of the hub's model of that name.

    Without `weights`, what the hub has of them is not fetched; with `pickles`, pickled ones are.

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

    wanted = [pattern for pattern in HUB_FILES if weights or pattern != WEIGHTS] + ["*.bin"] * pickles
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
        ((LocalEntryNotFoundError,), "the Hugging Face hub cannot be reached"),
    ]
    known = [reason for kinds, reason in reasons if any(isinstance(each, kinds) for each in raised)]
    known += ["the Hugging Face hub cannot be reached"] * any(map(of_the_network, raised))
    return next(iter(known), f"the Hugging Face hub did not help ({first_line(error)})")


def of_the_network(error: BaseException) -> bool:
    """Whether an error says that there is no connection: by its name, as the hub's package changed its HTTP library.

    >>> of_the_network(ConnectionRefusedError()), of_the_network(PermissionError())
    (True, False)
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint({"ConnectionError", "TransportError"})


def is_decoder(folder: Path) -> bool:
    """Whether a transformer is a language model that generates text, such as Qwen3 or Gemma.

    >>> is_decoder(model_folder)
    False
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config = read_part(folder / "config.json", dict, missing={})
    kind = config.get("model_type")
    generates = kind in [*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES] and kind not in [*MODEL_FOR_MASKED_LM_MAPPING_NAMES]
    return (generates and kind not in BIDIRECTIONAL) or config.get("is_decoder") is True


def refuse_decoder(folder: Path, do: str = "name an encoder, such as BERT, MPNet or ModernBERT") -> None:
    """Refuse a decoder: its tokens see none behind them, and the first is the same vector for every text."""
    if is_decoder(folder):
        kind = read_part(folder / "config.json", dict).get("model_type")
        problem = f"is a decoder ({kind}), which generates text: only its last token sees all of a text"
        raise InputError(problem, file=folder, do=do)


def read_settings(folder: Path) -> Settings:
    """What a folder says: a plain Hugging Face one little, one of sentence-transformers or of ours all of it."""
    modules = read_modules(folder)
    if modules is None:
        return Settings(transformer=folder)
    if not {"Transformer", "Pooling"} <= set(modules) or list(modules) != [m for m in ORDER if m in modules]:
        problem = f"modules {', '.join(modules)}: Transformer, Pooling, and then {', '.join(ORDER[2:])} are supported"
        raise InputError(problem, file=folder / MODULES_FILE, do="use another model")
    about = folder / CARD
    card = read_part(about, dict, missing={})
    similarity: Any = field_of(card, "similarity_fn_name", str, about)
    texts = read_texts(folder, modules["Transformer"])
    if "Normalize" in modules and similarity in (None, "dot"):
        similarity = "cosine"  # the dot product of unit vectors
    if similarity not in (None, "cosine", "dot"):
        problem = f"similarity {similarity!r} is not supported"
        raise InputError(problem, file=about, do="use cosine or dot")
    prompts = field_of(card, "prompts", dict[str, str | None], about, {})
    pooling = _pooling(modules["Pooling"], modules.get("Dense"), has_prompts=any(prompts.values()))
    more: dict[str, Any] = {"dense": modules.get("Dense"), "norm": modules.get("LayerNorm"), **texts}
    return Settings(modules["Transformer"], pooling, similarity, **more)


def read_texts(folder: Path, transformer: Path) -> dict[str, Any]:
    """The fields of `Settings` about texts that a folder of sentence-transformers says: lengths and prefixes."""
    card = folder / CARD
    about = read_part(card, dict, missing={})
    prompts = field_of(about, "prompts", dict[str, str | None], card, {})
    default_prompt = field_of(about, "default_prompt_name", str, card, "")
    bert_file, ours_file = transformer / "sentence_bert_config.json", folder / OURS
    ours, bert = read_part(ours_file, dict, missing={}), read_part(bert_file, dict, missing={})
    if "message" in field_of(bert, "modality_config", dict, bert_file, {}):
        do = "set its modality_config to text alone in sentence-transformers, if it was trained so"
        raise InputError("has texts put into the template of a chat, which is not supported", file=bert_file, do=do)
    return {
        "query_length": field_of(ours, "query_length", Size, ours_file),
        "document_length": field_of(ours, "document_length", Size, ours_file),
        "dims": tuple(field_of(ours, "dims", list[Size], ours_file, ())),
        "max_length": field_of(bert, "max_seq_length", Size, bert_file) or _tokenizer_length(transformer),
        "query_prefix": first_prompt(prompts, "query", default_prompt),
        "document_prefix": first_prompt(prompts, "document", "passage", "corpus", default_prompt),
    }


def read_text_settings(folder: Path) -> tuple[int, int, str, str]:
    """The lengths of queries and documents and their prefixes as `BiEncoder.from_pretrained` takes them from a folder.

    Reads no weights, and needs no torch.

    >>> read_text_settings(model_folder)
    (64, 64, '', '')
    """
    saved = read_settings(folder)
    config = read_part(saved.transformer / "config.json", dict, missing={})
    positions, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    longest = saved.max_length or LONGEST_DEFAULT
    if isinstance(positions, int) and positions > 0:
        from_padding = config.get("model_type") in COUNTED_FROM_PADDING and isinstance(padding, int)
        longest = min(longest, positions - padding - 1 if from_padding else positions)
    lengths = saved.query_length or longest, saved.document_length or longest
    return *lengths, saved.query_prefix, saved.document_prefix


def asks_for_lower_case(transformer: Path) -> bool:
    """Whether sentence-transformers puts texts in lower case before this transformer's tokenizer."""
    file = transformer / "sentence_bert_config.json"
    return bool(field_of(read_part(file, dict, missing={}), "do_lower_case", bool, file, False))


def _tokenizer_length(transformer: Path) -> int | None:
    """Where sentence-transformers 6 keeps the maximum length of a model that it saves; None if that is no limit."""
    file = transformer / "tokenizer_config.json"
    length = field_of(read_part(file, dict, missing={}), "model_max_length", Size | Finite, file)
    return None if length is None or not 1 <= length < UNLIMITED else int(length)


def read_modules(folder: Path) -> dict[str, Path] | None:
    """The modules of a sentence-transformers folder and where each of them is; None if the folder is not one."""
    file = folder / MODULES_FILE
    if not file.is_file():
        return None
    modules: dict[str, Path] = {}
    for type, path in listed_modules(folder):
        kind = type.rpartition(".")[2]
        if kind not in ORDER or kind in modules:
            raise InputError(f"has a module that is not supported: {type}", file=file, do="use another model")
        modules[kind] = path
    return modules


def listed_modules(folder: Path) -> list[tuple[str, Path]]:
    """The classes of all modules of a sentence-transformers folder, and their places; none if the folder is not one."""
    file = folder / MODULES_FILE
    modules: list[tuple[str, Path]] = []
    for module in read_part(file, list, missing=[]):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise InputError(f"has a module that is not supported: {module}", file=file, do="use another model")
        type, path = module["type"], module.get("path", "")
        if not isinstance(path, str) or len(path) > LONGEST_PATH or not stays_inside(path):
            problem = f"path {path!r:.80} of module {type.rpartition('.')[2]} does not lead to a place in the folder"
            raise InputError(problem, file=file, do="use another model")
        modules.append((type, folder / path))
    return modules


def transformer_folder(folder: Path) -> Path:
    """Where a model keeps its transformer and tokenizer: older sentence-transformers folders have it one level down."""
    return next((path for type, path in listed_modules(folder) if type.endswith("Transformer")), folder)


def _pooling(pooling: Path, dense: Path | None, has_prompts: bool) -> Pooling:
    config = read_part(pooling / "config.json", dict)
    old_names = {f"pooling_mode_{end}": mode for end, mode in OLD_POOLING.items()}
    old_modes = [
        old_names.get(key, key) for key, on in config.items() if key.startswith("pooling_mode_") and on is True
    ]
    mode = config.get("pooling_mode", old_modes[0] if len(old_modes) == 1 else old_modes)
    without_prompt = has_prompts and config.get("include_prompt") is False and mode != "lasttoken"  # it comes first
    if mode not in OLD_POOLING.values() or without_prompt:
        problem = f"pooling {mode!r}" + ("" if config.get("include_prompt", True) else " without the prompt")
        raise InputError(f"{problem} is not supported", file=pooling / "config.json", do="use cls, mean or lasttoken")
    mode = mode.removesuffix("token")
    if dense is None:
        return mode  # type: ignore[no-any-return]
    config = read_part(dense / "config.json", dict)
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
    norm = getattr(projection, "norm", None)
    names += ["LayerNorm"] if norm is not None else []
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
    pooling |= {"pooling_mode_lasttoken": True} if mode == "last" else {}  # which the oldest versions do not know
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
        weights = {name: tensor.contiguous() for name, tensor in projection.state_dict().items()}
        of_norm = {name: tensor for name, tensor in weights.items() if name.startswith("norm.")}
        linear = {f"linear.{name}": tensor for name, tensor in weights.items() if name not in of_norm}
        safetensors.torch.save_file(linear, folder / paths[2] / "model.safetensors")
        if norm is not None:
            _write(folder / paths[3] / "config.json", {"dimension": projection.out_features})
            safetensors.torch.save_file(of_norm, folder / paths[3] / "model.safetensors")
    prompts = {"query": settings.query_prefix, "document": settings.document_prefix}
    card = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": settings.similarity}
    _write(folder / CARD, card)
    own: dict[str, Any] = {"query_length": settings.query_length, "document_length": settings.document_length}
    own |= {"dims": list(settings.dims)} if settings.dims else {}
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    write_header(folder / OURS, {"format": FORMAT, **own, "sha256": {name: sha256(folder / name) for name in files}})


class ModelHeader(TypedDict):
    """The lengths of a model that we wrote, dimensions that it can be truncated to, and the checksums of its files."""

    format: str
    query_length: Size
    document_length: Size
    dims: NotRequired[list[Size]]
    sha256: Checksums


def verify_model(folder: Path, remedy: str) -> None:
    """See that a model is as it was written. To load one it need not be: people may change what they like.

    Raises:
        InputError: if a file is missing, or was changed since.
    """
    verify_files(folder, read_header(folder / OURS, ModelHeader, FORMAT, remedy)["sha256"], remedy)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
