"""What the paper claims about its set-up: section 4."""

from __future__ import annotations

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each
from remargin.paper.findings import Findings
from remargin.paper.memory import EIGHT_BIT, EXPERIMENT

CLAIMS = Claims()


@CLAIMS.add("4")
def half_the_memory(findings: Findings) -> Answer:
    """Mixed precision and 8-bit optimiser states take about half of the memory of full precision (at most 60%)."""
    measured = {model: peak.share(EIGHT_BIT) for model, peak in findings[EXPERIMENT].items()}
    shares = {model: share for model, share in measured.items() if share is not None}
    if not shares:
        raise NotChecked(f"no GPU measured {EIGHT_BIT}")
    return all(share <= 0.6 for share in shares.values()), each(shares, "{:.0%}".format)
