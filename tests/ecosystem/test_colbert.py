"""ColBERT's scores are PyLate's, for PyLate's own layout and for Stanford's: `make test-ecosystem` runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TEXTS = [
    "how do margins adapt?",
    "a list of the values, returned",
    "the document; the query: the text!",
    "train a model",
    "The file is a test of how many tokens fit, " * 5,
]
QUERIES = ["how do margins adapt to a query", "list", "a test of the file, " * 9]


def pylate(folder: Path, raw: Path, **options: Any) -> None:
    from pylate import models

    made = models.ColBERT(str(raw), device="cpu", embedding_size=16, query_length=16, document_length=40, **options)
    made.save(str(folder))


def stanford(folder: Path, raw: Path) -> None:
    import safetensors.torch
    import torch
    import transformers

    pylate(folder, raw, query_prefix="[unused0]", document_prefix="[unused1]")  # whose tokens it adds
    weights = {f"bert.{n}": w for n, w in safetensors.torch.load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = torch.randn(16, 32)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("modules.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    about = transformers.AutoConfig.from_pretrained(folder).to_dict()
    (folder / "config.json").write_text(json.dumps({**about, "architectures": ["HF_ColBERT"]}))
    said = {"query_maxlen": 16, "doc_maxlen": 40, "query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
    (folder / "artifact.metadata").write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (pylate, {}),
        (pylate, {"attend_to_expansion_tokens": True}),
        (pylate, {"do_query_expansion": False}),
        (pylate, {"skiplist_words": []}),
        (stanford, {}),
    ],
)
def test_search_and_rerank_give_the_scores_of_pylate(
    make: Any, options: dict[str, Any], tiny_model: Any, tmp_path: Path
) -> None:
    models, rank = pytest.importorskip("pylate.models"), pytest.importorskip("pylate.rank")
    from remargin import Collection, rerank, search

    folder = tmp_path / "colbert"
    make(folder, tiny_model(), **options)
    theirs = models.ColBERT(str(folder), device="cpu")
    documents = {f"d{number}": text for number, text in enumerate(TEXTS)}
    queries = {f"q{number}": text for number, text in enumerate(QUERIES)}
    collection = Collection("texts", "test", documents, queries, {query: {"d0": 1} for query in queries})
    ranked = rank.rerank(
        [list(documents)] * len(queries),
        theirs.encode(QUERIES, is_query=True),
        [theirs.encode(TEXTS, is_query=False)] * len(queries),
    )
    found = search(collection, "exact", folder)
    again = rerank(collection, folder, found)
    for query, expected in zip(queries, ranked, strict=True):
        scores = {document["id"]: float(document["score"]) for document in expected}
        assert max(scores.values()) - min(scores.values()) > 1e-3
        assert found.rankings[query] == pytest.approx(scores, abs=1e-4)
        assert again.rankings[query] == pytest.approx(scores, abs=1e-4)
