"""What the paper claims about its table 5, other collections than that of training: section 5.6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from remargin.paper.claims.claim import Claims, NotTold, listed
from remargin.paper.deciding import Answer, Gap, every, gap_of
from remargin.paper.findings import Findings
from remargin.paper.published import published_zero_shot
from remargin.paper.zero_shot import (
    ADAPTIVE_IN_BATCH_ROW,
    ADAPTIVE_ROW,
    EARLY_STOPPING_ROW,
    EXPERIMENT,
    TO_THE_END_ROW,
    TUNED_IN_BATCH_ROW,
    TUNED_ROW,
    UNTUNED_IN_BATCH_ROW,
    UNTUNED_ROW,
    ZeroShotRow,
    ZeroShotSystem,
    ZeroShotTable,
)

CLAIMS = Claims()
Pair = tuple[ZeroShotSystem, ZeroShotSystem]
FEWEST_COLUMNS = 10  # of the 14 on which the paper compares with published systems, by their means alone


def _elsewhere(one: ZeroShotRow, other: ZeroShotRow) -> Gap:
    """The difference on average over the other collections, whose queries are drawn within each."""
    return gap_of(*(([one.per_query[column]], [other.per_query[column]]) for column in one.per_query))


def _in_domain(one: ZeroShotRow, other: ZeroShotRow) -> Gap:
    return gap_of(([one.own], [other.own]))


def _ahead_elsewhere(findings: Findings, pairs: Iterable[Pair]) -> Answer:
    """Whether the first row of each pair is ahead on the other collections, with every backbone."""
    answers = {}
    for model, table in findings[EXPERIMENT].items():
        for one, other in pairs:
            rows = table.rows[one], table.rows[other]
            words = f"{rows[0].mean:.3f} and {rows[1].mean:.3f}"
            answers[f"{model}, {one.name} and {other.name}"] = _elsewhere(*rows).above().after(words)
    return every(answers)


@CLAIMS.add("5.6")
def in_domain_adaptive_is_slightly_worse(findings: Findings) -> Answer:
    """In-domain, adaptive targets are behind distributed and tuned static ones, without and with in-batch negatives."""
    answers = {}
    for model, table in findings[EXPERIMENT].items():
        for ours in (EARLY_STOPPING_ROW, TUNED_ROW):
            for other in (ADAPTIVE_IN_BATCH_ROW, ADAPTIVE_ROW):
                rows = table.rows[ours], table.rows[other]
                words = f"{rows[0].in_domain:.3f} and {rows[1].in_domain:.3f}"
                answers[f"{model}, {ours.name} and {other.name}"] = _in_domain(*rows).above().after(words)
    return every(answers)


@CLAIMS.add("5.6")
def early_stopping_helps_elsewhere(findings: Findings) -> Answer:
    """Early stopping raises the zero-shot mean of distributed targets."""
    return _ahead_elsewhere(findings, [(EARLY_STOPPING_ROW, TO_THE_END_ROW)])


@CLAIMS.add("5.6")
def early_stopping_costs_nothing_in_domain(findings: Findings) -> Answer:
    """In-domain, early stopping costs distributed targets nothing (0.01 at most)."""

    def costs_nothing(table: ZeroShotTable) -> Answer:
        with_, without = table.rows[EARLY_STOPPING_ROW], table.rows[TO_THE_END_ROW]
        words = f"{with_.in_domain:.3f} with, {without.in_domain:.3f} without"
        return _in_domain(with_, without).above(-0.01).after(words)

    return every({model: costs_nothing(table) for model, table in findings[EXPERIMENT].items()})


@CLAIMS.add("5.6")
def tuning_helps_elsewhere(findings: Findings) -> Answer:
    """A tuned static margin is better than 1.0 zero-shot, without and with in-batch negatives."""
    pairs = ((TUNED_ROW, UNTUNED_ROW), (TUNED_IN_BATCH_ROW, UNTUNED_IN_BATCH_ROW))
    for model, table in findings[EXPERIMENT].items():
        for system in (system for pair in pairs for system in pair):
            if not table.rows[system].triplets:
                raise NotTold(f"{model}, {system.name}: no validation was better than that before training")
    return _ahead_elsewhere(findings, pairs)


@CLAIMS.add("5.6")
def adaptive_without_in_batch_is_last_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed and tuned static targets are ahead of adaptive ones, which without in-batch negatives are
    last.
    """
    last = [(EARLY_STOPPING_ROW, ADAPTIVE_IN_BATCH_ROW), (TUNED_ROW, ADAPTIVE_IN_BATCH_ROW)]
    return _ahead_elsewhere(findings, [*last, (ADAPTIVE_IN_BATCH_ROW, ADAPTIVE_ROW)])


@CLAIMS.add("5.6")
def distributed_is_ahead_of_adaptive_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed targets are ahead of adaptive ones, without and with in-batch negatives."""
    others = (ADAPTIVE_ROW, ADAPTIVE_IN_BATCH_ROW)
    return _ahead_elsewhere(findings, [(EARLY_STOPPING_ROW, other) for other in others])


def _published(findings: Findings, system: str) -> dict[str, Gap]:
    """Distributed targets minus a published system, over the collections that both have: their means are all there is,
    so that collections are drawn, not queries.
    """
    (cells,) = (row.cells for row in published_zero_shot() if row.system == system)
    gaps = {}
    for model, table in findings[EXPERIMENT].items():
        ours = table.rows[EARLY_STOPPING_ROW].columns
        shared = [column for column in ours if column in cells]
        if len(shared) < FEWEST_COLUMNS:
            have = ", ".join(shared) or "none"
            raise NotTold(f"{system} is published on {len(shared)} of these collections ({have}); "
                          f"{FEWEST_COLUMNS} are needed")  # fmt: skip
        both = [{column: values[column] for column in shared} for values in (ours, cells)]
        gaps[model] = gap_of(([both[0]], [both[1]]), fewest=FEWEST_COLUMNS)
    return gaps


@CLAIMS.add("5.6")
def distributed_is_close_to_tas_b_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed targets are at most 0.09 behind TAS-B on average: as trained here where it is, else as
    published.
    """
    tables = findings[EXPERIMENT]
    trained = {
        f"{model}, to {name.name}": _elsewhere(table.rows[EARLY_STOPPING_ROW], table.rows[name])
        for model, table in tables.items()
        if (name := _best_tas_b(table)) is not None
    }
    return every({name: gap.above(-0.09) for name, gap in (trained or _published(findings, "TAS-B")).items()})


def _best_tas_b(table: ZeroShotTable) -> ZeroShotSystem | None:
    """The TAS-B row with the highest mean, if any was trained here."""
    rows = [row for row in table.rows if row.name.startswith("TAS-B")]
    return max(rows, key=lambda row: table.rows[row].mean, default=None)


@CLAIMS.add("5.6")
def distributed_is_ahead_of_dpr_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed targets are ahead of DPR, as published."""
    return every({model: gap.above() for model, gap in _published(findings, "DPR").items()})


@CLAIMS.add("5.6")
def distributed_is_near_ance_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed targets are near ANCE, as published (at most 0.09 behind on average)."""
    return every({model: gap.above(-0.09) for model, gap in _published(findings, "ANCE").items()})


@CLAIMS.add("5.6")
def mpnet_gains_elsewhere(findings: Findings) -> Answer:
    """With MPNet in place of distilBERT, the zero-shot mean of distributed targets rises by about 0.05 (0.02 to
    0.08).
    """
    tables = findings[EXPERIMENT]
    mpnet, distilbert = (_backbone(tables, name) for name in ("MPNet", "distilBERT"))
    rows = [tables[model].rows[EARLY_STOPPING_ROW] for model in (mpnet, distilbert)]
    gap = _elsewhere(*rows)
    return every({"at least 0.02": gap.above(0.02), "at most 0.08": gap.below(0.08)}).after(
        listed({mpnet: fmean(rows[0].columns.values()), distilbert: fmean(rows[1].columns.values())})
    )


def _backbone(tables: Mapping[str, ZeroShotTable], family: str) -> str:
    """The backbone of a family, by its name in the study."""
    for model in tables:
        if family.lower() in model.lower():
            return model
    raise NotTold(f"no backbone is called {family}")
