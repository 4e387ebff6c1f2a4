"""A grid over a static margin or a temperature, chosen on dev, with what it costs: what `remargin sweep` runs."""

from __future__ import annotations

from remargin.experiments.columns import file_name
from remargin.experiments.outcome import Outcome
from remargin.experiments.results import HITS, MEASURE
from remargin.experiments.rows import CONTRASTIVE, STATIC, STATIC_IN_BATCH, Row, sweep
from remargin.experiments.study import Study
from remargin.report.figures import LineFigure, Panel, Series
from remargin.report.sections import Section
from remargin.report.tables import Block, Table, number

PARAMETERS: dict[tuple[str, bool], Row] = {
    ("margin", False): STATIC,
    ("margin", True): STATIC_IN_BATCH,
    ("temperature", False): CONTRASTIVE,
}


def swept(study: Study, parameter: str, in_batch: bool) -> Outcome:
    """The table and figure of a sweep over one parameter of one model."""
    (model,) = study.backbones  # others may have been swept in the same folder
    with study.lock():
        found = sweep(study, model, PARAMETERS[parameter, in_batch])
    best, level = found.best(), found.maxima(MEASURE)
    before = found.points[0][1].curve[0][1][MEASURE]
    hits = dict(found.values(HITS))
    seconds = {value: result.seconds for value, result in found.points}
    rows = [
        [
            number(value, 2, bold=value in level),
            number(ndcg, 4, bold=value in level),
            number(hits[value], 4),
            number(seconds[value], 1),
        ]
        for value, ndcg in found.values(MEASURE)
    ]
    table = Table(
        f"{parameter} on dev",
        [parameter, MEASURE, HITS, "seconds"],
        [Block("", rows)],
        [f"{study.plan.sweep_triplets:,} triplets a run, the best validation of each; {found.seconds:,.0f} s in all."],
    )
    panels = [
        [Panel("", parameter, measure, [Series(model, *zip(*found.values(measure), strict=True))], mark_maxima=True)]
        for measure in (MEASURE, HITS)
    ]
    figure = LineFigure("sweep", f"{parameter} on dev", "Dots mark maxima.", panels)
    reached = f"with {MEASURE} {dict(found.values(MEASURE))[best]:.4f} on dev, {before:.4f} before training"
    summary = [f"The best {parameter} is {' or '.join(f'{value:g}' for value in level)}, {reached}."]
    name = f"sweep-{file_name(model)}-{parameter}{'-in-batch' if in_batch else ''}"
    section = Section(name, f"A sweep over the {parameter}", summary, [table], [figure], {"model": model}, [])
    return Outcome(section, {"best": best, "seconds": found.seconds})
