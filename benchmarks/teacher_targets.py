"""Teachers trained with the paper's targets on their own scores, beside the usual softmax: what each re-ranks to.

    python benchmarks/teacher_targets.py path/to/debian-desc > results/teacher-targets.md

Each cross-encoder is trained from the first layers of one encoder on the same triplets, with one target after another.
Every target has the same grid of learning rates, of which dev chooses with the first seed. The test queries then
decide. Cross-encoders that are done are not trained again, and one that was interrupted continues.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from remargin import Collection
from remargin.evaluation.measures import evaluate
from remargin.evaluation.significance import bootstrap
from remargin.mining.negatives import mine
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.names import bundled_minilm
from remargin.retrieval.reranking import rerank
from remargin.retrieval.searching import search
from remargin.teacher.training import TARGETS, TeacherSettings, Trained, train_cross_encoder

MEASURE = "nDCG@10"


class Comparison:
    """A collection, and the cross-encoders that are trained on it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.work = given, given.work
        self.work.mkdir(parents=True, exist_ok=True)
        train, dev, test = (Collection.load(given.data, split) for split in ("train", "dev", "test"))
        self.train, self.dev = train.sample(given.pairs, seed=0), replace(dev, documents=train.documents)
        self.test = test.sample(given.queries, seed=0)
        self.encoder = shortened(given.model or bundled_minilm(), given.layers, self.work / "encoder")
        self.triplets = self.work / "triplets.tsv"
        if not self.triplets.exists():
            mine(self.train, self.triplets, depth=100)
        self.first = {part.split: search(part, "bm25", k=given.depth) for part in (self.dev, self.test)}

    def trained(self, target: str, rate: float, seed: int) -> tuple[CrossEncoder, Trained]:
        model = CrossEncoder.from_pretrained(self.encoder, self.given.length, seed)
        settings = TeacherSettings(
            epochs=1, batch_size=self.given.batch, learning_rate=rate, seed=seed, target=target,
            validations=1, validation_depth=self.given.depth, validation_queries=self.given.queries // 2,
        )  # fmt: skip
        out = self.work / f"{target}-{rate:g}-{seed}"
        done = train_cross_encoder(
            model, self.train, self.triplets, out, settings, self.dev, self.first["dev"], say=tell_progress
        )
        return model, done

    def scores(self, model: CrossEncoder | None) -> dict[str, float]:
        """The measure of each test query, as BM25 ranks its documents, or as a cross-encoder does."""
        run = self.first["test"] if model is None else rerank(self.test, model, self.first["test"], self.given.depth)
        return evaluate(run, self.test.qrels, [MEASURE]).per_query[MEASURE]


def shortened(model: str | Path, layers: int, out: Path) -> Path:
    """An encoder's first layers."""
    if not out.exists():
        encoder, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
        encoder.encoder.layer = encoder.encoder.layer[:layers]
        encoder.config.num_hidden_layers = layers
        tokenizer.save_pretrained(out)
        encoder.save_pretrained(out)
    return out


def tell_progress(line: str) -> None:
    print(line, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", help="an encoder instead of all-MiniLM-L6-v2")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=800, help="queries to train on")
    parser.add_argument("--queries", type=int, default=200, help="queries of test, and half as many of dev")
    parser.add_argument("--depth", type=int, default=10, help="documents of BM25 to re-rank")
    parser.add_argument("--length", type=int, default=64, help="tokens of a pair")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--work", type=Path, default=Path("runs/teacher-targets"))
    given = parser.parse_args()
    comparison = Comparison(given)
    rates, means, seconds = {}, {}, {}
    for target in TARGETS:
        tried = {rate: comparison.trained(target, rate, given.seeds[0])[1].best for rate in given.rates}
        rates[target] = max(tried, key=lambda rate: tried[rate])
        of_seeds = [comparison.trained(target, rates[target], seed) for seed in given.seeds]
        rows = [comparison.scores(model) for model, _ in of_seeds]
        means[target] = {query: float(np.mean([row[query] for row in rows])) for query in rows[0]}
        seconds[target] = np.mean([done.seconds - done.validation_seconds for _, done in of_seeds])
    bm25 = comparison.scores(None)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{device}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"{Path(given.data).name}: {len(comparison.train.queries):,} triplets, batches of {given.batch}, pairs of "
        f"{given.length} tokens, an encoder of {given.layers} layers; {MEASURE} of BM25's first {given.depth} "
        f"documents of {len(bm25):,} test queries, re-ranked; means of {len(given.seeds)} seeds, with 95% bootstrap "
        "intervals of the paired differences\n"
    )
    print(f"| target | learning rate | {MEASURE} | against softmax | seconds to train |\n|---|---:|---:|---:|---:|")
    print(f"| BM25, not re-ranked | | {np.mean(list(bm25.values())):.3f} | | |")
    for target, values in means.items():
        gain = bootstrap([values[query] - means["softmax"][query] for query in values])
        against = "" if target == "softmax" else f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"
        cells = [
            target,
            f"{rates[target]:g}",
            f"{np.mean(list(values.values())):.3f}",
            against,
            f"{seconds[target]:.0f}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
