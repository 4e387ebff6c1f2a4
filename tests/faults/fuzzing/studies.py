"""Studies of the paper's experiments: what they are about, their runs, and what is made again from these files."""

from __future__ import annotations

import shutil
from pathlib import Path

from remargin.files.headers import write_header
from remargin.paper.benchmarking import benchmark
from remargin.paper.memory import FORMAT as MEMORY
from remargin.paper.memory import WAYS
from remargin.paper.running import draw_experiments, sections_of
from remargin.reports.page import page_text
from remargin.study.header import FILE as STUDY
from remargin.study.header import planned_before, read_study, take_folder
from remargin.study.learning_curve import curve
from remargin.study.results import FILE, TEST, ZERO_SHOT, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.teacher import teacher_report

from .mutations import HEADER
from .running import Case, Reader
from .world import OTHER, World, silent

RUNS, TEACHER = "runs/**/*", "teacher/*"


def _part(world: World, name: str, *patterns: str) -> Path:
    """A copy of some files of a study: with fewer of them, thousands of copies take less time."""
    folder = world.root / name
    for path in {path for pattern in (STUDY, *patterns) for path in world.study.glob(pattern) if path.is_file()}:
        (folder / path.relative_to(world.study)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.relative_to(world.study))
    return folder


def _again(*names: str) -> Reader:
    """Makes some experiments, and the verdicts on claims, from the files alone; then the page."""

    def reproduced(folder: Path) -> None:
        results = Results.open(folder, say=silent)
        draw_experiments(results, names)
        page_text(sections_of(folder), results.name)

    return reproduced


def study_file(world: World) -> Case:
    folder = _part(world, "study-file", RUNS, TEACHER)
    return Case(folder, {STUDY: HEADER}, (_again("variants", "baselines", "memory", "zero-shot"),), count=150)


def study_that_goes_on(world: World) -> Case:
    folder = _part(world, "study-goes-on", "runs/memory-tiny/*")
    header = read_study(folder)

    def go_on(folder: Path) -> None:
        take_folder(folder, header)

    def go_on_with_its_own_grids(folder: Path) -> None:
        take_folder(folder, header, own_grids=True)

    def plan(folder: Path) -> None:
        planned_before(folder)

    return Case(folder, {STUDY: HEADER}, (go_on, go_on_with_its_own_grids, plan), count=500)


def runs_of_a_study(world: World) -> Case:
    folder = _part(world, "study-runs", RUNS, TEACHER)
    keys = sorted(path.parent.name for path in folder.glob(f"runs/*/{FILE}"))
    chosen = [next(key for key in keys if kind in key) for kind in ("distributed", "bm25", "teacher", "tiny-1-")]
    files = {f"runs/{key}/{FILE}": HEADER for key in chosen}
    return Case(
        folder, files, (_again("static-margins", "target-evolution", "variants", "baselines", "zero-shot"),), count=120
    )


def result(world: World) -> Case:
    tested = sorted(path.parent.parent for path in world.study.glob("runs/tiny-distributed*/zero-shot/*"))
    run = tested[0]
    values = HEADER.read(run / FILE)
    spec = RunSpec(**values["spec"])

    def load(folder: Path) -> None:
        found = Result.load(folder, None)
        if found is None:
            return
        if found.scores.get(TEST):
            found.test()
        if found.scores.get(ZERO_SHOT):
            found.zero_shot()
        assert f"{found.dev if found.trained else 0:.3f} {found.seconds_to_best:.0f}"  # both are numbers

    def of_its_spec(folder: Path) -> None:
        Result.load(folder, spec)

    return Case(run, {FILE: HEADER}, (load, of_its_spec), count=500)


def teachers_report(world: World) -> Case:
    folder = _part(world, "study-teacher", RUNS, TEACHER)

    def read(folder: Path) -> None:
        teacher_report(folder)

    return Case(folder, {"teacher/teacher.json": HEADER}, (_again("baselines"), read), count=120)


def instance(world: World) -> Case:
    folder = _part(world, "study-instance", "runs/tiny-distributed*/**/*")
    (path,) = folder.glob("runs/*/instance.json")
    return Case(folder, {str(path.relative_to(folder)): HEADER}, (_again("instance"),), count=250)


def memory(world: World) -> Case:
    """As it was measured on a GPU."""
    folder = _part(world, "study-memory", "runs/memory-tiny/*")
    sizes = {"bytes": {way: 2**30 // (i + 1) for i, way in enumerate(WAYS)}, "reasons": dict.fromkeys(WAYS)}
    sizes["reasons"]["bf16"] = "bf16: no room"
    file = "runs/memory-tiny/memory.json"
    write_header(folder / file, {"format": MEMORY, "hardware": "a GPU", **sizes})
    return Case(folder, {file: HEADER}, (_again("memory"),), count=250)


def queries(world: World) -> Case:
    folder = _part(world, "study-queries", RUNS, "work/queries.json")
    return Case(folder, {"work/queries.json": HEADER}, (_again("variants"),), count=150)


def claims(world: World) -> Case:
    """The verdicts on claims alone, which are made of all runs."""
    folder = _part(world, "study-claims", RUNS, TEACHER)
    keys = sorted(path.parent.name for path in folder.glob(f"runs/*/{FILE}"))
    chosen = [next(key for key in keys if kind in key) for kind in ("adaptive", "distributed", "untrained")]
    return Case(folder, {f"runs/{key}/{FILE}": HEADER for key in chosen}, (_again(),), count=120)


def zero_shot_scores(world: World) -> Case:
    folder = world.folder("zero-shot")

    def again(folder: Path) -> None:
        benchmark({"tiny": world.model}, [OTHER], folder / "out", pooling="cls", similarity="cosine", say=silent)

    again(folder)
    files = {str(path.relative_to(folder)): HEADER for path in folder.glob("out/scores/*/*.json")}
    return Case(folder, files, (again,), count=120)


def learning_curve(world: World) -> Case:
    """`curve` again, when all its training runs are done."""
    folder = world.folder("curve")

    def again(folder: Path) -> None:
        options = {"steps": 1, "batch_size": 2, "precision": "32"}
        found = curve(world.beir, world.model, folder / "curve", [0.5, 1.0], [0], say=silent, **options)
        assert found.verdict

    again(folder)
    files = {f"curve/{name}": HEADER for name in ("asked.json", "before.json", "runs/1/seed-0.json")}
    return Case(folder, files, (again,), count=150)


TARGETS = [
    learning_curve,
    study_file,
    study_that_goes_on,
    runs_of_a_study,
    result,
    teachers_report,
    instance,
    memory,
    queries,
    claims,
    zero_shot_scores,
]
