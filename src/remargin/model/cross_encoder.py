"""CrossEncoder: reads a query and a document together, and says how relevant the one is to the other."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remargin.errors import InputError, first_line
from remargin.files.atomic import new_folder
from remargin.files.headers import read_header, read_json, write_header
from remargin.files.shapes import Check, Size, mismatch
from remargin.model import folder as model_folder
from remargin.model.ahead import ahead
from remargin.model.backbone import longest_input
from remargin.model.compute import TOKENS_AT_ONCE, in_batches, weights_state
from remargin.model.encoder import EncodingPrecision, encoding_dtype
from remargin.model.packing import select, split
from remargin.model.padding import padded
from remargin.model.tokenizer import PairTokens, Tokenizer, Tokens, load_tokenizer, quiet_transformers
from remargin.model.weights import require_safetensors, require_sound_config
from remargin.progress import track

log = logging.getLogger(__name__)

Pair = tuple[str, str]

OURS = "remargin_cross_encoder.json"  # in every folder that we wrote
FORMAT = "remargin-cross-encoder-1"
LENGTH = 256  # holds a query of 30 tokens and a document of 200, which is what the bi-encoder reads
PAIRS_AT_ONCE = 16_384  # this many are tokenised while the ones before them are scored


def _has_seconds(record: dict[str, Any]) -> bool:
    return mismatch(record.get("seconds"), float) is None


class CrossEncoderHeader(TypedDict):
    """The longest pair of a cross-encoder in tokens, and how it was trained."""

    format: str
    length: Size
    trained: Annotated[dict[str, Any], Check("a record with the seconds that training took", _has_seconds)] | None


class Scored(NamedTuple):
    """Scores of some pairs in their order, and how many of their documents were truncated."""

    scores: NDArray[np.float32]
    truncated: int


class CrossEncoder:
    """A model that classifies pairs of texts, with one output: its logit is the score of a query and a document.

    A pair has at most `length` tokens, special ones included. Only documents are truncated, queries never.

    Attributes:
        untrained: whether its head is new, so that its scores mean nothing yet.
        trained: how it was trained, and how long that took, if we did it.

    Example:
        >>> model = CrossEncoder.from_pretrained(model_folder)    # or "cross-encoder/ms-marco-MiniLM-L6-v2"
        >>> model.score([("how do margins adapt?", "the margins adapt"), ("how?", "a text")]).shape
        (2,)
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        length: int = LENGTH,
        precision: EncodingPrecision = "auto",
        untrained: bool = False,
    ) -> None:
        if precision not in get_args(EncodingPrecision):
            raise InputError(f"unknown precision {precision!r}", do=f"use {', '.join(get_args(EncodingPrecision))}")
        self.name = ""
        self.model = model
        self.hf_tokenizer = tokenizer
        self.tokenizer = Tokenizer.of(tokenizer)
        self.length = length
        self.precision: EncodingPrecision = precision
        self.untrained = untrained
        self.trained: dict[str, Any] | None = None
        self._copy: tuple[Any, nn.Module] | None = None
        config: Any = model.config
        limit = longest_input(_body(model))
        if limit is not None and length > limit:
            raise InputError(f"length {length}: the model has {limit} positions", do=f"use {limit} or less")
        names = getattr(tokenizer, "model_input_names", None)
        names = names if isinstance(names, list | tuple) else ()
        self._has_types = "token_type_ids" in names and (getattr(config, "type_vocab_size", None) or 0) > 1
        self._padding = int(getattr(config, "pad_token_id", None) or tokenizer.pad_token_id or 0)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        length: int | None = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        precision: EncodingPrecision = "auto",
    ) -> CrossEncoder:
        """Load a cross-encoder from a folder or, by name, from the Hugging Face hub.

        An encoder without a head for scores gets a new one, which has to be trained. Reads safetensors only and runs
        no code from the folder.

        Args:
            name: a folder, or a name such as "cross-encoder/ms-marco-MiniLM-L6-v2".
            length: maximum length of a pair in tokens; without it, the folder's, or 256.
            seed: for the head, if it has to be new.
            device: such as "cpu"; without it, a CUDA GPU if there is one.
            precision: the numeric precision of scoring: "32", "bf16", or "auto", which is bf16 on a GPU that can and 32
                elsewhere. The weights themselves stay in float32, and so does the head.

        Raises:
            InputError: if the folder lacks weights of the encoder, or its head has another number of outputs.
        """
        folder = model_folder.local_folder(name)
        transformer = folder if (folder / "config.json").is_file() else folder / "0_Transformer"
        model, new = _load(transformer, seed)
        if new:
            log.warning("%s has no head for scores: a new one is initialised with seed %d", name, seed)
        saved = read_cross_encoder(folder)
        length = length or (saved and saved["length"]) or min(LENGTH, longest_input(_body(model)) or LENGTH)
        self = cls(model, load_tokenizer(transformer), length, precision, untrained=new)
        self.name = str(name)
        self.trained = saved and saved["trained"]
        self.model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> CrossEncoder:
        """Move the weights to a device; returns the model itself."""
        self.model.to(device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copy": None}  # made anew where it is needed

    def fingerprint(self) -> str:
        """A hash of all that decides which score a pair gets: weights, tokenizer, length and precision."""
        dtype = encoding_dtype(self.precision, self.device)
        digest = hashlib.blake2b(f"{self.tokenizer.fingerprint} {self.length} {dtype}".encode())
        for name, weight in self.model.state_dict().items():
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
            digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()[:32]

    def too_long(self, queries: Mapping[str, str]) -> list[str]:
        """The ids of the queries that leave no room for a document: they cannot be scored with this length."""
        room = self.tokenizer.room(list(queries.values()), self.length)
        return [id for id, left in zip(queries, room.tolist(), strict=True) if left < 1]

    def score(
        self, pairs: Sequence[Pair], batch_size: int | None = None, progress: bool | None = None
    ) -> NDArray[np.float32]:
        """The logit of each pair of query and document, (n,), in the order of the pairs.

        `batch_size` is how many pairs are scored at once; without it, as many as is fastest.

        Raises:
            InputError: for a query that leaves no room for a document.
        """
        truncated = 0

        def scored() -> Iterator[float]:
            nonlocal truncated
            starts = range(0, len(pairs), PAIRS_AT_ONCE)
            for block in self.score_blocks((pairs[i : i + PAIRS_AT_ONCE] for i in starts), batch_size):
                truncated += block.truncated
                yield from block.scores

        shown = track(scored(), "scoring pairs", total=len(pairs), show=progress)
        scores = np.fromiter(shown, np.float32, len(pairs))
        if truncated:
            log.warning("%d of %d documents were truncated: a pair has %d tokens", truncated, len(pairs), self.length)
        return scores

    def score_blocks(self, blocks: Iterable[Sequence[Pair]], batch_size: int | None = None) -> Iterator[Scored]:
        """The scores of each block of pairs, in order. The next block is tokenised while one is scored."""
        model, gpu = self._computing(), self.device.type != "cpu"
        for pairs in ahead(self.tokenizer.pairs(block, self.length) for block in blocks):
            lengths = pairs.tokens.lengths
            if batch_size is None:
                groups = list(split(lengths, TOKENS_AT_ONCE[gpu], by_length=True))
            else:
                groups = in_batches(lengths, batch_size)
            with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):  # the precision is our own
                logits = [self.logits(_some(pairs, rows), model) for rows in groups]
            scores = np.empty(len(lengths), np.float32)
            if groups:
                scores[np.concatenate(groups)] = torch.cat(logits).cpu().numpy()  # the only time a GPU is waited for
            if not np.isfinite(scores).all():
                do = "check that the model is intact, or compute in float32"
                raise InputError(f"{self.name or 'the model'} gives scores that are no numbers", do=do)
            yield Scored(scores, pairs.truncated)

    def logits(self, pairs: PairTokens, model: nn.Module | None = None) -> Tensor:
        """Logits of tokenised pairs, all in one batch, (n,) in float32, with gradients: training calls this."""
        lengths = pairs.tokens.lengths
        there = np.arange(lengths.max(initial=1)) < lengths[:, None]
        ids = padded(pairs.tokens.ids, there, self._padding)
        inputs = {"input_ids": ids, "attention_mask": there.astype(np.int64)}
        if self._has_types:
            inputs["token_type_ids"] = padded(pairs.types, there, 0)
        tensors = {name: torch.from_numpy(array).to(self.device, non_blocking=True) for name, array in inputs.items()}
        logits: Tensor = (model or self.model)(**tensors).logits
        return logits[:, 0].float()

    def _computing(self) -> nn.Module:
        """A copy of the model to score with, without dropout. It is made again after a weight has changed or moved."""
        dtype = encoding_dtype(self.precision, self.device)
        state = (dtype, weights_state(self.model))
        if self._copy is None or self._copy[0] != state:
            self._copy = None  # two copies at once might not fit
            model = copy.deepcopy(self.model).eval().requires_grad_(False)
            if dtype != torch.float32:
                body = _body(model).to(dtype)
                for part in model.children():
                    if part is not body:  # the head: rounded logits would be rounded margins
                        part.register_forward_pre_hook(_in_float32)
            self._copy = (state, model)
        return self._copy[1]

    def train(self, mode: bool = True) -> None:
        """Switch training on or off. What was laid out to score with is laid out anew: the weights may change now."""
        self._copy = None
        self.model.train(mode)

    def take_over(self, other: CrossEncoder) -> None:
        """Take the weights, name and training record of another cross-encoder of the same architecture and length."""
        self.model.load_state_dict(other.model.state_dict())
        self.name, self.trained, self.untrained = other.name, other.trained, other.untrained

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder that `from_pretrained`, transformers and sentence-transformers load with the same scores."""
        model: Any = self.model
        model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}  # logits there too
        self.hf_tokenizer.model_max_length = self.length
        with new_folder(folder, overwrite, marker=OURS) as out, quiet_transformers():
            model.save_pretrained(out)
            self.hf_tokenizer.save_pretrained(out)
            write_header(out / OURS, {"format": FORMAT, "length": self.length, "trained": self.trained})


def read_cross_encoder(folder: Path) -> CrossEncoderHeader | None:
    """What `CrossEncoder.save` wrote beside a model; None if it did not write that folder."""
    if not (folder / OURS).is_file():
        return None
    return read_header(folder / OURS, CrossEncoderHeader, FORMAT, "use an intact model folder")


def is_cross_encoder(name: str | Path) -> bool:
    """Whether a folder, or a model of the hub, says that it classifies texts, as a cross-encoder does.

    >>> is_cross_encoder(model_folder)
    False
    """
    try:
        config = read_json(model_folder.local_folder(name) / "config.json", "use an intact model folder")
    except InputError:
        return False  # whoever loads it will say what is wrong
    made_for = config.get("architectures") if isinstance(config, dict) else None
    return isinstance(made_for, list) and str(*made_for[:1]).endswith("ForSequenceClassification")


def _body(model: nn.Module) -> nn.Module:
    """The encoder without the head."""
    body: nn.Module = model.base_model  # type: ignore[assignment]
    return body


def _in_float32(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs)


def _some(pairs: PairTokens, rows: NDArray[np.int64]) -> PairTokens:
    types = select(Tokens(pairs.types, pairs.tokens.lengths), rows).ids
    return PairTokens(select(pairs.tokens, rows), types, 0)


def _load(folder: Path, seed: int) -> tuple[nn.Module, bool]:
    """The model, and whether its head is new. All weights of the encoder itself must be in the checkpoint."""
    from transformers import AutoModelForSequenceClassification

    require_safetensors(folder)
    model_folder.refuse_decoder(folder)
    require_sound_config(folder)
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, info = AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=1,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are errors below
            )
    except Exception as error:  # transformers raises whatever its parts raise
        reason = first_line(error)
        problem = f"cannot be loaded as a cross-encoder ({reason})"
        raise InputError(problem, file=folder, do="name another model") from None
    if getattr(model.config, "is_encoder_decoder", False):
        raise InputError("has a decoder too, and is no encoder", file=folder, do="name an encoder, such as BERT")
    body = f"{model.base_model_prefix}."
    mismatched = {key if isinstance(key, str) else str(key[0]) for key in info["mismatched_keys"]}
    missing = {key for key in info["missing_keys"] if key.startswith(body) and not key.startswith(f"{body}pooler.")}
    lacking = sorted(missing | {key for key in mismatched if key.startswith(body)})
    if lacking:
        problem = f"{len(lacking)} weights of the encoder are missing or of another shape, such as {lacking[0]}"
        raise InputError(problem, file=folder, do="use a complete checkpoint of this architecture")
    if mismatched:
        problem = "its head does not have one output"
        raise InputError(problem, file=folder, do="use a cross-encoder for ranking, or an encoder without a head")
    if info["unexpected_keys"]:
        log.info("%s: %d weights of heads that are not needed were ignored", folder, len(info["unexpected_keys"]))
    return model, bool(info["missing_keys"])
