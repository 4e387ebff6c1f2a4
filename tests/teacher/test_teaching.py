"""A teacher for a collection is validated on the collection's own dev split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remargin import Collection
from remargin.model.cross_encoder import CrossEncoder
from remargin.teacher import teaching
from remargin.teacher.teaching import train_teacher
from remargin.teacher.training import TeacherSettings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{i}", "text": "text {i}"}}\n' for i in range(6)))
    (folder / "queries.jsonl").write_text("".join(f'{{"_id": "q{i}", "text": "text {i}"}}\n' for i in range(3)))
    (folder / "qrels" / "train.tsv").write_text("q0\td0\t1\nq1\td1\t1\n")
    (folder / "qrels" / "dev.tsv").write_text("q2\td2\t1\n")
    (tmp_path / "t.tsv").write_text("q0\td0\td3\nq1\td1\td4\n")
    return folder


def test_dev_decides_and_shares_the_documents(
    data: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    original = teaching.train_cross_encoder
    monkeypatch.setattr(
        teaching, "train_cross_encoder", lambda *given, **more: seen.append(given) or original(*given, **more)
    )
    model, collection, said = CrossEncoder.from_pretrained(tiny_model("bert")), Collection.load(data, "train"), []
    settings = TeacherSettings(epochs=1, batch_size=2)
    trained = train_teacher(model, collection, tmp_path / "t.tsv", tmp_path / "out", settings, say=said.append)
    [(*_, dev, _, _, _)] = seen
    assert (dev.split, list(dev.queries)) == ("dev", ["q2"])
    assert dev.documents is collection.documents
    assert trained.best is not None
    assert not model.untrained
    assert any("on dev" in line for line in said)


def test_without_dev_the_last_weights_are_kept_and_it_is_said(data: Path, tiny_model: Any, tmp_path: Path) -> None:
    (data / "qrels" / "dev.tsv").unlink()
    model, collection, said = CrossEncoder.from_pretrained(tiny_model("bert")), Collection.load(data, "train"), []
    settings = TeacherSettings(epochs=1, batch_size=2)
    trained = train_teacher(model, collection, tmp_path / "t.tsv", tmp_path / "out", settings, say=said.append)
    assert said[0] == "no dev split: training without validation"
    assert trained.best is None
    assert CrossEncoder.from_pretrained(tmp_path / "out").trained["steps"] == 1  # type: ignore[index]
