"""For each claim a change to `as_the_paper` that makes it false, and one within noise, which tells nothing."""

from __future__ import annotations

from typing import Any

from remargin.paper.memory import EIGHT_BIT
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, UNTUNED
from remargin.paper.variants import SeedRun
from remargin.paper.zero_shot import (
    ADAPTIVE_IN_BATCH_ROW,
    ADAPTIVE_ROW,
    EARLY_STOPPING_ROW,
    TO_THE_END_ROW,
    UNTUNED_ROW,
    ZeroShotSystem,
)
from remargin.study.results import HITS, MEASURE, RECALL
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System

from .claimed import (
    MARGIN_MSE,
    NOISE,
    TAS_B,
    TAS_B_MEAN,
    Change,
    Given,
    baseline,
    batches,
    data_curve,
    margin_sweep,
    peaking,
    put,
    put_in_baselines,
    put_in_variants,
    score,
    variant,
    zero_shot,
)

SLIGHTLY = 0.001  # a tenth of the spread of queries: less than their noise


def in_static_margins(model: str, kind: str, *sweep: Any) -> Change:
    return put("static-margins", model, kind, margin_sweep(*sweep, "changed"))


def in_adaptive(model: str, system: System, size: int, measure: str, *curve: Any) -> Change:
    return put("adaptive-margins", model, system, size, measure, peaking(*curve[:2], "changed", *curve[2:]))


def in_distributed(model: str, size: int, measure: str, *curve: Any) -> Change:
    return put("distributed-margins", model, DISTRIBUTED, size, measure, peaking(*curve[:2], "changed", *curve[2:]))


def in_variants(models: str, system: System, measure: str, mean: float, noise: float = NOISE) -> Change:
    """Another mean in a row of table 3."""

    def change(given: Given) -> Given:
        for model in models:
            given = put_in_variants(model, system, "scores", measure, score(mean, "changed", noise=noise))(given)
        return given

    return change


def costs(model: str, system: System, *row: Any) -> Change:
    """Another row of table 3, with what it cost."""
    return put_in_variants(model, system, variant(*row, "changed"))


def cost_in_both(system: System, *row: Any) -> Change:
    return lambda given: costs("b", system, *row)(costs("a", system, *row)(given))


def in_baselines(system: System, measure: str, mean: float, noise: float = NOISE) -> Change:
    """Another mean in a row of table 4."""
    return put_in_baselines("a", system, "scores", measure, score(mean, "changed", 1, noise))


def seeds(models: str, system: System, seconds: list[float], triplets: int, level_at: int | None = None) -> Change:
    """What the seeds of a row of table 3 cost; their curves may be as high a second time."""
    runs = [SeedRun(s, data_curve(triplets, f"seed {i}", level_at)) for i, s in enumerate(seconds)]

    def change(given: Given) -> Given:
        for model in models:
            given = put_in_variants(model, system, "by_seed", runs)(given)
        return given

    return change


def level(system: System, triplets: int, level_at: int) -> Change:
    """A row of table 4 whose curve is as high a second time."""
    return put_in_baselines("a", system, "curves", (data_curve(triplets, "changed", level_at),))


def data(system: System, *row: Any) -> Change:
    """Another row of table 4, with its triplets."""
    return put_in_baselines("a", system, baseline(*row, "changed"))


def in_table_5(row: ZeroShotSystem, mean: float, in_domain: float, model: str = "distilBERT") -> Change:
    return put("zero-shot", model, "rows", row, zero_shot(mean, in_domain, "changed"))


def in_columns(mean: float, apart: float = 0.0) -> Change:
    """Another mean of distributed targets on the collections of published systems, which are so far apart."""
    values = zero_shot(mean, 0.607, "changed").columns
    columns = {column: value + (-1) ** i * apart for i, (column, value) in enumerate(values.items())}
    return put("zero-shot", "distilBERT", "rows", EARLY_STOPPING_ROW, "columns", columns)


def in_targets(model: str, part: str, *moved: Any) -> Change:
    return put("target-evolution", model, part, batches(*moved))


AS_STATIC = ((0.5, 0.3), (0.7, 0.5))  # with in-batch negatives
CONTRARY: dict[str, Change] = {
    "tuning the margin pays": in_static_margins("a", "with_in_batch", *AS_STATIC, 0.55),
    "tuning the margin pays much": in_static_margins("a", "with_in_batch", *AS_STATIC, 0.45),
    "the margin depends on the model": in_static_margins("b", "without_in_batch", (0.6, 0.2), (0.75, 0.4), 0.4),
    "the margin depends on the measure": in_static_margins("a", "without_in_batch", (0.6, 0.2), (0.75, 0.2), 0.4),
    "in batch negatives do not help static targets": in_static_margins(
        "b", "with_in_batch", (0.5, 0.2), (0.9, 0.5), 0.35
    ),
    "adaptive targets peak half way": in_adaptive("a", ADAPTIVE, 128, MEASURE, 0.55, 9),
    "adaptive targets decline": in_adaptive("b", ADAPTIVE, 128, MEASURE, 0.55, 5, 0.0),
    "in batch negatives lower adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, 0.56, 7),
    "in batch negatives slow adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, 0.5, 4),
    "in batch negatives slow hits less": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, 0.8, 9),
    "smaller batches show the same trends": in_adaptive("a", ADAPTIVE, 64, HITS, 0.9, 5),
    "adaptive targets favour retrieval": in_static_margins("a", "without_in_batch", (0.6, 0.2), (0.9, 0.4), 0.4),
    "adaptive targets do so at the expense of ranking": in_static_margins(
        "a", "without_in_batch", (0.54, 0.2), (0.75, 0.4), 0.4
    ),
    "in batch negatives help adaptive targets hits": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, 0.6, 5),
    "distributed targets converge sooner": in_distributed("a", 128, MEASURE, 0.63, 6),
    "smaller batches converge sooner": in_distributed("a", 64, MEASURE, 0.62, 4),
    "batch size hardly matters": in_distributed("a", 64, MEASURE, 0.5, 2),
    "larger batches are slightly better": in_distributed("a", 64, MEASURE, 0.64, 2),
    "distributed targets rank better than adaptive ones": in_adaptive("a", ADAPTIVE, 128, MEASURE, 0.7, 5),
    "distributed targets retrieve as adaptive ones do": in_distributed("b", 128, HITS, 0.9, 5),
    "distributed targets decline": in_distributed("a", 128, MEASURE, 0.63, 3, 0.0),
    "distributed is the best in batch target": in_static_margins("a", "with_in_batch", (0.64, 0.3), (0.7, 0.5), 0.35),
    "targets settle rapidly": in_targets("a", "early", 0.3),
    "targets settle at one half": in_targets("a", "last", 0.3),
    "outliers are positive": in_targets("b", "last", 0.02, -0.9),
    "backbones end alike": in_targets("b", "last", 0.6, 0.55, 0.9),
    "tuned static is best": in_variants("a", ADAPTIVE, MEASURE, 0.7),
    "distributed is equivalent to the best": in_variants("a", DISTRIBUTED, MEASURE, 0.58),
    "adaptive in batch has the best recall": in_variants("a", STATIC, RECALL, 0.9),
    "in batch negatives harm static targets": in_variants("a", STATIC_IN_BATCH, MEASURE, 0.66),
    "the explicit mean does not work": in_variants("a", EXPLICIT_MEAN, MEASURE, 0.63),
    "tuned static costs three times as much": costs("a", STATIC, 0.65, 0.80, 300.0, 6000),
    "tuned static costs seven times as much": costs("a", ADAPTIVE, 0.54, 0.66, 200.0, 5000),
    "in batch information saves data": cost_in_both(ADAPTIVE_IN_BATCH, 0.53, 0.82, 60.0, 5100),
    "self distillation saves data": costs("a", DISTRIBUTED, 0.64, 0.81, 200.0, 9000),
    "the backbone does not matter": in_variants("b", ADAPTIVE, MEASURE, 0.3),
    "backbones rank targets alike": in_variants("b", DISTRIBUTED, MEASURE, 0.5),
    "distributed is often equivalent in recall": in_variants("ab", DISTRIBUTED, RECALL, 0.7),
    "self distillation matches teachers": in_baselines(DISTRIBUTED, MEASURE, 0.56),
    "self distillation is close to teachers": in_baselines(MARGIN_MSE, MEASURE, 0.72),
    "tuned static matches teachers": in_baselines(STATIC, MEASURE, 0.56),
    "adaptive in batch matches teachers in recall": in_baselines(ADAPTIVE_IN_BATCH, RECALL, 0.73),
    "adaptive in batch is close to teachers in recall": in_baselines(MARGIN_MSE, RECALL, 0.86),
    "tuning raises recall more than ndcg": in_baselines(UNTUNED, RECALL, 0.79),
    "an eighth of the data is enough": data(ADAPTIVE_IN_BATCH, 0.53, 0.79, 2050),
    "distributed needs half of the data of teachers": data(DISTRIBUTED, 0.64, 0.77, 9000),
    "adaptive needs a seventh of the data of teachers": data(ADAPTIVE_IN_BATCH, 0.53, 0.79, 2150),
    "in domain teachers are behind": in_baselines(TAS_B, MEASURE, 0.645),
    "in domain adaptive is slightly worse": in_table_5(ADAPTIVE_IN_BATCH_ROW, 0.31, 0.57),
    "targets order negatives as relevance does": put("instance", "a", "negatives", 2, "relevance", 0.9),
    "unrelated negatives add less to the loss": put("instance", "a", "negatives", 2, "loss", 0.9),
    "early stopping costs nothing in domain": in_table_5(TO_THE_END_ROW, 0.36, 0.622),
    "early stopping helps elsewhere": in_table_5(TO_THE_END_ROW, 0.45, 0.607),
    "tuning helps elsewhere": in_table_5(UNTUNED_ROW, 0.4, 0.4),
    "adaptive without in batch is last elsewhere": in_table_5(ADAPTIVE_ROW, 0.35, 0.405, "MPNet"),
    "distributed is ahead of adaptive elsewhere": in_table_5(ADAPTIVE_ROW, 0.42, 0.405),
    "distributed is close to tas b elsewhere": in_columns(TAS_B_MEAN - 0.1),
    "distributed is ahead of dpr elsewhere": in_columns(0.1),
    "distributed is near ance elsewhere": in_columns(0.2),
    "mpnet gains elsewhere": in_table_5(EARLY_STOPPING_ROW, 0.41, 0.607, "MPNet"),
    "half the memory": put("memory", "a", "bytes", EIGHT_BIT, 80),
}

# Where one look at the means would say that the claim is false, or just true, and the queries do not.
WITHIN_NOISE: dict[str, Change] = {
    "tuning the margin pays": in_static_margins("a", "with_in_batch", *AS_STATIC, 0.5 + SLIGHTLY),
    "tuning the margin pays much": in_static_margins("a", "with_in_batch", *AS_STATIC, 0.4 + SLIGHTLY),
    "the margin depends on the model": in_static_margins("b", "without_in_batch", (0.6, 0.151), (0.75, 0.4), 0.4),
    "the margin depends on the measure": in_static_margins("a", "without_in_batch", (0.6, 0.2), (0.75, 0.251), 0.4),
    "in batch negatives do not help static targets": in_static_margins(
        "b", "with_in_batch", (0.5, 0.2), (0.77 + SLIGHTLY, 0.5), 0.35
    ),
    "adaptive targets peak half way": in_adaptive("a", ADAPTIVE, 128, MEASURE, 0.55, 7, SLIGHTLY),
    "adaptive targets decline": in_adaptive("b", ADAPTIVE, 128, MEASURE, 0.55, 5, 0.01 - SLIGHTLY),
    "in batch negatives lower adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, 0.55 + SLIGHTLY, 7),
    "in batch negatives slow adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, 0.5, 4, SLIGHTLY),
    "in batch negatives slow hits less": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, 0.8, 5, SLIGHTLY),
    "smaller batches show the same trends": in_adaptive("a", ADAPTIVE, 64, HITS, 0.8 + SLIGHTLY, 5),
    "adaptive targets favour retrieval": in_static_margins(
        "a", "without_in_batch", (0.6, 0.2), (0.8 + SLIGHTLY, 0.4), 0.4
    ),
    "adaptive targets do so at the expense of ranking": in_static_margins(
        "a", "without_in_batch", (0.55 - SLIGHTLY, 0.2), (0.75, 0.4), 0.4
    ),
    "in batch negatives help adaptive targets hits": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, 0.7 - SLIGHTLY, 5),
    "distributed targets converge sooner": in_distributed("a", 128, MEASURE, 0.63, 3, SLIGHTLY),
    "smaller batches converge sooner": in_distributed("a", 64, MEASURE, 0.62, 1, SLIGHTLY),
    "batch size hardly matters": in_distributed("a", 64, MEASURE, 0.61 - SLIGHTLY, 2),
    "larger batches are slightly better": in_distributed("a", 64, MEASURE, 0.63 + SLIGHTLY, 2),
    "distributed targets rank better than adaptive ones": in_adaptive("a", ADAPTIVE, 128, MEASURE, 0.63 + SLIGHTLY, 5),
    "distributed targets retrieve as adaptive ones do": in_distributed("b", 128, HITS, 0.72 + SLIGHTLY, 5),
    "distributed targets decline": in_distributed("a", 128, MEASURE, 0.63, 3, 0.01 - SLIGHTLY),
    "distributed is the best in batch target": in_static_margins(
        "a", "with_in_batch", (0.63 + SLIGHTLY, 0.3), (0.7, 0.5), 0.35
    ),
    "targets settle rapidly": in_targets("a", "early", 0.1 + SLIGHTLY),
    "targets settle at one half": in_targets("a", "last", 0.1 + SLIGHTLY),
    "outliers are positive": in_targets("b", "last", 0.02, -0.66 - SLIGHTLY),
    "backbones end alike": in_targets("b", "last", 0.36 + SLIGHTLY, 0.0, 0.9),
    "tuned static is best": in_variants("a", ADAPTIVE, MEASURE, 0.65 + SLIGHTLY),
    "distributed is equivalent to the best": in_variants("a", DISTRIBUTED, MEASURE, 0.6 - SLIGHTLY),
    "adaptive in batch has the best recall": in_variants("a", STATIC, RECALL, 0.82 + SLIGHTLY),
    "in batch negatives harm static targets": in_variants("a", STATIC_IN_BATCH, MEASURE, 0.65 + SLIGHTLY),
    "the explicit mean does not work": in_variants("a", EXPLICIT_MEAN, MEASURE, 0.59 + SLIGHTLY),
    "tuned static costs three times as much": seeds("a", STATIC, [500.0, 590.0, 700.0], 6000),
    "tuned static costs seven times as much": seeds("a", ADAPTIVE, [150.0, 160.0, 190.0], 5000),
    "in batch information saves data": seeds("ab", ADAPTIVE_IN_BATCH, [60.0] * 3, 2000, 6000),
    "self distillation saves data": seeds("a", DISTRIBUTED, [200.0] * 3, 5500, 9000),
    "the backbone does not matter": in_variants("b", ADAPTIVE, MEASURE, 0.44 - SLIGHTLY),
    "backbones rank targets alike": in_variants("b", DISTRIBUTED, MEASURE, 0.53 - SLIGHTLY),
    "distributed is often equivalent in recall": in_variants("ab", DISTRIBUTED, RECALL, 0.77 - SLIGHTLY),
    "self distillation matches teachers": in_baselines(DISTRIBUTED, MEASURE, 0.57 - SLIGHTLY),
    "self distillation is close to teachers": in_baselines(MARGIN_MSE, MEASURE, 0.71 + SLIGHTLY),
    "tuned static matches teachers": in_baselines(STATIC, MEASURE, 0.57 - SLIGHTLY),
    "adaptive in batch matches teachers in recall": in_baselines(ADAPTIVE_IN_BATCH, RECALL, 0.74 - SLIGHTLY),
    "adaptive in batch is close to teachers in recall": in_baselines(MARGIN_MSE, RECALL, 0.85 + SLIGHTLY),
    "tuning raises recall more than ndcg": in_baselines(UNTUNED, RECALL, 0.74 + SLIGHTLY),
    "an eighth of the data is enough": in_baselines(ADAPTIVE_IN_BATCH, RECALL, 0.74 - SLIGHTLY),
    "distributed needs half of the data of teachers": level(DISTRIBUTED, 6000, 9000),
    "adaptive needs a seventh of the data of teachers": level(ADAPTIVE_IN_BATCH, 1900, 2200),
    "in domain teachers are behind": in_baselines(TAS_B, MEASURE, 0.64 + SLIGHTLY),
    "in domain adaptive is slightly worse": in_table_5(ADAPTIVE_IN_BATCH_ROW, 0.31, 0.563 + SLIGHTLY),
    "early stopping costs nothing in domain": in_table_5(TO_THE_END_ROW, 0.36, 0.617 + SLIGHTLY),
    "early stopping helps elsewhere": in_table_5(TO_THE_END_ROW, 0.398 + SLIGHTLY, 0.607),
    "tuning helps elsewhere": in_table_5(UNTUNED_ROW, 0.38 + SLIGHTLY, 0.4),
    "adaptive without in batch is last elsewhere": in_table_5(ADAPTIVE_ROW, 0.31 + SLIGHTLY, 0.405, "MPNet"),
    "distributed is ahead of adaptive elsewhere": in_table_5(ADAPTIVE_ROW, 0.398 + SLIGHTLY, 0.405),
    "distributed is close to tas b elsewhere": in_columns(TAS_B_MEAN - 0.09 - SLIGHTLY, apart=0.05),
    "distributed is ahead of dpr elsewhere": in_columns(0.26),
    "distributed is near ance elsewhere": in_columns(0.31),
    "mpnet gains elsewhere": in_table_5(EARLY_STOPPING_ROW, 0.418 - SLIGHTLY, 0.607, "MPNet"),
}
NOT_SAMPLED = {  # one example, and memory: nothing to draw again
    "targets order negatives as relevance does",
    "unrelated negatives add less to the loss",
    "half the memory",
}
