"""remargin fit: what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from remargin import InputError, stream
from remargin.cli import app
from remargin.model.encoder import PAPER_LENGTHS
from remargin.model.folder import LONGEST_DEFAULT
from remargin.training import fitting
from remargin.training.schedule import MOST_EPOCHS
from remargin.training.settings import FitSettings, LossSettings, rate_for
from remargin.training.validation import CPU_DOCUMENTS, GPU_DOCUMENTS


@pytest.mark.parametrize(
    ("options", "option", "what"),
    [
        ("--temperature 0.1", "--temperature", "other losses than contrastive"),
        ("--target softmax --temperature learned", "--temperature", "other losses than contrastive"),
        ("--target contrastive --spread batch", "--spread", "other losses than softmax"),
        ("--target distributed --margin-weight 1", "--margin-weight", "other losses than softmax"),
        ("--preset paper --steps 9 --spread batch", "--spread", "other losses than softmax"),
        ("--target softmax --in-batch", "--in-batch", "the softmax loss"),
        ("--in-batch", "--in-batch", "the softmax loss"),
        ("--target contrastive --in-batch", "--in-batch", "the contrastive loss"),
        ("--target contrastive --error l1", "--error", "the contrastive loss"),
        ("--target 0.3 --teacher-scale 2", "--teacher-scale", "other targets than teacher"),
        ("--target 0.3 --stop-gradient", "--stop-gradient", "targets that are constant anyway"),
        (
            "--target teacher --in-batch --in-batch-teacher x --error l1",
            "--error",
            "two teachers",
        ),
        ("--gamma 0.9", "--gamma", "other schedules than exponential"),
    ],
)
def test_an_option_without_effect_is_refused(
    remargin: Callable[..., Any], tmp_path: Path, options: str, option: str, what: str
) -> None:
    result = remargin("fit", "--data", "nothing", "--model", "none", "--out", tmp_path / "run", *options.split())
    assert (result.returncode, result.stderr) == (2, f"error: {option} does nothing for {what}; leave it out\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        "--target contrastive --temperature 0.1 --schedule exponential --gamma 0.9",
        "--target contrastive --temperature learned --per-triplet 3",
        "--target softmax --spread running --margin-weight 0 --no-stop-gradient",
        "--spread running --margin-weight 0 --no-stop-gradient",
    ],
)
def test_options_with_an_effect_are_not(remargin: Callable[..., Any], tmp_path: Path, options: str) -> None:
    result = remargin("fit", "--data", "nothing", "--model", "none", "--out", tmp_path / "run", *options.split())
    assert result.returncode == 2
    assert "does nothing" not in result.stderr


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_options_that_are_not_given_leave_the_preset_as_it_is(
    preset: str, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []

    def start(path: Path, asked: dict[str, Any], resume: bool) -> None:
        started.append(asked["settings"])
        raise InputError("stopped here", do="nothing")

    monkeypatch.setattr(fitting, "TrainingFolder", start)
    model = str(tiny_model("bert"))  # whose similarity is looked up, to choose the loss
    arguments = ["fit", "--data", "x", "--model", model, "--out", str(tmp_path), "--preset", preset, "--steps", "3"]
    assert isinstance(CliRunner().invoke(app, arguments).exception, InputError)
    assert started == [asdict(FitSettings.preset(preset, steps=3))]


# Defaults that are no number or name in the settings, but follow from the data, the model or the memory.
ELSEWHERE = {
    "similarity": "the model's own, or cosine",
    "devices": "1; under torchrun, as it says",
    "preset": "default",
    "minutes": "no limit",
    "steps": "by the number of pairs",
    "epochs": f"at most {MOST_EPOCHS}",
    "blend": "auto; off for the presets of the paper",
    "training_length": f"the document length, at most {LONGEST_DEFAULT}",
    "query_prefix": "the model's own",
    "document_prefix": "the model's own",
    "also": "texts that every machine has",
    "dims": "only whole vectors",
    "validation_depth": "rank in full",
    "validation_documents": f"{CPU_DOCUMENTS:,}; on a GPU {GPU_DOCUMENTS:,}",
    "validate_every": f"only after training; {FitSettings.validate_every} with --blend off",
    "stop_gradient": "stop-gradient for softmax, else no-stop-gradient",
    "clusters": "about four batches per cluster",
    "teacher_scale": "1 for dot products; for cosine, the factor that brings 99% of the margins within 1",
    "token_budget": "by memory",
    "validation_split": "dev, if there is one",
    "validation_run": "BM25's ranking",
    "triplets": "those in --data, if `remargin prepare` put triplets there; else mined with BM25",
}


def test_help_shows_the_defaults_as_they_are() -> None:
    known = {f.name: f.default for kind in (FitSettings, LossSettings) for f in fields(kind)}
    options = [p for p in get_command(app).commands["fit"].params if isinstance(getattr(p, "show_default", None), str)]  # type: ignore[attr-defined]
    shown = {str(option.name): option.show_default for option in options}  # type: ignore[attr-defined]
    assert {"steps", "batch_size", "learning_rate", "validate_every", "target"} <= shown.keys()
    assert shown.pop("patience") == "no early stopping"
    assert known["patience"] is known["validation_depth"] is known["validation_documents"] is None
    assert shown.pop("threads") == "one per core"
    assert shown.pop("lora") == "train all weights"
    assert shown.pop("learning_rate") == f"{rate_for(1):g}, less for long runs"
    assert known["lora"] is known["learning_rate"] is None
    assert {shown.pop(name) for name in ("data", "model", "out")} == {"required, but for --resume"}
    for name, length in zip(("query_length", "document_length"), PAPER_LENGTHS, strict=True):
        assert shown.pop(name) == f"the model's own; {length} for the presets of the paper"
    assert {name: shown.pop(name) for name in ELSEWHERE} == ELSEWHERE
    of_streams = {name: parameter.default for name, parameter in signature(stream).parameters.items()}
    for name in ("negatives", "shuffle", "most_rejects"):
        assert shown.pop(name) == str(of_streams[name])
    assert (shown.pop("wait"), shown.pop("from_start")) == ("wait for ever", "it goes on where it was")
    assert of_streams["wait"] is None
    assert of_streams["from_start"] is False
    for name in [name for name in shown if isinstance(known[name], bool)]:
        flag = name.replace("_", "-")
        assert shown.pop(name) == (flag if known[name] else f"no-{flag}")
    assert shown == {name: f"{known[name]:g}" if isinstance(known[name], float) else str(known[name]) for name in shown}
