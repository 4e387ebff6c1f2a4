"""A training run continues by its folder alone, to the same weights, and refuses what it was not asked for."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from remargin import InputError, fit
from remargin.files.headers import checksum
from remargin.training.log import Log

from .conftest import silent

OPTIONS = "--batch-size 8 --precision 32 --log-every 1 --seed 3 --blend 0.5 --target contrastive --temperature learned"


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C come at a step."""
    training = Log.training

    def stopping(self: Log, at: int, *rest: Any) -> None:
        training(self, at, *rest)
        if at == step:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "training", stopping)


def weights(run: Path) -> list[bytes]:
    return [(run / name / "model.safetensors").read_bytes() for name in ("last", "model")]


@pytest.mark.parametrize("steps", ["--steps 5", "--epochs 1"])
def test_the_command_that_is_printed_continues_to_the_same_weights(
    steps: str,
    remargin: Callable[..., Any],
    beir: Path,
    tiny_model: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--data", beir, "--model", tiny_model("bert"), "--also", beir, *OPTIONS.split(), *steps.split()]
    whole = remargin("fit", *given, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    with monkeypatch.context() as patched:
        stop_at(3, patched)
        stopped = remargin("fit", *given, "--out", "runs/a run")
    assert stopped.returncode == 130
    line = stopped.stderr.splitlines()[-1]
    assert line == "interrupted; continue with: remargin fit --resume 'runs/a run'"
    resumed = remargin(*shlex.split(line.partition("remargin ")[2]))
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after step 4" in resumed.stdout  # the step that was under way is kept
    assert weights(Path("runs/a run")) == weights(Path("whole"))


@pytest.fixture(scope="module")
def run(beir: Path, tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run of two steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    fit(str(beir), str(tiny_model("bert")), out, also=str(beir), blend=0.5, steps=2, batch_size=8, say=silent)
    return out


def test_in_python_and_with_the_old_words_it_is_the_same(run: Path, remargin: Callable[..., Any]) -> None:
    before = weights(run)
    assert fit(resume=run, say=silent).steps == 2
    for words in (("--resume", "--out", run), ("--resume", run, "--steps", 2)):
        assert remargin("fit", *words).returncode == 0
    assert weights(run) == before


def test_what_is_given_as_well_must_be_the_same(run: Path, beir: Path, tiny_model: Any) -> None:
    same = {"data": beir, "model": tiny_model("bert"), "steps": 2, "target": "softmax", "blend": 0.5, "out": run}
    assert fit(resume=run, say=silent, **same).steps == 2
    for other, words in {
        "steps": (3, "steps is 2 there, not 3; leave out --steps, or start another training run"),
        "target": ("distributed", "target is softmax there, not distributed"),
        "data": ("docstrings:json", f"data is {beir} there, not docstrings:json"),
        "minutes": (3.0, "minutes was not given there, not 3.0"),
        "skip_bad": (True, "skip_bad is False there, not True"),
        "out": (run / "other", f"out is {run} there, not"),
    }.items():
        with pytest.raises(
            InputError, match=r"config\.yaml: the training run was started with other settings: "
        ) as error:
            fit(resume=run, say=silent, **{other: words[0]})
        assert words[1] in str(error.value)
    with pytest.raises(InputError, match="unknown setting 'stepps'"):
        fit(resume=run, say=silent, stepps=3)


def test_a_folder_without_a_training_run_is_one_line(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"no training run to resume: there is no config\.yaml in it; name the"):
            fit(resume=folder, say=silent)


def test_where_relative_paths_lead_nowhere_it_says_where_they_do(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"how is {word},the value of {word}" for word in ("abc", "abd", "abe", "abf", "abg")]
    (tmp_path / "faq.csv").write_text("\n".join(["query,document", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    data = "pairs:faq.csv?query=query&document=document"
    small: Any = {"also": str(beir), "steps": 1, "batch_size": 2, "say": silent}
    fit(data, str(tiny_model("bert")), "runs/faq", **small)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(
        InputError, match=r"its data is 'pairs:faq\.csv\?.*', which is not in the current folder"
    ) as error:
        fit(resume="../runs/faq", say=silent)
    assert str(error.value).endswith(
        f"; resume it where it was started: cd {tmp_path} && remargin fit --resume runs/faq"
    )


def test_a_record_of_another_version_is_resumed_with_all_options(run: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["checksum"], config["asked"]["blend"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, "checksum": checksum(config)}))
    with pytest.raises(
        InputError, match=r"not of this version of remargin: blend is missing; resume it with all of its options: "
    ):
        fit(resume=tmp_path, say=silent)
