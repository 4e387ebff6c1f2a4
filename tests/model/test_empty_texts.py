"""Empty texts, of which a tokenizer without special tokens makes no token at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder


@pytest.mark.parametrize("pooling", ["cls", "cls+linear", "cls+pooler", "mean", "mean+linear"])
def test_texts_without_any_token_have_vectors_that_their_neighbours_do_not_change(
    pooling: Any, tiny_model: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("bert"), folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**content, "post_processor": None}))
    for similarity in ("cosine", "dot"):
        model = BiEncoder.from_pretrained(folder, pooling=pooling, similarity=similarity)  # type: ignore[arg-type]
        assert model.tokenizer([""], 9)[0].lengths.tolist() == [0]
        empty = model.encode_documents(["", ""])
        among = model.encode_documents(["the value", "", "a query"])
        np.testing.assert_allclose(empty, among[[1, 1]], atol=1e-6)
        np.testing.assert_allclose(among[[0, 2]], model.encode_documents(["the value", "a query"]), atol=1e-6)
        assert np.isfinite(empty).all()
        if "+" not in pooling:
            assert not empty.any()
