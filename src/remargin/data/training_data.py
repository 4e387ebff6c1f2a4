"""The training data that `prepare` wrote into a folder."""

from __future__ import annotations

from pathlib import Path

from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.model.encoder import BiEncoder


class TrainingData:
    """The token stores of queries and documents, and the triplets, of a folder that `prepare` wrote.

    Raises:
        InputError: if there is no such folder, or it has no triplets.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError("no such folder", file=folder, do="name one that `remargin prepare` or `fit` wrote")
        if not (folder / "triplets").is_dir():
            do = "run `remargin prepare` with --triplets"
            raise InputError("no triplets in the prepared folder", file=folder, do=do)
        self.queries = TokenStore(folder / "tokens" / "queries")
        self.documents = TokenStore(folder / "tokens" / "documents")
        self.triplets = Triplets(folder / "triplets")

    def require(self, model: BiEncoder) -> None:
        """Raise an InputError unless the texts were tokenised with this model's tokenizer, lengths and prefixes."""
        self.queries.require(model.tokenizer, model.query_length, model.query_prefix)
        self.documents.require(model.tokenizer, model.document_length, model.document_prefix)
