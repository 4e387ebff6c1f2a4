"""Verdicts are computed: findings that say otherwise flip them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from remargin.paper.claims.claim import FAILS, HOLDS, OPEN
from remargin.paper.claims.table import CLAIMS, check_claims, checked_only, claims
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.findings import ByTest, Findings
from remargin.paper.running import verdicts
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, PAPER, UNTUNED
from remargin.paper.zero_shot import EARLY_STOPPING_ROW, UNTUNED_IN_BATCH_ROW
from remargin.study.results import MEASURE, RECALL, Results
from remargin.study.systems import STATIC

from ...small_study import silent
from .claimed import (
    TAS_B,
    Change,
    as_the_paper,
    changed,
    not_checked,
    put,
    put_in_baselines,
    put_in_variants,
    verdicts_on,
)
from .contrary import CONTRARY


def test_there_are_all_claims_and_each_can_fail() -> None:
    assert {claim.name for claim in CLAIMS} == set(CONTRARY)
    assert len(CLAIMS) >= 15
    assert all(claim.text.endswith(".") for claim in CLAIMS)


def test_on_findings_as_the_paper_describes_them_every_claim_holds() -> None:
    assert {name: v.verdict for name, v in verdicts_on(as_the_paper()).items()} == dict.fromkeys(CONTRARY, HOLDS)


@pytest.mark.parametrize(
    ("changes", "open_ones"),
    [
        (
            [put("adaptive-margins", "a", ADAPTIVE_IN_BATCH, 128, MEASURE, "validation", 5)],
            {"in batch negatives slow adaptive targets"},
        ),
        (
            [put("adaptive-margins", "a", ADAPTIVE_IN_BATCH, 128, MEASURE, "at", 0.5)],
            {"in batch negatives slow hits less"},
        ),
        (
            [put("distributed-margins", "a", DISTRIBUTED, 64, MEASURE, "validation", 3)],
            {"smaller batches converge sooner"},
        ),
        (
            [put("baselines", "own", "b", "bm25", RECALL, "equivalent", True)],
            {"adaptive in batch matches teachers in recall", "adaptive in batch is close to teachers in recall"},
        ),
        (
            [put_in_variants("a", target, "scores", RECALL, "equivalent", True) for target in PAPER],
            {"distributed is often equivalent in recall"},
        ),
        ([put("target-evolution", "b", "early_mean", None)], {"targets settle rapidly"}),
    ],
)
def test_what_cannot_be_told_apart_is_not_a_verdict(changes: list[Change], open_ones: set[str]) -> None:
    assert set(not_checked(changed(*changes))) == open_ones


def test_a_tie_does_not_hide_a_contradiction() -> None:
    given = changed(
        put("distributed-margins", "a", DISTRIBUTED, 64, MEASURE, "validation", 3),
        put("distributed-margins", "b", DISTRIBUTED, 64, MEASURE, "validation", 4),
    )
    assert verdicts_on(given)["smaller batches converge sooner"].verdict == FAILS


def test_recall_in_which_bm25_is_as_good_saves_no_data() -> None:
    given = changed(
        put_in_baselines("a", ADAPTIVE_IN_BATCH, "scores", MEASURE, "equivalent", False),
        put("baselines", "own", "a", "bm25", RECALL, "equivalent", True),
    )
    assert verdicts_on(given)["an eighth of the data is enough"].verdict == FAILS


def test_in_which_bm25_is_as_good_in_both_it_is_open() -> None:
    given = changed(
        *(put("baselines", "own", "a", "bm25", measure, "equivalent", True) for measure in (MEASURE, RECALL))
    )
    verdict = verdicts_on(given)["an eighth of the data is enough"]
    assert (verdict.verdict, verdict.evidence) == (OPEN, "a: even BM25 is equivalent in both measures")


def test_backbones_are_only_compared_where_several_can_be() -> None:
    given = as_the_paper()
    rows = {system: row for system, row in given["variants"].own["b"].rows.items() if system != ADAPTIVE}
    open_ones = not_checked(put("variants", "own", "b", "rows", rows)(given))
    for name in ("the backbone does not matter", "backbones rank targets alike"):
        assert open_ones[name] == "needs two backbones"
    given = changed(*(put_in_variants("b", target, "scores", MEASURE, "mean", 0.6) for target in PAPER))
    assert not_checked(given)["backbones rank targets alike"] == "b: all are level at 0.600"
    given = as_the_paper()
    given["distributed-margins"] = {"c": given["distributed-margins"]["a"]}
    assert not_checked(given)["distributed is the best in batch target"] == "no backbone has both"


def test_further_test_collections_count() -> None:
    other = put_in_variants("a", ADAPTIVE, "scores", MEASURE, "mean", 0.7)(as_the_paper())["variants"].own["a"]
    given = changed(put("variants", "further", {"DL20": {"a": other}}))
    verdict = verdicts_on(given)["tuned static is best"]
    assert verdict.verdict == FAILS
    assert "a on DL20: static 0.650" in verdict.evidence


def test_nothing_is_the_best_where_all_are_level() -> None:
    given = changed(*(put_in_variants("b", target, "scores", RECALL, "mean", 1.0) for target in PAPER))
    verdict = verdicts_on(given)["adaptive in batch has the best recall"]
    assert (verdict.verdict, verdict.evidence) == (OPEN, "b: all are level at 1.000")


def test_ahead_of_a_teacher_is_as_good_as_one() -> None:
    changes = [
        put_in_baselines("a", ADAPTIVE_IN_BATCH, "scores", measure, "equivalent", False)
        for measure in (MEASURE, RECALL)
    ]
    assert verdicts_on(changed(*changes))["an eighth of the data is enough"].verdict == FAILS
    changes.append(put_in_baselines("a", ADAPTIVE_IN_BATCH, "scores", RECALL, "mean", 0.8))
    by_name = verdicts_on(changed(*changes))
    assert by_name["an eighth of the data is enough"].verdict == HOLDS
    assert by_name["adaptive in batch matches teachers in recall"].verdict == HOLDS


def test_in_domain_early_stopping_may_gain_but_not_lose() -> None:
    for value, verdict in ((0.65, HOLDS), (0.598, HOLDS), (0.59, FAILS)):
        given = changed(put("zero-shot", "a", "rows", EARLY_STOPPING_ROW, "in_domain", value))
        assert verdicts_on(given)["early stopping costs nothing in domain"].verdict == verdict


def test_a_decline_is_more_than_a_rounding_error() -> None:
    for last, verdict in ((0.54, HOLDS), (0.5499, FAILS)):
        given = changed(put("adaptive-margins", "a", ADAPTIVE, 128, MEASURE, "last", last))
        assert verdicts_on(given)["adaptive targets decline"].verdict == verdict


def test_what_the_settings_leave_out_is_open() -> None:
    given = as_the_paper()
    of_one_size = {128: given["distributed-margins"]["a"][DISTRIBUTED][128]}
    given = changed(
        put("distributed-margins", "a", DISTRIBUTED, of_one_size),
        put("static-margins", "b", "with_in_batch", "untuned", None),
    )
    assert list(not_checked(given)) == [
        "tuning the margin pays",
        "tuning the margin pays much",
        "smaller batches converge sooner",
        "batch size hardly matters",
        "larger batches are slightly better",
    ]


def test_backbones_that_one_of_two_experiments_lacks_are_not_compared() -> None:
    for experiment in ("adaptive-margins", "distributed-margins"):
        given = as_the_paper()
        del given[experiment]["b"]
        verdict = verdicts_on(given)["distributed targets converge sooner"]
        assert (verdict.verdict, verdict.evidence) == (HOLDS, "a: after 30%, adaptive 50%")


def test_a_few_batches_have_no_beginning_and_end() -> None:
    assert list(not_checked(changed(put("target-evolution", "a", "batches", 63)))) == [
        "targets settle at one half",
        "targets settle rapidly",
        "outliers are positive",
        "backbones end alike",
    ]


def test_what_a_sweep_costs_is_said_beside_the_verdict() -> None:
    """A plan with a long sweep makes the claim hold whatever the targets do."""
    given = changed(put_in_variants("a", STATIC, "sweep_seconds", 1300.0))
    run = given["variants"].own["a"].rows[DISTRIBUTED].run_seconds
    evidence = verdicts_on(given)["tuned static costs three times as much"].evidence
    assert evidence.endswith(f"as so many whole distributed runs: a: {1300 / run:.1f}; b: 0.0)")


def test_a_run_that_training_did_not_improve_says_nothing_about_data() -> None:
    given = changed(put_in_variants("a", ADAPTIVE, "triplets", 0), put_in_baselines("a", DISTRIBUTED, "triplets", 0))
    assert {"in batch information saves data", "an eighth of the data is enough"} <= set(not_checked(given))


def test_nor_does_it_say_anything_about_tuning() -> None:
    before = not_checked(as_the_paper())
    open_ones = not_checked(
        changed(
            put_in_baselines("a", UNTUNED, "triplets", 0),
            put("zero-shot", "a", "rows", UNTUNED_IN_BATCH_ROW, "triplets", 0),
        )
    )
    assert set(open_ones) - set(before) == {"tuning raises recall more than ndcg", "tuning helps elsewhere"}
    assert "a, static untuned, in-batch: no validation was better" in open_ones["tuning helps elsewhere"]


def test_teachers_who_taught_nothing_are_not_what_the_paper_compares_with() -> None:
    before = not_checked(as_the_paper())
    open_ones = not_checked(changed(put_in_baselines("a", TAS_B, "triplets", 0)))
    assert set(open_ones) - set(before) == {
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
def test_other_findings_flip_the_verdict_and_only_where_they_matter(name: str) -> None:
    by_name = verdicts_on(changed(CONTRARY[name]))
    assert by_name[name].verdict == FAILS
    assert sum(verdict.verdict == FAILS for verdict in by_name.values()) <= 4


def test_without_findings_nothing_is_said() -> None:
    nothing = check_claims(Findings())
    assert {v.verdict for v in nothing} == {OPEN}
    assert {v.evidence for v in nothing} == {f"there is no {name}" for name in as_the_paper()}
    assert as_the_paper().keys() <= EXPERIMENTS.keys()
    one = {
        name: {"a": given["a"]} if isinstance(given, Mapping) else replace(given, own={"a": given.own["a"]})
        for name, given in as_the_paper().items()
    }
    assert {name for name, given in one.items() if isinstance(given, ByTest)} == {"variants", "baselines"}
    assert list(not_checked(one)) == [
        "the margin depends on the model",
        "backbones end alike",
        "the backbone does not matter",
        "backbones rank targets alike",
    ]


def test_the_table_has_every_verdict_with_its_evidence() -> None:
    section = claims(Findings(as_the_paper()))
    rows = section.tables[0].blocks[0].rows
    assert len(rows) == len(CLAIMS)
    assert all(row[3].text for row in rows)
    every = len(CLAIMS)
    assert section.summary[0].startswith(f"Of {every} claims of the paper, these experiments confirm {every} ")


def test_on_the_screen_open_ones_are_left_out() -> None:
    given = as_the_paper()
    del given["memory"]
    (table,) = claims(Findings(given)).tables
    texts = [row[0].text for row in checked_only(table).blocks[0].rows]
    assert texts == [claim.text for claim in CLAIMS if claim.name != "half the memory"]


def test_claims_and_tables_call_rows_by_the_same_names(study_folder: Path) -> None:
    """Else a verdict would be open for ever."""
    computed = verdicts(Results.open(study_folder, say=silent))
    assert [v.claim for v in computed] == CLAIMS
    assert not [v.claim.name for v in computed if "there is no" in v.evidence or "no backbone has" in v.evidence]
