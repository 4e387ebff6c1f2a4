"""What the paper claims about its results, each as a predicate over findings, with the verdict on the findings here.

A claim is checked as the paper makes it: for all backbones where it says all. The thresholds that words such as "near"
and "about half" stand for are ours, and said in the claim.
"""

from __future__ import annotations

from remargin.paper.claims import baselines, curves, memory, static_margins, targets, variants, zero_shot
from remargin.paper.claims.claim import FAILS, HOLDS, OPEN, Claim, Verdict
from remargin.paper.findings import Findings
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table

CLAIMS: list[Claim] = [
    claim
    for section in (static_margins, curves, targets, variants, baselines, zero_shot, memory)
    for claim in section.CLAIMS
]
HEADER = ["claim", "paper", "here", "numbers"]


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
        f"{counts[FAILS]}; {counts[OPEN]} could not be checked with them."
    ]
    table = Table("The paper's claims", HEADER, [Block("", rows)])
    return Section("claims", "Claims", summary, [table], [], {}, [])


def checked_only(table: Table) -> Table:
    """The table of verdicts without what could not be checked."""
    verdict = HEADER.index("here")
    blocks = [Block(b.label, [row for row in b.rows if row[verdict].text != OPEN]) for b in table.blocks]
    return Table(table.title, table.header, blocks, table.notes)
