"""Findings for which every claim of the paper holds, and how to change them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from remargin.paper.baselines import BaselineRow, BaselineTable
from remargin.paper.claims.claim import Verdict
from remargin.paper.claims.table import check_claims
from remargin.paper.compared import RowScore
from remargin.paper.deciding import OPEN
from remargin.paper.dev_curves import DevCurve
from remargin.paper.findings import ByTest, Findings
from remargin.paper.memory import EIGHT_BIT, FULL, MIXED, PeakMemory
from remargin.paper.published import published_zero_shot
from remargin.paper.static_margins import MarginSweep, Peak, StaticMargins
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, UNTUNED, taught
from remargin.paper.target_evolution import TargetEvolution
from remargin.paper.variants import SeedRun, VariantRow, VariantTable
from remargin.paper.zero_shot import (
    ADAPTIVE_IN_BATCH_ROW,
    ADAPTIVE_ROW,
    EARLY_STOPPING_ROW,
    TO_THE_END_ROW,
    TUNED_IN_BATCH_ROW,
    TUNED_ROW,
    UNTUNED_IN_BATCH_ROW,
    UNTUNED_ROW,
    ZeroShotRow,
    ZeroShotTable,
)
from remargin.study.results import HITS, MEASURE, RECALL
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System
from remargin.study.targets import BatchTargets
from remargin.training.inspection import Instance, Passage

Given = dict[str, Any]  # the findings of each experiment, by its name
Change = Callable[[Given], Given]

QUERIES, NOISE = 60, 0.01  # so that differences of 0.004 and less cannot be told from noise
TAS_B, MARGIN_MSE = taught("TAS-B"), taught("MarginMSE")
(TAS_B_CELLS,) = (row.cells for row in published_zero_shot() if row.system == "TAS-B")
TAS_B_MEAN = sum(TAS_B_CELLS.values()) / len(TAS_B_CELLS)


def per_query(mean: float, label: str, queries: int = QUERIES, noise: float = NOISE) -> dict[str, float]:
    """Scores of queries that have a mean exactly, and a spread by the label."""
    drawn = np.random.default_rng(zlib.crc32(label.encode())).normal(size=queries)
    values = mean + noise * (drawn - drawn.mean()) / drawn.std()
    return {f"q{i}": float(value) for i, value in enumerate(values)}


def score(mean: float, label: str, seeds: int = 3, noise: float = NOISE) -> RowScore:
    spread = np.linspace(-noise / 5, noise / 5, seeds) if seeds > 1 else [0.0]
    return RowScore(mean, per_seed=[per_query(mean + by, f"{label} {i}", noise=noise) for i, by in enumerate(spread)])


def dev(means: Mapping[int, float], label: str, length: int = 10_000) -> DevCurve:
    """A curve with some means after so many triplets."""
    values = [list(per_query(mean, f"{label} {seen}").values()) for seen, mean in means.items()]
    queries = tuple(per_query(0, ""))
    return DevCurve(tuple(means), tuple(means.values()), length, queries, np.array(values).T.tolist())


def peaking(highest: float, at: int, label: str, decline: float = 0.05) -> DevCurve:
    """Ten validations, the highest of which is a given one; after it they decline."""
    means = {}
    for validation in range(1, 11):
        means[1000 * validation] = highest - (at - validation) * 0.05 if validation <= at else highest - decline
    return dev(means, label)


def curve(highest: float, at: int, hits: float, label: str) -> dict[str, DevCurve]:
    return {MEASURE: peaking(highest, at, label), HITS: peaking(hits, 5, f"{label} hits")}


def data_curve(triplets: float, label: str, level_at: int | None = None) -> DevCurve:
    """A run whose model is best after so many triplets, and as good after others."""
    again = {} if level_at is None else {level_at: 0.6}
    return dev({100: 0.3, round(triplets): 0.6, **again, 60_000_000: 0.3}, label, 60_000_000)


def margin_sweep(ndcg: tuple[float, float], hits: tuple[float, float], untuned: float, label: str) -> MarginSweep:
    """A sweep whose highest values are at some margins."""
    points = {}
    for measure, (highest, best) in {MEASURE: ndcg, HITS: hits}.items():
        means = {m / 10: highest - 0.5 * abs(m / 10 - best) for m in range(1, 6)}
        points[measure] = {
            margin: dev({1000: mean}, f"{label} {measure} {margin}") for margin, mean in {**means, 1.0: untuned}.items()
        }
    return MarginSweep({MEASURE: Peak(ndcg[0], (ndcg[1],)), HITS: Peak(hits[0], (hits[1],))}, untuned, 100.0, points)


def variant(
    ndcg: float, recall: float, seconds: float, triplets: float, label: str, noise: float = NOISE, seeds: int = 3
) -> VariantRow:
    scores = {
        MEASURE: score(ndcg, f"{label} nDCG", seeds, noise),
        RECALL: score(recall, f"{label} R", seeds, noise),
    }
    by_seed = tuple(SeedRun(seconds, data_curve(triplets, f"{label} {seed}")) for seed in range(seeds))
    return VariantRow(
        scores, None, 1e-4, seconds, sweep_seconds=0.0, run_seconds=400.0, triplets=triplets, by_seed=by_seed
    )


def variant_table(rows: Mapping[System, VariantRow]) -> VariantTable:
    return VariantTable(rows, no_training={}, bm25={})


def scores(ndcg: float, recall: float, label: str, noise: float = NOISE) -> dict[str, RowScore]:
    return {MEASURE: score(ndcg, label, 1, noise), RECALL: score(recall, f"{label} R", 1, noise)}


def baseline(ndcg: float, recall: float, triplets: int, label: str, noise: float = NOISE) -> BaselineRow:
    curves = (data_curve(triplets, label),)
    return BaselineRow(scores(ndcg, recall, label, noise), None, 1e-4, seconds=100.0, triplets=triplets, curves=curves)


def zero_shot(mean: float, in_domain: float, label: str) -> ZeroShotRow:
    """A row that is as good on each collection as TAS-B was published, but for a constant; with queries of two."""
    columns = {column: value + mean - TAS_B_MEAN for column, value in TAS_B_CELLS.items()}
    measured = {column: per_query(mean, f"{label} {column}", queries=30) for column in ("NFC", "FQA")}
    return ZeroShotRow(mean, in_domain, columns, 5000, measured, per_query(in_domain, f"{label} own"))


def batches(mean: float, low: float = -0.3, high: float = 0.7, label: str = "") -> tuple[BatchTargets, ...]:
    means = per_query(mean, label, queries=32).values()
    return tuple(BatchTargets(i, value, low, high) for i, value in enumerate(means))


def target_evolution(first: float, last: float, low: float = -0.3, early: float = 0.05) -> TargetEvolution:
    return TargetEvolution(64, batches(first), batches(early), batches(last, low, label=f"{last}"))


def elsewhere(early_stopping: float) -> ZeroShotTable:
    rows = {
        TO_THE_END_ROW: (0.36, 0.607),
        EARLY_STOPPING_ROW: (early_stopping, 0.607),
        TUNED_ROW: (0.38, 0.563),
        UNTUNED_ROW: (0.30, 0.4),
        TUNED_IN_BATCH_ROW: (0.36, 0.5),
        UNTUNED_IN_BATCH_ROW: (0.32, 0.4),
        ADAPTIVE_ROW: (0.23, 0.405),
        ADAPTIVE_IN_BATCH_ROW: (0.31, 0.527),
    }
    made = {row: zero_shot(*means, row.name) for row, means in rows.items()}
    return ZeroShotTable(made, no_training=zero_shot(0.1, 0.1, "no training"), bm25=zero_shot(0.3, 0.3, "BM25"))


def as_the_paper() -> Given:
    """Findings for which every claim of the paper holds."""
    static = StaticMargins(
        with_in_batch=margin_sweep((0.5, 0.3), (0.7, 0.5), 0.35, "with"),
        without_in_batch=margin_sweep((0.6, 0.2), (0.75, 0.4), 0.4, "without"),
    )
    other = StaticMargins(
        with_in_batch=margin_sweep((0.5, 0.2), (0.7, 0.5), 0.35, "with, b"),
        without_in_batch=margin_sweep((0.6, 0.1), (0.75, 0.4), 0.4, "without, b"),
    )
    adaptive = {
        ADAPTIVE: {64: curve(0.55, 4, 0.7, "adaptive 64"), 128: curve(0.55, 5, 0.7, "adaptive")},
        ADAPTIVE_IN_BATCH: {64: curve(0.5, 7, 0.8, "in-batch 64"), 128: curve(0.5, 7, 0.8, "in-batch")},
    }
    distributed = {
        DISTRIBUTED: {64: curve(0.62, 2, 0.702, "distributed 64"), 128: curve(0.63, 3, 0.702, "distributed")}
    }
    variants = variant_table(
        {
            STATIC: variant(0.65, 0.80, 1200.0, 6000, "static"),
            STATIC_IN_BATCH: variant(0.57, 0.79, 800.0, 3000, "static, in-batch"),
            ADAPTIVE: variant(0.54, 0.66, 150.0, 5000, "adaptive"),
            ADAPTIVE_IN_BATCH: variant(0.53, 0.82, 60.0, 2000, "adaptive, in-batch"),
            DISTRIBUTED: variant(0.64, 0.81, 200.0, 5500, "distributed"),
            EXPLICIT_MEAN: variant(0.40, 0.60, 200.0, 5500, "mean"),
        }
    )
    baselines = BaselineTable(
        {
            DISTRIBUTED: baseline(0.64, 0.77, 6000, "distributed"),
            ADAPTIVE: baseline(0.54, 0.66, 5000, "adaptive"),
            ADAPTIVE_IN_BATCH: baseline(0.53, 0.79, 1900, "adaptive, in-batch"),
            STATIC: baseline(0.65, 0.79, 5200, "static"),
            UNTUNED: baseline(0.60, 0.71, 22000, "untuned"),
            TAS_B: baseline(0.62, 0.79, 14600, "TAS-B"),
            MARGIN_MSE: baseline(0.67, 0.78, 14600, "MarginMSE"),
        },
        bm25=scores(0.50, 0.70, "BM25"),
        reference=TAS_B,
        best_teacher=MARGIN_MSE,
    )
    negatives = {
        i: Passage(f"negative, {which} target", f"d{i}", "", 0.3 - 0.1 * i, 0.7 - 0.1 * i, 0.06 - 0.01 * i)
        for i, which in enumerate(("highest", "middle", "lowest"))
    }
    instance = Instance(
        Passage("query", "q", ""), Passage("positive", "d", "", 0.9), tuple(negatives.values()), 0.6, 0.05
    )
    return {
        "static-margins": {"a": static, "b": other},
        "adaptive-margins": {"a": adaptive, "b": adaptive},
        "distributed-margins": {"a": distributed, "b": distributed},
        "target-evolution": {"a": target_evolution(0.9, 0.01), "b": target_evolution(0.2, 0.02)},
        "variants": ByTest({"a": variants, "b": variants}),
        "baselines": ByTest({"a": baselines, "b": baselines}),
        "zero-shot": {"distilBERT": elsewhere(0.398), "MPNet": elsewhere(0.448)},
        "instance": {"a": instance, "b": instance},
        "memory": {"a": PeakMemory("a GPU", {FULL: 100, MIXED: None, EIGHT_BIT: 50})},
    }


def put(*path_and_value: Any) -> Change:
    """Replaces what a path of keys, attributes and places leads to; all else stays as it is."""
    *path, value = path_and_value

    def changed(place: Any, path: list[Any]) -> Any:
        if not path:
            return value
        name, *rest = path
        if isinstance(place, tuple):
            return tuple(changed(item, rest) if i == name else item for i, item in enumerate(place))
        if isinstance(place, Mapping):
            return {**place, name: changed(place[name], rest)}
        return replace(place, **{name: changed(getattr(place, name), rest)})

    return lambda given: changed(given, path)


def changed(*changes: Change) -> Given:
    """The findings of `as_the_paper`, changed."""
    given = as_the_paper()
    for change in changes:
        given = change(given)
    return given


def put_in_variants(model: str, system: System, *path_and_value: Any) -> Change:
    """Changes a row of table 3."""
    return put("variants", "own", model, "rows", system, *path_and_value)


def put_in_baselines(model: str, system: System, *path_and_value: Any) -> Change:
    """Changes a row of table 4."""
    return put("baselines", "own", model, "rows", system, *path_and_value)


def verdicts_on(given: Given) -> dict[str, Verdict]:
    """The verdicts, by the names of claims."""
    return {verdict.claim.name: verdict for verdict in check_claims(Findings(given))}


def not_told(given: Given) -> dict[str, str]:
    """The claims that cannot be told, and why."""
    return {name: verdict.evidence for name, verdict in verdicts_on(given).items() if verdict.verdict == OPEN}
