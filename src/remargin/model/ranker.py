"""What a model is that scores documents by more than one vector of each: late interaction, or sparse vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from remargin.model.tokenizer import TextSettings

if TYPE_CHECKING:
    import torch


class Ranker(ABC):
    """Encodes queries and documents independently, each into whatever its `scores` compare.

    What `encode_queries` and `encode_documents` return can be indexed by an array of rows.

    Attributes:
        kind: what it is, for people.
        name: its folder, or its Hugging Face name.
        text_settings: maximum lengths in tokens, and prefixes.
        truncated: how many documents were longer than it reads, so far.
        least: a document has to score more than that to be found.
    """

    kind: ClassVar[str]
    least: ClassVar[float] = -np.inf
    name: str
    text_settings: TextSettings
    truncated: int = 0

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what makes vectors of tokens."""

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Any:
        """What scores are made of, for some queries."""

    @abstractmethod
    def encode_documents(self, texts: Sequence[str]) -> Any:
        """What scores are made of, for some documents."""

    @abstractmethod
    def scores(self, queries: Any, documents: Any) -> NDArray[np.float32]:
        """The score of each query and each document, (queries, documents), by what these were encoded as."""
