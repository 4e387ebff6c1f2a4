"""TAS-B's second teacher: margins of all pairs against its own similarities, and a run that learns from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, InputError, MarginLoss, fit
from remargin.data.prepare import TextSettings, prepare
from remargin.losses import DualTeacherLoss
from remargin.training.batches import TrainingData
from remargin.training.in_batch_teacher import InBatchTeacher
from remargin.training.settings import fit_settings


@pytest.fixture
def scored(tiny_model: Any, tmp_path: Path) -> Path:
    rows = [f"query {i}\ta text about {i}\tother words {i}\t{i % 5}.5\t{i % 3}.25" for i in range(12)]
    table = ["query\tpositive\tnegative\tpositive_score\tnegative_score", *rows]
    (tmp_path / "triplets.tsv").write_text("\n".join(table) + "\n")
    prepare(None, tiny_model(), tmp_path / "data", tmp_path / "triplets.tsv", TextSettings(30, 64))
    return tmp_path / "data"


def test_margins_are_the_teachers_similarities(tiny_model: Any, scored: Path, tmp_path: Path) -> None:
    teacher, data = (
        BiEncoder.from_pretrained(tiny_model(), query_length=30, document_length=64),
        TrainingData(scored, 5, 0),
    )
    silent: Any = lambda line: None  # noqa: E731
    teacher.save(tmp_path / "teacher")
    loaded = InBatchTeacher.load(
        tmp_path / "teacher", data.queries, data.documents, tmp_path / "run", torch.device("cpu"), False, silent
    )
    batch = data.batch(0)
    found = loaded.margins(batch.queries, batch.positives, batch.negatives)
    queries, documents = (teacher.encode_tokens(tokens) for tokens in data.tokens(batch))
    positives, negatives = np.split(documents, 2)
    for i in range(5):
        for j in range(5):
            wanted = float(queries[i] @ positives[i] - queries[i] @ negatives[j])
            assert float(found[i, j]) == pytest.approx(wanted, abs=2e-3)  # the vectors are kept in float16


def test_both_teachers_count() -> None:
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(3, 4, 8, generator=generator)
    own, all_pairs = torch.randn(4, generator=generator), torch.randn(4, 4, generator=generator)
    wanted = MarginLoss("teacher")(*batch, own) + 0.75 * MarginLoss("teacher", in_batch=True)(*batch, all_pairs)
    assert torch.equal(DualTeacherLoss()(*batch, own, all_pairs), wanted)


def test_a_run_learns_from_both(tiny_model: Any, scored: Path, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model(), query_length=30, document_length=64)
    model.save(tmp_path / "teacher")
    chosen = fit_settings(
        steps=3, batch_size=4, target="teacher", in_batch=True, in_batch_teacher=str(tmp_path / "teacher")
    )
    lines: list[str] = []
    assert fit(model, scored, tmp_path / "run", settings=chosen, say=lines.append).triplets == 12
    assert any(line.startswith("in-batch teacher: ") for line in lines)
    with pytest.raises(InputError, match="go together"):
        fit_settings(target="teacher", in_batch=True)
    with pytest.raises(InputError, match="go together"):
        fit_settings(in_batch_teacher="x")
