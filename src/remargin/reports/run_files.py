"""The files of a training run that people and `remargin report` read, each with a checksum: what changed is noticed.

config.yaml says what was asked for, metrics.csv what happened on the way, report.json what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import yaml

from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.files.headers import checksum, read_header, write_header
from remargin.files.ledger import LedgerContent, read_ledger
from remargin.files.shapes import Check, Count, Finite, mismatch
from remargin.files.unpacking import LARGEST_YAML, read_small
from remargin.reports.dimensions import Dimensions
from remargin.reports.moves import Moved

CONFIG, METRICS, REPORT = "config.yaml", "metrics.csv", "report.json"
CONFIG_FORMAT, REPORT_FORMAT = "remargin-config-1", "remargin-report-2"
NEIGHBOURS = 10
AGREEMENT = f"agreement of {NEIGHBOURS} nearest neighbours"  # the measure of texts without judgments
GIVE = "give a folder that `fit` wrote"


class RunConfig(TypedDict):
    """What a run was asked to do, the command and versions that did it, and hashes of what it was made from."""

    format: str
    command: str
    asked: dict[str, Any]
    versions: dict[str, str | None]
    sha256: NotRequired[dict[str, str]]


class Elsewhere(TypedDict):
    """What training cost elsewhere: a measure before and after, and the interval of the difference."""

    what: str
    measure: str
    queries: Count
    before: Finite
    after: Finite
    difference: Finite
    low: Finite
    high: Finite


def elsewhere_words(away: Elsewhere) -> str:
    """What training cost elsewhere, in a line.

    >>> means = {"before": 0.412, "after": 0.405, "difference": -0.007, "low": -0.021, "high": 0.006}
    >>> elsewhere_words({"what": "docstrings", "measure": "nDCG@10", "queries": 200, **means})
    'elsewhere (docstrings, 200 queries): nDCG@10 0.412 before, 0.405 after (-0.007, -0.021 to 0.006)'
    """
    count, ends = f"{away['queries']:,}", (away["difference"], away["low"], away["high"])
    if away["measure"] == AGREEMENT:
        share, low, high = (f"{1 + value:.1%}" for value in ends)
        texts = f"{count} texts without judgments"
        return f"elsewhere ({away['what']}, {texts}): {share} of nearest neighbours stayed ({low} to {high})"
    change = "{:+.3f}, {:.3f} to {:.3f}".format(*ends)
    means = f"{away['measure']} {away['before']:.3f} before, {away['after']:.3f} after ({change})"
    return f"elsewhere ({away['what']}, {count} {'query' if away['queries'] == 1 else 'queries'}): {means}"


class Mean(TypedDict):
    """A mean over queries and its 95% interval."""

    mean: Finite
    low: Finite
    high: Finite


def _alike(systems: Mapping[str, Mapping[str, Any]]) -> bool:
    return {"before", "after", "gain"} <= systems.keys() and len({frozenset(means) for means in systems.values()}) == 1


class SystemMeans(TypedDict):
    """What each system reached by each measure on the queries of a split, and the gain of training."""

    split: str
    ranked: str
    queries: Count
    systems: Annotated[dict[str, dict[str, Mean]], Check("systems and the gain, all by the same measures", _alike)]
    moved: NotRequired[Moved]
    dims: NotRequired[Dimensions]


class RunReport(TypedDict):
    """What came of a run, and the checksum of its metrics. Validations are steps with the value of each measure."""

    format: str
    steps: Count
    triplets: Count
    before: Finite | None
    best: Finite | None
    best_step: Count | None
    best_triplets: Count | None
    stopped_early: bool
    seconds: Finite
    model: str
    validations: list[tuple[Count, dict[str, Finite]]]
    metrics: str
    weight: NotRequired[Finite]
    away: NotRequired[Elsewhere]
    outcome: NotRequired[SystemMeans]
    learning_rate: NotRequired[Finite]
    fusion: NotRequired[dict[str, Any]]
    data: NotRequired[dict[str, Any]]


def peak_rate(report: RunReport | None) -> dict[str, float]:
    """The setting that follows from the length of a training run where nobody gave it, as the report has it."""
    return {"learning_rate": report["learning_rate"]} if report and "learning_rate" in report else {}


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.yaml, or replace it."""
    plain = json.loads(json.dumps({**config, "format": CONFIG_FORMAT}))
    with new_file(folder / CONFIG, overwrite=True) as file:
        content = {**plain, "checksum": checksum(plain)}
        file.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())


def read_config(folder: Path, remedy: str = GIVE) -> RunConfig:
    """What `write_config` wrote.

    Raises:
        InputError: if it is missing, something else, or not as it was written.
    """
    path = folder / CONFIG
    try:
        text = read_small(path, LARGEST_YAML).decode()
        config = yaml.safe_load(text)
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):  # a few could stand for terabytes
            config = None
    except FileNotFoundError:
        raise InputError("not found", file=path, do=remedy) from None
    except (OSError, RecursionError, ValueError, yaml.YAMLError):
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("asked"), dict):
        raise InputError("not the config of a training run", file=path, do=remedy)
    stored = config.pop("checksum", None)
    if config.get("format") != CONFIG_FORMAT:
        other = f"format {config.get('format')!r}, expected {CONFIG_FORMAT!r}"
        raise InputError(other, file=path, do=remedy)
    try:
        whole = stored == checksum(config)
    except (TypeError, ValueError):  # dates and the like, which we never write
        whole = False
    if not whole:
        raise InputError("was changed since it was written: its checksum does not match", file=path, do=remedy)
    if problem := mismatch(config, RunConfig):
        raise InputError(f"not the config of a training run: {problem}", file=path, do=remedy)
    return config  # type: ignore[return-value]


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write report.json, or replace it, for the metrics that are there."""
    metrics = read_metrics(folder).checksum
    plain = json.loads(json.dumps({**report, "metrics": metrics}))
    write_header(folder / REPORT, {"format": REPORT_FORMAT, **plain})


def read_report(folder: Path) -> RunReport | None:
    """What `write_report` wrote; None if the run is not done."""
    if not (folder / REPORT).is_file():
        return None
    return read_header(folder / REPORT, RunReport, REPORT_FORMAT, GIVE)


def read_metrics(folder: Path, report: RunReport | None = None) -> LedgerContent:
    """The rows of metrics.csv; those that belong to a report, if there is one.

    Raises:
        InputError: if a row is not as it was written, or rows are missing.
    """
    metrics = read_ledger(folder / METRICS, GIVE)
    if report is not None and report["metrics"] != metrics.checksum:
        raise InputError(f"not the rows that {REPORT} was written for", file=folder / METRICS, do=GIVE)
    return metrics
