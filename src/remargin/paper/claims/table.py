"""What the paper claims about its results, each as a predicate over findings, with the verdict on the findings here.

A claim is checked as the paper makes it: for all backbones where it says all. The thresholds that words such as "near"
and "about half" stand for are ours, and said in the claim. See `deciding` for what a verdict takes.
"""

from __future__ import annotations

from remargin.paper.claims import baselines, curves, memory, static_margins, targets, variants, zero_shot
from remargin.paper.claims.claim import FEWEST_SEEDS, FEWEST_TRIPLETS, Claim, Verdict
from remargin.paper.deciding import FAILS, FEWEST_QUERIES, HOLDS, OPEN
from remargin.paper.findings import Findings
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table

CLAIMS: list[Claim] = [
    claim
    for section in (static_margins, curves, targets, variants, baselines, zero_shot, memory)
    for claim in section.CLAIMS
]
HEADER = ["claim", "paper", "here", "numbers"]
NOTES = [
    "Differences with 95% intervals by a paired bootstrap over queries, and over seeds where both rows have several; "
    "for TOST with 90% intervals. Where one row has fewer seeds, each query has its mean over those of its row. "
    "Where a row is one training run, its verdict is about that run. Nothing is told from "
    f"fewer than {FEWEST_TRIPLETS:,} triplets a run, {FEWEST_QUERIES} queries, or, in table 3, {FEWEST_SEEDS} seeds; "
    "nor where the set-up fixes the outcome."
]


def check_claims(findings: Findings) -> list[Verdict]:
    """The verdict on each claim.

    >>> from remargin.paper.memory import EIGHT_BIT, FULL, PeakMemory
    >>> verdicts = check_claims(Findings({"memory": {"tiny": PeakMemory("a GPU", {FULL: 100, EIGHT_BIT: 52})}}))
    >>> {v.claim.name: v.verdict for v in verdicts}["half the memory"]
    'holds'
    """
    return [claim.verdict(findings) for claim in CLAIMS]


def claims(findings: Findings) -> Section:
    """The table of verdicts."""
    verdicts = check_claims(findings)
    rows = [[Cell(v.claim.text), Cell(v.claim.where), Cell(v.verdict), Cell(v.evidence)] for v in verdicts]
    counts = {verdict: sum(v.verdict == verdict for v in verdicts) for verdict in (HOLDS, FAILS, OPEN)}
    summary = [
        f"Of {len(verdicts)} claims of the paper, these experiments confirm {counts[HOLDS]} and contradict "
        f"{counts[FAILS]}; {counts[OPEN]} cannot be told from them."
    ]
    table = Table("The paper's claims", HEADER, [Block("", rows)], NOTES)
    return Section("claims", "Claims", summary, [table], [], {}, [])


def told_only(table: Table) -> Table:
    """The table of verdicts without what cannot be told."""
    verdict = HEADER.index("here")
    blocks = [Block(b.label, [row for row in b.rows if row[verdict].text != OPEN]) for b in table.blocks]
    return Table(table.title, table.header, blocks, table.notes)
