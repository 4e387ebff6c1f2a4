"""What is said when training did not help."""

from __future__ import annotations

from typing import Any

from remargin.training.advice import advice


def test_advice_only_where_training_did_not_help() -> None:
    run: dict[str, Any] = {"pairs": 1_000, "steps": 200, "learning_rate": 2e-4}
    assert advice("RR", 0.5, 0.6, **run) == advice("RR", None, None, **run) == []
    tried, to_try = advice("RR", 0.5, 0.5, **run)
    assert "already tried" not in tried
    assert to_try == (
        "to try: a lower peak learning rate (--learning-rate 5e-05); more training pairs (1,000 now); "
        "another encoder (--model)"
    )


def test_advice_follows_from_the_run() -> None:
    run: dict[str, Any] = {"pairs": 40, "steps": 20, "learning_rate": 1e-4, "validations": 3, "blends": [0.5, 1]}
    found: dict[str, Any] = {"negatives": "BM25", "document_length": 200, "truncated": 0.31, "unlikely": 0.07}
    tried, to_try = advice("nDCG@10", 0.5123, 0.5101, **run, **found)
    assert tried == (
        "training did not help: nDCG@10 on dev is 0.512 before and 0.510 at best after 20 steps; already tried: "
        "3 points of the training run, 2 points between the starting and the trained weights, negatives from BM25"
    )
    assert to_try.split("; ") == [
        "to try: more training pairs (40 now, 300 are a start)",
        "a look at the unlikely positives (7% of the pairs)",
        "longer documents (--document-length 400: 31% are truncated now)",
        "a lower peak learning rate (--learning-rate 2.5e-05)",
        "another encoder (--model)",
    ]
    assert "blending with the starting weights (0.5)" in advice("RR", 0.5, 0.5, **(run | {"blends": [0.5]}))[0]
