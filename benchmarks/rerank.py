"""Re-ranking against sentence-transformers, which encodes the same unique texts once, on a CPU.

    python benchmarks/rerank.py --data COLLECTION --model MODEL > results/rerank.md

BM25's 1,000 best documents of 200 queries, or fewer with --queries and --depth. Both read the same tokens (the model's
own lengths), compute in float32 with the same threads, and give the same scores; the script checks it.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer

from remargin import BiEncoder, Collection, Run
from remargin.model.encoder import PAPER_LENGTHS
from remargin.retrieval.reranking import rerank
from remargin.retrieval.searching import search


def with_sentence_transformers(
    model: SentenceTransformer, lengths: tuple[int, int], run: Run, collection: Collection
) -> Run:
    needed = sorted({document for ranking in run.rankings.values() for document in ranking})
    rows = {document: row for row, document in enumerate(needed)}
    model.max_seq_length = lengths[1]
    documents = model.encode([collection.documents[id] for id in needed], show_progress_bar=False)
    model.max_seq_length = lengths[0]
    queries = model.encode([collection.queries[id] for id in run.rankings], show_progress_bar=False)
    scores = {}
    for vector, (query, ranking) in zip(queries, run.rankings.items(), strict=True):
        similarities = documents[[rows[document] for document in ranking]] @ vector
        scores[query] = dict(zip(ranking, similarities.tolist(), strict=True))
    return Run.of(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    collection = Collection.load(given.data, "test", skip_bad=True)
    chosen = list(collection.queries)[: given.queries]
    collection.queries = {id: collection.queries[id] for id in chosen}
    run = search(collection, "bm25", k=given.depth)
    model = BiEncoder.from_pretrained(given.model, lengths=PAPER_LENGTHS)
    rival = SentenceTransformer(given.model, device="cpu")
    lengths = model.query_length, model.document_length
    ours, theirs, best = None, None, [float("inf")] * 2
    for _ in range(given.repeats):
        start = time.perf_counter()
        ours = rerank(collection, model, run, passage_length="off")
        between = time.perf_counter()
        theirs = with_sentence_transformers(rival, lengths, run, collection)
        best = [min(best[0], between - start), min(best[1], time.perf_counter() - between)]
    for query, ranking in theirs.rankings.items():
        other = ours.rankings[query]
        np.testing.assert_allclose([other[id] for id in ranking], list(ranking.values()), atol=1e-5)
    documents = len({document for ranking in run.rankings.values() for document in ranking})
    threads, name = torch.get_num_threads(), Path(given.data).name
    print(f"CPU, {threads} threads, torch {torch.__version__}, sentence-transformers {sentence_transformers.__version__}, {time.strftime('%Y-%m-%d')}\n")  # fmt: skip  # noqa: E501
    print(f"{name}: {len(run):,} queries x {given.depth:,} documents, {documents:,} different ones, float32\n")
    print("| | seconds | ratio |\n|---|---|---|")
    print(f"| sentence-transformers | {best[1]:.1f} | 1.00 |")
    print(f"| remargin rerank | {best[0]:.1f} | {best[1] / best[0]:.2f}x |")


if __name__ == "__main__":
    main()
