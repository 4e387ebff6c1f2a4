"""TAS-B's second teacher: margins of all pairs against its own similarities, kept vectors, and a run with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from remargin import BiEncoder, InputError, train
from remargin.data.preparation import prepare
from remargin.data.training_data import TrainingData
from remargin.files.headers import read_header, write_header
from remargin.files.journal import Journal
from remargin.losses.inputs import Similarity
from remargin.losses.teacher import DualTeacherLoss
from remargin.model.tokenizer import Tokens
from remargin.teacher import in_batch as in_batch_teacher
from remargin.teacher.in_batch import FORMAT, InBatchTeacher
from remargin.training.settings import FitSettings

from .conftest import random_batches, silent


@pytest.fixture
def scored(tiny_model: Any, tmp_path: Path) -> Path:
    rows = [f"query {i}\ta text about {i}\tother words {i}\t{i % 5}.5\t{i % 3}.25" for i in range(12)]
    table = ["query\tpositive\tnegative\tpositive_score\tnegative_score", *rows]
    (tmp_path / "triplets.tsv").write_text("\n".join(table) + "\n")
    prepare(None, tiny_model(), tmp_path / "data", tmp_path / "triplets.tsv", document_length=64)
    return tmp_path / "data"


@pytest.fixture
def teacher(tiny_model: Any, tmp_path: Path) -> BiEncoder:
    model = BiEncoder.from_pretrained(tiny_model(), document_length=64)
    model.save(tmp_path / "model")
    return model


def load(scored: Path, out: Path, resume: bool = False, similarity: Similarity = "cosine") -> InBatchTeacher:
    model, device = scored.parent / "model", torch.device("cpu")
    return InBatchTeacher.load(model, TrainingData(scored), similarity, out, device, resume, silent)


def test_margins_are_the_teachers_similarities(teacher: BiEncoder, scored: Path, tmp_path: Path) -> None:
    data = random_batches(scored, 5)
    batch = data.batch(0)
    found = load(scored, tmp_path / "run").margins(batch.queries, batch.positives, batch.negatives)
    assert found.shape == (5, 10)
    queries, documents = np.split(teacher.encode_tokens(batch.texts), [len(batch.queries)])
    for i in range(5):
        for j in range(10):  # positives, then negatives
            wanted = float(queries[i] @ documents[i] - queries[i] @ documents[j])
            assert float(found[i, j]) == pytest.approx(wanted, abs=2e-3)  # the vectors are kept in float16


def test_a_teacher_with_another_similarity_is_refused(teacher: BiEncoder, scored: Path, tmp_path: Path) -> None:
    teacher.similarity = "dot"
    teacher.save(tmp_path / "dot")
    student = BiEncoder.from_pretrained(tmp_path / "model")
    chosen = FitSettings.preset(target="teacher", in_batch=True, in_batch_teacher=str(tmp_path / "dot"))
    with pytest.raises(InputError, match=r"dot has dot similarity, the model has cosine; use a teacher with"):
        train(student, scored, tmp_path / "run", settings=chosen, say=silent)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were encoded, block by block."""
    counts: list[int] = []
    original = BiEncoder.encode_tokens

    def counting(self: BiEncoder, tokens: Tokens) -> NDArray[np.float32]:
        counts.append(len(tokens.lengths))
        return original(self, tokens)

    monkeypatch.setattr(BiEncoder, "encode_tokens", counting)
    return counts


def stopped_at(block: int) -> Callable[..., None]:
    """Writes blocks, but not the one of that number, from 1."""
    blocks, original = itertools.count(1), Journal.add

    def add(*arguments: Any) -> None:
        if next(blocks) == block:
            raise KeyboardInterrupt
        original(*arguments)

    return add


def test_killed_while_encoding_it_goes_on(
    teacher: BiEncoder, scored: Path, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_batch_teacher, "TEXTS_AT_ONCE", 5)
    load(scored, tmp_path / "whole")
    assert encoded == [5, 5, 2, 5, 5, 5, 5, 4]
    encoded.clear()
    with monkeypatch.context() as killed:
        killed.setattr(Journal, "add", stopped_at(6))
        with pytest.raises(KeyboardInterrupt):
            load(scored, tmp_path / "run")
    encoded.clear()
    load(scored, tmp_path / "run", resume=True)
    assert encoded == [5, 5, 4]
    for name in ("queries.bin", "documents.bin"):
        one, other = (tmp_path / run / "teacher" / name for run in ("run", "whole"))
        assert one.read_bytes() == other.read_bytes()
    encoded.clear()
    journal = tmp_path / "run" / "teacher" / "documents.journal"
    assert not journal.exists()
    journal.touch()  # as if killed just before it is removed
    load(scored, tmp_path / "run", resume=True)
    assert not encoded
    assert not journal.exists()
    load(scored, tmp_path / "run")
    assert len(encoded) == 8  # a new run reads nothing old


@pytest.mark.parametrize("change", ["junk", "cut", "missing", "header", "model", "texts"])
def test_vectors_that_do_not_fit_are_made_again(
    change: str, teacher: BiEncoder, scored: Path, tmp_path: Path, encoded: list[int]
) -> None:
    load(scored, tmp_path / "run")
    folder = tmp_path / "run" / "teacher"
    file, header = folder / "documents.bin", folder / "documents.json"
    if change == "junk":
        file.write_bytes(b"junk")
    if change == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    if change == "missing":
        file.unlink()
    if change == "header":
        header.write_text(header.read_text().replace('"done": 24', '"done": 23'))
    if change == "model":
        with torch.no_grad():
            next(teacher.parameters()).mul_(1.5)
        teacher.save(tmp_path / "model", overwrite=True)
    if change == "texts":
        write_header(header, {**read_header(header, dict, FORMAT, ""), "texts": {"tokens.bin": "of others"}})
    encoded.clear()
    load(scored, tmp_path / "run", resume=True)
    assert encoded == ([12, 24] if change == "model" else [24])
    load(scored, tmp_path / "new")
    assert file.read_bytes() == (tmp_path / "new" / "teacher" / file.name).read_bytes()


def test_a_run_learns_from_both(teacher: BiEncoder, scored: Path, tmp_path: Path) -> None:
    chosen = FitSettings.preset(
        steps=3, batch_size=4, target="teacher", in_batch=True, in_batch_teacher=str(tmp_path / "model")
    )
    lines: list[str] = []
    assert train(teacher, scored, tmp_path / "run", settings=chosen, say=lines.append).triplets == 12
    assert any(line.startswith("in-batch teacher: ") for line in lines)
    with pytest.raises(InputError, match="go together"):
        FitSettings.preset(target="teacher", in_batch=True)
    with pytest.raises(InputError, match="go together"):
        FitSettings.preset(in_batch_teacher="x")
    with pytest.raises(InputError, match="dual supervision needs a second teacher"):
        train(
            teacher, scored, tmp_path / "one", DualTeacherLoss(), FitSettings.preset(steps=1, batch_size=4), say=silent
        )
