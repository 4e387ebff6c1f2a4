"""The two regimes in which the paper is repeated, and the page that shows both side by side.

In the shared regime, tables and figures share their training runs, which a budget scales down. The paper's has those of
the paper: sweeps and curves at a constant rate, tables with a rate that decays; on 1 million triplets instead of an
epoch of MS MARCO. Each is a study of its own, the paper's in a folder within the other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.paper.claims.table import HEADER
from remargin.paper.experiments import CLAIMS
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table
from remargin.study.header import PAPERS_STUDY
from remargin.study.plan import PAPERS, REGIMES, SHARED, Plan, shown

# What a study in the paper's regime has unless it is told otherwise. The paper's learning rate, 5e-6 / B, is for 40
# times as many triplets, so dev chooses one.
PAPERS_PLAN: dict[str, Any] = {
    "regime": PAPERS,
    "triplets": 1_000_000,
    "sweep_triplets": 250_000,
    "rates": (1e-5, 3e-5, 1e-4),
    "rate_extensions": 2,
    "seeds": (0, 1, 2),
}
TITLES = {SHARED: "the shared regime", PAPERS: "the paper's regime"}
ONCE = "loss-geometry"  # needs no training


def plan_of(regime: str, settings: Mapping[str, Any]) -> Plan:
    """The plan of a regime, with some fields set.

    >>> plan_of("paper", {"seeds": [0]}).triplets, plan_of("shared", {}) == Plan()
    (1000000, True)
    """
    return Plan.of({**(PAPERS_PLAN if regime == PAPERS else {}), **settings})


def study_folder(out: Path, regime: str) -> Path:
    """The folder of a regime's study.

    >>> study_folder(Path("study"), "shared").name, study_folder(Path("study"), "paper").parent.name
    ('study', 'study')
    """
    if regime not in REGIMES:
        raise InputError(f"unknown regime {regime!r}", do=f"use {', '.join(REGIMES)}")
    return out / PAPERS_STUDY if regime == PAPERS else out


def titled(section: Section, plan: Plan) -> Section:
    """A section with the paper's regime in its title, if its study is in that.

    >>> titled(Section("variants", "Variants"), Plan(regime="paper")).title
    "Variants, the paper's regime"
    """
    if plan.regime == SHARED or section.name == ONCE:
        return section
    return replace(section, title=f"{section.title}, {TITLES[plan.regime]}")


def side_by_side(by_regime: Mapping[str, Mapping[str, Section]], plans: Mapping[str, Plan]) -> list[Section]:
    """The sections of both regimes, each beside its other, after a comparison of the two.

    Args:
        by_regime: the sections by regime and name, in the order of the page.
        plans: of the studies, by regime.
    """
    shared, papers = by_regime.get(SHARED, {}), by_regime.get(PAPERS, {})
    if not shared or not papers:
        return list((shared or papers).values())
    names = dict.fromkeys([*(name for name in shared if name != CLAIMS), *papers, CLAIMS])
    paired = [
        of_regime[name]
        for name in names
        for of_regime in (shared, papers)
        if name in of_regime and not (name == ONCE and name in shared and of_regime is papers)
    ]
    return [_compared(shared, papers, plans), *paired]


def _compared(shared: Mapping[str, Section], papers: Mapping[str, Section], plans: Mapping[str, Plan]) -> Section:
    """The verdicts and the plans of both regimes."""
    tables, summary = [], []
    if CLAIMS in shared and CLAIMS in papers:
        tables.append(_verdicts(shared[CLAIMS], papers[CLAIMS]))
        summary.append(f"{_capital(TITLES[SHARED])}: {shared[CLAIMS].summary[0]}")
        summary.append(f"{_capital(TITLES[PAPERS])}: {papers[CLAIMS].summary[0]}")
    if len(plans) == len(REGIMES):
        tables.append(_plans(plans[SHARED], plans[PAPERS]))
    return Section("regimes", "Both regimes", summary, tables)


def _verdicts(shared: Section, papers: Section) -> Table:
    """The verdicts of both regimes on each claim."""
    verdict = HEADER.index("here")
    ours, theirs = ({row[0].text: row for table in of.tables for block in table.blocks for row in block.rows}
                    for of in (shared, papers))  # fmt: skip
    rows = [[*row[:verdict], row[verdict], theirs[claim][verdict]] for claim, row in ours.items() if claim in theirs]
    return Table("The paper's claims in both regimes", [*HEADER[:verdict], *TITLES.values()], [Block("", rows)])


def _plans(shared: Plan, papers: Plan) -> Table:
    """What differs between two plans."""
    names = [field.name for field in fields(Plan) if field.name != "regime"]
    rows = [
        [Cell(name.replace("_", " ")), *(Cell(shown(getattr(plan, name))) for plan in (shared, papers))]
        for name in names
        if getattr(shared, name) != getattr(papers, name)
    ]
    note = (
        f"In {TITLES[PAPERS]}, sweeps (figure 3) and curves (figures 4 to 6) are training runs of their own, at a "
        f"constant learning rate and never stopped early; curves are validated every {papers.curve_validate_every:,} "
        "triplets."
    )
    return Table("What is trained in both regimes", ["setting", *TITLES.values()], [Block("", rows)], [note])


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
