"""ColBERT: a vector for each token, in the layouts of PyLate and of Stanford's checkpoints (HF_ColBERT).

A query is filled up with [MASK] to its maximum length; punctuation of documents has no vectors. A score is the sum,
over the query's vectors, of the largest similarity to a vector of the document (MaxSim).
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remargin.errors import InputError, refuse_idle
from remargin.files.shapes import Size
from remargin.model.backbone import checked_length, load_backbone
from remargin.model.encoder import EncodingPrecision, encoding_dtype
from remargin.model.folder import CARD, MODULES_FILE, listed_modules, refuse_decoder
from remargin.model.layouts.base import Layout, architectures
from remargin.model.packing import select
from remargin.model.padding import padded, padded_batches
from remargin.model.parts import INTACT, field_of, read_part
from remargin.model.ranker import Ranker
from remargin.model.tokenizer import TextSettings, Tokenizer, Tokens, load_tokenizer
from remargin.model.weights import digest_of, read_tensors

STANFORD, METADATA = "HF_ColBERT", "artifact.metadata"
NATIVE = "MultiVectorMask"  # a module of sentence-transformers' own MultiVectorEncoder
TOKENS_AT_ONCE = (2400, 65_536)  # on a CPU and on a GPU
LENGTHS = (32, 180)  # PyLate's, where a checkpoint says none
IDENTITY = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True)
class TokenVectors:
    """Vectors of tokens, text after text; those of text i are rows bounds[i] to bounds[i + 1]."""

    matrix: NDArray[np.float32] = field(repr=False)
    bounds: NDArray[np.int64] = field(repr=False)

    def __getitem__(self, rows: NDArray[np.int64]) -> TokenVectors:
        """Some of the texts, in that order."""
        tokens = Tokens(np.arange(len(self.matrix)), np.diff(self.bounds))
        some = select(tokens, rows)
        return TokenVectors(self.matrix[some.ids], _bounds(some.lengths))


@dataclass(frozen=True)
class ColbertSettings:
    """How texts become tokens, as a checkpoint says it; prefixes are tokens."""

    query_prefix: str
    document_prefix: str
    query_length: int = LENGTHS[0]
    document_length: int = LENGTHS[1]
    expands: bool = True
    attends: bool = False
    skipped: Sequence[str] = tuple(string.punctuation)


class Colbert(Ranker):
    """A backbone and linear layers, which give every token a vector of unit length.

    Args:
        backbone: of transformers.
        layers: the projection, layer after layer.
        tokenizer: of the backbone; it must know the prefixes.
        settings: how texts become tokens.
        precision: the numeric precision to compute in.
    """

    kind = "a ColBERT model (late interaction)"

    def __init__(
        self,
        backbone: Any,
        layers: Sequence[nn.Linear],
        tokenizer: Any,
        settings: ColbertSettings,
        precision: EncodingPrecision = "auto",
    ) -> None:
        self.name = ""
        self.tokenizer = Tokenizer.of(tokenizer)
        self.settings = settings
        self.text_settings = TextSettings(settings.query_length, settings.document_length)
        checked_length("query", settings.query_length, backbone)
        checked_length("document", settings.document_length, backbone)
        if settings.expands and tokenizer.mask_token_id is None:
            raise InputError("queries are filled up with a mask token, which the tokenizer lacks", do=INTACT)
        self._mask = int(tokenizer.mask_token_id or 0)
        prefixes = (settings.query_prefix, settings.document_prefix)
        self._prefixes = tuple(_token(tokenizer, prefix) if prefix else None for prefix in prefixes)
        # As PyLate: a word that the tokenizer lacks stands for the unknown token, which is then skipped as well.
        self._skipped = np.unique([tokenizer.convert_tokens_to_ids(word) for word in settings.skipped]).astype(np.int64)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._layers = layers
        self._model = nn.ModuleList([backbone, *layers]).eval().to(device, encoding_dtype(precision, device))

    @classmethod
    def from_folder(cls, folder: Path, name: str, **options: Any) -> Colbert:
        """The model of a folder of PyLate's, or of Stanford's."""
        idle = ("pooling", "similarity", "dims", "query_prefix", "document_prefix")
        refuse_idle(cls.kind, [option for option in idle if options.get(option)])
        stanford = STANFORD in architectures(folder)
        settings = _stanford(folder) if stanford else _pylate(folder)
        lengths = {key: options[key] for key in ("query_length", "document_length") if options.get(key)}
        settings = ColbertSettings(**{**vars(settings), **lengths})
        layers = [_linear(folder, folder)] if stanford else [_dense(path) for path in _dense_folders(folder)]
        tokenizer = load_tokenizer(folder)
        refuse_decoder(folder)
        self = cls(load_backbone(folder)[0], layers, tokenizer, settings, options.get("precision", "auto"))
        self.name = name
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self._model.parameters()).device

    def fingerprint(self) -> str:
        """A hash of what makes vectors of tokens."""
        settings = {name: value for name, value in vars(self.settings).items() if not name.endswith("_length")}
        return digest_of(self._model.state_dict(), self.tokenizer.fingerprint, repr(settings))

    def encode_queries(self, texts: Sequence[str]) -> TokenVectors:
        """Vectors of the queries' tokens, of [MASK] as well if they are filled up."""
        tokens, _ = self._tokens(texts, self.settings.query_length, self._prefixes[0])
        attended = tokens.lengths
        if self.settings.expands:
            tokens = _filled(tokens, self.settings.query_length, self._mask)
            attended = tokens.lengths if self.settings.attends else attended
        return self._encode(tokens, attended, np.ones(len(tokens.ids), bool))

    def encode_documents(self, texts: Sequence[str]) -> TokenVectors:
        """Vectors of the documents' tokens, without those that are skipped."""
        tokens, truncated = self._tokens(texts, self.settings.document_length, self._prefixes[1])
        self.truncated += truncated
        return self._encode(tokens, tokens.lengths, ~np.isin(tokens.ids, self._skipped))

    def scores(self, queries: TokenVectors, documents: TokenVectors) -> NDArray[np.float32]:
        """MaxSim of each query and document."""
        scores = np.zeros((len(queries.bounds) - 1, len(documents.bounds) - 1), np.float32)
        if not scores.size:
            return scores
        matrix = torch.from_numpy(documents.matrix).to(self.device)
        lengths = torch.from_numpy(np.diff(documents.bounds)).to(self.device)
        for place, (start, end) in enumerate(zip(queries.bounds[:-1], queries.bounds[1:], strict=True)):
            query = torch.from_numpy(queries.matrix[start:end]).to(self.device)
            best = torch.segment_reduce(matrix @ query.T, "max", lengths=lengths, axis=0, unsafe=True)
            scores[place] = best.sum(1).cpu().numpy()
        return scores

    def _tokens(self, texts: Sequence[str], length: int, prefix: int | None) -> tuple[Tokens, int]:
        """Tokens of texts, with the prefix as their second token."""
        tokens, truncated = self.tokenizer(texts, length if prefix is None else length - 1)
        if prefix is None:
            return tokens, truncated
        ids = np.insert(tokens.ids.astype(np.int64), tokens.starts + 1, prefix)
        return Tokens(ids, tokens.lengths + 1), truncated

    def _encode(self, tokens: Tokens, attended: NDArray[np.int64], kept: NDArray[np.bool_]) -> TokenVectors:
        """Vectors of those tokens that are kept. Of each text, only the first so many tokens are attended to."""
        matrix = np.empty((len(tokens.ids), int(self._layers[-1].out_features)), np.float32)
        at_once = TOKENS_AT_ONCE[self.device.type != "cpu"]
        for rows, ids, mask in padded_batches(tokens, self._mask, at_once, self.device):
            most = torch.from_numpy(attended[rows]).to(self.device)
            seen = mask * (torch.arange(ids.shape[1], device=self.device)[None] < most[:, None])
            with torch.inference_mode():
                hidden = self._model[0](input_ids=ids, attention_mask=seen).last_hidden_state
                for layer in self._layers:
                    hidden = layer(hidden)
                vectors = nn.functional.normalize(hidden[mask.bool()].float(), dim=1).cpu().numpy()
            places = tokens.starts[rows]
            lengths = tokens.lengths[rows]
            ends = np.cumsum(lengths)
            matrix[np.arange(ends[-1]) + np.repeat(places - ends + lengths, lengths)] = vectors
        owners = np.repeat(np.arange(len(tokens.lengths)), tokens.lengths)
        return TokenVectors(matrix[kept], _bounds(np.bincount(owners[kept], minlength=len(tokens.lengths))))


def _bounds(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _filled(tokens: Tokens, length: int, filler: int) -> Tokens:
    """Every text filled up to a length."""
    there = np.arange(length)[None] < tokens.lengths[:, None]
    return Tokens(padded(tokens.ids, there, filler).ravel(), np.full(len(tokens.lengths), length, np.int64))


def _token(tokenizer: Any, prefix: str) -> int:
    """The token that a prefix is. One that the tokenizer lacks has no trained vector."""
    vocabulary = tokenizer.get_vocab()
    if prefix not in vocabulary:
        raise InputError(f"the prefix {prefix!r} is no token of the tokenizer", do="use an intact ColBERT folder")
    return int(vocabulary[prefix])


def _stanford(folder: Path) -> ColbertSettings:
    file = folder / METADATA
    said = read_part(file, dict, missing={})
    return ColbertSettings(
        field_of(said, "query_token_id", str, file, "[unused0]"),
        field_of(said, "doc_token_id", str, file, "[unused1]"),
        field_of(said, "query_maxlen", Size, file, LENGTHS[0]),
        field_of(said, "doc_maxlen", Size, file, LENGTHS[1]),
        attends=field_of(said, "attend_to_mask_tokens", bool, file, False),
        skipped=list(string.punctuation) if field_of(said, "mask_punctuation", bool, file, True) else [],
    )


def _pylate(folder: Path) -> ColbertSettings:
    file = folder / CARD
    said = read_part(file, dict, missing={})
    if any(field_of(said, "prompts", dict[str, str | None], file, {}).values()):
        raise InputError("prompts beside the prefixes are not supported", file=file, do="use a model without prompts")
    expands = field_of(said, "do_query_expansion", bool, file, True)
    return ColbertSettings(
        field_of(said, "query_prefix", str, file, "[Q] "),
        field_of(said, "document_prefix", str, file, "[D] "),
        field_of(said, "query_length", Size, file, LENGTHS[0]),
        field_of(said, "document_length", Size, file, LENGTHS[1]),
        expands,
        expands and field_of(said, "attend_to_expansion_tokens", bool, file, False),
        field_of(said, "skiplist_words", list[str], file, list(string.punctuation)),
    )


def _dense_folders(folder: Path) -> list[Path]:
    """The folders of the projection's layers."""
    modules = listed_modules(folder)
    kinds = [type.rpartition(".")[2] for type, _ in modules]
    if kinds[:1] != ["Transformer"] or set(kinds[1:]) != {"Dense"}:
        problem = f"modules {', '.join(kinds)}: of ColBERT models, those of PyLate (Transformer, Dense) are supported"
        raise InputError(problem, file=folder / MODULES_FILE, do="save it with PyLate")
    return [path for _, path in modules[1:]]


def _dense(folder: Path) -> nn.Linear:
    config = read_part(folder / "config.json", dict)
    if config.get("activation_function") != IDENTITY or config.get("use_residual"):
        problem = f"a Dense module with {config.get('activation_function')}, or a residual, is not supported"
        raise InputError(problem, file=folder / "config.json", do="use Identity, without residual")
    return _linear(folder, folder / "config.json")


def _linear(folder: Path, file: Path) -> nn.Linear:
    tensors = read_tensors(folder, "linear.weight", "linear.bias")
    if "linear.weight" not in tensors or tensors["linear.weight"].dim() != 2:
        raise InputError("lacks its projection, linear.weight", file=file, do=INTACT)
    weight = tensors["linear.weight"]
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias="linear.bias" in tensors)
    layer.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in tensors.items()})
    return layer


def _recognises(folder: Path) -> bool:
    types = [type for type, _ in listed_modules(folder)]
    pylate = any(type.startswith("pylate.") or type.endswith(f".{NATIVE}") for type in types)
    named = read_part(folder / CARD, dict, missing={}).get("model_type") in ("ColBERT", "MultiVectorEncoder")
    return pylate or named or STANFORD in architectures(folder)


LAYOUT = Layout("a ColBERT model (late interaction)", _recognises, ranker=Colbert.from_folder)
