"""Findings for which every claim of the paper holds, and how to change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from remargin.paper.baselines import BaselineRow, BaselineTable
from remargin.paper.claims.claim import OPEN, Verdict
from remargin.paper.claims.table import check_claims
from remargin.paper.compared import RowScore
from remargin.paper.curves import Maximum
from remargin.paper.findings import ByTest, Findings
from remargin.paper.memory import EIGHT_BIT, FULL, MIXED, PeakMemory
from remargin.paper.static_margins import MarginSweep, Peak, StaticMargins
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, UNTUNED, taught
from remargin.paper.target_evolution import TargetEvolution
from remargin.paper.variants import VariantRow, VariantTable
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
from remargin.training.inspection import Instance, Passage

Given = dict[str, Any]  # the findings of each experiment, by its name
Change = Callable[[Given], Given]

TAS_B, MARGIN_MSE = taught("TAS-B"), taught("MarginMSE")


def margin_sweep(ndcg: Peak, hits: Peak, untuned: float | None) -> MarginSweep:
    return MarginSweep({MEASURE: ndcg, HITS: hits}, untuned, seconds=100.0)


def curve(highest: float, at: float, triplets: int, hits: float) -> dict[str, Maximum]:
    maximum = Maximum(highest, at, validation=triplets // 1000, triplets=triplets, last=highest - 0.1)
    return {MEASURE: maximum, HITS: replace(maximum, highest=hits, at=0.5)}


def variant(
    ndcg: float, recall: float, seconds: float, triplets: float, equivalent: tuple[bool, bool] = (False, False)
) -> VariantRow:
    scores = {MEASURE: RowScore(ndcg, equivalent[0]), RECALL: RowScore(recall, equivalent[1])}
    return VariantRow(scores, None, 1e-4, seconds, sweep_seconds=0.0, run_seconds=400.0, triplets=triplets)


def variant_table(rows: Mapping[System, VariantRow]) -> VariantTable:
    return VariantTable(rows, no_training={}, bm25={})


def scores(ndcg: float, recall: float, equivalent: tuple[bool, bool] = (True, True)) -> dict[str, RowScore]:
    return {MEASURE: RowScore(ndcg, equivalent[0]), RECALL: RowScore(recall, equivalent[1])}


def baseline(ndcg: float, recall: float, triplets: int, equivalent: tuple[bool, bool] = (True, True)) -> BaselineRow:
    return BaselineRow(scores(ndcg, recall, equivalent), None, 1e-4, seconds=100.0, triplets=triplets)


def zero_shot(mean: float, in_domain: float = 0.0) -> ZeroShotRow:
    return ZeroShotRow(mean, in_domain, {}, triplets=5000)


def as_the_paper() -> Given:
    """Findings for which every claim of the paper holds."""
    static = StaticMargins(
        with_in_batch=margin_sweep(Peak(0.5, (0.3,)), Peak(0.7, (0.5,)), untuned=0.35),
        without_in_batch=margin_sweep(Peak(0.6, (0.2,)), Peak(0.75, (0.4, 0.5)), untuned=0.4),
    )
    other = StaticMargins(
        with_in_batch=margin_sweep(Peak(0.5, (0.2,)), Peak(0.7, (0.5,)), untuned=0.35),
        without_in_batch=margin_sweep(Peak(0.6, (0.1,)), Peak(0.75, (0.4, 0.5)), untuned=0.4),
    )
    adaptive = {
        ADAPTIVE: {64: curve(0.55, 0.4, 3000, 0.7), 128: curve(0.55, 0.5, 5000, 0.7)},
        ADAPTIVE_IN_BATCH: {64: curve(0.5, 0.7, 7000, 0.8), 128: curve(0.5, 0.7, 7000, 0.8)},
    }
    distributed = {DISTRIBUTED: {64: curve(0.62, 0.2, 2000, 0.71), 128: curve(0.63, 0.3, 3000, 0.71)}}
    targets = TargetEvolution(batches=64, early_mean=0.05, first_mean=0.9, last_mean=0.01, last_low=-0.3, last_high=0.7)
    variants = variant_table(
        {
            STATIC: variant(0.65, 0.80, 1200.0, 6000),
            STATIC_IN_BATCH: variant(0.57, 0.79, 800.0, 3000),
            ADAPTIVE: variant(0.54, 0.66, 150.0, 5000),
            ADAPTIVE_IN_BATCH: variant(0.53, 0.82, 60.0, 2000),
            DISTRIBUTED: variant(0.64, 0.77, 200.0, 5500, equivalent=(True, True)),
            EXPLICIT_MEAN: variant(0.40, 0.60, 200.0, 5500),
        }
    )
    baselines = BaselineTable(
        {
            DISTRIBUTED: baseline(0.64, 0.77, 6000),
            ADAPTIVE: baseline(0.54, 0.66, 5000),
            ADAPTIVE_IN_BATCH: baseline(0.53, 0.79, 1900),
            STATIC: baseline(0.65, 0.79, 5200),
            UNTUNED: baseline(0.60, 0.71, 22000),
            TAS_B: baseline(0.63, 0.79, 14600),
            MARGIN_MSE: baseline(0.67, 0.78, 14600),
        },
        bm25=scores(0.50, 0.74, equivalent=(False, False)),
        reference=TAS_B,
        best_teacher=MARGIN_MSE,
    )
    elsewhere = ZeroShotTable(
        {
            TO_THE_END_ROW: zero_shot(0.31, in_domain=0.607),
            EARLY_STOPPING_ROW: zero_shot(0.34, in_domain=0.607),
            TUNED_ROW: zero_shot(0.33, in_domain=0.563),
            UNTUNED_ROW: zero_shot(0.25),
            TUNED_IN_BATCH_ROW: zero_shot(0.31),
            UNTUNED_IN_BATCH_ROW: zero_shot(0.27),
            ADAPTIVE_ROW: zero_shot(0.18, in_domain=0.405),
            ADAPTIVE_IN_BATCH_ROW: zero_shot(0.26, in_domain=0.527),
        },
        no_training=zero_shot(0.1),
        bm25=zero_shot(0.3),
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
        "target-evolution": {"a": targets, "b": replace(targets, first_mean=0.2, last_mean=0.02)},
        "variants": ByTest({"a": variants, "b": variants}),
        "baselines": ByTest({"a": baselines, "b": baselines}),
        "zero-shot": {"a": elsewhere, "b": elsewhere},
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


def not_checked(given: Given) -> dict[str, str]:
    """The claims that cannot be checked, and why."""
    return {name: verdict.evidence for name, verdict in verdicts_on(given).items() if verdict.verdict == OPEN}
