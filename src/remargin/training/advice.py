"""What to try when training did not help."""

from __future__ import annotations

from collections.abc import Sequence

from remargin.training.data_look import ENOUGH_PAIRS

TRUNCATED = 0.2  # from this share of documents on, longer texts are worth a try
UNLIKELY = 0.05  # from this share of pairs on, so is a look at them


def advice(
    measure: str,
    before: float | None,
    best: float | None,
    *,
    pairs: int,
    steps: int,
    learning_rate: float,
    validations: int = 0,
    blends: Sequence[float] = (),
    negatives: str | None = None,
    document_length: int | None = None,
    truncated: float = 0.0,
    unlikely: float = 0.0,
    split: str = "dev",
) -> list[str]:
    """Lines for a training run after which the encoder is not better than before: what was tried, and what to try.

    None of them if it is better, or was not validated.

    Args:
        measure: by which models are chosen.
        before, best: its values before training, and of the best model or blend; None without validation.
        pairs: training pairs.
        steps: optimiser steps that were trained.
        learning_rate: the peak learning rate.
        validations: how many points of the training run were measured.
        blends: the points between the starting weights (0) and the trained ones (1) that were measured.
        negatives: where the negatives came from, in words, such as "BM25".
        document_length: the maximum length in tokens.
        truncated: the share of documents that are longer.
        unlikely: the share of training pairs that look unlikely; see `look`.
        split: whose queries were measured.

    Example:
        >>> tried, to_try = advice("nDCG@10", 0.51, 0.51, pairs=120, steps=20, learning_rate=2e-4, blends=[0.25, 0.5])
        >>> for line in [*tried.split("; "), *to_try.split("; ")]:
        ...     print(line)
        training did not help: nDCG@10 on dev is 0.510 before and 0.510 at best after 20 steps
        already tried: 2 points between the starting and the trained weights
        to try: more training pairs (120 now, 300 are a start)
        a lower peak learning rate (--learning-rate 5e-05)
        another encoder (--model)
        >>> advice("nDCG@10", 0.51, 0.55, pairs=120, steps=20, learning_rate=2e-4)
        []
    """
    if before is None or best is None or best > before:
        return []
    tried = [
        f"{validations} points of the training run" if validations > 1 else "",
        f"{len(blends)} points between the starting and the trained weights" if len(blends) > 1 else "",
        f"blending with the starting weights ({blends[0]:g})" if len(blends) == 1 else "",
        f"negatives from {negatives}" if negatives else "",
    ]
    said = ", ".join(filter(None, tried))
    outcome = f"{measure} on {split} is {before:.3f} before and {best:.3f} at best after {steps:,} steps"
    to_try = [
        f"more training pairs ({pairs:,} now, {ENOUGH_PAIRS:,} are a start)" if pairs < ENOUGH_PAIRS else "",
        f"a look at the unlikely positives ({unlikely:.0%} of the pairs)" if unlikely >= UNLIKELY else "",
        f"longer documents (--document-length {2 * document_length}: {truncated:.0%} are truncated now)"
        if document_length is not None and truncated >= TRUNCATED
        else "",
        f"a lower peak learning rate (--learning-rate {learning_rate / 4:.2g})",
        f"more training pairs ({pairs:,} now)" if pairs >= ENOUGH_PAIRS else "",
        "another encoder (--model)",
    ]
    return [
        f"training did not help: {outcome}" + (f"; already tried: {said}" if said else ""),
        f"to try: {'; '.join(filter(None, to_try))}",
    ]
