"""The negatives that `fit` mines by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from remargin.data.collection import Collection
from remargin.mining.negatives import mine, require_ranked
from remargin.mining.settings import HARD, MiningSettings
from remargin.model.encoder import BiEncoder
from remargin.retrieval.languages import describe_choice

# Several negatives for each training pair, which take turns, from BM25's best documents.
RECIPE = MiningSettings("bm25", depth=200, per_triplet=8)
# In a further round, from the best documents of the model of the round before.
AGAIN = replace(HARD, per_triplet=RECIPE.per_triplet)


def mine_for_training(
    train: Collection,
    out: Path,
    say: Callable[[str], None],
    settings: MiningSettings = RECIPE,
    miner: BiEncoder | None = None,
    seed: int = 0,
    at_least: int = 1,
) -> None:
    """Mine triplets of a training split, and say how many there are and where their negatives are from.

    Args:
        train: the training split.
        out: the table of triplets to write.
        say: called with what came of it.
        settings: how; the number of negatives is lowered where a collection has too few documents.
        miner: the model that ranks, for settings with negatives="model".
        seed: the random seed.
        at_least: negatives that each triplet must have.

    Raises:
        InputError: as `mine` does, and if BM25 finds nothing for any query.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "triplets.tsv"
        >>> mine_for_training(Collection.load("docstrings:json,csv", "train"), out, print)
        mined ... triplets of 8 negatives for ... queries with BM25
    """
    most = max((sum(grade > 0 for grade in judged.values()) for judged in train.qrels.values()), default=0)
    room = len(train.documents) - most - 1  # a query may be a document itself
    width = max(at_least, min(settings.per_triplet, room), 1)
    mined = mine(train, out, model=miner, **asdict(replace(settings, seed=seed, per_triplet=width)))
    if miner is None:
        if chosen := describe_choice(mined.language, settings.language):
            say(chosen)
        require_ranked(mined)
    by = "BM25" if miner is None else "the model of the round before"
    negatives = "1 negative" if width == 1 else f"{width} negatives"
    say(f"mined {mined.triplets:,} triplets of {negatives} for {mined.queries:,} queries with {by}")
    if mined.without_ranking:
        say(f"BM25 ranks nothing for {mined.without_ranking:,} of them: their negatives are random")
    if mined.skipped:
        say(
            f"left out as possible false negatives: {mined.skipped:,} candidates; {mined.filled_at_random:,} are random"
        )
