"""What `fit` writes works unchanged in sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from remargin import BiEncoder, fit

QUERIES = ["how do margins adapt?", "what is a list"]
DOCUMENTS = ["the value of a list", "margins adapt to the model", "a file"]


def test_a_trained_folder_has_the_same_vectors_in_sentence_transformers(tiny_encoder: Any, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    rows = [f"how is number {i} made?,it is {i} times one" for i in range(60)]
    (tmp_path / "faq.csv").write_text("\n".join(["question,answer", *rows]))
    data, start = f"pairs:{tmp_path / 'faq.csv'}", tmp_path / "start"
    prefixes = {"query_prefix": "query: ", "document_prefix": "text: "}
    BiEncoder.from_pretrained(tiny_encoder(), pooling="mean", **prefixes).save(start)
    fitted = fit(data, str(start), tmp_path / "run", also=data, steps=3, batch_size=8, say=lambda _: None)
    ours, theirs = (
        BiEncoder.from_pretrained(fitted.model, device="cpu"),
        SentenceTransformer(str(fitted.model), device="cpu"),
    )
    before = BiEncoder.from_pretrained(start, device="cpu")
    assert ours.query_prefix == "query: "
    assert np.abs(ours.encode_queries(QUERIES) - before.encode_queries(QUERIES)).max() > 1e-4  # it was trained
    np.testing.assert_allclose(theirs.encode_query(QUERIES), ours.encode_queries(QUERIES), atol=1e-5)
    np.testing.assert_allclose(theirs.encode_document(DOCUMENTS), ours.encode_documents(DOCUMENTS), atol=1e-5)
    assert np.abs(theirs.encode_document(QUERIES) - theirs.encode_query(QUERIES)).max() > 1e-4  # the prefixes count
