"""SPLADE: a sparse vector of the vocabulary for each text, in the layout of sentence-transformers' SparseEncoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from remargin.errors import InputError, refuse_idle
from remargin.files.shapes import Size
from remargin.model.backbone import checked_length, load_as, longest_input, refuse_missing
from remargin.model.encoder import EncodingPrecision, encoding_dtype
from remargin.model.folder import CARD, MODULES_FILE, Settings, listed_modules, read_texts
from remargin.model.layouts.base import Layout
from remargin.model.padding import padded_batches
from remargin.model.parts import field_of, read_part
from remargin.model.ranker import Ranker
from remargin.model.tokenizer import TextSettings, Tokenizer, load_tokenizer
from remargin.model.weights import digest_of

TOKENS_AT_ONCE = (2400, 16_384)  # on a CPU and on a GPU: each token has a number for each word of the vocabulary
POOLING = ("max", "sum")
ACTIVATIONS = {"relu": 1, "log1p_relu": 2}  # how often log1p is taken
SPARSE = ("SpladePooling", "SparseAutoEncoder", "SparseStaticEmbedding")


class Splade(Ranker):
    """A masked language model whose logits, pooled over the tokens of a text, are the weights of words.

    Args:
        model: with logits of the vocabulary for each token.
        tokenizer: of the model.
        texts: maximum lengths, and prefixes.
        pooling: of the words' weights over tokens: the largest, or their sum.
        logarithms: how often log(1 + x) is taken of a positive logit.
        precision: the numeric precision to compute in.
    """

    kind = "a SPLADE model (sparse vectors)"
    least = 0.0  # without a common word

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        texts: TextSettings,
        pooling: Literal["max", "sum"] = "max",
        logarithms: int = 1,
        precision: EncodingPrecision = "auto",
    ) -> None:
        self.name = ""
        self.tokenizer = Tokenizer.of(tokenizer)
        self.text_settings = texts
        checked_length("query", texts.query_length, model.base_model)
        checked_length("document", texts.document_length, model.base_model)
        self.pooling = pooling
        self.logarithms = logarithms
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.eval().to(device, encoding_dtype(precision, device))

    @classmethod
    def from_folder(cls, folder: Path, name: str, **options: Any) -> Splade:
        """The model of a SparseEncoder folder."""
        refuse_idle(cls.kind, [option for option in ("pooling", "similarity", "dims") if options.get(option)])
        transformer, config = _parts(folder)
        model = _load(transformer)
        saved = Settings(transformer, **read_texts(folder, transformer))
        texts = TextSettings(*saved.texts(longest_input(model.base_model), options.get("lengths"), options))
        pooling = config.get("pooling_strategy", "max")
        activation = config.get("activation_function", "relu")
        if pooling not in POOLING or activation not in ACTIVATIONS:
            problem = f"pooling {pooling!r} of {activation!r} is not supported"
            raise InputError(problem, file=folder, do="use max or sum, of relu or log1p_relu")
        precision = options.get("precision", "auto")
        self = cls(model, load_tokenizer(transformer), texts, pooling, ACTIVATIONS[activation], precision)
        self.name = name
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self._model.parameters()).device  # type: ignore[no-any-return]

    def fingerprint(self) -> str:
        """A hash of what makes vectors of tokens."""
        how = f"splade {self.pooling} {self.logarithms}"
        return digest_of(self._model.state_dict(), self.tokenizer.fingerprint, how)

    def encode_queries(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """A sparse row for each query."""
        return self._encode(texts, self.text_settings.query_prefix, self.text_settings.query_length)[0]

    def encode_documents(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """A sparse row for each document."""
        rows, truncated = self._encode(texts, self.text_settings.document_prefix, self.text_settings.document_length)
        self.truncated += truncated
        return rows

    def scores(self, queries: Any, documents: Any) -> NDArray[np.float32]:
        """Dot products of the rows."""
        return np.asarray((queries @ documents.T).todense(), np.float32)

    def _encode(self, texts: Sequence[str], prefix: str, length: int) -> tuple[scipy.sparse.csr_array, int]:
        tokens, truncated = self.tokenizer([prefix + text for text in texts], length)
        parts: list[scipy.sparse.csr_array] = []
        order: list[NDArray[np.int64]] = []
        for rows, ids, mask in self._batches(tokens):
            with torch.inference_mode():
                logits = self._model(input_ids=ids, attention_mask=mask).logits.float()
                weights = torch.relu_(logits * mask[:, :, None])
                for _ in range(self.logarithms):
                    weights = weights.log1p_()
                pooled = weights.amax(1) if self.pooling == "max" else weights.sum(1)
                parts.append(scipy.sparse.csr_array(pooled.cpu().numpy()))
            order.append(rows)
        if not parts:
            return scipy.sparse.csr_array((0, int(self._model.config.vocab_size)), dtype=np.float32), 0
        return scipy.sparse.vstack(parts, "csr")[np.argsort(np.concatenate(order))], truncated

    def _batches(self, tokens: Any) -> Iterator[tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]]:
        padding = int(self._model.config.pad_token_id or 0)
        return padded_batches(tokens, padding, TOKENS_AT_ONCE[self.device.type != "cpu"], self.device)


def _parts(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Where the transformer is, and how its logits are pooled."""
    modules = listed_modules(folder)
    kinds = [type.rpartition(".")[2] for type, _ in modules]
    if kinds not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        problem = f"modules {', '.join(kinds)}: of sparse models, a transformer and SpladePooling are supported"
        raise InputError(problem, file=folder / MODULES_FILE, do="use another model")
    card = folder / CARD
    about = read_part(card, dict, missing={})
    if field_of(about, "similarity_fn_name", str, card, "dot") != "dot":
        problem = f"similarity {about['similarity_fn_name']!r} of sparse vectors is not supported"
        raise InputError(problem, file=card, do="use a model that compares by dot product")
    if field_of(about, "max_active_dims", Size, card) is not None:
        raise InputError("max_active_dims is not supported", file=card, do="use a model without")
    (_, transformer), (_, pooling) = modules
    return transformer, read_part(pooling / "config.json", dict, missing={})


def _load(folder: Path) -> Any:
    from transformers import AutoModelForMaskedLM

    model, info = load_as(AutoModelForMaskedLM, folder, "a masked language model", "name another model")
    refuse_missing(info, folder)
    return model


def _recognises(folder: Path) -> bool:
    return any(type.rpartition(".")[2] in SPARSE for type, _ in listed_modules(folder))


LAYOUT = Layout("a SPLADE model (sparse vectors)", _recognises, ranker=Splade.from_folder)
