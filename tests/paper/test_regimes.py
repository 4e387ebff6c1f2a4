"""The paper's regime: its training runs have the paper's properties, and its study stands beside the shared one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from remargin.cli import app
from remargin.errors import InputError
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.pages import report
from remargin.paper.regimes import plan_of, study_folder
from remargin.paper.systems import DISTRIBUTED, whole_run
from remargin.study.plan import PAPERS, SHARED, Plan
from remargin.study.results import Results
from remargin.study.specs import RunSpec
from remargin.study.systems import STATIC, choose, sweep
from remargin.study.tasks import Train, joined
from remargin.study.trainer import run_settings
from remargin.training.samplers import RandomSampler
from remargin.training.settings import FitSettings

from ..small_study import DATA, silent

SMALL = [
    *("--data", DATA, "--batch-size", "8", "--other-batch-size", "4", "--rates", "0.01", "--epoch", "32"),
    *("--sweep-triplets", "16", "--validate-every", "8", "--validation-queries", "10", "--margins", "0", "1"),
    *("--seeds", "0"),
]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def declared(plan: Plan, *names: str) -> dict[RunSpec, FitSettings]:
    """The training runs that experiments declare before anything is trained, with all their settings."""
    header = {"data": "x", "models": {"A": ""}, "zero_shot": [], "also_test": [], "plan": plan.plain()}
    results = Results(Path("nowhere"), header, silent, at_hand=["A"])
    tasks = joined(task for name in names for task in EXPERIMENTS[name].tasks(results))
    specs = [task.spec for task in tasks if isinstance(task, Train)]
    return {spec: _settings(spec, plan) for spec in specs}


def _settings(spec: RunSpec, plan: Plan) -> FitSettings:
    scale = None if spec.teacher_scale == 1.0 else spec.teacher_scale
    return run_settings(spec, plan, scale, Path("second") if spec.two_teachers else None)


def is_constant(settings: FitSettings) -> bool:
    rates = settings.rates()
    return {rates(step) for step in (0, 1, settings.steps // 2, settings.steps - 1)} == {settings.learning_rate}


def test_figure_3_is_on_a_fixed_subset_at_a_constant_rate() -> None:
    plan = plan_of(PAPERS, {})
    runs = declared(plan, "static-margins")
    sweep = {spec: settings for spec, settings in runs.items() if spec.triplets == plan.sweep_triplets}
    assert plan.sweep_triplets == 250_000
    assert len(sweep) == 2 * len(plan.margins) == 22  # without and with in-batch negatives
    assert all(is_constant(settings) and settings.patience is None for settings in sweep.values())
    batches = {
        (settings.sampler, settings.batch_size, settings.seed, settings.steps, settings.learning_rate)
        for settings in sweep.values()
    }
    assert len(batches) == 1  # so all see the same triplets, in the same batches
    ((_, size, seed, steps, _),) = batches
    seen = [RandomSampler(plan.triplets, 1, size, seed)(number).triplets for number in (0, steps - 1)]
    again = [RandomSampler(plan.triplets, 1, size, seed)(number).triplets for number in (0, steps - 1)]
    assert all((one == other).all() for one, other in zip(seen, again, strict=True))
    assert steps * size < plan.triplets  # a part of them, each once
    shared = declared(Plan(preset="default"), "static-margins")
    assert not any(is_constant(settings) for settings in shared.values())


def test_figures_4_to_6_are_one_long_stretch_validated_every_1000_steps() -> None:
    plan = plan_of(PAPERS, {})
    names = ("adaptive-margins", "distributed-margins", "target-evolution")
    curves = {spec: settings for spec, settings in declared(plan, *names).items() if spec.validate_every is not None}
    assert len(curves) == 3 * 2  # adaptive without and with in-batch negatives, and distributed, in two batch sizes
    for spec, settings in curves.items():
        assert (spec.triplets, settings.patience) == (1_000_000, None)
        assert settings.validate_every * settings.batch_size == 128_000
        assert settings.validate_every == {128: 1000, 64: 2000}[settings.batch_size]
        assert is_constant(settings)
    evolution = [spec for spec in declared(plan, "target-evolution") if spec.validate_every is not None]
    assert len(evolution) == 1
    assert evolution[0] in declared(plan, "distributed-margins")


def test_tables_3_and_4_have_gamma_and_patience() -> None:
    plan = plan_of(PAPERS, {})
    runs = declared(plan, "variants", "baselines")
    whole = {spec: settings for spec, settings in runs.items() if spec.triplets == plan.triplets}
    assert {spec.seed for spec in whole} == {0, 1, 2}
    assert len(whole) > 30
    for spec, settings in whole.items():
        assert (settings.schedule, settings.gamma, settings.patience) == ("exponential", 0.99999, 16)
        assert settings.rates()(1000) == pytest.approx(spec.rate * 0.99999**1000)
        if spec.sampler == "random":
            assert (settings.batch_size, settings.validate_every) == (128, 500)


def test_a_study_in_both_regimes(tiny_model: Any, tmp_path: Path) -> None:
    names = ("reproduce", "loss-geometry", "static-margins", "distributed-margins", "target-evolution")
    arguments = (*names, *SMALL, "--model", f"tiny={tiny_model()}", "--out", str(tmp_path))
    output = run(*arguments, "--regime", "paper")
    assert "Tuning the margin" in output
    papers = Results.open(study_folder(tmp_path, PAPERS), say=silent)
    assert papers.plan.regime == PAPERS
    curve = papers.run(whole_run(papers.plan, choose(papers, "tiny", DISTRIBUTED)))
    assert [step for step, _ in curve.curve] == [0, 2, 4]  # twice as many triplets as --validate-every
    for _, result in sweep(papers, "tiny", STATIC).points:
        assert [step for step, _ in result.curve] == [0, 1, 2]
    page = (tmp_path / "report.html").read_text()
    assert "Static margins, the paper&#39;s regime" in page
    assert "Both regimes" not in page

    trained = {path: path.stat().st_mtime_ns for path in tmp_path.glob("regime-paper/runs/*/run.json")}
    assert "0 to do" not in run(*arguments, "--regime", "paper", "--plan")
    run(*arguments, "--regime", "paper")  # another sitting: all is there
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("regime-paper/runs/*/run.json")} == trained

    run(*arguments, "--preset", "default")
    page = (tmp_path / "report.html").read_text()
    headings = ["Both regimes", "Static margins", "Static margins, the paper&#39;s regime", "Distributed margins"]
    places = [page.index(f"<h2>{heading}</h2>") for heading in headings]
    assert places == sorted(places)
    assert "The paper&#39;s claims in both regimes" in page
    compared, *sections = report([tmp_path], tmp_path / "again.html")
    assert [section.name for section in sections].count("loss-geometry") == 1
    verdicts, plans = compared.tables
    assert verdicts.header[-2:] == plans.header[1:] == ["the shared regime", "the paper's regime"]
    settings = {row[0].text: [cell.text for cell in row[1:]] for row in plans.blocks[0].rows}
    assert settings["preset"] == ["default", "paper"]
    claims = {s.title: s for s in sections if s.name == "claims"}
    for place, title in ((2, "Claims"), (3, "Claims, the paper's regime")):
        stated = {row[0].text: row[2].text for row in claims[title].tables[0].blocks[0].rows}
        assert {row[0].text: row[place].text for row in verdicts.blocks[0].rows} == stated

    drawn = run("reproduce", "static-margins", "--out", str(tmp_path), "--regime", "paper")  # from its files alone
    assert drawn.count("Tuning the margin") == 1
    assert run("reproduce", "static-margins", "--out", str(tmp_path)).count("Tuning the margin") == 2


def test_bad_input(tiny_model: Any, tmp_path: Path) -> None:
    given = (*SMALL, "--model", f"tiny={tiny_model()}", "--out", str(tmp_path / "out"))
    for arguments, problem in (
        (["memory", *given, "--regime", "paper", "--budget", "16"], "a budget scales the shared regime"),
        (["memory", *given, "--regime", "other"], "unknown regime 'other'; use shared, paper"),
        (["memory", "--regime", "paper", "--out", str(tmp_path / "out")], "there is no study"),
    ):
        with pytest.raises(InputError, match=problem):
            CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert study_folder(tmp_path, SHARED) == tmp_path
    (tmp_path / "mine.txt").write_text("mine")
    arguments = ["reproduce", "memory", *SMALL, "--model", "x", "--out", str(tmp_path), "--regime", "paper"]
    with pytest.raises(InputError, match="has other files in it"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
