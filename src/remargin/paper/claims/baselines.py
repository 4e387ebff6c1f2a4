"""What the paper claims about its table 4, self-distillation beside teachers: sections 5.5, 1 and 5.6."""

from __future__ import annotations

from collections.abc import Mapping

from remargin.paper.baselines import EXPERIMENT, BaselineTable
from remargin.paper.claims.claim import Claims, NotTold, fixed, listed
from remargin.paper.compared import BOUND
from remargin.paper.deciding import FROM_MEANS, Answer, Gap, differences, every, gap_of, in_resamples, some
from remargin.paper.dev_curves import triplets_to_best
from remargin.paper.findings import Findings
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, UNTUNED
from remargin.study.results import MEASURE, RECALL
from remargin.study.systems import STATIC, System

Tables = Mapping[str, BaselineTable]  # by backbone, on every test collection

CLAIMS = Claims()
PAPERS_SHARE = 0.136  # 1.98 of 14.6 million triplets, which the paper calls 13.5%
SELF_DISTILLED = (ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED)


def _taught(findings: Findings) -> Tables:
    """Table 4, where a teacher taught anything: the best TAS-B run is not the model before training."""
    tables = findings[EXPERIMENT].labelled()
    for model, table in tables.items():
        if not table.rows[table.reference].triplets:
            raise NotTold(f"{model}: the best TAS-B run is the model before training")
    return tables


def _require_learned(model: str, table: BaselineTable, system: System) -> None:
    """See that a row is not the model before training."""
    if not table.rows[system].triplets:
        raise NotTold(f"{model}, {system.name}: no validation was better than that before training")


def _gap(table: BaselineTable, system: System, other: System, measure: str) -> Gap:
    return gap_of((table.rows[system].scores[measure].per_seed, table.rows[other].scores[measure].per_seed))


def _above(table: BaselineTable, system: System, other: System, measure: str, bound: float = 0.0) -> Answer:
    """Whether a row is above another by more than a bound, or, with a bound below 0, not so far behind."""
    means = {row.name: table.rows[row].scores[measure].mean for row in (system, other)}
    return _gap(table, system, other, measure).above(bound).after(listed(means))


def _is_as_good(table: BaselineTable, system: System, measure: str) -> Answer:
    """Whether a row is equivalent to the best TAS-B run, or ahead: not behind by 0.05."""
    return _above(table, system, table.reference, measure, -BOUND)


def _bm25_is_equivalent(table: BaselineTable, measure: str) -> bool:
    """Whether a measure cannot even tell BM25 from the best TAS-B run: then all rows are equivalent."""
    gap = gap_of((table.bm25[measure].per_seed, table.rows[table.reference].scores[measure].per_seed))
    return bool(gap.within(BOUND).told)


def _discerning(tables: Tables, measure: str) -> Tables:
    """The same, if the measure tells a trained model from BM25."""
    for model, table in tables.items():
        if _bm25_is_equivalent(table, measure):
            raise NotTold(f"{model}: even BM25 is equivalent in {measure}")
    return tables


def _matches(tables: Tables, system: System, measure: str) -> Answer:
    return every({name: _is_as_good(table, system, measure) for name, table in tables.items()})


def _is_close(tables: Tables, system: System, measure: str, gap: float) -> Answer:
    """Whether a row is at most this gap behind the best run with a teacher."""
    return every({name: _above(table, system, table.best_teacher, measure, -gap) for name, table in tables.items()})


@CLAIMS.add("5.5")
def self_distillation_matches_teachers(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent in nDCG@10 to the best TAS-B run, or ahead (less than 0.05
    behind).
    """
    return _matches(_taught(findings), DISTRIBUTED, MEASURE)


@CLAIMS.add("5.5")
def self_distillation_is_close_to_teachers(findings: Findings) -> Answer:
    """Distributed targets are at most 0.07 nDCG@10 behind the best run with a teacher."""
    return _is_close(_taught(findings), DISTRIBUTED, MEASURE, 0.07)


@CLAIMS.add("5.5")
def tuned_static_matches_teachers(findings: Findings) -> Answer:
    """Tuned static targets are equivalent to it or ahead, too: a teacher is hardly worth its price in nDCG@10."""
    return _matches(_taught(findings), STATIC, MEASURE)


@CLAIMS.add("5.5")
def adaptive_in_batch_matches_teachers_in_recall(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives are statistically equivalent in R@1000 to the best TAS-B run, or
    ahead (less than 0.05 behind).
    """
    return _matches(_discerning(_taught(findings), RECALL), ADAPTIVE_IN_BATCH, RECALL)


@CLAIMS.add("5.5")
def adaptive_in_batch_is_close_to_teachers_in_recall(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives are at most 0.06 R@1000 behind the best run with a teacher."""
    return _is_close(_discerning(_taught(findings), RECALL), ADAPTIVE_IN_BATCH, RECALL, 0.06)


@CLAIMS.add("5.5")
def tuning_raises_recall_more_than_ndcg(findings: Findings) -> Answer:
    """Tuning the static margin raises R@1000 by more than nDCG@10, against 1.0."""

    def more(table: BaselineTable) -> Answer:
        gains = {measure: _gap(table, STATIC, UNTUNED, measure).above() for measure in (RECALL, MEASURE)}
        # Of each query what recall gains and nDCG does not: both rows' differences between the two measures.
        between = [
            [
                differences(recall, ndcg)
                for recall, ndcg in zip(scores[RECALL].per_seed, scores[MEASURE].per_seed, strict=True)
            ]
            for scores in (table.rows[STATIC].scores, table.rows[UNTUNED].scores)
        ]
        more = gap_of((between[0], between[1])).above().after(f"{MEASURE} {gains[MEASURE].evidence}")
        return every({RECALL: gains[RECALL], "more than nDCG@10": more})

    tables = findings[EXPERIMENT].labelled()
    for model, table in tables.items():
        _require_learned(model, table, UNTUNED)
    return every({name: more(table) for name, table in tables.items()})


def _unless_fixed(answer: Answer, table: BaselineTable, share: float) -> Answer:
    """An answer on a share of the triplets of the best TAS-B run, unless the first validation comes later than that."""
    first = table.rows[DISTRIBUTED].curves[0].triplets[0] / table.rows[table.reference].triplets
    return fixed(answer, f"the first validation is after {first:.0%}") if first > share else answer


def _needs(name: str, table: BaselineTable, system: System, share: float) -> Answer:
    """Whether a row needs at most a share of the triplets of the best TAS-B run."""
    _require_learned(name, table, system)
    row, reference = table.rows[system], table.rows[table.reference]
    words = f"{row.triplets / reference.triplets:.0%}"
    ours, theirs = (triplets_to_best(of.curves) for of in (row, reference))
    if ours is None or theirs is None:
        return Answer(None, f"{words}, {FROM_MEANS}")
    return in_resamples(ours <= share * theirs, len(row.curves[0].queries)).after(words)


def _all_need(findings: Findings, system: System, share: float) -> Answer:
    tables = _taught(findings)
    return every({name: _unless_fixed(_needs(name, t, system, share), t, share) for name, t in tables.items()})


@CLAIMS.add("1")
def an_eighth_of_the_data_is_enough(findings: Findings) -> Answer:
    """Self-distillation matches teachers with 13.5% of the data: some self-distilled row that is equivalent in nDCG@10
    or R@1000 (unless even BM25 is) to the best TAS-B run, or ahead, needs at most that share of its triplets.
    """

    def enough(name: str, table: BaselineTable) -> Answer:
        measures = [measure for measure in (MEASURE, RECALL) if not _bm25_is_equivalent(table, measure)]
        if not measures:
            raise NotTold(f"{name}: even BM25 is equivalent in both measures")
        rows = {}
        for system in SELF_DISTILLED:
            as_good = some({measure: _is_as_good(table, system, measure) for measure in measures})
            rows[system.name] = every({"data": _needs(name, table, system, PAPERS_SHARE), "as good": as_good})
        return _unless_fixed(some(rows), table, PAPERS_SHARE)

    return every({name: enough(name, table) for name, table in _taught(findings).items()})


@CLAIMS.add("5.5")
def distributed_needs_half_of_the_data_of_teachers(findings: Findings) -> Answer:
    """Distributed targets need at most half of the triplets of the best TAS-B run."""
    return _all_need(findings, DISTRIBUTED, 1 / 2)


@CLAIMS.add("5.5")
def adaptive_needs_a_seventh_of_the_data_of_teachers(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives need at most a seventh of the triplets of the best TAS-B run."""
    return _all_need(findings, ADAPTIVE_IN_BATCH, 1 / 7)


@CLAIMS.add("5.6")
def in_domain_teachers_are_behind(findings: Findings) -> Answer:
    """In-domain, distributed and tuned static targets are ahead of TAS-B."""
    return every(
        {
            f"{name}, {system.name}": _above(table, system, table.reference, MEASURE)
            for name, table in _taught(findings).items()
            for system in (DISTRIBUTED, STATIC)
        }
    )
