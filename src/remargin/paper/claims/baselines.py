"""What the paper claims about its table 4, self-distillation beside teachers: sections 5.5, 1 and 5.6."""

from __future__ import annotations

from collections.abc import Mapping

from remargin.paper.baselines import EXPERIMENT, BaselineTable
from remargin.paper.claims.claim import Answer, Claims, NotChecked, each
from remargin.paper.findings import Findings
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, UNTUNED
from remargin.study.results import MEASURE, RECALL
from remargin.study.systems import STATIC, System

Tables = Mapping[str, BaselineTable]  # by backbone, on every test collection

CLAIMS = Claims()
PAPERS_SHARE = 0.136  # 1.98 of 14.6 million triplets, which the paper calls 13.5%
ROUNDING = 1e-9
SELF_DISTILLED = (ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED)


def _taught(findings: Findings) -> Tables:
    """Table 4, where a teacher taught anything: the best TAS-B run is not the model before training."""
    tables = findings[EXPERIMENT].labelled()
    for model, table in tables.items():
        if not table.rows[table.reference].triplets:
            raise NotChecked(f"{model}: the best TAS-B run is the model before training")
    return tables


def _require_learned(model: str, table: BaselineTable, system: System) -> None:
    """See that a row is not the model before training."""
    if not table.rows[system].triplets:
        raise NotChecked(f"{model}, {system.name}: no validation was better than that before training")


def _mean(table: BaselineTable, system: System, measure: str) -> float:
    return table.rows[system].scores[measure].mean


def _is_as_good(table: BaselineTable, system: System, measure: str) -> bool:
    """Whether a row is equivalent to the best TAS-B run, or ahead."""
    ahead = _mean(table, system, measure) > _mean(table, table.reference, measure)
    return table.rows[system].scores[measure].equivalent or ahead


def _discerning(tables: Tables, measure: str) -> Tables:
    """The same, if the measure tells a trained model from BM25: where even that is equivalent, all are."""
    for model, table in tables.items():
        if table.bm25[measure].equivalent:
            raise NotChecked(f"{model}: even BM25 is equivalent in {measure}")
    return tables


def _beside_teachers(table: BaselineTable, system: System, measure: str) -> str:
    reference, best = table.reference, table.best_teacher
    text = f"{_mean(table, system, measure):.3f}, {reference.name} {_mean(table, reference, measure):.3f}"
    if best == reference:
        return text
    return f"{text} (of all runs with a teacher {best.name} {_mean(table, best, measure):.3f})"


def _matches(tables: Tables, system: System, measure: str) -> Answer:
    holds = all(_is_as_good(table, system, measure) for table in tables.values())
    return holds, each(tables, lambda table: _beside_teachers(table, system, measure))


def _is_close(tables: Tables, system: System, measure: str, gap: float) -> Answer:
    """Whether a row is at most this gap behind the best run with a teacher."""
    gaps = [_mean(table, table.best_teacher, measure) - _mean(table, system, measure) for table in tables.values()]
    return max(gaps) <= gap + ROUNDING, each(tables, lambda table: _beside_teachers(table, system, measure))


@CLAIMS.add("5.5")
def self_distillation_matches_teachers(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent in nDCG@10 to the best TAS-B run, or ahead."""
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
    ahead.
    """
    return _matches(_discerning(_taught(findings), RECALL), ADAPTIVE_IN_BATCH, RECALL)


@CLAIMS.add("5.5")
def adaptive_in_batch_is_close_to_teachers_in_recall(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives are at most 0.06 R@1000 behind the best run with a teacher."""
    return _is_close(_discerning(_taught(findings), RECALL), ADAPTIVE_IN_BATCH, RECALL, 0.06)


@CLAIMS.add("5.5")
def tuning_raises_recall_more_than_ndcg(findings: Findings) -> Answer:
    """Tuning the static margin raises R@1000 by more than nDCG@10, against 1.0."""
    tables = findings[EXPERIMENT].labelled()
    for model, table in tables.items():
        _require_learned(model, table, UNTUNED)
    gains = {
        model: {
            measure: _mean(table, STATIC, measure) - _mean(table, UNTUNED, measure) for measure in (RECALL, MEASURE)
        }
        for model, table in tables.items()
    }
    return all(gain[RECALL] > gain[MEASURE] and gain[RECALL] > 0 for gain in gains.values()), each(
        gains, lambda gain: ", ".join(f"{value:+.3f} {measure}" for measure, value in gain.items())
    )


def _data_shares(tables: Tables) -> dict[str, dict[System, float]]:
    """What share of the triplets of the best TAS-B run the self-distilled ones needed."""
    shares: dict[str, dict[System, float]] = {}
    for model, table in tables.items():
        for system in SELF_DISTILLED:
            _require_learned(model, table, system)
        reference = table.rows[table.reference].triplets
        shares[model] = {system: table.rows[system].triplets / reference for system in SELF_DISTILLED}
    return shares


@CLAIMS.add("1")
def an_eighth_of_the_data_is_enough(findings: Findings) -> Answer:
    """Self-distillation matches teachers with 13.5% of the data: some self-distilled row that is equivalent in nDCG@10
    or R@1000 (unless even BM25 is) to the best TAS-B run, or ahead, needs at most that share of its triplets.
    """
    tables = _taught(findings)
    holds, texts = [], {}
    for model, shares in _data_shares(tables).items():
        table = tables[model]
        measures = [measure for measure in (MEASURE, RECALL) if not table.bm25[measure].equivalent]
        if not measures:
            raise NotChecked(f"{model}: even BM25 is equivalent in both measures")
        as_good = {system: [m for m in measures if _is_as_good(table, system, m)] for system in shares}
        holds.append(any(share <= PAPERS_SHARE and as_good[system] for system, share in shares.items()))
        texts[model] = [
            f"{system.name} {share:.0%}, as good in {' and '.join(as_good[system]) or 'no measure'}"
            for system, share in shares.items()
        ]
    return all(holds), each(texts, "; ".join)


def _shares_text(shares: Mapping[System, float]) -> str:
    return ", ".join(f"{system.name} {share:.0%}" for system, share in shares.items())


@CLAIMS.add("5.5")
def distributed_needs_half_of_the_data_of_teachers(findings: Findings) -> Answer:
    """Distributed targets need at most half of the triplets of the best TAS-B run."""
    shares = _data_shares(_taught(findings))
    return all(by_system[DISTRIBUTED] <= 1 / 2 for by_system in shares.values()), each(shares, _shares_text)


@CLAIMS.add("5.5")
def adaptive_needs_a_seventh_of_the_data_of_teachers(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives need at most a seventh of the triplets of the best TAS-B run."""
    shares = _data_shares(_taught(findings))
    return all(by_system[ADAPTIVE_IN_BATCH] <= 1 / 7 for by_system in shares.values()), each(shares, _shares_text)


@CLAIMS.add("5.6")
def in_domain_teachers_are_behind(findings: Findings) -> Answer:
    """In-domain, distributed and tuned static targets are ahead of TAS-B."""
    means = {
        model: tuple(_mean(table, system, MEASURE) for system in (DISTRIBUTED, STATIC, table.reference))
        for model, table in _taught(findings).items()
    }
    return all(min(ours) > teacher for *ours, teacher in means.values()), each(
        means, lambda values: "distributed {:.3f}, static {:.3f}, TAS-B {:.3f}".format(*values)
    )
