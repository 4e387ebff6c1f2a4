"""Training a cross-encoder: it learns, the best is kept, the seed decides, and what it cost is on record."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import Collection, InputError
from remargin.data.tables import Rejects
from remargin.evaluation.runs import Run
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.tokenizer import Tokenizer
from remargin.retrieval.reranking import rerank
from remargin.retrieval.searching import search
from remargin.teacher import training as teacher
from remargin.teacher.batches import PairBatches
from remargin.teacher.scoring import score_triplets
from remargin.teacher.training import TeacherSettings, train_cross_encoder

WORDS = ["value", "list", "text", "model", "train", "test"]
DOCUMENTS = {
    f"{kind}{i}": f"{WORDS[i % 6]} {'margins' if kind == 'a' else 'document'} {WORDS[i // 6 % 6]}"
    for i in range(72)
    for kind in "ab"
}  # half of them are about margins
SETTINGS = TeacherSettings(epochs=6, batch_size=8, learning_rate=3e-3)


def part(split: str, numbers: range) -> Collection:
    """Each query has a word, and what is relevant has it too and is about margins."""
    queries = {f"q{i}": f"how {WORDS[i % 6]}" for i in numbers}
    qrels = {
        f"q{i}": {id: 1 for id, text in DOCUMENTS.items() if WORDS[i % 6] in text and "margins" in text}
        for i in numbers
    }
    return Collection("made", split, dict(DOCUMENTS), queries, qrels)


TRAIN, DEV = part("train", range(60)), part("dev", range(60, 72))


@pytest.fixture
def triplets(tmp_path: Path) -> Path:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"q{i}\ta{i}\tb{(i + 6) % 72}\n" for i in range(60)))
    return path


def quiet(line: str) -> None:
    pass


def test_it_learns_and_keeps_the_best(tiny_model: Any, triplets: Path, tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    said: list[str] = []
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", SETTINGS, DEV, say=said.append)
    assert (trained.triplets, trained.steps, trained.rejected) == (60, 48, 0)
    assert trained.first_loss == pytest.approx(np.log(2), abs=0.05)
    assert trained.last_loss < 0.3
    assert trained.first_stage is not None
    assert trained.best is not None
    assert trained.first_stage < 0.6 < 0.95 < trained.best
    assert [step for step, _ in trained.validations] == [12, 24, 36, 48]
    assert (trained.best_step, trained.best) in trained.validations
    assert "48 steps of 8 triplets (6 epochs of 60) on cpu" in said[0]
    assert sum("nDCG@10" in line for line in said) == 4
    assert not model.untrained
    pairs = [[(TRAIN.queries[f"q{i}"], DOCUMENTS[f"{kind}{i + 3}"]) for kind in "ab"] for i in range(60)]
    scores = model.score([pair for both in pairs for pair in both]).reshape(-1, 2)
    assert (scores[:, 0] > scores[:, 1]).mean() > 0.9
    saved = CrossEncoder.from_pretrained(tmp_path / "m")
    np.testing.assert_array_equal(saved.score(pairs[0]), model.score(pairs[0]))
    assert saved.trained == json.loads((tmp_path / "m" / "remargin_cross_encoder.json").read_text())["trained"]
    assert saved.trained is not None
    assert saved.trained["seconds"] == trained.seconds > trained.validation_seconds > 0
    assert saved.trained["from"] == str(tiny_model("bert"))
    first = search(DEV, "bm25", k=50)
    found = rerank(DEV, saved, first)
    assert set(found.rankings["q60"]) == set(first.rankings["q60"])
    assert "margins" in DOCUMENTS[found.top("q60", 1)[0]]
    taught = score_triplets(triplets, tmp_path / "s.tsv", saved, TRAIN)
    assert taught.teacher_seconds == trained.seconds


def test_each_validation_is_of_the_weights_of_that_moment(tiny_model: Any, triplets: Path, tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    seen: list[float] = []
    pair = [(TRAIN.queries["q0"], DOCUMENTS["a3"])]
    train_cross_encoder(
        model, TRAIN, triplets, tmp_path / "m", SETTINGS, DEV, say=lambda line: seen.append(float(model.score(pair)[0]))
    )
    assert len(set(seen)) == 5  # before, and at four validations


def test_the_best_validation_decides(
    tiny_model: Any, triplets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, weights = iter([0.3, 0.5, 0.5, 0.2]), []

    def measure(self: Any, model: CrossEncoder) -> float:
        weights.append(model.fingerprint())
        return next(values)

    monkeypatch.setattr(teacher._Reranking, "__call__", measure)
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", SETTINGS, DEV, say=quiet)
    assert (trained.best, trained.best_step) == (0.5, 36)
    assert model.fingerprint() == weights[2] == CrossEncoder.from_pretrained(tmp_path / "m").fingerprint()


def test_the_seed_decides_and_the_same_is_not_trained_twice(
    tiny_model: Any, triplets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = TeacherSettings(epochs=1, batch_size=16)

    def train(name: str, **changed: Any) -> str:
        model = CrossEncoder.from_pretrained(tiny_model("bert"))
        train_cross_encoder(model, TRAIN, triplets, tmp_path / name, TeacherSettings(**{**vars(settings), **changed}))
        return model.fingerprint()

    one = train("one")
    assert train("two") == one != train("three", seed=1)
    capsys.readouterr()
    before = (tmp_path / "one").stat().st_ino
    assert train("one") == one
    assert "trained on the same triplets in the same way: used as it is" in capsys.readouterr().out
    assert (tmp_path / "one").stat().st_ino == before
    with pytest.raises(InputError, match="already exists"):
        train("one", seed=2)
    triplets.write_text(triplets.read_text() + "q1\ta1\tb2\n")
    with pytest.raises(InputError, match="already exists"):
        train("one")


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda given: None,
    "a document": lambda given: given["collection"].documents.update(a1="another text"),
    "a query": lambda given: given["collection"].queries.update(q1="how else"),
    "a validation query": lambda given: given["validation"].queries.update(q60="how else"),
    "a judgment": lambda given: given["validation"].qrels["q60"].update(b1=1),
    "a ranking": lambda given: given["first_stage"].rankings["q60"].update(a1=7.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_counts_as_made_before_only_for_the_same_texts_and_rankings(
    change: str, tiny_model: Any, triplets: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "collection": copy.deepcopy(TRAIN),
        "triplets": triplets,
        "settings": TeacherSettings(epochs=1, batch_size=32, validations=1),
        "validation": copy.deepcopy(DEV),
        "first_stage": Run.of({id: {"a1": 2.0, "b1": 1.0} for id in DEV.queries}),
    }
    said: list[str] = []
    for _ in range(2):
        model = CrossEncoder.from_pretrained(tiny_model("bert"))
        train_cross_encoder(model, out=tmp_path / "m", overwrite=True, say=said.append, **given)
        CHANGES[change](given)
    assert any("used as it is" in line for line in said) == (change == "nothing")


@pytest.mark.parametrize("validation", [DEV, None])
def test_killed_it_goes_on_to_the_same_weights(
    validation: Collection | None, tiny_model: Any, triplets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, epochs=3, batch_size=7)  # 27 steps, with a mark in the middle of an epoch

    def train(name: str) -> tuple[Any, str, list[str]]:
        model, said = CrossEncoder.from_pretrained(tiny_model("bert")), list[str]()
        trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / name, settings, validation, say=said.append)
        return trained, model.fingerprint(), said

    whole, weights, _ = train("whole")
    with monkeypatch.context() as killed:
        original, steps = teacher.save_checkpoint, list[int]()

        def save(folder: Path, progress: Any, *rest: Any) -> None:
            steps.append(progress.step)
            if progress.step == 21:
                raise KeyboardInterrupt
            original(folder, progress, *rest)

        killed.setattr(teacher, "save_checkpoint", save)
        with pytest.raises(KeyboardInterrupt):
            train("broken")
    assert steps == [7, 14, 21]
    assert not (tmp_path / "broken").exists()
    again, same, said = train("broken")
    assert said[1] == "resuming after step 14"
    assert same == weights
    different = {"seconds": 0.0, "validation_seconds": 0.0}
    assert replace(again, **different) == replace(whole, **different)
    assert not list(tmp_path.glob(".*"))


def test_losses_are_means_over_the_first_and_the_last_tenth(
    tiny_model: Any, triplets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    original = teacher.cross_entropy

    def recorded(*arguments: Any) -> torch.Tensor:
        loss = original(*arguments)
        seen.append(loss.item())
        return loss

    monkeypatch.setattr(teacher, "cross_entropy", recorded)
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", SETTINGS, say=quiet)
    assert len(seen) == 48
    assert trained.first_loss == pytest.approx(np.mean(seen[:4]))
    assert trained.last_loss == pytest.approx(np.mean(seen[-4:]))


def test_triplets_take_little_memory(tiny_model: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"q{i % 60}\ta{i % 72}\tb{(i + 6) % 72}\n" for i in range(20_000)))
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    tracemalloc.start()
    data = PairBatches(model, TRAIN, path, Rejects(), batch_size=8, epochs=1, seed=0, target="softmax")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(data) == 20_000
    assert held < 40 * len(data)


def test_several_negatives_share_one_softmax(tiny_model: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    rows = "".join(f"q{i}\ta{i}\tb{(i + 6) % 72}\tb{(i + 12) % 72}\tb{i}\n" for i in range(60))
    path.write_text("query_id\tpositive_id\tnegative_id_1\tnegative_id_2\tnegative_id_3\n" + rows)
    trained = train_cross_encoder(
        CrossEncoder.from_pretrained(tiny_model("bert")), TRAIN, path, tmp_path / "m", SETTINGS, say=quiet
    )
    assert trained.first_loss == pytest.approx(np.log(4), abs=0.1)
    assert trained.last_loss < 0.7
    assert (trained.best, trained.best_step) == (None, 48)


def test_every_epoch_has_every_triplet_once_in_another_order(
    tiny_model: Any, triplets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Any]] = []
    original = Tokenizer.pairs
    monkeypatch.setattr(
        Tokenizer, "pairs", lambda self, pairs, length: seen.append(list(pairs)) or original(self, pairs, length)
    )
    train = Collection("made", "train", {id: f"{text} {id}" for id, text in DOCUMENTS.items()}, TRAIN.queries, {})
    settings = TeacherSettings(epochs=2, batch_size=7)
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    train_cross_encoder(model, train, triplets, tmp_path / "m", settings, say=quiet)
    assert len(seen) == 2 * 9
    epochs = [[pair for batch in seen[start : start + 9] for pair in batch] for start in (0, 9)]
    assert set(epochs[0]) == set(epochs[1])
    assert len(set(epochs[0])) == len(epochs[0]) == 120
    assert epochs[0] != epochs[1]
    for query, document in epochs[0][::2]:  # the positive first
        assert "margins" in document
        assert query.split()[1] in document


def test_bad_input_is_one_clear_line(tiny_model: Any, triplets: Path, tmp_path: Path) -> None:
    def train(settings: TeacherSettings = SETTINGS, **options: Any) -> Any:
        model = CrossEncoder.from_pretrained(tiny_model("bert"), length=options.pop("length", None))
        return train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", settings, say=quiet, **options)

    for wrong, message in [
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0"),
        ({"warm_up": 1.0}, "warm_up is 1"),
    ]:
        with pytest.raises(InputError, match=message):
            TeacherSettings(**wrong)
    with pytest.raises(InputError, match="unknown measure 'best'"):
        train(TeacherSettings(validation_measure="best"), validation=DEV)
    with pytest.raises(InputError, match="the first-stage run has none of the validation queries"):
        train(validation=DEV, first_stage=Run.of({"q1": {"a1": 1.0}}))
    with pytest.raises(InputError, match="id 'z': the first-stage run has a document that is not in the collection"):
        train(validation=DEV, first_stage=Run.of({"q60": {"z": 1.0}}))
    with pytest.raises(InputError, match=r"the loss is nan at step \d+; use a lower learning rate than 1e\+30"):
        train(TeacherSettings(learning_rate=1e30, clip=1e30))
    long = Collection("made", "dev", DEV.documents, {"q60": "how " * 70}, {"q60": {"a1": 1}})
    with pytest.raises(InputError, match="id 'q60': validation query leaves no room"):
        train(validation=long)
    with pytest.raises(InputError, match=r"t\.tsv:1: id 'q0': query leaves no room for a document in 5 tokens"):
        train(length=5)
    triplets.write_text(triplets.read_text() + "q1\ta1\tz9\n")
    with pytest.raises(InputError, match=r"t\.tsv:61: id 'z9': document is not in the collection"):
        train()
    assert not (tmp_path / "m").exists()
    assert train(skip_bad=True).rejected == 1
    triplets.unlink()
    with pytest.raises(InputError, match=r"t\.tsv: no such file"):
        train()


def test_it_trains_in_half_precision_too(tiny_model: Any, triplets: Path, tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(tiny_model("bert"), precision="bf16")
    trained = train_cross_encoder(model, TRAIN, triplets, tmp_path / "m", SETTINGS, say=quiet)
    assert trained.last_loss < 0.4 < trained.first_loss
    assert {weight.dtype for weight in model.model.parameters()} == {torch.float32}
