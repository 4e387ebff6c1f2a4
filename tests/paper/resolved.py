"""What every training run of the paper's experiments resolves to: each of its settings, and how its triplets are mined.

python -m tests.paper.resolved      # writes pinned.json anew: only when an experiment is to be another one
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import yaml

from remargin.paper import memory
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.regimes import plan_of
from remargin.study import training_set
from remargin.study.plan import SHARED, Plan
from remargin.study.results import Results
from remargin.study.specs import RunSpec
from remargin.study.tasks import Train, joined
from remargin.study.trainer import run_settings
from remargin.study.training_set import TrainingSet
from remargin.training.settings import FitSettings

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("pinned.json")
CONFIGS, PACKED = ROOT / "configs" / "paper", ROOT / "results" / "paper"
OURS = ("beyond.yaml", "beyond-small.yaml")  # configurations of experiments that are not the paper's
BY_MACHINE = ("save_every",)  # more seldom on a GPU; changes no result
ELSEWHERE = ("data", "model", "out", "budget", "zero_shot", "also_test", "triplets",
             "first_stage")  # of a configuration, not a plan  # fmt: skip

IN_FULL = ("the paper", "medquad")

Settings = dict[str, Any]


def studies() -> dict[str, Results]:
    """The plans of the configurations, without results, and the packed studies, with what dev chose there."""
    plans = {"the paper": (Plan(), ["A", "B"]), "scaled": (Plan(preset="default").scaled(100_000), ["A"])}
    for path in sorted(CONFIGS.glob("*.yaml")):
        if path.name not in OURS:
            plans[path.name] = _configured(path)
    planned = {
        name: Results(Path(name), {"data": "x", "models": dict.fromkeys(models), "zero_shot": ["SCF"], "also_test": [],
                                   "plan": plan.plain()}, say=str, at_hand=models)
        for name, (plan, models) in plans.items()
    }  # fmt: skip
    return planned | {folder.name: Results.open(folder, say=str) for folder in sorted(PACKED.iterdir())}


def _configured(path: Path) -> tuple[Plan, list[str]]:
    given = {name.replace("-", "_"): value for name, value in yaml.safe_load(path.read_text()).items()}
    settings = {name: value for name, value in given.items() if name not in ELSEWHERE}
    settings |= {"triplets": settings.pop("epoch")} if "epoch" in settings else {}
    plan = plan_of(settings.pop("regime", SHARED), settings)
    models = [given["model"]] if isinstance(given["model"], str) else given["model"]
    return plan.scaled(given.get("budget", plan.triplets)), [model.partition("=")[0] for model in models]


def resolved_run(spec: RunSpec, plan: Plan) -> Settings:
    """All settings of a training run. A teacher's scale is multiplied with what the scores are like: left as it is."""
    scale = None if spec.teacher_scale == 1.0 else spec.teacher_scale
    return plain(run_settings(spec, plan, scale, Path("second") if spec.two_teachers else None))


def plain(settings: FitSettings) -> Settings:
    """Settings as JSON has them, with those of the loss among them."""
    values = asdict(settings)
    values |= {f"loss.{name}": value for name, value in values.pop("loss").items()}
    for name in BY_MACHINE:
        del values[name]
    return values


def runs_of(study: str, results: Results) -> dict[str, tuple[RunSpec, list[str]]]:
    """Every training run that the paper's experiments declare, with those that do; a configuration may be for one."""
    found: dict[str, tuple[RunSpec, list[str]]] = {}
    own = study.removesuffix(".yaml")
    for name, experiment in EXPERIMENTS.items():
        if own in EXPERIMENTS and name != own:
            continue
        for task in joined(experiment.tasks(results)):
            if isinstance(task, Train):
                found.setdefault(task.key, (task.spec, []))[1].append(name)
    return found


def mining_of(plan: Plan) -> Settings:
    """How a study mines its triplets: all arguments of `mine` but data and file."""
    pairs = Mock(qrels={f"q{i}": {"d": 1} for i in range(1000)})
    with (
        patch.object(training_set, "mine") as mine,
        patch.object(training_set, "remove_parts"),
        patch.object(training_set.Collection, "load", return_value=pairs),
    ):
        TrainingSet("x", "docstrings:json", {}, plan, Path("nowhere"), None, None, str)._mined()  # type: ignore[arg-type]
    (call,) = mine.call_args_list
    bound = inspect.signature(_real_mine).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name not in ("data", "out")}


_real_mine = training_set.mine


def validation_of(plan: Plan) -> Settings:
    """How a study validates: the settings of its `Validator`."""
    training = TrainingSet("x", "docstrings:json", {}, plan, Path("nowhere"), None, None, str)  # type: ignore[arg-type]
    with patch.object(training_set, "Validator") as made, patch.object(TrainingSet, "prepared"):
        training.validator("A")
    given = plain(made.call_args.args[2])
    return {name: given[name] for name in given if name.startswith("validation_") or name == "seed"}


def memory_of(plan: Plan) -> dict[str, Settings]:
    """The settings of the short runs whose memory is measured."""
    settings = {}
    for way, chosen in memory.WAYS.items():
        with (
            patch.object(memory, "train") as train,
            patch.object(memory, "BiEncoder"),
            patch.object(memory, "peak_memory"),
            patch.object(memory, "shutil"),
        ):
            memory.MeasureMemory("A", plan.batch_size)._peak(_AnyStudy(), chosen)  # type: ignore[arg-type]
        settings[way] = plain(train.call_args.args[4])
    return settings


class _AnyStudy:
    """As much of a study as the measuring of memory asks for."""

    work, backbones = Path("nowhere"), {"A": "a"}

    class training:
        @staticmethod
        def prepared(model: str) -> Path:
            return Path("nowhere")


def digest(settings: Settings) -> str:
    """A short hash of settings."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=6).hexdigest()


def snapshot() -> dict[str, Any]:
    """Digests of the runs by study and key, and in full: one run of each experiment, mining, validation, memory."""
    planned, before = studies(), json.loads(SNAPSHOT.read_text())
    fields = before["fields"]  # newer ones are in the test, so that what stays as it was keeps its digest

    def known(settings: Settings, names: list[str]) -> Settings:
        return {name: settings[name] for name in settings if name in names}

    content: dict[str, Any] = {
        "fields": fields,
        "runs": {},
        "examples": {},
        "mining": {},
        "validation": {},
        "memory": {},
    }
    for name, results in planned.items():
        runs, plan = runs_of(name, results), results.plan
        content["runs"][name] = {
            key: digest(known(resolved_run(spec, plan), fields)) for key, (spec, _) in sorted(runs.items())
        }
        for part, settings in (("mining", mining_of(plan)), ("validation", validation_of(plan))):
            content[part][name] = known(settings, list(before[part]["the paper"]))
        content["memory"][name] = known(memory_of(plan)[memory.MIXED], fields)
        if name in IN_FULL:
            examples = content["examples"].setdefault(name, {})
            for key, (spec, experiments) in runs.items():
                for experiment in experiments:
                    settings = known(resolved_run(spec, plan), fields)
                    examples.setdefault(experiment, {"key": key, "settings": settings})
    return content


def _lines(content: Any, depth: int) -> str:
    """JSON with a line for each entry down to a depth, so that a change shows in a diff."""
    if depth == 0 or not isinstance(content, dict):
        return json.dumps(content)
    entries = ",\n".join(f"{json.dumps(name)}: {_lines(value, depth - 1)}" for name, value in content.items())
    return f"{{\n{entries}\n}}"


if __name__ == "__main__":
    parts = {name: _lines(part, 2 if name in ("runs", "examples") else 1) for name, part in snapshot().items()}
    SNAPSHOT.write_text("{\n" + ",\n".join(f'"{name}": {text}' for name, text in parts.items()) + "\n}\n")
