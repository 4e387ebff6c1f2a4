"""What the paper claims about its set-up: section 4."""

from __future__ import annotations

from remargin.paper.claims.claim import Claims, NotTold
from remargin.paper.deciding import Answer, every
from remargin.paper.findings import Findings
from remargin.paper.memory import EIGHT_BIT, EXPERIMENT

CLAIMS = Claims()


@CLAIMS.add("4", trains=False)
def half_the_memory(findings: Findings) -> Answer:
    """Mixed precision and 8-bit optimiser states take about half of the memory of full precision (at most 60%)."""
    measured = {model: peak.share(EIGHT_BIT) for model, peak in findings[EXPERIMENT].items()}
    shares = {model: share for model, share in measured.items() if share is not None}
    if not shares:
        raise NotTold(f"no GPU measured {EIGHT_BIT}")
    return every({model: Answer(share <= 0.6, f"{share:.0%}") for model, share in shares.items()})
