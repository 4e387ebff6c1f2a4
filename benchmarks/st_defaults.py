"""sentence-transformers' own trainer at its documented defaults, on triplets and queries as `reproduce beyond` has.

    python benchmarks/st_defaults.py MODEL COLLECTION --out FOLDER [--triplets 100000] [--away cranfield] [--seed 0]

Needs sentence-transformers with its extra for training (datasets, accelerate). The defaults are the loss
MultipleNegativesRankingLoss with scale 20, and of the trainer: batches of 8, peak learning rate 5e-5, linear decay, no
warm-up. One epoch of as many triplets as a run of the study sees; three epochs, also a default, would see them three
times. Prints nDCG@10 without training, of the trained model, and of the model blended with the start as far as dev
says, at home and away, with the time; FOLDER/st_defaults.json has the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from pathlib import Path
from typing import Any

from remargin import BiEncoder, Collection
from remargin.data.tables import Rejects
from remargin.data.triplets import read_id_triplets
from remargin.files.headers import write_header
from remargin.mining.negatives import mine
from remargin.model.blend import blended
from remargin.study.full_ranking import FullRanking
from remargin.study.hardware import hardware
from remargin.study.pinned import MINING, pinned
from remargin.training.blending import blend_path
from remargin.training.validation import Validator

FORMAT, MEASURE = "remargin-st-defaults-1", "nDCG@10"
NEEDED = ("sentence_transformers", "datasets", "accelerate")


def texts_of(train: Collection, triplets: Path, count: int, seed: int) -> dict[str, list[str]]:
    """The texts of some triplets, as the columns that the trainer expects. Mining leaves those of a query together."""
    every = list(read_id_triplets(triplets, Rejects()))
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return {
        "anchor": [train.queries[triplet.query] for triplet in drawn],
        "positive": [train.documents[triplet.positive] for triplet in drawn],
        "negative": [train.documents[triplet.negatives[0]] for triplet in drawn],
    }


def mined(train: Collection, path: Path, count: int) -> Path:
    """As many triplets as a run sees, mined as a study does it."""
    pairs = sum(sum(grade > 0 for grade in judged.values()) for judged in train.qrels.values())
    if not path.exists():
        mine(train, path, triplets=-(-count // max(1, pairs)), depth=1000, **MINING)
    return path


def train_with_defaults(model: str, columns: dict[str, list[str]], out: Path, seed: int) -> float:
    """Train, save to `out`, and return the seconds. All settings but the epochs are the trainer's own."""
    import datasets
    import sentence_transformers as st

    data = datasets.Dataset.from_dict(columns)
    encoder = st.SentenceTransformer(model)
    loss = st.losses.MultipleNegativesRankingLoss(encoder)
    arguments: dict[str, Any] = {"num_train_epochs": 1, "seed": seed, "save_strategy": "no", "report_to": []}
    settings = st.SentenceTransformerTrainingArguments(str(out / "trainer"), **arguments)
    trainer = st.SentenceTransformerTrainer(model=encoder, args=settings, train_dataset=data, loss=loss)
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    encoder.save_pretrained(str(out / "model"))
    return seconds


def main() -> None:
    """Train and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--triplets", type=int, default=100_000)
    parser.add_argument("--away", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if lacking := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        sys.exit(f"not installed: {', '.join(lacking)}; install sentence-transformers[train]")
    given.out.mkdir(parents=True, exist_ok=True)
    train = Collection.load(given.data, "train")
    columns = texts_of(train, mined(train, given.out / "triplets.tsv", given.triplets), given.triplets, given.seed)
    seconds = train_with_defaults(given.model, columns, given.out, given.seed)
    start = BiEncoder.from_pretrained(given.model)
    lengths = {"query_length": start.query_length, "document_length": start.document_length}  # the trainer saves none
    trained = BiEncoder.from_pretrained(given.out / "model", **lengths)
    settings = pinned(validation_depth=None)
    path = blend_path(start, trained, Validator.of(Collection.load(given.data, "dev"), trained, settings))
    models = {
        "no training": start,
        "trained": trained,
        f"blended {path.weight:g}": blended(start, trained, path.weight),
    }
    rankings = {data: FullRanking(Collection.load(data, "test")) for data in (given.data, *given.away)}
    scores = {
        name: {data: ranking.measure(model, given.model).means[MEASURE] for data, ranking in rankings.items()}
        for name, model in models.items()
    }
    for name, of_model in scores.items():
        print(f"{name:>14}", *(f"{data} {value:.4f}" for data, value in of_model.items()))
    print(f"{len(columns['anchor']):,} triplets, {seconds:.0f} s on {hardware()}")
    content = {"triplets": len(columns["anchor"]), "seed": given.seed, "seconds": seconds, "hardware": hardware()}
    write_header(given.out / "st_defaults.json", {"format": FORMAT, MEASURE: scores, **content})


if __name__ == "__main__":
    main()
