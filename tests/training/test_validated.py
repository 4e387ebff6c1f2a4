"""What a training run tells of its validations, query by query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder
from remargin.study.dev_scores import DevLog
from remargin.training.loop import train
from remargin.training.validation import Validator

from .conftest import settings, silent


def test_a_stopped_run_ends_with_all_scores(prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    chosen = settings(steps=6, validate_every=2, save_every=3)

    def run(name: str, stop: int | None = None) -> tuple[Any, DevLog]:
        def observe(number: int, *vectors: Any) -> None:
            if number == stop:
                raise KeyboardInterrupt

        log = DevLog(tmp_path / name / "dev.json")
        base, validator = BiEncoder.from_pretrained(tiny_model("bert")), Validator(prepared, "dev", chosen)
        fitted = train(
            base, prepared, tmp_path / name, settings=chosen, validator=validator, resume=True, say=silent,
            observe=observe, validated=log,
        )  # fmt: skip
        return fitted, log

    fitted, whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("stopped", stop=4)  # after the validation of step 4, which no checkpoint knows
    _, stopped = run("stopped")
    steps = [step for step, _ in fitted.validations]
    assert steps == [0, 2, 4, 6]
    assert whole.scores(steps[1:]) is not None
    assert whole.scores(steps[1:]) == stopped.scores(steps[1:])
