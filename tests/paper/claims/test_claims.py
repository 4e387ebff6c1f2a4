"""Verdicts are computed: numbers that say otherwise flip them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.paper.claims.claim import FAILS, HOLDS, OPEN
from remargin.paper.claims.figures import ROLES
from remargin.paper.claims.table import CLAIMS, check_claims, checked_only, claims
from remargin.paper.claims.variants import TARGETS
from remargin.paper.systems import WITH, WITHOUT
from remargin.study.outcome import all_numbers
from remargin.study.results import HITS, MEASURE, RECALL

from .claimed import as_the_paper, baseline, put


def behind(row: str) -> Callable[[dict[str, Any]], None]:
    """A row of table 4 that is neither as good as a teacher nor ahead."""
    return put("baselines", "a", row, {**baseline(0.62, 0.79, 6000), "equivalent": False})


# For each claim something that makes it false.
CONTRARY: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tuning the margin pays": put("static-margins", "a", WITH, "gain", 0.0),
    "tuning the margin pays much": put("static-margins", "a", WITH, "gain", 0.05),
    "the margin depends on the model": put("static-margins", "b", WITHOUT, "best", MEASURE, [0.2]),
    "the margin depends on the measure": put("static-margins", "a", WITHOUT, "best", HITS, [0.1, 0.2, 0.3]),
    "in batch negatives do not help static targets": put("static-margins", "b", WITH, "highest_hits", 0.9),
    "adaptive targets peak half way": put("adaptive-margins", "a", "adaptive", "128", MEASURE, "at", 0.9),
    "adaptive targets decline": put("adaptive-margins", "b", "adaptive", "128", MEASURE, "last", 0.5499),
    "in batch negatives lower adaptive targets": put(
        "adaptive-margins", "a", "adaptive, in-batch", "128", MEASURE, "highest", 0.56
    ),
    "in batch negatives slow adaptive targets": put(
        "adaptive-margins", "a", "adaptive, in-batch", "128", MEASURE, "validation", 4
    ),
    "in batch negatives slow hits less": put("adaptive-margins", "a", "adaptive, in-batch", "128", HITS, "at", 0.9),
    "smaller batches show the same trends": put("adaptive-margins", "a", "adaptive", "64", HITS, "highest", 0.9),
    "adaptive targets favour retrieval": put("static-margins", "a", WITHOUT, "highest_hits", 0.9),
    "adaptive targets do so at the expense of ranking": put("static-margins", "a", WITHOUT, "highest", 0.54),
    "in batch negatives help adaptive targets hits": put(
        "adaptive-margins", "a", "adaptive, in-batch", "128", HITS, "highest", 0.6
    ),
    "distributed targets converge sooner": put(
        "distributed-margins", "a", "distributed", "128", MEASURE, "validation", 6
    ),
    "smaller batches converge sooner": put("distributed-margins", "a", "distributed", "64", MEASURE, "validation", 4),
    "batch size hardly matters": put("distributed-margins", "a", "distributed", "64", MEASURE, "highest", 0.5),
    "larger batches are slightly better": put(
        "distributed-margins", "a", "distributed", "64", MEASURE, "highest", 0.64
    ),
    "distributed targets rank better than adaptive ones": put(
        "adaptive-margins", "a", "adaptive", "128", MEASURE, "highest", 0.7
    ),
    "distributed targets retrieve as adaptive ones do": put(
        "distributed-margins", "b", "distributed", "128", HITS, "highest", 0.9
    ),
    "distributed targets decline": put("distributed-margins", "a", "distributed", "128", MEASURE, "last", 0.63),
    "targets settle rapidly": put("target-evolution", "a", "early_mean", 0.3),
    "targets settle at one half": put("target-evolution", "a", "last_mean", 0.3),
    "outliers are positive": put("target-evolution", "b", "last_low", -0.9),
    "backbones end alike": put("target-evolution", "b", "last_mean", 0.6),
    "tuned static is best": put("variants", "a", "adaptive", MEASURE, 0.7),
    "distributed is equivalent to the best": put("variants", "a", "distributed", f"{MEASURE} equivalent", False),
    "distributed is the best in batch target": put("static-margins", "a", WITH, "highest", 0.64),
    "adaptive in batch has the best recall": put("variants", "a", "static", RECALL, 0.9),
    "in batch negatives harm static targets": put("variants", "a", "static, in-batch", MEASURE, 0.66),
    "the explicit mean does not work": put("variants", "a", "explicit mean", MEASURE, 0.63),
    "tuned static costs three times as much": put("variants", "a", "static", "seconds", 300.0),
    "tuned static costs seven times as much": put("variants", "a", "adaptive", "seconds", 200.0),
    "in batch information saves data": lambda numbers: [
        put("variants", model, "adaptive, in-batch", "triplets", 5100)(numbers) for model in "ab"
    ],
    "self distillation saves data": put("variants", "a", "distributed", "triplets", 9000),
    "the backbone does not matter": put("variants", "b", "adaptive", MEASURE, 0.3),
    "backbones rank targets alike": put("variants", "b", "distributed", MEASURE, 0.52),
    "distributed is often equivalent in recall": lambda numbers: [
        put("variants", model, "distributed", f"{RECALL} equivalent", False)(numbers) for model in "ab"
    ],
    "self distillation matches teachers": behind("distributed"),
    "self distillation is close to teachers": put("baselines", "a", "best teacher", MEASURE, 0.72),
    "tuned static matches teachers": behind("static"),
    "adaptive in batch matches teachers in recall": put(
        "baselines", "a", "adaptive, in-batch", "recall_equivalent", False
    ),
    "adaptive in batch is close to teachers in recall": put("baselines", "a", "best teacher", RECALL, 0.86),
    "tuning raises recall more than ndcg": put("baselines", "a", "static 1.0", RECALL, 0.79),
    "an eighth of the data is enough": put("baselines", "a", "adaptive, in-batch", "triplets", 2050),
    "distributed needs half of the data of teachers": put("baselines", "a", "distributed", "triplets", 9000),
    "adaptive needs a seventh of the data of teachers": put("baselines", "a", "adaptive, in-batch", "triplets", 2150),
    "in domain teachers are behind": put("baselines", "a", "reference", MEASURE, 0.645),
    "in domain adaptive is slightly worse": put("zero-shot", "a", "adaptive, in-batch", "in-domain", 0.57),
    "targets order negatives as relevance does": put("instance", "a", ROLES[2], "relevance", 0.9),
    "unrelated negatives add less to the loss": put("instance", "a", ROLES[2], "loss", 0.9),
    "early stopping costs nothing in domain": put("zero-shot", "a", "distributed, to the end", "in-domain", 0.62),
    "early stopping helps elsewhere": put("zero-shot", "a", "distributed, to the end", "mean", 0.4),
    "tuning helps elsewhere": put("zero-shot", "a", "static untuned", "mean", 0.4),
    "adaptive without in batch is last elsewhere": put("zero-shot", "b", "adaptive", "mean", 0.3),
    "half the memory": put("memory", "a", "bf16, 8-bit states", 80),
}


def test_there_are_all_claims_and_each_can_fail() -> None:
    assert {claim.name for claim in CLAIMS} == set(CONTRARY)
    assert len(CLAIMS) >= 15
    assert all(claim.text.endswith(".") for claim in CLAIMS)


def test_on_numbers_as_the_paper_describes_them_every_claim_holds() -> None:
    assert {v.claim.name: v.verdict for v in check_claims(as_the_paper())} == dict.fromkeys(CONTRARY, HOLDS)


@pytest.mark.parametrize(
    ("change", "open_ones"),
    [
        (
            put("adaptive-margins", "a", "adaptive, in-batch", "128", MEASURE, "validation", 5),
            {"in batch negatives slow adaptive targets"},
        ),
        (
            put("adaptive-margins", "a", "adaptive, in-batch", "128", MEASURE, "at", 0.5),
            {"in batch negatives slow hits less"},
        ),
        (
            put("distributed-margins", "a", "distributed", "64", MEASURE, "validation", 3),
            {"smaller batches converge sooner"},
        ),
        (
            put("baselines", "b", "BM25", "recall_equivalent", True),
            {"adaptive in batch matches teachers in recall", "adaptive in batch is close to teachers in recall"},
        ),
        (
            lambda numbers: [put("variants", "a", row, f"{RECALL} equivalent", True)(numbers) for row in TARGETS],
            {"distributed is often equivalent in recall"},
        ),
        (put("target-evolution", "b", "early_mean", None), {"targets settle rapidly"}),
    ],
)
def test_what_cannot_be_told_apart_is_not_a_verdict(change: Callable[..., Any], open_ones: set[str]) -> None:
    numbers = as_the_paper()
    change(numbers)
    assert {v.claim.name for v in check_claims(numbers) if v.verdict == OPEN} == open_ones


def test_a_tie_does_not_hide_a_contradiction() -> None:
    numbers = as_the_paper()
    put("distributed-margins", "a", "distributed", "64", MEASURE, "validation", 3)(numbers)
    put("distributed-margins", "b", "distributed", "64", MEASURE, "validation", 4)(numbers)
    assert {v.claim.name: v.verdict for v in check_claims(numbers)}["smaller batches converge sooner"] == FAILS


def test_recall_in_which_bm25_is_as_good_saves_no_data() -> None:
    numbers = as_the_paper()
    put("baselines", "a", "adaptive, in-batch", "equivalent", False)(numbers)
    put("baselines", "a", "BM25", "recall_equivalent", True)(numbers)
    assert {v.claim.name: v.verdict for v in check_claims(numbers)}["an eighth of the data is enough"] == FAILS


def test_in_which_bm25_is_as_good_in_both_it_is_open() -> None:
    numbers = as_the_paper()
    for name in ("equivalent", "recall_equivalent"):
        put("baselines", "a", "BM25", name, True)(numbers)
    (verdict,) = (v for v in check_claims(numbers) if v.claim.name == "an eighth of the data is enough")
    assert (verdict.verdict, verdict.evidence) == (OPEN, "a: even BM25 is equivalent in both measures")


def test_backbones_are_only_compared_where_several_can_be() -> None:
    numbers = as_the_paper()
    del numbers["variants"]["b"]["adaptive"]
    verdicts = {v.claim.name: (v.verdict, v.evidence) for v in check_claims(numbers)}
    for name in ("the backbone does not matter", "backbones rank targets alike"):
        assert verdicts[name] == (OPEN, "needs two backbones")
    numbers = as_the_paper()
    for row in TARGETS:
        put("variants", "b", row, MEASURE, 0.6)(numbers)
    verdicts = {v.claim.name: (v.verdict, v.evidence) for v in check_claims(numbers)}
    assert verdicts["backbones rank targets alike"] == (OPEN, "b: all are level at 0.600")
    numbers = as_the_paper()
    numbers["distributed-margins"] = {"c": numbers["distributed-margins"]["a"]}
    verdicts = {v.claim.name: (v.verdict, v.evidence) for v in check_claims(numbers)}
    assert verdicts["distributed is the best in batch target"] == (OPEN, "no backbone has both")


def test_further_test_collections_count() -> None:
    numbers = as_the_paper()
    again = copy.deepcopy(numbers["variants"]["a"])
    again["adaptive"][MEASURE] = 0.7
    numbers["variants"]["a"]["also"] = {"DL20": again}
    (verdict,) = (v for v in check_claims(numbers) if v.claim.name == "tuned static is best")
    assert verdict.verdict == FAILS
    assert "a on DL20: static 0.650" in verdict.evidence


def test_nothing_is_the_best_where_all_are_level() -> None:
    numbers = as_the_paper()
    for row in TARGETS:
        put("variants", "b", row, RECALL, 1.0)(numbers)
    (verdict,) = (v for v in check_claims(numbers) if v.claim.name == "adaptive in batch has the best recall")
    assert (verdict.verdict, verdict.evidence) == (OPEN, "b: all are level at 1.000")


def test_ahead_of_a_teacher_is_as_good_as_one() -> None:
    numbers = as_the_paper()
    for name in ("equivalent", "recall_equivalent"):
        put("baselines", "a", "adaptive, in-batch", name, False)(numbers)
    verdicts = {v.claim.name: v.verdict for v in check_claims(numbers)}
    assert verdicts["an eighth of the data is enough"] == FAILS
    put("baselines", "a", "adaptive, in-batch", RECALL, 0.8)(numbers)
    verdicts = {v.claim.name: v.verdict for v in check_claims(numbers)}
    assert verdicts["an eighth of the data is enough"] == HOLDS
    assert verdicts["adaptive in batch matches teachers in recall"] == HOLDS


def test_in_domain_early_stopping_may_gain_but_not_lose() -> None:
    numbers = as_the_paper()
    for value, verdict in ((0.65, HOLDS), (0.598, HOLDS), (0.59, FAILS)):
        put("zero-shot", "a", "distributed, early stopping", "in-domain", value)(numbers)
        assert {v.claim.name: v.verdict for v in check_claims(numbers)}[
            "early stopping costs nothing in domain"
        ] == verdict


def test_a_decline_is_more_than_a_rounding_error() -> None:
    numbers = as_the_paper()
    for last, verdict in ((0.54, HOLDS), (0.5499, FAILS)):
        put("adaptive-margins", "a", "adaptive", "128", MEASURE, "last", last)(numbers)
        assert {v.claim.name: v.verdict for v in check_claims(numbers)}["adaptive targets decline"] == verdict


def test_what_the_settings_leave_out_is_open() -> None:
    numbers = as_the_paper()
    del numbers["distributed-margins"]["a"]["distributed"]["64"]
    put("static-margins", "b", WITH, "gain", None)(numbers)
    open_ones = [v.claim.name for v in check_claims(numbers) if v.verdict == OPEN]
    assert open_ones == [
        "tuning the margin pays",
        "tuning the margin pays much",
        "smaller batches converge sooner",
        "batch size hardly matters",
        "larger batches are slightly better",
    ]


def test_backbones_that_one_of_two_experiments_lacks_are_not_compared() -> None:
    for experiment in ("adaptive-margins", "distributed-margins"):
        numbers = as_the_paper()
        del numbers[experiment]["b"]
        (verdict,) = (v for v in check_claims(numbers) if v.claim.name == "distributed targets converge sooner")
        assert (verdict.verdict, verdict.evidence) == (HOLDS, "a: after 30%, adaptive 50%")


def test_a_few_batches_have_no_beginning_and_end() -> None:
    numbers = as_the_paper()
    put("target-evolution", "a", "batches", 63)(numbers)
    open_ones = [v.claim.name for v in check_claims(numbers) if v.verdict == OPEN]
    assert open_ones == [
        "targets settle at one half",
        "targets settle rapidly",
        "outliers are positive",
        "backbones end alike",
    ]


def test_what_a_sweep_costs_is_said_beside_the_verdict() -> None:
    """A plan with a long sweep makes the claim hold whatever the targets do."""
    numbers = as_the_paper()
    put("variants", "a", "static", "sweep_seconds", 1300.0)(numbers)
    (verdict,) = (v for v in check_claims(numbers) if v.claim.name == "tuned static costs three times as much")
    run = numbers["variants"]["a"]["distributed"]["run_seconds"]
    assert verdict.evidence.endswith(f"as so many whole distributed runs: a: {1300 / run:.1f}; b: 0.0)")


def test_a_run_that_training_did_not_improve_says_nothing_about_data() -> None:
    numbers = as_the_paper()
    put("variants", "a", "adaptive", "triplets", 0)(numbers)
    put("baselines", "a", "distributed", "triplets", 0)(numbers)
    open_ones = {v.claim.name for v in check_claims(numbers) if v.verdict == OPEN}
    assert {"in batch information saves data", "an eighth of the data is enough"} <= open_ones


def test_nor_does_it_say_anything_about_tuning() -> None:
    numbers = as_the_paper()
    before = {v.claim.name for v in check_claims(numbers) if v.verdict == OPEN}
    put("baselines", "a", "static 1.0", "triplets", 0)(numbers)
    put("zero-shot", "a", "static untuned, in-batch", "triplets", 0)(numbers)
    open_ones = {v.claim.name: v.evidence for v in check_claims(numbers) if v.verdict == OPEN}
    assert set(open_ones) - before == {"tuning raises recall more than ndcg", "tuning helps elsewhere"}
    assert "a, static untuned, in-batch: no validation was better" in open_ones["tuning helps elsewhere"]


def test_teachers_who_taught_nothing_are_not_what_the_paper_compares_with() -> None:
    numbers = as_the_paper()
    before = {v.claim.name for v in check_claims(numbers) if v.verdict == OPEN}
    put("baselines", "a", "reference", "triplets", 0)(numbers)
    open_ones = {v.claim.name: v.evidence for v in check_claims(numbers) if v.verdict == OPEN}
    assert set(open_ones) - before == {
        "self distillation matches teachers",
        "self distillation is close to teachers",
        "tuned static matches teachers",
        "adaptive in batch matches teachers in recall",
        "adaptive in batch is close to teachers in recall",
        "an eighth of the data is enough",
        "distributed needs half of the data of teachers",
        "adaptive needs a seventh of the data of teachers",
        "in domain teachers are behind",
    }
    assert set(open_ones.values()) == {"a: the best TAS-B run is the model before training"}


@pytest.mark.parametrize("name", CONTRARY)
def test_other_numbers_flip_the_verdict_and_only_where_they_matter(name: str) -> None:
    numbers = as_the_paper()
    CONTRARY[name](numbers)
    found = {v.claim.name: v.verdict for v in check_claims(numbers)}
    assert found[name] == FAILS
    assert sum(verdict == FAILS for verdict in found.values()) <= 4


def test_without_numbers_nothing_is_said() -> None:
    assert {v.verdict for v in check_claims({})} == {OPEN}
    one = {name: {"a": of["a"]} for name, of in as_the_paper().items()}
    open_ones = [v.claim.name for v in check_claims(one) if v.verdict == OPEN]
    assert open_ones == [
        "the margin depends on the model",
        "backbones end alike",
        "the backbone does not matter",
        "backbones rank targets alike",
    ]


def test_the_table_has_every_verdict_with_its_numbers() -> None:
    outcome = claims(as_the_paper())
    rows = outcome.section.tables[0].blocks[0].rows
    assert len(rows) == len(CLAIMS)
    assert all(row[3].text for row in rows)
    every = len(CLAIMS)
    assert outcome.section.summary[0].startswith(f"Of {every} claims of the paper, these experiments confirm {every} ")


def test_on_the_screen_open_ones_are_left_out() -> None:
    numbers = as_the_paper()
    del numbers["memory"]
    (table,) = claims(numbers).section.tables
    shown = [row[0].text for row in checked_only(table).blocks[0].rows]
    assert shown == [claim.text for claim in CLAIMS if claim.name != "half the memory"]


def test_claims_and_tables_call_rows_by_the_same_names(study_folder: Path) -> None:
    """Else a verdict would be open for ever."""
    found = check_claims(all_numbers(study_folder))
    assert not [v.claim.name for v in found if "there is no" in v.evidence or "no backbone has" in v.evidence]
