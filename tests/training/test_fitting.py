"""A whole run: what is checked first, what its folder holds, and how it goes on."""

from __future__ import annotations

import csv
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning_fabric.loggers import CSVLogger

from remargin import BiEncoder, Collection, InputError
from remargin.data.preparation import prepare
from remargin.files.atomic import locked
from remargin.mining import negatives as mining
from remargin.mining.candidates import Candidates
from remargin.mining.negatives import mine
from remargin.reports.figures import LineFigure
from remargin.reports.training_run import run_section
from remargin.training.fitting import fit
from remargin.training.training_folder import TrainingFolder

from .conftest import settings, silent


def test_a_run_folder_holds_what_is_needed_to_repeat_it(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    import yaml

    start = partial(fit,
        str(beir), str(tiny_model("bert")), tmp_path / "run", also=str(beir),
        loggers=["lightning_fabric.loggers.CSVLogger name=theirs"], tensorboard=True,
    )  # fmt: skip
    start(settings(), say=silent)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["asked"]["settings"]["seed"] == 0
    assert {"corpus.jsonl.gz", "triplets/rows.bin", "model/model.safetensors"} <= set(config["sha256"])
    assert config["versions"]["torch"]
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert len(report["validations"]) == 3
    assert 0 < report["away"]["before"] != report["away"]["after"]
    assert report["away"]["what"] == str(beir)
    for name in ("best", "last", "model"):
        assert (tmp_path / "run" / name / "modules.json").is_file()
    assert report["model"] == "model"
    assert list((tmp_path / "run" / "tensorboard").rglob("events.*"))
    assert list((tmp_path / "run" / "theirs").rglob("metrics.csv"))
    with pytest.raises(InputError, match=r"already exists; .*--resume"):
        start(settings(), say=silent)
    with pytest.raises(InputError, match="the training run was started with other settings: learning_rate"):
        start(settings(learning_rate=2e-3), resume=True, say=silent)
    with pytest.raises(InputError, match="other settings: loggers"):
        start(settings(), resume=True, say=silent, loggers=["nobody.Logger"])


def test_a_config_cannot_call_anything_but_a_logger(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A YAML file may come from anybody: `loggers: os.system command=...` must run nothing."""
    called: list[dict[str, str]] = []

    class NoLogger:
        def __init__(self, **options: str) -> None:
            called.append(options)

    for name, callable in {"system": lambda **options: called.append(options), "NoLogger": NoLogger}.items():
        monkeypatch.setattr(os, name, callable, raising=False)
        start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", loggers=[f"os.{name} command=ls"])
        with pytest.raises(InputError, match=f"os.{name} is not the class of a Lightning logger; name the class"):
            start(settings(), say=silent)
    assert called == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("length", [30, 2])
def test_a_config_of_ones_own_stays(length: int, beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    """As in `fit --config runs/x/config.yaml --out runs/x`, and whether the run would have worked or not."""
    (tmp_path / "config.yaml").write_text("# my notes\nsteps: 6\n")
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path, query_length=length)
    with pytest.raises(InputError, match=r"config.yaml: not the config of a training run; choose another place"):
        start(settings(), say=silent)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["# my notes\nsteps: 6\n"]


def test_collections_may_have_names_that_are_too_long_for_a_file(tiny_model: Any, tmp_path: Path) -> None:
    data = "docstrings:" + ",".join(["json"] * 100)
    start = partial(fit, data, str(tiny_model("bert")), tmp_path / "run")
    assert start(settings(steps=1), say=silent).steps == 1
    with pytest.raises(InputError, match="already exists"):
        start(settings(steps=1), say=silent)


def test_prepared_triplets_are_trained_on_as_they_are(tiny_model: Any, tmp_path: Path) -> None:
    """The way for texts with a teacher's scores: prepare, then fit on that folder."""
    rows = ({"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}", "scores": [3, i % 3]} for i in range(16))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", document_length=64)
    start = partial(fit, str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run")
    lines: list[str] = []
    fitted = start(settings(target="teacher"), say=lines.append)
    assert fitted.steps == 6
    assert not (tmp_path / "run" / "triplets.tsv").exists()
    assert (tmp_path / "run" / "last" / "modules.json").is_file()
    with pytest.raises(InputError, match="made with length 64, not 32"):
        fit(*start.args[:2], tmp_path / "b", settings(), document_length=32, say=lines.append)


def test_the_reported_split_is_not_taken_for_stopping_unasked(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(beir, tmp_path / "nodev")
    (tmp_path / "nodev" / "qrels" / "dev.tsv").unlink()
    start = partial(fit, str(tmp_path / "nodev"), str(tiny_model("bert")), tmp_path / "a")
    with pytest.raises(
        InputError, match=r"patience needs a dev split, and there is none; .* not the one that you will"
    ):
        start(settings(patience=2), say=silent)
    lines: list[str] = []
    fitted = fit(*start.args[:2], tmp_path / "b", settings(), say=lines.append)
    assert "no dev split: nothing is chosen, and the trained model is kept as it is" in lines
    assert fitted.best is None
    assert (fitted.path, fitted.weight, fitted.fusion) == (None, 1.0, None)
    assert fitted.outcome is not None
    assert fitted.outcome.split == "test"
    by_name = partial(fit, *start.args[:2], tmp_path / "c", validation_split="test")
    assert by_name(settings(patience=2), say=lines.append).best is not None
    assert [line for line in lines if line.startswith("choices are made on test: what it reaches there")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "teachr"}, "unknown target 'teachr'; use adaptive"),
        ({"validation_measure": "nDCGG@10"}, "unknown measure 'nDCGG@10'"),
        ({"target": "teacher"}, '"teacher" needs scores; give --triplets'),
        ({"loggers": [""]}, "cannot make logger ''"),
        ({"loggers": ["some.Logger name='x"]}, "cannot make logger .*No closing quotation"),
        ({"loggers": ["lightning_fabric.loggers.CSVLogger nme=x"]}, "cannot make logger .*nme"),
        ({"loggers": ["collections.OrderedDict name=x"]}, "collections.OrderedDict is not the class of a Lightning"),
        ({"validation_split": "nowhere"}, "no split 'nowhere'; it has: train, dev, test"),
        ({"also": "nowhere"}, "nowhere"),
    ],
)
def test_a_wrong_command_leaves_nothing_behind(
    options: dict[str, Any], words: str, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    asked = {name: options.pop(name) for name in ("loggers", "validation_split", "also") if name in options}
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", **asked)
    with pytest.raises(InputError, match=words):
        start(settings(**options), say=silent)
    assert not (tmp_path / "run").exists()


def test_a_command_that_fails_before_anything_is_made_can_be_corrected(
    beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", triplets=tmp_path / "t.tvs")
    with pytest.raises(InputError, match="no such file"):
        start(settings(steps=1), say=silent)
    mine(Collection.load(beir, "train"), tmp_path / "t.tsv")
    assert start(settings(steps=1), say=silent, triplets=tmp_path / "t.tsv").steps == 1


def test_bad_input_that_shows_late_leaves_the_folder_to_the_next_attempt(
    beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    for wrong in ({"query_length": 2}, {"validation_run": tmp_path / "run.trec"}):
        (tmp_path / "run.trec").write_text("nobody Q0 nothing 1 1.0 x\n")
        with pytest.raises(InputError):
            fit(str(beir), str(tiny_model("bert")), tmp_path / "run", settings(), say=silent, **wrong)
        assert not list((tmp_path / "run").glob("*"))
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    start(settings(steps=1), say=silent)


def test_bad_input_in_a_later_round_leaves_the_trained_ones(tmp_path: Path) -> None:
    first = tmp_path / "run" / "rounds" / "1"

    def trained_then_failed() -> None:
        with TrainingFolder(tmp_path / "run", {}, resume=False).opened():
            first.mkdir(parents=True)
            (first / "metrics.csv").write_text("step,loss\n")
            raise InputError("too few documents", do="add some")

    with pytest.raises(InputError, match="too few documents"):
        trained_then_failed()
    assert (first / "metrics.csv").exists()


def test_a_run_goes_on_wherever_its_folder_is_now(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    mine(Collection.load(beir, "train"), tmp_path / "t.tsv")
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", triplets=tmp_path / "t.tsv")
    start(settings(steps=2), say=silent)
    (tmp_path / "run").rename(tmp_path / "moved")
    triplets = Path(os.path.relpath(tmp_path / "t.tsv"))
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "moved", triplets=triplets)
    assert start(settings(steps=2), resume=True, say=silent).steps == 2
    with pytest.raises(InputError, match="the training run was started with other settings: steps"):
        start(settings(steps=3), resume=True, say=silent)


def test_only_a_margin_loss_has_two_parts(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    for target, has_parts, has_targets in (("contrastive", 0, 0), ("0.3", 1, 1), ("softmax", 0, 1)):
        lines: list[str] = []
        start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / target)
        start(settings(target=target, steps=2), say=lines.append)
        with open(tmp_path / target / "metrics.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["loss"]]
        assert rows
        for row in rows:
            assert bool(row["explicit_mean"]) == bool(row["spread"]) == has_parts
            assert row["margin_mean"]
            assert bool(row["target_max"]) == has_targets
            assert bool(row["temperature"]) == (not has_parts)
        said = [line for line in lines if line.startswith("step 2/2  loss")]
        assert len(said) == 1
        assert ("(mean " in said[0]) == ("target 0.30" in said[0]) == has_parts
        assert ("target " in said[0]) == has_targets
        assert ("temperature 0.0" in said[0]) == (not has_parts)
        figure = run_section(tmp_path / target).figures[0]
        assert isinstance(figure, LineFigure)
        assert (figure.caption == "Mean over the batch.") == (not has_parts)
        assert len(figure.panels[0].series) == (3 if has_parts else 1)


def test_what_another_process_finished_meanwhile_is_not_overwritten(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    load = BiEncoder.from_pretrained

    def slow(*arguments: Any, **others: Any) -> BiEncoder:
        monkeypatch.undo()
        start(settings(steps=1), say=silent)
        return load(*arguments, **others)

    monkeypatch.setattr(BiEncoder, "from_pretrained", slow)
    with pytest.raises(InputError, match="run: already exists"):
        start(settings(steps=2), say=silent)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["steps"] == 1


class WritesAtOnce(CSVLogger):
    """A logger that does not wait for the first line."""

    def __init__(self, root_dir: str) -> None:
        super().__init__(root_dir)
        Path(root_dir, "mine").mkdir()


def test_a_logger_may_write_as_soon_as_it_is_made(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", loggers=[f"{__name__}.WritesAtOnce"])
    assert start(settings(steps=1), say=silent).steps == 1


def test_judgments_that_changed_are_noticed_on_resuming(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), str(tmp_path / "run"))  # type: ignore[arg-type]
    start(settings(steps=1), say=silent)
    judgments = tmp_path / "run" / "data" / "qrels" / "dev.tsv"
    judgments.write_text(judgments.read_text().replace("d41", "d42"))
    with pytest.raises(InputError, match=r"dev.tsv: damaged or missing; prepare it again"):
        start(settings(steps=1), resume=True, say=silent)
    header = tmp_path / "run" / "data" / "remargin.json"
    header.write_text(header.read_text()[1:])
    with pytest.raises(InputError, match=r"remargin.json: not a header that remargin wrote"):
        start(settings(steps=1), resume=True, say=silent)


def test_what_is_no_run_is_not_resumed(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path)
    (tmp_path / "triplets.tsv").write_text("query_id\tpositive_id\tnegative_id\nq0\td0\td1\n")
    with pytest.raises(InputError, match=r"no training run to resume: there is no config.yaml in it"):
        start(settings(), resume=True, say=silent)
    for content in ("", "a: [", "asked: 3"):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(InputError, match=r"config.yaml: not the config of a training run"):
            start(settings(), resume=True, say=silent)


def test_a_run_stopped_while_mining_goes_on(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    original, mined = Candidates.triplets, []

    def stopped(self: Any, chunk: list[str], *rest: Any) -> Any:
        if len(mined) == 2:
            raise KeyboardInterrupt
        mined.append(chunk)
        return original(self, chunk, *rest)

    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 15)
    monkeypatch.setattr(Candidates, "triplets", stopped)
    with pytest.raises(KeyboardInterrupt):
        start(settings(steps=1), say=silent)
    with pytest.raises(InputError, match="other settings: seed"):
        start(settings(steps=1, seed=1), resume=True, say=silent)
    monkeypatch.setattr(Candidates, "triplets", original)
    assert start(settings(steps=1), resume=True, say=silent).steps == 1
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "triplets/rows.bin" in config
    assert "transformers" in config


def test_a_small_table_trains_without_validation(tiny_model: Any, tmp_path: Path) -> None:
    """Its dev split is empty: that is no split."""
    rows = [f"how is {word},the value of {word}" for word in ("abc", "abd", "abe", "abf", "abg")]
    (tmp_path / "faq.csv").write_text("\n".join(["query,document", *rows]) + "\n")
    start = partial(fit, f"pairs:{tmp_path / 'faq.csv'}", str(tiny_model("bert")), tmp_path / "run")
    lines: list[str] = []
    start(settings(steps=2, batch_size=2), say=lines.append)
    assert "no dev split: nothing is chosen, and the trained model is kept as it is" in lines
    models = [(tmp_path / "run" / name / "model.safetensors").read_bytes() for name in ("last", "model")]
    assert models[0] == models[1]
    assert not (tmp_path / "run" / "best").exists()


def test_what_differs_is_named(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    start(settings(steps=1), say=silent)
    changed = "the training run was started with other settings: target, stop_gradient, temperature, steps;"
    with pytest.raises(InputError, match=changed):
        start(settings(steps=2, target="contrastive", temperature=0.1), resume=True, say=silent)


def test_bad_triplets_can_be_skipped(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"q{i}\td{i}\td{i + 1}\n" for i in range(8)) + "q1\td1\tnowhere\n")
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", triplets=tmp_path / "t.tsv")
    with pytest.raises(InputError, match=r"t\.tsv:9.*skip bad input"):
        start(settings(steps=1), say=silent)
    lines: list[str] = []
    start(settings(steps=1), say=lines.append, skip_bad=True)
    assert any(line.startswith("WARNING: set aside as bad input: 1; see ") for line in lines)


@pytest.mark.parametrize("name", ["triplets/rows.bin", "tokens/documents/tokens.bin"])
def test_damaged_data_is_not_trained_on(name: str, prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "data")
    content = bytearray((tmp_path / "data" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "data" / name).write_bytes(content)
    start = partial(fit, str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run")
    with pytest.raises(InputError, match=Path(name).name):
        start(settings(steps=1), say=silent)


def test_bad_rows_of_a_table_can_be_skipped(tiny_model: Any, tmp_path: Path) -> None:
    rows = [f"how is value{i} made?,the value{i} is made of part{i}" for i in range(150)]
    (tmp_path / "faq.csv").write_text("\n".join(["question,answer", *rows, "nothing?,"]) + "\n")
    start = partial(fit, f"pairs:{tmp_path / 'faq.csv'}", str(tiny_model("bert")), tmp_path / "run")
    with pytest.raises(InputError, match=r"faq\.csv:152.*skip bad input"):
        start(settings(steps=1), say=silent)
    assert start(settings(steps=1), say=silent, skip_bad=True).steps == 1


def test_two_processes_do_not_train_in_one_folder(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(InputError, match="another process is writing it"):
        start(settings(steps=1), say=silent)
    start(settings(steps=1), say=silent)


def test_a_run_does_not_go_on_with_other_data(prepared: Path, beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "data")
    start = partial(fit, str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run")
    start(settings(steps=2), say=silent)
    (tmp_path / "t.tsv").write_text("".join(f"q{i}\td{i}\td{i + 1}\n" for i in range(8)))
    prepare(beir, tiny_model("bert"), tmp_path / "data", tmp_path / "t.tsv", document_length=64, overwrite=True)
    with pytest.raises(
        InputError, match=r"the training run was started on other data: triplets/rows\.bin changed; put back"
    ):
        start(settings(steps=2), resume=True, say=silent)
