"""What the paper claims about its results, each as a predicate over numbers, with the verdict on the numbers here.

A claim is checked as the paper makes it: for all backbones where it says all. The thresholds that words such as "near"
and "about half" stand for are ours, and said in the claim.
"""

from __future__ import annotations

from remargin.paper.claims import baselines as claims_of_baselines
from remargin.paper.claims import figures as claims_of_figures
from remargin.paper.claims import variants as claims_of_variants
from remargin.paper.claims.claim import FAILS, HOLDS, OPEN, Claim, Numbers, Verdict
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table
from remargin.study.outcome import Outcome

CLAIMS: list[Claim] = [*claims_of_figures.CLAIMS, *claims_of_variants.CLAIMS, *claims_of_baselines.CLAIMS]
HEADER = ["claim", "paper", "here", "numbers"]


def check_claims(numbers: Numbers) -> list[Verdict]:
    """The verdict on each claim.

    >>> found = check_claims({"target-evolution": {"tiny": {"last_mean": 0.02, "batches": 64}}})
    >>> {v.claim.name: v.verdict for v in found}["targets settle at one half"]
    'holds'
    """
    return [claim.verdict(numbers) for claim in CLAIMS]


def claims(numbers: Numbers) -> Outcome:
    """The table of verdicts."""
    verdicts = check_claims(numbers)
    rows = [[Cell(v.claim.text), Cell(v.claim.where), Cell(v.verdict), Cell(v.evidence)] for v in verdicts]
    counts = {verdict: sum(v.verdict == verdict for v in verdicts) for verdict in (HOLDS, FAILS, OPEN)}
    summary = [
        f"Of {len(verdicts)} claims of the paper, these experiments confirm {counts[HOLDS]} and contradict "
        f"{counts[FAILS]}; {counts[OPEN]} could not be checked with them."
    ]
    table = Table("The paper's claims", HEADER, [Block("", rows)])
    found = {v.claim.name: {"verdict": v.verdict, "evidence": v.evidence} for v in verdicts}
    return Outcome(Section("claims", "Claims", summary, [table], [], {}, []), found)


def checked_only(table: Table) -> Table:
    """The table of verdicts without what could not be checked."""
    verdict = HEADER.index("here")
    blocks = [Block(b.label, [row for row in b.rows if row[verdict].text != OPEN]) for b in table.blocks]
    return Table(table.title, table.header, blocks, table.notes)
