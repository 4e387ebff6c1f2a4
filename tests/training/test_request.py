"""What fit is asked for: which requests make sense, and which settings follow from them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError
from remargin.training.fitting import fit
from remargin.training.request import Request, asks_for_validation, resolve_settings
from remargin.training.settings import FitSettings

from .conftest import settings, silent


def request(beir: Path, **changes: Any) -> Request:
    asked: dict[str, Any] = {
        "data": str(beir), "model": "m", "out": Path("run"), "preset": "default", "triplets": None, "pooling": "auto",
        "query_length": None, "document_length": None, "training_length": None,
        "query_prefix": None, "document_prefix": None, "epochs": None, "minutes": None,
        "blend": "auto", "rounds": 1, "watched": False, "validation_split": None, "validation_run": None, "also": None,
        "tensorboard": False, "loggers": None, "skip_bad": False,
    }  # fmt: skip
    return Request(**{**asked, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blend": "some"}, "blend is 'some'; use off, auto, or a weight from 0"),
        ({"blend": "1.5"}, "blend is '1.5'"),
        ({"blend": "-0.1"}, "blend is '-0.1'"),
        ({"blend": "nan"}, "blend is 'nan'"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"rounds": 2, "triplets": Path("t.tsv")}, "several rounds mine triplets themselves; leave out --triplets"),
        ({"epochs": 0}, "epochs is 0; it must be a number above 0"),
        ({"epochs": float("nan")}, "epochs is nan"),
        ({"minutes": -1.0}, "minutes is -1.0"),
        ({"minutes": float("inf")}, "minutes is inf"),
    ],
)
def test_what_makes_no_sense_is_refused(beir: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request(beir, **changes)


def test_the_weight_is_a_number_unless_dev_chooses_it(beir: Path) -> None:
    weights = {blend: request(beir, blend=blend).weight for blend in ("auto", "off", "0", "0.25", "1")}
    assert weights == {"auto": None, "off": 1.0, "0": 0.0, "0.25": 0.25, "1": 1.0}


def test_several_rounds_do_not_take_the_triplets_that_are_there(prepared: Path) -> None:
    """They would have trained on them in the last round, and mined for nothing."""
    assert request(prepared).prepared == prepared
    with pytest.raises(InputError, match="has triplets already, but several rounds mine their own; leave out --rounds"):
        request(prepared, rounds=2)


def test_splits_are_found(beir: Path) -> None:
    asked = request(beir)
    assert asked.dev_split(FitSettings()) == "dev"
    assert request(beir, validation_split="test").dev_split(FitSettings()) == "test"
    assert json.loads(json.dumps(asked.plain()))["out"] == "run"


def test_settings_are_given_whole_or_one_by_one() -> None:
    with pytest.raises(InputError, match="settings are given, and preset, steps beside them; give one or the other"):
        resolve_settings(FitSettings(), "paper", {"steps": 3})
    for preset in ("paper", "released"):
        with pytest.raises(InputError, match=f"the preset {preset} needs to know how long to train; give --steps"):
            resolve_settings(None, preset, {})
    resolved = resolve_settings(None, "paper", {"steps": 3})
    assert (resolved.steps, resolved.loss.target, resolved.validation_depth) == (3, "distributed", 1000)
    resolved = resolve_settings(None, None, {})
    assert (resolved.batch_size, resolved.learning_rate, resolved.loss.target) == (128, None, "softmax")
    assert (resolved.validation_depth, resolved.patience, resolved.per_triplet) == (None, None, 1)


def test_validation_while_training_is_asked_for_in_either_way() -> None:
    assert [asks_for_validation(None, {name: 5}) for name in ("validate_every", "patience", "steps")] == [1, 1, 0]
    assert not asks_for_validation(None, {"patience": None})
    given = ({"validate_every": 5}, {"patience": 5}, {"steps": 5}, {})
    assert [asks_for_validation(FitSettings(**one), {}) for one in given] == [1, 1, 0, 0]  # type: ignore[arg-type]


def test_steps_and_epochs_are_not_both_given(beir: Path, tiny_model: Any, tmp_path: Path, remargin: Any) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", epochs=2, say=silent)
    for given in (partial(start, settings(steps=2)), partial(start, steps=2)):
        with pytest.raises(InputError, match="both a number of steps and epochs are given; give one of them"):
            given()
    arguments = ("fit", "--data", beir, "--model", tiny_model("bert"), "--out", tmp_path / "run", "--epochs", 2)
    refused = remargin(*arguments, "--steps", 3)
    assert (refused.returncode, "both a number of steps and epochs" in refused.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
