"""Verdicts are computed: findings that say otherwise flip them, and noise does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin.paper.claims.claim import FEWEST_TRIPLETS
from remargin.paper.claims.table import CLAIMS, check_claims, claims, told_only
from remargin.paper.deciding import FAILS, HOLDS, OPEN
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.findings import ByTest, Findings
from remargin.paper.running import verdicts
from remargin.paper.systems import ADAPTIVE, DISTRIBUTED, PAPER, UNTUNED
from remargin.paper.variants import VariantRow
from remargin.paper.zero_shot import EARLY_STOPPING_ROW, UNTUNED_IN_BATCH_ROW, ZeroShotSystem
from remargin.study.results import MEASURE, RECALL, Results
from remargin.study.systems import STATIC

from ...small_study import silent
from .claimed import (
    TAS_B,
    as_the_paper,
    changed,
    dev,
    elsewhere,
    not_told,
    per_query,
    put,
    put_in_baselines,
    put_in_variants,
    score,
    scores,
    variant,
    verdicts_on,
    zero_shot,
)
from .contrary import CONTRARY, NOT_SAMPLED, WITHIN_NOISE, in_baselines, in_distributed, in_variants

BY_NAME = {claim.name: claim for claim in CLAIMS}


def test_there_are_all_claims_and_each_can_fail() -> None:
    assert BY_NAME.keys() == CONTRARY.keys()
    assert len(CLAIMS) == len(BY_NAME) >= 60
    assert all(claim.text.endswith(".") for claim in CLAIMS)


def test_on_findings_as_the_paper_describes_them_every_claim_holds() -> None:
    assert {name: v.verdict for name, v in verdicts_on(as_the_paper()).items()} == dict.fromkeys(CONTRARY, HOLDS)


@pytest.mark.parametrize("name", CONTRARY)
def test_other_findings_flip_the_verdict_and_only_where_they_matter(name: str) -> None:
    by_name = verdicts_on(changed(CONTRARY[name]))
    assert by_name[name].verdict == FAILS
    assert sum(verdict.verdict == FAILS for verdict in by_name.values()) <= 4


@pytest.mark.parametrize("name", [name for name in CONTRARY if name not in NOT_SAMPLED])
def test_findings_that_differ_within_noise_decide_nothing(name: str) -> None:
    verdict = BY_NAME[name].verdict(Findings(changed(WITHIN_NOISE[name])))
    assert verdict.verdict == OPEN


def test_evidence_has_the_difference_its_interval_and_what_decided() -> None:
    by_name = verdicts_on(as_the_paper())
    assert by_name["early stopping helps elsewhere"].evidence.startswith(
        "distilBERT, distributed, early stopping and distributed, to the end: 0.398 and 0.360; +0.038 (+0.03"
    )
    assert ", above 0 by bootstrap; MPNet" in by_name["early stopping helps elsewhere"].evidence
    assert ", within 0.02 by TOST; b: " in by_name["batch size hardly matters"].evidence
    assert "a: after 50%; so in 100% of bootstrap samples" in by_name["adaptive targets peak half way"].evidence


def without_queries(given: Any) -> Any:
    """The same curves as an older study has them: by their means alone."""
    if isinstance(given, ByTest):
        return replace(given, own=without_queries(given.own))
    if isinstance(given, Mapping):
        return {key: without_queries(value) for key, value in given.items()}
    if isinstance(given, tuple):
        return tuple(map(without_queries, given))
    if hasattr(given, "decline"):
        return replace(given, queries=())
    fields = [name for name in ("with_in_batch", "without_in_batch", "points", "by_seed", "curve", "curves", "rows")
              if hasattr(given, name)]  # fmt: skip
    return replace(given, **{name: without_queries(getattr(given, name)) for name in fields}) if fields else given


def test_from_curves_of_means_alone_nothing_is_told() -> None:
    given = as_the_paper()
    names = ("static-margins", "adaptive-margins", "distributed-margins", "variants", "baselines")
    older = {name: without_queries(of) if name in names else of for name, of in given.items()}
    open_ones = not_told(older)
    assert "the explicit mean does not work" not in open_ones
    sections = {BY_NAME[name].where for name in open_ones}
    assert sections == {"5.1", "5.2", "5.3", "5.4", "5.5", "1"}
    assert len(open_ones) == 27
    assert all("from means alone" in evidence for evidence in open_ones.values())


@pytest.mark.parametrize("triplets", [FEWEST_TRIPLETS - 1, FEWEST_TRIPLETS])
def test_short_runs_decide_nothing(triplets: int) -> None:
    found = check_claims(Findings(as_the_paper(), triplets))
    told = [verdict for verdict in found if verdict.verdict != OPEN]
    if triplets == FEWEST_TRIPLETS:
        assert len(told) == len(CLAIMS)
    else:
        assert [verdict.claim.name for verdict in told] == ["half the memory"]
        assert found[0].evidence.startswith("49,999 of 50,000 triplets of a training run; a, without in-batch")


def test_few_queries_and_few_seeds_decide_nothing() -> None:
    row = replace(score(0.64, "few"), per_seed=[per_query(0.64, "few", queries=29)])
    given = changed(*(put_in_baselines("a", s, "scores", MEASURE, row) for s in (DISTRIBUTED, STATIC, TAS_B)))
    evidence = BY_NAME["self distillation matches teachers"].verdict(Findings(given)).evidence
    assert "29 of 30 queries; +0.000" in evidence
    two = [variant(0.65, 0.80, 1200.0, 6000, "static", seeds=2), variant(0.57, 0.79, 800.0, 3000, "in-batch", seeds=2)]
    given = changed(*(put_in_variants("a", s, row) for s, row in zip(PAPER[:2], two, strict=True)))
    verdict = BY_NAME["in batch negatives harm static targets"].verdict(Findings(given))
    assert (verdict.verdict, "2 of 3 seeds; +0.080" in verdict.evidence) == (OPEN, True)


def test_a_sweep_that_alone_costs_as_much_fixes_the_outcome() -> None:
    """A plan with a long sweep makes the claim hold whatever the targets do."""
    given = changed(put_in_variants("a", STATIC, "sweep_seconds", 1300.0))
    open_ones = not_told(given)
    evidence = open_ones["tuned static costs three times as much"]
    assert evidence.startswith("a, distributed: fixed by the set-up: the sweep alone takes 3.2 whole runs; 6.0x (6.0x")
    assert "tuned static costs seven times as much" not in open_ones


def test_a_seed_that_training_did_not_improve_costs_nothing_that_could_be_compared() -> None:
    runs = as_the_paper()["variants"].own["a"].rows[DISTRIBUTED].by_seed
    given = changed(put_in_variants("a", DISTRIBUTED, "by_seed", [replace(runs[0], seconds=0.0), *runs[1:]]))
    why = not_told(given)["tuned static costs three times as much"]
    assert why.startswith("a, distributed: with some seed, no validation was better than that before training; b, dis")


def test_a_first_validation_that_comes_too_late_fixes_the_outcome() -> None:
    late = dev({2100: 0.6, 6000: 0.4}, "late", 10_000)
    given = changed(put_in_baselines("a", DISTRIBUTED, "curves", (late,)))
    open_ones = not_told(given)
    assert set(open_ones) == {
        "an eighth of the data is enough",
        "adaptive needs a seventh of the data of teachers",
    }
    assert all("a: fixed by the set-up: the first validation is after 14%; " in why for why in open_ones.values())


def test_a_tie_does_not_hide_a_contradiction() -> None:
    def in_both(given: Any) -> Any:
        return put("distributed-margins", "b", given["distributed-margins"]["a"])(given)

    tie = in_distributed("a", 64, MEASURE, 0.62, 3)
    name = "smaller batches converge sooner"
    assert verdicts_on(changed(tie))[name].verdict == OPEN
    assert verdicts_on(changed(in_distributed("a", 64, MEASURE, 0.62, 4), in_both, tie))[name].verdict == FAILS


def test_recall_in_which_bm25_is_as_good_saves_no_data() -> None:
    def bm25(*measures: str) -> dict[str, Any]:
        level = {measure: table.rows[TAS_B].scores[measure] for measure in measures}
        return changed(
            in_baselines(DISTRIBUTED, MEASURE, 0.5), put("baselines", "own", "a", "bm25", bm25_scores | level)
        )

    table, bm25_scores = as_the_paper()["baselines"].own["a"], scores(0.50, 0.70, "BM25")
    name = "an eighth of the data is enough"
    assert verdicts_on(bm25(RECALL))[name].verdict == FAILS
    verdict = verdicts_on(bm25(MEASURE, RECALL))[name]
    assert (verdict.verdict, verdict.evidence) == (OPEN, "a: even BM25 is equivalent in both measures")
    assert not_told(bm25(RECALL))["adaptive in batch is close to teachers in recall"].startswith("a: even BM25 is")


def test_where_all_targets_are_equivalent_none_is_often_so() -> None:
    given = changed(*(in_variants("a", target, RECALL, 0.8) for target in PAPER))
    assert not_told(given)["distributed is often equivalent in recall"].startswith(
        "a: all targets are equivalent: stat"
    )


def test_backbones_are_only_compared_where_several_can_be() -> None:
    given = as_the_paper()
    rows = {system: row for system, row in given["variants"].own["b"].rows.items() if system != ADAPTIVE}
    open_ones = not_told(put("variants", "own", "b", "rows", rows)(given))
    for name in ("the backbone does not matter", "backbones rank targets alike"):
        assert open_ones[name] == "needs two backbones"
    given = changed(*(put_in_variants("b", target, "scores", MEASURE, score(0.6, "level")) for target in PAPER))
    assert not_told(given)["backbones rank targets alike"] == "a and b: all targets are level"
    given = as_the_paper()
    given["distributed-margins"] = {"c": given["distributed-margins"]["a"]}
    assert not_told(given)["distributed is the best in batch target"] == "no backbone has both"


def test_further_test_collections_count() -> None:
    other = in_variants("a", ADAPTIVE, MEASURE, 0.7)(as_the_paper())["variants"].own["a"]
    given = changed(put("variants", "further", {"DL20": {"a": other}}))
    verdict = verdicts_on(given)["tuned static is best"]
    assert verdict.verdict == FAILS
    assert "a on DL20: static 0.650" in verdict.evidence


def test_nothing_is_the_best_where_all_are_level() -> None:
    def perfect(row: VariantRow) -> VariantRow:
        one = replace(row.scores[RECALL], mean=1.0, per_seed=[dict.fromkeys(per_query(0, ""), 1.0)] * 3)
        return replace(row, scores={**row.scores, RECALL: one})

    rows = as_the_paper()["variants"].own["b"].rows
    given = changed(*(put_in_variants("b", target, perfect(rows[target])) for target in PAPER))
    assert "+0.000 (+0.000 to +0.000), neither" in not_told(given)["adaptive in batch has the best recall"]


def test_ahead_of_a_teacher_is_as_good_as_one() -> None:
    given = changed(in_baselines(DISTRIBUTED, MEASURE, 0.9))
    assert verdicts_on(given)["self distillation matches teachers"].verdict == HOLDS


BY_TUNING = ("tuning the margin pays", "tuning the margin pays much")
BY_THE_BEST = ("the margin depends on the model", "the margin depends on the measure")


@pytest.mark.parametrize(
    ("kept", "reason", "open_"),
    [
        ((0.1, 0.2, 0.3, 0.4, 0.5), "1.0 is not among the margins", BY_TUNING),
        ((1.0,), "needs two margins", BY_TUNING + BY_THE_BEST),
    ],
)
def test_without_1_0_or_another_margin_tuning_is_not_told(
    kept: tuple[float, ...], reason: str, open_: tuple[str, ...]
) -> None:
    given = as_the_paper()
    for margins in given["static-margins"].values():
        for sweep in margins.by_kind.values():
            for measure, points in sweep.points.items():
                sweep.points[measure] = {margin: points[margin] for margin in kept}
    assert not_told(given) == dict.fromkeys(open_, reason)


def test_what_the_settings_leave_out_is_open() -> None:
    given = as_the_paper()
    of_one_size = {128: given["distributed-margins"]["a"][DISTRIBUTED][128]}
    given = changed(put("distributed-margins", "a", DISTRIBUTED, of_one_size))
    assert not_told(given) == dict.fromkeys(
        (
            "smaller batches converge sooner",
            "batch size hardly matters",
            "larger batches are slightly better",
        ),
        "needs two batch sizes",
    )


def test_backbones_that_one_of_two_experiments_lacks_are_not_compared() -> None:
    for experiment in ("adaptive-margins", "distributed-margins"):
        given = as_the_paper()
        del given[experiment]["b"]
        verdict = verdicts_on(given)["distributed targets converge sooner"]
        assert (verdict.verdict, verdict.evidence) == (
            HOLDS,
            "a: after 3,000 and 5,000 triplets; so in 100% of bootstrap samples",
        )


def test_a_few_batches_have_no_beginning_and_end() -> None:
    assert list(not_told(changed(put("target-evolution", "a", "batches", 63)))) == [
        "targets settle at one half",
        "targets settle rapidly",
        "outliers are positive",
        "backbones end alike",
    ]
    assert list(not_told(changed(put("target-evolution", "b", "early", ())))) == ["targets settle rapidly"]


def test_a_run_that_training_did_not_improve_says_nothing_about_data_or_tuning() -> None:
    given = changed(put_in_variants("a", ADAPTIVE, "triplets", 0), put_in_baselines("a", DISTRIBUTED, "triplets", 0))
    assert {"in batch information saves data", "an eighth of the data is enough"} <= set(not_told(given))
    open_ones = not_told(
        changed(
            put_in_baselines("a", UNTUNED, "triplets", 0),
            put("zero-shot", "distilBERT", "rows", UNTUNED_IN_BATCH_ROW, "triplets", 0),
        )
    )
    assert set(open_ones) == {"tuning raises recall more than ndcg", "tuning helps elsewhere"}
    assert "distilBERT, static untuned, in-batch: no validation was better" in open_ones["tuning helps elsewhere"]


def test_teachers_who_taught_nothing_are_not_what_the_paper_compares_with() -> None:
    open_ones = not_told(changed(put_in_baselines("a", TAS_B, "triplets", 0)))
    assert len(open_ones) == 9
    assert set(open_ones.values()) == {"a: the best TAS-B run is the model before training"}


def test_published_systems_are_only_compared_on_their_collections() -> None:
    def fewer(table: Any) -> Any:
        columns = {name: table.rows[EARLY_STOPPING_ROW].columns[name] for name in ("SCF", "NFC")}
        return put("rows", EARLY_STOPPING_ROW, "columns", columns)(table)

    given = as_the_paper()
    given["zero-shot"] = {model: fewer(table) for model, table in given["zero-shot"].items()}
    open_ones = not_told(given)
    assert open_ones["distributed is ahead of dpr elsewhere"] == (
        "DPR is published on 2 of these collections (SCF, NFC); 10 are needed"
    )
    assert len(open_ones) == 3
    trained = ZeroShotSystem("TAS-B", TAS_B)
    for mean, verdict in ((0.4, HOLDS), (0.5, FAILS)):  # trained here, it takes the place of the published one
        here = {
            model: put("rows", {**table.rows, trained: zero_shot(mean, 0.5, "TAS-B")})(table)
            for model, table in given["zero-shot"].items()
        }
        assert verdicts_on({**given, "zero-shot": here})["distributed is close to tas b elsewhere"].verdict == verdict


def test_mpnet_is_told_beside_distilbert() -> None:
    for backbones, why in (
        ("RoBERTa", "no backbone is called MPNet"),
        ("my-mpnet", "no backbone is called distilBERT"),
    ):
        given = {**as_the_paper(), "zero-shot": {backbones: elsewhere(0.398)}}
        assert not_told(given)["mpnet gains elsewhere"] == why


def test_without_findings_nothing_is_said() -> None:
    nothing = check_claims(Findings())
    assert {v.verdict for v in nothing} == {OPEN}
    assert {v.evidence for v in nothing} == {f"there is no {name}" for name in as_the_paper()}
    assert as_the_paper().keys() <= EXPERIMENTS.keys()


def test_with_one_backbone_all_is_told_but_what_takes_two() -> None:
    one: dict[str, Any] = {}
    for name, given in as_the_paper().items():
        if isinstance(given, ByTest):
            one[name] = replace(given, own={"a": given.own["a"]})
        else:
            one[name] = dict(list(given.items())[:1])
    assert list(not_told(one)) == [
        "the margin depends on the model",
        "backbones end alike",
        "the backbone does not matter",
        "backbones rank targets alike",
        "mpnet gains elsewhere",
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
    texts = [row[0].text for row in told_only(table).blocks[0].rows]
    assert texts == [claim.text for claim in CLAIMS if claim.name != "half the memory"]


def test_claims_and_tables_call_rows_by_the_same_names(study_folder: Path) -> None:
    """Else a verdict would be open for ever."""
    computed = verdicts(Results.open(study_folder, say=silent))
    assert [v.claim for v in computed] == CLAIMS
    assert not [v.claim.name for v in computed if "there is no" in v.evidence or "no backbone has" in v.evidence]
    assert not [v.claim.name for v in computed if "from means alone" in v.evidence]
    assert {v.verdict for v in computed} == {OPEN}  # 64 triplets
