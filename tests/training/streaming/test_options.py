"""Every option of `fit` on a stream: it has an effect, or is refused in one line."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from remargin import BiEncoder, InputError
from remargin.cli import app
from remargin.reports.run_files import read_config
from remargin.training.streaming import learning

ALWAYS = ("stream", "data", "model", "out", "wait")
# What each command below names, and what does not say how to train.
LEFT_OUT = {*ALWAYS, "resume", "config", "threads", "help", "quiet", "json"}
REFUSED = {
    "minutes": "5", "steps": "3", "epochs": "1", "rounds": "2", "triplets": "triplets.tsv", "sampler": "tas",
    "clusters": "2", "drop_bins": "1", "teacher_scale": "2", "in_batch_teacher": "minilm", "preset": "paper",
    "accumulate": "2", "warm_up": "0.2", "schedule": "linear", "gamma": "0.9", "graphs": None, "devices": "2",
    "validation_run": "bm25.trec", "patience": "2", "loggers": "a.Logger", "tensorboard": None,
    "lora": "4",
}  # fmt: skip
# As many at once as go together.
TAKEN = [
    {
        "target": "softmax", "blend": "0.25", "per_triplet": "2", "pooling": "mean", "query_length": "9",
        "document_length": "30", "training_length": "20", "language": "german", "query_prefix": "query: ",
        "document_prefix": "passage: ", "stop_gradient": None, "spread": "batch", "margin_weight": "0.3",
        "dims": "32,16", "batch_size": "3", "learning_rate": "0.001", "weight_decay": "0.1", "clip": "0.5",
        "attention_dropout": None, "seed": "3", "precision": "32", "engine": "padded", "compile": "off",
        "token_budget": "500", "validation_split": "train", "validation_measure": "RR", "validation_depth": "3",
        "validation_queries": "2", "validation_documents": "4", "validate_every": "7", "also": "docstrings:json",
        "negatives": "model", "shuffle": "2", "save_every": "2", "log_every": "3",
    },
    {"target": "adaptive", "in_batch": None, "error": "l1", "similarity": "dot"},
    {"target": "contrastive", "temperature": "0.1"},
]  # fmt: skip
# These need not stay the same when a stream is resumed, or say what to do with bad documents.
OF_NOW: dict[str, str | None] = {"most_rejects": "0.5", "from_start": None, "skip_bad": None}
EIGHT_BIT = "eight_bit"  # needs another package


@pytest.fixture
def invoke(tiny_model: Any, beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command with an option: what it refused, or the plain settings of the training run."""
    monkeypatch.setattr(learning.Away, "choose", lambda *_, **__: None)
    lines = [{"query": f"how is {word}", "positive": f"a {word}", "negative": "a value"} for word in "abcde"]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = ["--data", str(beir), "--model", str(tiny_model("bert")), "--wait", "0", "--out", str(tmp_path / "run")]

    def run(**options: str | None) -> InputError | dict[str, Any]:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value) if word]
        given = ["fit", "--stream", str(tmp_path / "lines.jsonl"), *common, *words]
        result = CliRunner().invoke(app, given)
        if isinstance(result.exception, InputError):
            return result.exception
        assert result.exit_code == 0, (words, result.exception, result.output)
        asked = read_config(tmp_path / "run", "")["asked"]
        return {**asked, **asked["settings"], **asked["settings"]["loss"]}

    return run


def test_every_option_is_tried() -> None:
    known = {str(option.name) for option in get_command(app).commands["fit"].params}  # type: ignore[attr-defined]
    assert known - LEFT_OUT == {*REFUSED, *itertools.chain(*TAKEN), *OF_NOW, EIGHT_BIT}


@pytest.mark.parametrize("name", REFUSED)
def test_without_an_effect_it_is_refused(name: str, invoke: Any, tmp_path: Path) -> None:
    refused = invoke(**{name: REFUSED[name]})
    assert isinstance(refused, InputError)
    assert str(refused) == f"--{name.replace('_', '-')} does nothing for a stream; leave it out"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", TAKEN)
def test_with_an_effect_it_is_what_the_training_run_was_asked_for(options: dict[str, str | None], invoke: Any) -> None:
    asked = invoke(**options)
    assert isinstance(asked, dict), asked
    assert {name: str(asked[name]) for name in options} == {name: value or "True" for name, value in options.items()}


def test_what_may_change_is_taken(invoke: Any) -> None:
    assert isinstance(invoke(**OF_NOW), dict)


def test_a_package_that_is_missing_is_named(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    refused = invoke(eight_bit=None)
    assert isinstance(refused, InputError)
    assert "eight-bit" in str(refused)


def test_the_model_is_made_for_the_similarity_that_was_asked_for(invoke: Any, tmp_path: Path) -> None:
    asked = invoke(similarity="dot")
    assert (asked["target"], asked["similarity"]) == ("distributed", "dot")  # softmax takes cosines alone
    assert BiEncoder.from_pretrained(tmp_path / "run" / "model").similarity == "dot"
    assert "unknown similarity" in str(invoke(similarity="near", out=str(tmp_path / "other")))
