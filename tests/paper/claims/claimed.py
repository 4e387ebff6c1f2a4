"""Numbers for which every claim of the paper holds, and how to change them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from remargin.paper.claims.figures import ROLES
from remargin.paper.systems import WITH, WITHOUT
from remargin.study.results import HITS, MEASURE, RECALL


def curve(highest: float, at: float, triplets: int, hits: float) -> dict[str, Any]:
    found = {"highest": highest, "at": at, "validation": triplets // 1000, "triplets": triplets, "last": highest - 0.1}
    return {MEASURE: found, HITS: {**found, "highest": hits, "at": 0.5}}


def variant(ndcg: float, recall: float, seconds: float, triplets: float) -> dict[str, Any]:
    return {
        MEASURE: ndcg,
        RECALL: recall,
        "seconds": seconds,
        "sweep_seconds": 0.0,
        "run_seconds": 400.0,
        "triplets": triplets,
        **{f"{measure} {what}": False for measure in (MEASURE, RECALL) for what in ("equivalent", "best")},
    }


def baseline(ndcg: float, recall: float, triplets: int) -> dict[str, Any]:
    return {MEASURE: ndcg, RECALL: recall, "equivalent": True, "recall_equivalent": True, "triplets": triplets}


def as_the_paper() -> dict[str, Any]:
    """Numbers for which every claim of the paper holds."""
    static = {
        WITHOUT: {"best": {MEASURE: [0.2], HITS: [0.4, 0.5]}, "highest": 0.6, "highest_hits": 0.75, "gain": 0.2},
        WITH: {"best": {MEASURE: [0.3], HITS: [0.5]}, "highest": 0.5, "highest_hits": 0.7, "gain": 0.15},
    }
    other = copy.deepcopy(static)
    other[WITHOUT]["best"][MEASURE], other[WITH]["best"][MEASURE] = [0.1], [0.2]
    adaptive = {
        "adaptive": {"64": curve(0.55, 0.4, 3000, 0.7), "128": curve(0.55, 0.5, 5000, 0.7)},
        "adaptive, in-batch": {"64": curve(0.5, 0.7, 7000, 0.8), "128": curve(0.5, 0.7, 7000, 0.8)},
    }
    distributed = {"distributed": {"64": curve(0.62, 0.2, 2000, 0.71), "128": curve(0.63, 0.3, 3000, 0.71)}}
    targets = {
        "batches": 64,
        "early_mean": 0.05,
        "first_mean": 0.9,
        "last_mean": 0.01,
        "last_low": -0.3,
        "last_high": 0.7,
    }
    variants = {
        "static": variant(0.65, 0.80, 1200.0, 6000),
        "static, in-batch": variant(0.57, 0.79, 800.0, 3000),
        "adaptive": variant(0.54, 0.66, 150.0, 5000),
        "adaptive, in-batch": variant(0.53, 0.82, 60.0, 2000),
        "distributed": {
            **variant(0.64, 0.77, 200.0, 5500),
            f"{MEASURE} equivalent": True,
            f"{RECALL} equivalent": True,
        },
        "explicit mean": variant(0.40, 0.60, 200.0, 5500),
    }
    baselines = {
        "distributed": baseline(0.64, 0.77, 6000),
        "adaptive": baseline(0.54, 0.66, 5000),
        "adaptive, in-batch": baseline(0.53, 0.79, 1900),
        "static": baseline(0.65, 0.79, 5200),
        "static 1.0": baseline(0.60, 0.71, 22000),
        "BM25": {**baseline(0.50, 0.74, 0), "equivalent": False, "recall_equivalent": False},
        "reference": {"name": "TAS-B", **baseline(0.63, 0.79, 14600)},
        "best teacher": {"name": "MarginMSE", **baseline(0.67, 0.78, 14600)},
    }
    zero_shot: dict[str, dict[str, Any]] = {
        "distributed, to the end": {"mean": 0.31, "in-domain": 0.607},
        "distributed, early stopping": {"mean": 0.34, "in-domain": 0.607},
        "static tuned": {"mean": 0.33, "in-domain": 0.563},
        "static untuned": {"mean": 0.25},
        "static tuned, in-batch": {"mean": 0.31},
        "static untuned, in-batch": {"mean": 0.27},
        "adaptive": {"mean": 0.18, "in-domain": 0.405},
        "adaptive, in-batch": {"mean": 0.26, "in-domain": 0.527},
    }
    for row in zero_shot.values():
        row["triplets"] = 5000
    instance = {
        role: {"target": 0.7 - 0.1 * i, "relevance": 0.3 - 0.1 * i, "loss": 0.06 - 0.01 * i}
        for i, role in enumerate(ROLES)
    }
    numbers = {
        "static-margins": {"a": static, "b": other},
        "adaptive-margins": {"a": adaptive, "b": adaptive},
        "distributed-margins": {"a": distributed, "b": distributed},
        "target-evolution": {"a": targets, "b": {**targets, "first_mean": 0.2, "last_mean": 0.02}},
        "variants": {"a": variants, "b": variants},
        "baselines": {"a": baselines, "b": baselines},
        "zero-shot": {"a": zero_shot, "b": zero_shot},
        "instance": {"a": instance, "b": instance},
        "memory": {"a": {"32": 100, "bf16, 8-bit states": 50}},
    }
    separate: dict[str, Any] = json.loads(json.dumps(numbers))  # no two backbones share anything
    return separate


def put(*path_and_value: Any) -> Callable[[dict[str, Any]], None]:
    *path, last, value = path_and_value

    def change(numbers: dict[str, Any]) -> None:
        place = numbers
        for name in path:
            place = place[name]
        place[last] = value

    return change
