"""What a loss is called with beside vectors: a teacher's margins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, MarginLoss
from remargin.data.triplets import Triplets
from remargin.training.loop import train

from .conftest import random_batches, sampled


def test_the_teachers_margins_are_brought_into_a_cosines_range(
    scored: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reaches the loss is the scores' difference times the scale: given, or one over the 99th percentile."""
    seen: list[torch.Tensor] = []

    class Listens(MarginLoss):
        def forward(self, *arguments: Any, **others: Any) -> torch.Tensor:
            seen.append(others["teacher_margin"])
            return super().forward(*arguments, **others)

    scores = Triplets(scored / "triplets").take(np.arange(108)).scores
    assert scores is not None
    large = np.quantile(np.abs(scores[:, :1] - scores[:, 1:]), 0.99)
    plain = [random_batches(scored, 5).batch(number).teacher_margin for number in range(2)]
    for similarity, asked, scale in (("cosine", None, 1 / large), ("dot", None, 1.0), ("cosine", 0.25, 0.25)):
        model, lines = BiEncoder.from_pretrained(tiny_model("bert")), list[str]()
        loss = Listens("teacher", similarity=similarity)  # type: ignore[arg-type]
        chosen = sampled(steps=2, target="teacher", teacher_scale=asked)
        train(model, scored, tmp_path / f"{similarity}{asked}", loss, chosen, say=lines.append)
        for margins, expected in zip(seen, plain, strict=True):
            assert expected is not None
            torch.testing.assert_close(margins, expected * float(scale))
        said = [line for line in lines if line.startswith("the teacher's margins are multiplied with ")]
        assert len(said) == (similarity == "cosine" and asked is None)
        seen.clear()
    monkeypatch.setattr("remargin.data.triplets.MARGINS_AT_MOST", 100)
    assert Triplets(scored / "triplets").large_margin() == pytest.approx(float(large), rel=0.3)
