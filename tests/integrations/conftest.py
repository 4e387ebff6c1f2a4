"""A tiny encoder without dropout, and rows of texts in which some are equal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder


@pytest.fixture(scope="session")
def still_model(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with mean pooling and vectors as they are, without dropout, so that gradients can be compared."""
    bare, folder = (tmp_path_factory.mktemp(name) for name in ("bare", "still"))
    shutil.copytree(tiny_model(), bare, dirs_exist_ok=True)
    config = json.loads((bare / "config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (bare / "config.json").write_text(json.dumps(config))
    BiEncoder.from_pretrained(bare, pooling="mean", similarity="dot").save(folder, overwrite=True)
    return folder


@pytest.fixture
def rows() -> list[list[str]]:
    """12 rows of (query, positive, three negatives): two rows share a query, two a positive; one has it as negative."""
    words = ["margins", "adapt", "query", "document", "returns", "value"]
    words += ["list", "text", "model", "train", "test", "file"]
    table = [
        [f"how {w}", f"the {w} is {n}", f"a {w} in {n}", f"of {w}, {n}", f"{w} {n} {n}"] for n, w in enumerate(words)
    ]
    table[3][0] = table[2][0]
    table[5][1] = table[4][1]
    table[7][2] = table[2][1]
    return table
