"""Truncated vectors: training with `--dims` against plain truncation, on real collections.

    python benchmarks/dims.py DATA [DATA ...] [--steps 100] [--out results/dims.md]

DATA are collections with train and test queries, as `remargin fit --data` takes them. MiniLM is trained twice on the
very same batches, with the default loss alone and with it over all dimensions, and is not blended afterwards. Each
model encodes the test texts once; their vectors are then sliced, brought to unit length and searched in full. Few steps
and short texts, for CPUs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from remargin import BiEncoder, Collection, Run, prepare, train
from remargin.evaluation.measures import Evaluation, evaluate
from remargin.evaluation.significance import paired_bootstrap
from remargin.mining.recipe import mine_for_training
from remargin.model.compute import fast_precision
from remargin.retrieval.exact import top_k
from remargin.retrieval.vectors import Made
from remargin.training.settings import FitSettings
from remargin.training.validation import pool

DIMS = (384, 192, 96, 48, 24)
BATCH, LENGTH, MEASURE = 16, 64, "nDCG@10"
BEFORE, WITHOUT, WITH = "before training", "trained without", "trained with --dims"
Scores = Mapping[str, Mapping[int, Evaluation]]


def trained(data: Path, steps: int, seed: int, dims: str | None) -> BiEncoder:
    model = encoder()
    settings = FitSettings.preset(
        steps=steps, batch_size=BATCH, seed=seed, dims=dims, precision=fast_precision(), log_every=steps
    )
    with tempfile.TemporaryDirectory() as out:
        train(model, data, out, settings=settings)
    return model


def encoder() -> BiEncoder:
    return BiEncoder.from_pretrained("minilm", query_length=LENGTH, document_length=LENGTH)


def measured(model: BiEncoder, test: Collection) -> dict[int, Evaluation]:
    """The measure at each dimension. Queries and documents are encoded once."""
    made, ids, scores = Made.by(model.eval()), list(test.documents), {}
    queries = model.encode_queries(list(test.queries.values()))
    documents = model.encode_documents(list(test.documents.values()))
    for dims in DIMS:
        cut = (torch.from_numpy(made.truncated(dims).first_numbers(matrix)) for matrix in (queries, documents))
        values, rows = top_k(*cut, 10, torch.device("cpu"))
        rankings = zip(test.queries, rows.tolist(), values.tolist(), strict=True)
        found = {query: {ids[row]: value for row, value in zip(r, v, strict=True)} for query, r, v in rankings}
        scores[dims] = evaluate(Run.of(found), test.qrels, MEASURE)
    return scores


def compared(data: str, steps: int, documents: int, queries: int, seed: int, scratch: Path) -> tuple[str, Scores]:
    training = Collection.load(data, "train").sample(steps * BATCH, seed)
    mine_for_training(training, scratch / "triplets.tsv", print, seed=seed)
    prepare(data, "minilm", scratch / "data", scratch / "triplets.tsv", LENGTH, LENGTH)
    test = Collection.load(data, "test").sample(queries, seed)
    test = replace(test, documents={id: test.documents[id] for id in pool(test, documents, seed)})
    scores: dict[str, dict[int, Evaluation]] = {BEFORE: measured(encoder(), test)}
    for name, dims in ((WITHOUT, None), (WITH, ",".join(map(str, DIMS)))):
        scores[name] = measured(trained(scratch / "data", steps, seed, dims), test)
    return f"{len(test.queries):,} test queries among {len(test.documents):,} documents", scores


def table(name: str, about: str, scores: Scores) -> list[str]:
    lines = ["", f"## {name}", "", f"{MEASURE}, {about}.", ""]
    lines += [f"| dimension | {' | '.join(scores)} | with - without (95% interval) |", "|---" * (len(scores) + 2) + "|"]
    for dims in DIMS:
        means = " | ".join(f"{of[dims].means[MEASURE]:.3f}" for of in scores.values())
        with_it, without = (scores[name][dims].per_query[MEASURE] for name in (WITH, WITHOUT))
        gain = paired_bootstrap(with_it, without)
        lines.append(f"| {dims} | {means} | {gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}) |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes: dict[str, Any] = {name: getattr(asked, name) for name in ("steps", "documents", "queries", "seed")}
    lines = [
        "# Truncated vectors: trained with --dims, and truncated without",
        "",
        f"all-MiniLM-L6-v2, {asked.steps} steps of {BATCH} triplets ({asked.steps * BATCH:,}), texts of at most "
        f"{LENGTH} tokens, {fast_precision()} on {torch.get_num_threads()} CPU threads, torch {torch.__version__}, "
        f"{time.strftime('%Y-%m-%d')}. One seed: {asked.seed}. Made by `python benchmarks/dims.py`.",
        "",
        "Both models saw the same batches, and were not blended. The documents are all relevant ones, BM25's best for "
        "every query, and others at random. Vectors are truncated to each dimension, and brought to unit length.",
    ]
    for data in asked.data:
        with tempfile.TemporaryDirectory() as scratch:
            lines += table(Path(data).name, *compared(data, **sizes, scratch=Path(scratch)))
        print("\n".join(lines), flush=True)
        if asked.out:
            asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
