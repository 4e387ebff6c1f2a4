"""The section of a training run, made from the files that `remargin fit` writes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.ledger import LedgerContent
from remargin.files.shapes import Size, mismatch
from remargin.reports.blend_file import BlendPath, path_figure, path_table, path_words, read_path
from remargin.reports.dimensions import dims_figure, dims_table
from remargin.reports.figures import Figure, LineFigure, Panel, Series
from remargin.reports.moves import move_tables
from remargin.reports.run_files import (
    CONFIG,
    GIVE,
    METRICS,
    REPORT,
    RunReport,
    elsewhere_words,
    peak_rate,
    read_config,
    read_metrics,
    read_report,
)
from remargin.reports.sections import Section
from remargin.reports.suspicious import suspicious_tables
from remargin.reports.tables import Block, Cell, Table, number

ABOUT = ("settings", "command", "versions")  # parts of the config that are not data or model
SHOWN = 12  # with more validations than this, the table has only some of them
SPEEDS = {
    "triplets_per_second": ("triplets/s", 1),
    "tokens_per_second": ("tokens/s", 0),
    "utilisation": ("utilisation", 3),
    "padding": ("padding", 3),
    "data_wait": ("waiting for data", 3),
}

Metrics = dict[str, list[float | None]]


def is_run(folder: Path) -> bool:
    """Whether a folder is one that `remargin fit` wrote, and has something to show.

    >>> is_run(Path("nowhere"))
    False
    """
    return (folder / CONFIG).is_file() and (folder / METRICS).is_file()


def run_section(folder: str | Path) -> Section:
    """What a training run did: losses, validations, blending, targets, speed and settings. It may still be going on.

    Raises:
        InputError: if files of the run are missing or damaged.

    Example:
        >>> import tempfile
        >>> from remargin.files.ledger import Ledger
        >>> from remargin.reports.run_files import write_config
        >>> folder = Path(tempfile.mkdtemp())
        >>> settings = {"steps": 2, "batch_size": 64, "loss": {"target": "distributed"}}
        >>> asked = {"data": "faq", "model": "minilm", "settings": settings}
        >>> write_config(folder, {"command": "remargin fit", "asked": asked, "versions": {}})
        >>> _ = Ledger(folder / "metrics.csv", ["step", "loss"], [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}])
        >>> section = run_section(folder)
        >>> section.summary[0], section.figures[0].panels[0].series[0].y
        ('minilm was trained on faq for 2 steps of 64 triplets. Target: distributed.', [0.5, 0.25])
    """
    folder = Path(folder)
    config = _config(folder)
    report = read_report(folder)
    metrics = _columns(folder / METRICS, read_metrics(folder, report))
    measure = str(config["settings"].get("validation_measure", "validation"))
    validations = _validations(report, metrics, measure)
    path = read_path(folder)
    result, elsewhere = _result(report), _elsewhere(report)
    training = [*_what(config, metrics, report), *_validated(validations, measure)]
    if result:  # with what training did below, so that what came of it is on the first screen
        summary, notes = [*result, *elsewhere], [*training, *_pace(metrics, report)]
    else:
        summary, notes = [*training, *elsewhere, *_pace(metrics, report)], []
    tables = [
        *_outcome_tables(report),
        *_validation_tables(validations),
        *_blend_tables(path),
        *_speed_tables(metrics),
        *suspicious_tables(folder),
    ]
    notes += [] if report else [f"There is no {REPORT}: the run is not done, or it was stopped."]
    name = folder.absolute().name
    settings = {key: value for key, value in config.items() if key not in ABOUT} | config["settings"]
    settings |= peak_rate(report) | {key: config[key] for key in ABOUT[1:] if key in config}
    outcome = report.get("outcome", {}) if report else {}
    truncated = [dims_figure(outcome["dims"])] if "dims" in outcome else []
    figures = [*truncated, *_figures(metrics, validations, path)]
    return Section(name, f"Training run {name}", summary, tables, figures, settings, notes)


def _config(folder: Path) -> dict[str, Any]:
    """What the run was asked to do (data, model, `settings`), and the command and versions that did it."""
    config = read_config(folder)
    asked = config["asked"]
    try:
        settings = {**asked["settings"], "loss": dict(asked["settings"]["loss"])}
        sizes = [settings.get(name, 1) for name in ("batch_size", "accumulate")]
    except (KeyError, TypeError, ValueError):
        settings, sizes = {}, [None]
    if mismatch(sizes, list[Size]):
        raise InputError("not the config of a training run", file=folder / CONFIG, do=GIVE)
    return {**asked, "command": config["command"], "versions": config["versions"], "settings": settings}


def _columns(path: Path, metrics: LedgerContent) -> Metrics:
    """The columns of metrics.csv; None where a row has no value."""
    if "step" not in metrics.columns:
        raise InputError("no column 'step'", file=path, do=GIVE)
    columns: Metrics = {name: [] for name in metrics.columns}
    for line, row in enumerate(metrics.rows, start=2):
        for name, text in row.items():
            columns[name].append(_value(text, path, line))
    if None in columns["step"]:
        line = columns["step"].index(None) + 2
        raise InputError("no step", file=path, line=line, do="delete the line")
    return columns


def _value(text: str | None, path: Path, line: int) -> float | None:
    if not text:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise InputError(f"{text!r} is not a number", file=path, line=line, do="delete the line") from None


def _column(metrics: Metrics, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a column, where it has values."""
    pairs = zip(metrics["step"], metrics.get(name, [None] * len(metrics["step"])), strict=True)
    points = [(step, value) for step, value in pairs if step is not None and value is not None]
    return [step for step, _ in points], [value for _, value in points]


Validations = dict[str, list[tuple[float, float]]]  # steps and values, by measure


def _validations(report: RunReport | None, metrics: Metrics, measure: str) -> Validations:
    """The validations in the report, which may have several measures and all digits; without it, those in the log."""
    validations: Validations = {}
    for step, values in report["validations"] if report else []:
        for name, value in values.items():
            validations.setdefault(name, []).append((step, value))
    logged = list(zip(*_column(metrics, "validation"), strict=True))
    return validations or ({measure: logged} if logged else {})


def _result(report: RunReport | None) -> list[str]:
    """The outcome in a sentence: the gain of training by the first measure, and whether it can be told from none."""
    outcome = report.get("outcome") if report else None
    if not outcome:
        return []
    systems = outcome["systems"]
    measure, gain = next(iter(systems["gain"].items()))
    before, after = (systems[name][measure]["mean"] for name in ("before", "after"))
    queries = f"{outcome['queries']:,} {outcome['split']} queries"
    change = f"{gain['mean']:+.3f} (95% interval {gain['low']:.3f} to {gain['high']:.3f})"
    verdict = "" if gain["low"] > 0 or gain["high"] < 0 else " The interval includes 0: the change may be chance."
    return [f"{measure} on {queries}: {before:.3f} before training, {after:.3f} after, {change}.{verdict}"]


def _what(config: dict[str, Any], metrics: Metrics, report: RunReport | None) -> list[str]:
    settings = config["settings"]
    steps = report["steps"] if report else max(metrics["step"], key=lambda step: step or 0, default=0)
    place = Path(str(config.get("model")))
    model = Path(*place.parts[-2:]) if place.is_absolute() else place  # all of it is among the settings
    target = settings["loss"].get("target")
    in_batch = ", in-batch negatives" if settings["loss"].get("in_batch") else ""
    start = f"{model} was trained on {config.get('data')}"
    size = settings.get("batch_size", 1) * settings.get("accumulate", 1)
    early = ", when it was stopped early" if report and report.get("stopped_early") else ""
    return [f"{start} for {steps:,} steps of {size} triplets{early}. Target: {target}{in_batch}."]


def _validated(validations: Validations, measure: str) -> list[str]:
    values = validations.get(measure, [])
    if len(values) < 2:
        return []
    before = values[0][1]
    step, best = max(values[1:], key=lambda pair: pair[1])
    change = f"a gain of {best - before:.3f}" if best > before else "no gain"
    validated = f"{before:.3f} before, {best:.3f} at best, at step {step:,}: {change}"
    return [f"{measure} on the validation queries: {validated}."]


def _elsewhere(report: RunReport | None) -> list[str]:
    words = elsewhere_words(report["away"]) if report and "away" in report else ""
    return [f"{words[0].upper()}{words[1:]}."] if words else []


def _outcome_tables(report: RunReport | None) -> list[Table]:
    """What each system reached, with intervals, and what rose and fell: the first things to see."""
    outcome = report.get("outcome") if report else None
    if not outcome:
        return []
    names = {"bm25": "BM25", "before": "before training", "after": "after training", "hybrid": "after, with BM25"}
    names["gain"] = "gain of training, paired"
    measures = list(outcome["systems"]["gain"])
    rows = []
    for system, means in outcome["systems"].items():
        cells = [means[measure] for measure in measures]
        texts = [f"{cell['mean']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})" for cell in cells]
        rows.append(
            [Cell(names.get(system, system)), *(Cell(t, value=c["mean"]) for t, c in zip(texts, cells, strict=True))]
        )
    queries = f"{outcome['queries']:,} {outcome['split']} queries, {outcome['ranked']}"
    note = f"{queries}; with 95% bootstrap intervals."
    moved = move_tables(outcome["moved"]) if "moved" in outcome else []
    truncated = [dims_table(outcome["dims"], queries)] if "dims" in outcome else []
    return [Table("What came of it", ["system", *measures], [Block("", rows)], [note]), *truncated, *moved]


def _pace(metrics: Metrics, report: RunReport | None) -> list[str]:
    _, values = _column(metrics, "triplets_per_second")
    pace = f", at a median of {statistics.median(values):,.1f} triplets a second" if values else ""
    if report:
        return [f"Training took {report['seconds']:,.0f} seconds{pace}."]
    return [f"So far it ran{pace}."] if pace else []


def _validation_tables(validations: Validations) -> list[Table]:
    """A row for each validation, the best of each measure bold."""
    if not validations:
        return []
    by_measure = {measure: dict(values) for measure, values in validations.items()}
    best = {measure: max(values.values()) for measure, values in by_measure.items()}
    steps = list(dict.fromkeys(step for values in by_measure.values() for step in values))
    notes = ["Bold: the highest."]
    if len(steps) > SHOWN:
        notes.append(f"The first, the best and the last of {len(steps):,} validations; the figure has all.")
        highest = {max(values, key=lambda step: values[step]) for values in by_measure.values()}
        steps = [step for step in steps if step in {steps[0], steps[-1], *highest}]
    rows = []
    for step in steps:
        row_values = {measure: values.get(step) for measure, values in by_measure.items()}
        cells = [number(value, 4, bold=value == best[measure]) for measure, value in row_values.items()]
        rows.append([Cell(f"{step:,}", value=step), *cells])
    return [Table("Validations", ["step", *validations], [Block("", rows)], notes)]


def _blend_tables(path: BlendPath | None) -> list[Table]:
    if path is None:
        return []
    table = path_table(path)
    table.title = "Between start and trained model"
    table.notes = [path_words(path), "Bold: the chosen weight of the trained model."]
    return [table]


def _speed_tables(metrics: Metrics) -> list[Table]:
    rows = []
    for name, (label, digits) in SPEEDS.items():
        _, values = _column(metrics, name)
        if values:
            summary = (statistics.median(values), min(values), max(values))
            rows.append([Cell(label), *(Cell(f"{value:,.{digits}f}", value=value) for value in summary)])
    note = "Over log lines, the first and slowest ones included. Padding, waiting and utilisation are shares."
    return [Table("Speed", ["speed", "median", "lowest", "highest"], [Block("", rows)], [note])] if rows else []


def _figures(metrics: Metrics, validations: Validations, path: BlendPath | None) -> list[Figure]:
    """Figures of losses, validations, blending, targets and margins: those for which there are values."""
    figures: list[Figure] = []
    parts = {"loss": "loss", "explicit_mean": "explicit mean", "spread": "spread"}
    losses = [Series(label, *_column(metrics, name)) for name, label in parts.items()]
    if any(series.x for series in losses):
        caption = "The loss, and the two parts that it is the sum of: the error of the mean target, and its spread."
        caption = caption if losses[1].x else "Mean over the batch."
        drawn = [series for series in losses if series.x]
        figures.append(LineFigure("loss", "Loss", caption, [[Panel("", "step", "loss", drawn)]]))
    for measure, values in validations.items():
        series = Series(measure, [step for step, _ in values], [value for _, value in values])
        panel = Panel("", "step", measure, [series], mark_maxima=True)
        name, title = f"validation-{measure}", f"Validation, {measure}"
        figures.append(LineFigure(name, title, "On the validation queries. The large dot is the best.", [[panel]]))
    figures += [] if path is None else [path_figure(path)]
    bands = [_band(metrics, name) for name in ("target", "margin")]
    panels = [Panel(s.name, "step", "similarity", [s]) for s in bands if s.x]
    if panels:
        caption = "Mean over the batch; the band reaches from the lowest to the highest."
        figures.append(LineFigure("targets", "Targets and margins", caption, [panels]))
    return figures


def _band(metrics: Metrics, name: str) -> Series:
    steps, mean = _column(metrics, f"{name}_mean")
    edges: Sequence[dict[float, float]] = [
        dict(zip(*_column(metrics, f"{name}_{edge}"), strict=True)) for edge in ("min", "max")
    ]
    low, high = ([edge.get(step) for step in steps] for edge in edges)
    return Series(f"{name}s", steps, mean, low, high)
