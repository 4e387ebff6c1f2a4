"""Training a cross-encoder with the paper's targets: its own scores of positive and negative."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import InputError
from remargin.data.tables import Rejects
from remargin.losses.pair_scores import PairMarginLoss
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.tokenizer import Tokenizer
from remargin.teacher.batches import TARGETS_AT_MOST, PairBatches
from remargin.teacher.training import TeacherSettings, train_cross_encoder

from .test_training import DEV, DOCUMENTS, SETTINGS, TRAIN, quiet


@pytest.fixture
def triplets(tmp_path: Path) -> Path:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"q{i}\ta{i}\tb{(i + 6) % 72}\n" for i in range(60)))
    return path


def batches(model: CrossEncoder, path: Path, target: str) -> PairBatches:
    return PairBatches(model, TRAIN, path, Rejects(), batch_size=20, epochs=1, seed=0, target=target)


@pytest.mark.parametrize("target", ["adaptive", "distributed"])
def test_it_learns(target: Any, tiny_model: Any, triplets: Path, tmp_path: Path) -> None:
    settings = TeacherSettings(epochs=6, batch_size=8, learning_rate=3e-3, target=target)
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", settings, DEV, say=quiet)
    assert trained.first_stage is not None
    assert trained.best is not None
    assert trained.first_stage < 0.6 < 0.9 < trained.best
    assert trained.last_loss < trained.first_loss
    saved = CrossEncoder.from_pretrained(tmp_path / "m").trained
    assert saved is not None
    assert saved["settings"]["target"] == target


def test_each_target_is_another_loss_of_the_models_own_scores(
    tiny_model: Any, triplets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TeacherSettings(epochs=1, batch_size=60, validations=1, target="adaptive")
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    model.model.eval()
    own, pairs = model.score, batches(model, triplets, "adaptive")
    monkeypatch.setattr(model, "train", lambda mode=True: None)  # no dropout: the first loss is that of the scores
    documents = [(DOCUMENTS[f"a{i}"], DOCUMENTS[f"b{(i + 6) % 72}"]) for i in range(60)]
    scored = [[(TRAIN.queries[f"q{i}"], text) for text in both] for i, both in enumerate(documents)]
    scores = torch.from_numpy(own([pair for both in scored for pair in both]).reshape(60, 2))
    expected = PairMarginLoss("adaptive")(scores, torch.from_numpy(own(documents)[:, None]))
    assert sorted(pairs.of_documents(np.arange(60))) == sorted(documents)
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", settings, say=quiet)
    assert trained.first_loss == pytest.approx(expected.item(), abs=1e-5)


def test_distributed_targets_are_of_negatives_of_the_batch(tiny_model: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    rows = "".join(f"q{i}\ta{i}\tb{i}\tb{i + 1}\n" for i in range(20))
    path.write_text("query_id\tpositive_id\tnegative_id_1\tnegative_id_2\n" + rows)
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    order = np.array([7, 3, 11, 0, 19, 5])
    texts = {text: id for id, text in TRAIN.documents.items()}
    pairs = list(batches(model, path, "distributed").of_documents(order))
    assert len(pairs) == len(order) * TARGETS_AT_MOST
    for i, row in enumerate(order):
        of_row = pairs[i * TARGETS_AT_MOST : (i + 1) * TARGETS_AT_MOST]
        assert {positive for positive, _ in of_row} == {DOCUMENTS[f"a{row}"]}
        assert [texts[negative] for _, negative in of_row[:2]] == [
            texts[DOCUMENTS[id]] for id in (f"b{row}", f"b{row + 1}")
        ]
        others = [id for j in range(1, 4) for id in (order[(i + j) % 6], order[(i + j) % 6] + 1)]
        assert [negative for _, negative in of_row[2:]] == [DOCUMENTS[f"b{j}"] for j in others]
    assert len(list(batches(model, path, "adaptive").of_documents(order))) == 2 * len(order)
    assert not list(batches(model, path, "softmax").of_documents(order))
    assert len(list(batches(model, path, "distributed").of_documents(order[:3]))) == 3 * 6  # no more than there are


def test_of_two_documents_the_longer_one_is_truncated(tiny_model: Any) -> None:
    tokenizer = Tokenizer.from_pretrained(tiny_model("bert"))
    long, short = "the value of the text is the value", "a value"
    whole = tokenizer.pairs([(short, short)], length=64)
    room = len(whole.types) + 1
    tokens = tokenizer.pairs([(long, short), (short, long)], length=room, truncate="longest_first")
    assert tokens.tokens.lengths.tolist() == [room, room]
    assert tokens.truncated == 2
    own = int(whole.types.sum())  # tokens of a short text that stands second
    assert [int(types.sum()) for types in np.split(tokens.types, 2)] == [own, own + 1]
    assert tokenizer.pairs([(long, short)], length=64, truncate="longest_first").truncated == 0


def test_an_unknown_target_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="unknown target 'mean' of a teacher; use softmax, adaptive, distributed"):
        TeacherSettings(target="mean")  # type: ignore[arg-type]
    assert SETTINGS.target == "softmax"
