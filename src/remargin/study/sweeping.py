"""A grid over a static margin or a temperature, chosen on dev, with its cost: what `remargin sweep` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from remargin.errors import InputError
from remargin.progress import tell
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Table, number
from remargin.study.columns import file_name
from remargin.study.header import require_own_folder
from remargin.study.plan import Plan
from remargin.study.results import HITS, MEASURE, Results
from remargin.study.scheduler import work_through
from remargin.study.study import Study
from remargin.study.systems import CONTRASTIVE, STATIC, STATIC_IN_BATCH, System, sweep_runs
from remargin.study.systems import sweep as grid_of

PARAMETERS: dict[tuple[str, bool], System] = {
    ("margin", False): STATIC,
    ("margin", True): STATIC_IN_BATCH,
    ("temperature", False): CONTRASTIVE,
}


def sweep(
    data: str,
    model: str | Path,
    out: str | Path,
    parameter: str = "margin",
    values: Sequence[float] | None = None,
    in_batch: bool = False,
    run_triplets: int = 25_600,
    batch_size: int = 128,
    learning_rate: float = 1e-4,
    triplets: str | Path | None = None,
    seed: int = 0,
    say: Callable[[str], None] = tell,
) -> Section:
    """Train with each value of a loss parameter on the same triplets, and choose on dev.

    Args:
        data: the collection: needs train, dev and test queries.
        model: the encoder to start from: a folder or a Hugging Face name.
        out: the study's folder. Values that were trained there before are not trained again.
        parameter: "margin" of static targets, or "temperature" of the contrastive loss.
        values: the grid; the paper's margins, or our temperatures, if not given.
        in_batch: with in-batch negatives.
        run_triplets: triplets that each training run sees.
        batch_size: triplets in a batch.
        learning_rate: the peak learning rate.
        triplets: a table of ids to train on; without one, BM25's negatives.
        seed: for everything that is random.
        say: gets progress messages.

    Returns:
        The table and the figure, which are saved in `out` as well.

    Raises:
        InputError: for a parameter that cannot be swept, and for bad input.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "sweep"
        >>> data, small = "docstrings:json,csv,string", {"run_triplets": 8, "batch_size": 4}
        >>> section = sweep(data, model_folder, out, values=[0.2, 0.8], **small, say=str)
        >>> [row[0].value for row in section.tables[0].blocks[0].rows]
        [0.2, 0.8]
    """
    if (parameter, in_batch) not in PARAMETERS:
        problem = f"no sweep over {parameter!r}{' with --in-batch' if in_batch else ''}"
        raise InputError(problem, do="use margin, with or without --in-batch, or temperature")
    grid = {f"{parameter}s": tuple(dict.fromkeys(values))} if values else {}
    plan = Plan.of(
        {
            "triplets": run_triplets,
            "sweep_triplets": run_triplets,
            "validate_every": max(1, run_triplets // 5),
            "patience": None,
            "batch_size": batch_size,
            "rates": (learning_rate,),
            "seeds": (seed,),
            "preset": "default",
            **grid,
        }
    )
    name, system = Path(model).absolute().name, PARAMETERS[parameter, in_batch]
    require_own_folder(Path(out))
    given = None if triplets is None else Path(triplets)
    study = Study(out, data, {name: str(model)}, plan, triplets=given, say=say, own_grids=True)
    with study.lock():
        work_through(study, lambda results: sweep_runs(results, name, system))
        section = _draw(study.results, name, parameter, in_batch)
        section.save(study.out / section.name, overwrite=True)
    return section


def _draw(results: Results, model: str, parameter: str, in_batch: bool) -> Section:
    """The table and figure of a sweep over one parameter of one model."""
    swept = grid_of(results, model, PARAMETERS[parameter, in_batch])
    best, level = swept.best(), swept.maxima(MEASURE)
    before = swept.points[0][1].curve[0][1][MEASURE]
    hits = dict(swept.values(HITS))
    seconds = {value: result.seconds for value, result in swept.points}
    rows = [
        [
            number(value, 2, bold=value in level),
            number(ndcg, 4, bold=value in level),
            number(hits[value], 4),
            number(seconds[value], 1),
        ]
        for value, ndcg in swept.values(MEASURE)
    ]
    seen = results.plan.sweep_triplets
    table = Table(
        f"{parameter} on dev",
        [parameter, MEASURE, HITS, "seconds"],
        [Block("", rows)],
        [f"{seen:,} triplets a run, the best validation of each; {swept.seconds:,.0f} s in all."],
    )
    panels = [
        [Panel("", parameter, measure, [Series(model, *zip(*swept.values(measure), strict=True))], mark_maxima=True)]
        for measure in (MEASURE, HITS)
    ]
    figure = LineFigure("sweep", f"{parameter} on dev", "Dots mark maxima.", panels)
    reached = f"with {MEASURE} {dict(swept.values(MEASURE))[best]:.4f} on dev, {before:.4f} before training"
    summary = [f"The best {parameter} is {' or '.join(f'{value:g}' for value in level)}, {reached}."]
    name = f"sweep-{file_name(model)}-{parameter}{'-in-batch' if in_batch else ''}"
    return Section(name, f"A sweep over the {parameter}", summary, [table], [figure], {"model": model}, [])
