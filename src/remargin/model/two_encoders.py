"""Two encoders, one for queries and one for documents, such as DPR's, behind the interface of one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.model.encoder import BiEncoder
from remargin.model.names import BETWEEN, two_names


class TwoEncoders(BiEncoder):
    """An encoder of documents that has another encoder for queries. Both give vectors of the same length.

    Example:
        >>> both = TwoEncoders(BiEncoder.from_pretrained(model_folder), BiEncoder.from_pretrained(model_folder))
        >>> both.encode_queries(["how?"]).shape == both.encode_documents(["a text"]).shape
        True

    Raises:
        InputError: if their vectors cannot be compared.
    """

    def __init__(self, queries: BiEncoder, documents: BiEncoder) -> None:
        super().__init__(
            documents.backbone,
            documents.hf_tokenizer,
            pooling=documents.pooling,
            projection=documents.projection,
            similarity=documents.similarity,
            document_length=documents.document_length,
            query_length=documents.query_length,
            document_prefix=documents.document_prefix,
            precision=documents.precision,
            dims=documents.dims,
        )
        for what in ("dimension", "similarity"):
            mine, theirs = getattr(queries, what), getattr(documents, what)
            if mine != theirs:
                problem = f"{what} {mine!r} of the query encoder {queries.name}, and {theirs!r} of the other one"
                raise InputError(problem, do="give two encoders that were trained together")
        self.queries = queries
        self.query_length, self.query_prefix = queries.query_length, queries.query_prefix
        self.name = f"{queries.name}{BETWEEN}{documents.name}"
        self.eval()

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> TwoEncoders:  # type: ignore[override]
        """Both encoders of a name such as "question-encoder+context-encoder"; options are for both."""
        names = two_names(name)
        if names is None:
            raise InputError(f"{str(name)!r} names one encoder", do=f"name two: QUERIES{BETWEEN}DOCUMENTS")
        queries = BiEncoder.from_pretrained(names[0], **options, side="queries")
        return cls(queries, BiEncoder.from_pretrained(names[1], **options, side="documents"))

    def truncate(self, dims: int) -> None:
        """Truncate the vectors of both encoders."""
        super().truncate(dims)
        self.queries.truncate(dims)

    @property
    def of_queries(self) -> BiEncoder:
        """The encoder of queries."""
        return self.queries

    def fingerprint(self) -> str:
        """A hash of what makes vectors of tokens, in both encoders."""
        return self._digest(self.queries.tokenizer.fingerprint, self.queries.pooling)

    def encode_queries(
        self, texts: Iterable[str], batch_size: int | None = None, progress: bool | None = None
    ) -> NDArray[np.float32]:
        """Vectors of queries by the first encoder, (n, d)."""
        return self.queries.encode_queries(texts, batch_size, progress)

    def save(self, folder: str | Path, overwrite: bool = False) -> NoReturn:
        """Two encoders are no model folder."""
        raise InputError("two encoders are not saved as one model", do="save each of them")
