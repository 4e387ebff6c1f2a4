"""A model for the tests of indexes."""

from __future__ import annotations

from typing import Any

import pytest

from remargin import BiEncoder


@pytest.fixture(scope="module")
def model(tiny_encoder: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(
        tiny_encoder("bert"), pooling="mean"
    )  # whose vectors differ, unlike those of [CLS]
