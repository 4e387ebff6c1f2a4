"""Results that are written by hand, as a study would leave them."""

from __future__ import annotations

from pathlib import Path

from remargin.evaluation.measures import Evaluation
from remargin.files.checksums import sha256
from remargin.files.headers import write_header
from remargin.paper.beyond.experiments import BEYOND
from remargin.study.blending import Blend
from remargin.study.header import FORMAT
from remargin.study.plan import Plan
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, Result, Results, untrained_key
from remargin.study.scheduler import schedule
from remargin.study.specs import RunSpec
from remargin.study.tasks import Train

PLAN = Plan(
    triplets=1000, sweep_triplets=500, patience=None, batch_size=10, temperatures=(0.05, 0.1), rates=(1e-4, 2e-4),
    seeds=(0, 1), preset="default",
)  # fmt: skip


def make_results(out: Path, plan: Plan = PLAN, name: str = "home", model: str = "hash") -> Results:
    """A study without results."""
    header = {"data": name, "models": {"m": model}, "zero_shot": ["x=away-x"], "stems": {"x": ["x"]}}
    header = {**header, "plan": plan.plain(), "format": FORMAT}
    out.mkdir(exist_ok=True, parents=True)
    write_header(out / "study.json", header)
    return Results(out, header, say=str, at_hand=["m"])


def write(
    results: Results, spec: RunSpec | None, key: str, values: dict[str, float], dev: float, seconds: float
) -> None:
    """A run whose every query has one value for each measurement, plus 0.1 for the second query."""
    folder = results.folder(key)
    result = Result(spec, folder, curve=[(1, {MEASURE: dev})], steps=1, triplets=10, best_step=1, seconds=seconds)
    for what, value in values.items():
        names = {f"{what}/x": ["x1"]} if what.startswith(ZERO_SHOT) else {what: ["q1", "q2"]}
        for name, queries in names.items():
            scores = {query: value + 0.1 * i for i, query in enumerate(queries)}
            path = folder / f"{name}.csv.gz"
            Evaluation({MEASURE: scores}, [], {}).save(path, overwrite=True)
            result.scores[what] = {f"{name}.csv.gz": sha256(path)}
    result.save()


def train(results: Results, *names: str, shift: float = 0.0) -> None:
    """Everything that experiments declare, wave by wave. Dev prefers the higher rate, then the higher temperature."""
    for name in (None, "m"):
        write(results, None, untrained_key(name), {TEST: 0.3, ZERO_SHOT: 0.4}, 0.0, 0.0)
    for name in (*(names or ("beyond",)),) * 9:
        for task in schedule(results, BEYOND[name].tasks).ready:
            if isinstance(task, Train):
                spec, at_home = task.spec, {TEST: 0.5 + 0.2 * task.spec.seed + shift, ZERO_SHOT: 0.4}
                values = {what: at_home.get(what, 0.6 if what.startswith(TEST) else 0.45) for what in task.measure}
                dev = spec.rate + spec.temperature - abs(spec.margin_weight - 1) / 100
                write(results, spec, spec.key, values, dev, 100.0 + spec.seed)
                if values:
                    path = (0.1, 0.6 - abs(spec.margin_weight - 1) / 100, 0.5)
                    Blend((0.0, 0.5, 1.0), path, 0.5, 3.0).save(results.folder(spec.key))
