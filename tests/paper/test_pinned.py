"""The paper's experiments are what they were, whatever `fit` recommends: every run resolves to the same settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remargin.study.results import Results
from remargin.training.settings import FitSettings, LossSettings

from .resolved import (
    IN_FULL,
    SNAPSHOT,
    Settings,
    digest,
    memory,
    memory_of,
    mining_of,
    resolved_run,
    runs_of,
    studies,
    validation_of,
)

# Settings that are newer than the snapshot, at the value with which training is as it was before them. Settings of the
# loss have "loss." before their names. A new field of FitSettings, LossSettings or `mine` needs a line here.
AS_BEFORE: Settings = {
    "per_triplet": 1,
    "validation_documents": None,
    "loss.margin_weight": 0.5,  # of the softmax loss alone
    "loss.spread": "row",  # of the softmax loss alone
    "loss.dims": None,  # whole vectors only
    "lora": None,  # all weights
}
MINING_AS_BEFORE: Settings = {
    "bound": None,
    "suspicious": None,
    "vectors": None,
    **dict.fromkeys(("query_length", "document_length", "query_prefix", "document_prefix")),  # the model's own
    **dict.fromkeys(("pooling", "similarity", "executor")),
    "language": "auto",  # English as before, but for scripts without spaces, where BM25 found nothing before
}

KEPT: dict[str, Any] = json.loads(SNAPSHOT.read_text())


@pytest.fixture(scope="module")
def planned() -> dict[str, Results]:
    return studies()


def as_known(settings: Settings, fields: list[str], newer: Settings) -> Settings:
    """Settings without those that are newer than the snapshot, which must leave everything as it was."""
    settings = dict(settings)
    if settings.get("loss.stop_gradient", False) is None and settings["loss.target"] != "softmax":
        settings["loss.stop_gradient"] = False  # as the target has it, which is that
    for name in settings.keys() - set(fields):
        assert name in newer, f"{name} is new: say in this file which value leaves training as it was"
        assert settings[name] == newer[name], f"{name} is {settings[name]}: a study must pin it to {newer[name]}"
    return {name: settings[name] for name in settings if name in fields}


def test_every_study_and_run_is_in_the_snapshot(planned: dict[str, Results]) -> None:
    assert planned.keys() == KEPT["runs"].keys()
    assert {name: sorted(runs_of(name, results)) for name, results in planned.items()} == {
        name: sorted(runs) for name, runs in KEPT["runs"].items()
    }
    assert sum(map(len, KEPT["runs"].values())) > 900


def test_every_run_resolves_to_what_it_was(planned: dict[str, Results]) -> None:
    fields = KEPT["fields"]
    for name, results in planned.items():
        runs = runs_of(name, results)
        for experiment, example in KEPT["examples"].get(name, {}).items():  # first, as it says what differs
            spec, experiments = runs[example["key"]]
            assert experiment in experiments
            assert as_known(resolved_run(spec, results.plan), fields, AS_BEFORE) == example["settings"]
        for key, (spec, _) in runs.items():
            settings = as_known(resolved_run(spec, results.plan), fields, AS_BEFORE)
            assert digest(settings) == KEPT["runs"][name][key], (name, key, settings)
    assert KEPT["examples"].keys() == {*IN_FULL}


def test_negatives_and_validation_are_what_they_were(planned: dict[str, Results]) -> None:
    for name, results in planned.items():
        mining = KEPT["mining"][name]
        assert as_known(mining_of(results.plan), list(mining), MINING_AS_BEFORE) == mining
        validation = KEPT["validation"][name]
        assert as_known(validation_of(results.plan), list(validation), AS_BEFORE) == validation
        settings = memory_of(results.plan)[memory.MIXED]
        assert as_known(settings, KEPT["fields"], AS_BEFORE) == KEPT["memory"][name]


def test_other_defaults_of_fit_change_no_run(planned: dict[str, Results], monkeypatch: pytest.MonkeyPatch) -> None:
    """As when `fit` has another recommendation: every default that can be another one is."""
    changed = {"steps": 7, "batch_size": 32, "learning_rate": 2e-4, "validation_depth": 5, "warm_up": 0.3, "clip": 2.0}
    defaults = list(FitSettings.__init__.__defaults__ or ())
    names = list(FitSettings.__init__.__code__.co_varnames)[1 : 1 + len(defaults)]
    monkeypatch.setattr(
        FitSettings.__init__,
        "__defaults__",
        tuple(changed.get(name, value) for name, value in zip(names, defaults, strict=True)),
    )
    monkeypatch.setattr(
        LossSettings.__init__, "__defaults__", ("adaptive", *(LossSettings.__init__.__defaults__ or ())[1:])
    )
    assert (FitSettings().steps, FitSettings().learning_rate, LossSettings().target) == (7, 2e-4, "adaptive")
    test_every_run_resolves_to_what_it_was(planned)
    test_negatives_and_validation_are_what_they_were(planned)
