"""A collection as a retrieval task of mteb, and an encoder as one of its models: both without the hub.

mteb's nDCG@10 of the two is `remargin evaluate`'s, rounded to five digits: both are trec_eval's, ties included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.errors import InputError

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder

Vectors = NDArray[np.float32]


def mteb_task(collection: Collection, name: str | None = None, language: str = "eng-Latn") -> Any:
    """A collection, with the split it was loaded with, as a task for `mteb.evaluate`.

    A query that is a document of the collection itself does not find itself, as in `remargin evaluate` (see
    `Collection.self_matches`). mteb can only leave out any document with the query's id, so where other queries
    have a document's id by accident, they are renamed in the task.

    mteb keeps results by the names of task and model: pass `cache=None` to `mteb.evaluate` for a collection that may
    change, or another name.

    Args:
        collection: documents, queries and judgments.
        name: the task's name; without it, the collection's, as far as mteb allows it.
        language: ISO 639-3 and script.

    Raises:
        InputError: if mteb is not installed.

    Example:
        >>> task = mteb_task(Collection.load("docstrings:json", split="test"))
        >>> task.metadata.name, task.metadata.main_score
        ('docstrings-json-test', 'ndcg_at_10')
    """
    try:
        from datasets import Dataset
        from mteb.abstasks import AbsTaskRetrieval
        from mteb.abstasks.task_metadata import TaskMetadata
    except ImportError:
        raise InputError("mteb is not installed", do="pip install mteb") from None
    renamed = _task_ids(collection)
    title = name or re.sub(r"\W+", "-", f"{collection.name}-{collection.split}").strip("-")

    class LocalTask(AbsTaskRetrieval):  # type: ignore[misc, unused-ignore]
        metadata = TaskMetadata(
            name=title,
            description=f"{collection.name}, split {collection.split}",
            dataset={"path": title, "revision": "local"},
            type="Retrieval",
            category="t2t",
            eval_splits=[collection.split],
            eval_langs=[language],
            main_score="ndcg_at_10",
            reference=None,
        )
        ignore_identical_ids = bool(collection.self_matches)

        def load_data(self, *_: Any, **__: Any) -> None:
            documents, queries = collection.documents, collection.queries
            data: Any = {
                "corpus": Dataset.from_dict({"id": list(documents), "text": list(documents.values())}),
                "queries": Dataset.from_dict({"id": list(renamed.values()), "text": list(queries.values())}),
                "relevant_docs": {renamed[query]: dict(grades) for query, grades in collection.qrels.items()},
                "top_ranked": None,
            }
            self.dataset = {"default": {collection.split: data}}
            self.data_loaded = True

    return LocalTask()


def _task_ids(collection: Collection) -> dict[str, str]:
    """The queries' ids in the task: a document's only if the query is that document; the others share a prefix."""
    others, prefix = collection.queries.keys() - collection.self_matches, ""
    while any(prefix + id in collection.documents for id in others):
        prefix += "query-"
    return {id: prefix + id if id in others else id for id in collection.queries}


class MtebEncoder:
    """A `BiEncoder` as a model of mteb, with its own prefixes and both of its lengths.

    mteb also takes `SentenceTransformer(folder)`, but that has one length for queries and documents alike.

    Example:
        >>> from remargin import BiEncoder
        >>> encoder = MtebEncoder(BiEncoder.from_pretrained(model_folder))
        >>> encoder.encode([{"text": ["how do margins adapt?"]}], prompt_type="query").shape
        (1, 32)
        >>> # mteb.evaluate(encoder, mteb_task(collection), cache=None)["..."]
    """

    def __init__(self, model: BiEncoder, name: str | None = None) -> None:
        self.model = model
        folder = re.sub(r"[^\w.-]+", "-", name or model.name).strip("-.") or "encoder"
        self.name = name if name and name.count("/") == 1 else f"remargin/{folder}"

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any) -> Vectors:
        """Vectors of batches of texts: queries where mteb says so, else documents."""
        texts = [text for batch in inputs for text in batch["text"]]
        kind = getattr(prompt_type, "value", prompt_type)
        encode = self.model.encode_queries if kind == "query" else self.model.encode_documents
        return encode(texts, progress=False)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Of all pairs. Vectors are of unit length where the similarity is cosine, so these are dot products."""
        scores: Vectors = np.asarray(embeddings1) @ np.asarray(embeddings2).T
        return scores

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Of each vector and the one in the same place."""
        scores: Vectors = np.einsum("ij,ij->i", np.asarray(embeddings1), np.asarray(embeddings2))
        return scores

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb files results under: the model's name, and the fingerprint of its weights and lengths."""
        from mteb.models import ModelMeta

        texts = self.model.text_settings
        settings = f"{texts.query_length}-{texts.document_length}"
        return ModelMeta.create_empty(
            {
                "name": self.name,
                "revision": f"{self.model.fingerprint()}-{settings}",
                "embed_dim": self.model.dimension,
                "max_tokens": float(max(texts.query_length, texts.document_length)),
            }
        )
