"""The recipe of fit from end to end: its presets, its rounds, its fall-backs, and stops at every point of it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder, Collection, InputError
from remargin.mining import recipe
from remargin.reports.run_files import read_config, read_report
from remargin.reports.training_run import run_section
from remargin.training import measuring
from remargin.training.fitting import fit
from remargin.training.measuring import Fit
from remargin.training.optimiser import eight_bit_runs
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

from .conftest import Start, models, quick, silent, weights


def test_a_preset_of_the_paper_does_without_eight_bits_where_they_do_not_run(
    beir: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: Any = {"preset": "paper", "steps": 1, "batch_size": 4}
    said: list[str] = []
    fit(str(beir), encoder, tmp_path / "with", say=said.append, **changes)
    assert read_config(tmp_path / "with", "")["asked"]["settings"]["eight_bit"]
    assert not [line for line in said if "8-bit" in line or "no attention dropout" in line]
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    eight_bit_runs.cache_clear()
    fit(str(beir), encoder, tmp_path / "without", say=said.append, **changes)
    assert len([line for line in said if line.startswith("left out: 8-bit optimiser states")]) == 1
    assert not read_config(tmp_path / "without", "")["asked"]["settings"]["eight_bit"]
    with pytest.raises(InputError, match="8-bit optimiser states need bitsandbytes; pip install"):
        fit(str(beir), encoder, tmp_path / "asked", eight_bit=True, say=str, **changes)
    assert not (tmp_path / "asked").exists()
    eight_bit_runs.cache_clear()


def test_the_presets_of_the_paper_are_as_the_paper_has_them(beir: Path, encoder: Path, tmp_path: Path) -> None:
    for preset in ("paper", "released"):
        changes: Any = {"steps": 4, "batch_size": 8, "validate_every": 2, "precision": "32"}
        run = tmp_path / preset
        given = fit(str(beir), str(encoder), run, preset=preset, also=str(beir), say=silent, **changes)
        assert (given.path, given.outcome, given.fusion, given.weight) == (None, None, None, 1.0)
        assert [step for step, _ in given.validations] == [0, 2, 4]
        assert given.best == max(values["nDCG@10"] for _, values in given.validations)
        header, *rows = (run / "triplets.tsv").read_text().splitlines()
        assert (header, len(rows)) == ("query_id\tpositive_id\tnegative_id", 40)
        left_out = ("blend.json", "suspicious.json", "test", "model/fusion.json")
        assert [name for name in left_out if (run / name).exists()] == []
        best, model = models(run, "best", "model")
        assert all(torch.equal(best[name], model[name]) for name in best)
        validator = Validator.of(
            Collection.load(beir, "dev"), BiEncoder.from_pretrained(encoder), FitSettings.preset(preset)
        )
        assert validator.describe() == "re-ranking the first 1,000 documents of BM25"
        before = validator.evaluate(BiEncoder.from_pretrained(encoder)).means["nDCG@10"]
        assert given.before == pytest.approx(before, abs=1e-9)
        report = read_report(run)
        assert report is not None
        assert "outcome" not in report


def test_stopped_after_training_it_goes_on_to_the_very_same(
    start: Start, fitted: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every point between the last step and the report."""
    whole, run = fitted.model.parent, tmp_path / "run"

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    stops = {
        (measuring, "blend_path"): ["last"],
        (measuring, "choose_fusion"): ["blend.json"],
        (measuring, "save_fusion"): ["model"],
        (measuring, "suspicious"): ["model/fusion.json"],
        (measuring.Outcome, "measure"): ["suspicious.json"],
        (measuring, "write_report"): ["test"],
    }
    for resume, ((module, name), there) in enumerate(stops.items()):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                start(run, quick(), resume=resume > 0)
        assert all((run / path).exists() for path in there)
        assert not (run / "report.json").exists()
    again = start(run, quick(), resume=True)
    assert again.lines() == fitted.lines()
    same = ["last", "model", "blend.json", "suspicious.json", "triplets.tsv"]
    for path in (path for name in same for path in [whole / name, *(whole / name).rglob("*")] if path.is_file()):
        assert (run / path.relative_to(whole)).read_bytes() == path.read_bytes(), path
    first, second = (json.loads((folder / "report.json").read_text()) for folder in (whole, run))
    times = {"seconds": 0, "metrics": "", "checksum": ""}  # the log has times as well
    assert {**first, **times} == {**second, **times}


def test_a_dot_product_encoder_is_trained_with_another_loss(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    """And the config says so: the page about it would name a loss that was not trained."""
    import yaml

    BiEncoder.from_pretrained(tiny_model("bert"), "mean", "dot", document_length=32).save(tmp_path / "dot")
    lines: list[str] = []
    begin = partial(fit, str(beir), str(tmp_path / "dot"), tmp_path / "run", also=str(beir), say=lines.append)
    given = begin(steps=2, batch_size=8)
    instead = "the encoder compares by dot products, which the softmax target does not take: target distributed instead"
    assert instead in lines
    assert given.outcome is not None
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["asked"]["settings"]["loss"]["target"] == "distributed"
    assert any("Target: distributed" in note for note in run_section(tmp_path / "run").notes)
    assert BiEncoder.from_pretrained(given.model).similarity == "dot"
    assert begin(steps=2, batch_size=8, resume=True).steps == 2
    with pytest.raises(InputError, match="softmax"):
        fit(str(beir), str(tmp_path / "dot"), tmp_path / "b", also=str(beir), say=silent, target="softmax", steps=2)


def test_rounds_mine_with_the_half_blended_model_of_the_one_before(
    start: Start, fitted: Fit, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[Any, dict[str, Any]]] = []
    mine = recipe.mine

    def watched(*arguments: Any, **options: Any) -> Any:
        used.append((options["model"], options))
        return mine(*arguments, **options)

    monkeypatch.setattr(recipe, "mine", watched)
    lines: list[str] = []
    run = tmp_path / "run"
    given = partial(start, run, quick(), rounds=2)
    fitted_twice = given(say=lines.append)
    assert "round 1 of 2" in lines
    assert (run / "rounds" / "1" / "last" / "modules.json").is_file()
    assert fitted_twice.steps == 8
    (first, how_first), (second, how_second) = used
    assert (first, how_first["negatives"], how_first["per_triplet"], how_first["depth"]) == (None, "bm25", 8, 200)
    assert (how_second["negatives"], how_second["per_triplet"], how_second["bound"]) == ("model", 8, 0.95)
    begun, last = weights(encoder), weights(run / "rounds" / "1" / "last")
    for name, tensor in second.state_dict().items():
        if (name := name.removeprefix("backbone.")) in last:
            torch.testing.assert_close(tensor, (begun[name] + last[name]) / 2, rtol=1e-6, atol=1e-7)
    single = weights(fitted.model.parent / "last")  # the first round is a training run as it is without rounds
    assert all(torch.equal(single[name], last[name]) for name in last)
    tables = [(folder / "triplets.tsv").read_text() for folder in (run / "rounds" / "1", run)]
    assert tables[0] != tables[1]
    before = weights(run / "model")
    assert given(resume=True).steps == 8
    assert len(used) == 2  # nothing is mined again
    after = weights(run / "model")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_settings_and_options_are_two_ways_to_the_same(start: Start, fitted: Fit, tmp_path: Path) -> None:
    given = {"steps": 8, "batch_size": 8, "learning_rate": 3e-3, "precision": "32"}
    again = start(tmp_path / "run", None, **given)
    assert again.lines() == fitted.lines()
