"""For each claim of the paper a change to `as_the_paper` that makes it false."""

from __future__ import annotations

from typing import Any

from remargin.paper.memory import EIGHT_BIT
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, UNTUNED
from remargin.paper.zero_shot import ADAPTIVE_IN_BATCH_ROW, ADAPTIVE_ROW, TO_THE_END_ROW, UNTUNED_ROW
from remargin.study.results import HITS, MEASURE, RECALL
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System

from .claimed import MARGIN_MSE, TAS_B, Change, Given, baseline, put, put_in_baselines, put_in_variants


def behind(system: System) -> Change:
    """A row of table 4 that is neither as good as a teacher nor ahead."""
    return put_in_baselines("a", system, baseline(0.62, 0.79, 6000, equivalent=(False, True)))


def in_static_margins(model: str, kind: str, *path_and_value: Any) -> Change:
    return put("static-margins", model, kind, *path_and_value)


def in_adaptive(model: str, system: System, size: int, measure: str, *name_and_value: Any) -> Change:
    return put("adaptive-margins", model, system, size, measure, *name_and_value)


def in_distributed(model: str, size: int, measure: str, *name_and_value: Any) -> Change:
    return put("distributed-margins", model, DISTRIBUTED, size, measure, *name_and_value)


def in_both(*path_and_value: Any) -> Change:
    """Changes a row of table 3 for both backbones."""

    def change(given: Given) -> Given:
        for model in "ab":
            given = put_in_variants(model, *path_and_value)(given)
        return given

    return change


CONTRARY: dict[str, Change] = {
    "tuning the margin pays": in_static_margins("a", "with_in_batch", "untuned", 0.5),
    "tuning the margin pays much": in_static_margins("a", "with_in_batch", "untuned", 0.45),
    "the margin depends on the model": in_static_margins("b", "without_in_batch", "peaks", MEASURE, "margins", (0.2,)),
    "the margin depends on the measure": in_static_margins(
        "a", "without_in_batch", "peaks", HITS, "margins", (0.1, 0.2, 0.3)
    ),
    "in batch negatives do not help static targets": in_static_margins(
        "b", "with_in_batch", "peaks", HITS, "value", 0.9
    ),
    "adaptive targets peak half way": in_adaptive("a", ADAPTIVE, 128, MEASURE, "at", 0.9),
    "adaptive targets decline": in_adaptive("b", ADAPTIVE, 128, MEASURE, "last", 0.5499),
    "in batch negatives lower adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, "highest", 0.56),
    "in batch negatives slow adaptive targets": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, MEASURE, "validation", 4),
    "in batch negatives slow hits less": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, "at", 0.9),
    "smaller batches show the same trends": in_adaptive("a", ADAPTIVE, 64, HITS, "highest", 0.9),
    "adaptive targets favour retrieval": in_static_margins("a", "without_in_batch", "peaks", HITS, "value", 0.9),
    "adaptive targets do so at the expense of ranking": in_static_margins(
        "a", "without_in_batch", "peaks", MEASURE, "value", 0.54
    ),
    "in batch negatives help adaptive targets hits": in_adaptive("a", ADAPTIVE_IN_BATCH, 128, HITS, "highest", 0.6),
    "distributed targets converge sooner": in_distributed("a", 128, MEASURE, "validation", 6),
    "smaller batches converge sooner": in_distributed("a", 64, MEASURE, "validation", 4),
    "batch size hardly matters": in_distributed("a", 64, MEASURE, "highest", 0.5),
    "larger batches are slightly better": in_distributed("a", 64, MEASURE, "highest", 0.64),
    "distributed targets rank better than adaptive ones": in_adaptive("a", ADAPTIVE, 128, MEASURE, "highest", 0.7),
    "distributed targets retrieve as adaptive ones do": in_distributed("b", 128, HITS, "highest", 0.9),
    "distributed targets decline": in_distributed("a", 128, MEASURE, "last", 0.63),
    "targets settle rapidly": put("target-evolution", "a", "early_mean", 0.3),
    "targets settle at one half": put("target-evolution", "a", "last_mean", 0.3),
    "outliers are positive": put("target-evolution", "b", "last_low", -0.9),
    "backbones end alike": put("target-evolution", "b", "last_mean", 0.6),
    "tuned static is best": put_in_variants("a", ADAPTIVE, "scores", MEASURE, "mean", 0.7),
    "distributed is equivalent to the best": put_in_variants("a", DISTRIBUTED, "scores", MEASURE, "equivalent", False),
    "distributed is the best in batch target": in_static_margins("a", "with_in_batch", "peaks", MEASURE, "value", 0.64),
    "adaptive in batch has the best recall": put_in_variants("a", STATIC, "scores", RECALL, "mean", 0.9),
    "in batch negatives harm static targets": put_in_variants("a", STATIC_IN_BATCH, "scores", MEASURE, "mean", 0.66),
    "the explicit mean does not work": put_in_variants("a", EXPLICIT_MEAN, "scores", MEASURE, "mean", 0.63),
    "tuned static costs three times as much": put_in_variants("a", STATIC, "seconds", 300.0),
    "tuned static costs seven times as much": put_in_variants("a", ADAPTIVE, "seconds", 200.0),
    "in batch information saves data": in_both(ADAPTIVE_IN_BATCH, "triplets", 5100),
    "self distillation saves data": put_in_variants("a", DISTRIBUTED, "triplets", 9000),
    "the backbone does not matter": put_in_variants("b", ADAPTIVE, "scores", MEASURE, "mean", 0.3),
    "backbones rank targets alike": put_in_variants("b", DISTRIBUTED, "scores", MEASURE, "mean", 0.52),
    "distributed is often equivalent in recall": in_both(DISTRIBUTED, "scores", RECALL, "equivalent", False),
    "self distillation matches teachers": behind(DISTRIBUTED),
    "self distillation is close to teachers": put_in_baselines("a", MARGIN_MSE, "scores", MEASURE, "mean", 0.72),
    "tuned static matches teachers": behind(STATIC),
    "adaptive in batch matches teachers in recall": put_in_baselines(
        "a", ADAPTIVE_IN_BATCH, "scores", RECALL, "equivalent", False
    ),
    "adaptive in batch is close to teachers in recall": put_in_baselines(
        "a", MARGIN_MSE, "scores", RECALL, "mean", 0.86
    ),
    "tuning raises recall more than ndcg": put_in_baselines("a", UNTUNED, "scores", RECALL, "mean", 0.79),
    "an eighth of the data is enough": put_in_baselines("a", ADAPTIVE_IN_BATCH, "triplets", 2050),
    "distributed needs half of the data of teachers": put_in_baselines("a", DISTRIBUTED, "triplets", 9000),
    "adaptive needs a seventh of the data of teachers": put_in_baselines("a", ADAPTIVE_IN_BATCH, "triplets", 2150),
    "in domain teachers are behind": put_in_baselines("a", TAS_B, "scores", MEASURE, "mean", 0.645),
    "in domain adaptive is slightly worse": put("zero-shot", "a", "rows", ADAPTIVE_IN_BATCH_ROW, "in_domain", 0.57),
    "targets order negatives as relevance does": put("instance", "a", "negatives", 2, "relevance", 0.9),
    "unrelated negatives add less to the loss": put("instance", "a", "negatives", 2, "loss", 0.9),
    "early stopping costs nothing in domain": put("zero-shot", "a", "rows", TO_THE_END_ROW, "in_domain", 0.62),
    "early stopping helps elsewhere": put("zero-shot", "a", "rows", TO_THE_END_ROW, "mean", 0.4),
    "tuning helps elsewhere": put("zero-shot", "a", "rows", UNTUNED_ROW, "mean", 0.4),
    "adaptive without in batch is last elsewhere": put("zero-shot", "b", "rows", ADAPTIVE_ROW, "mean", 0.3),
    "half the memory": put("memory", "a", "bytes", EIGHT_BIT, 80),
}
