"""What each kind of index costs and loses on a real collection: overlap with exact search, measures, bytes, time.

    remargin encode --data COLLECTION --model MODEL --out vectors
    python benchmarks/indexes.py --data COLLECTION --vectors vectors > results/indexes.md

Overlap is the share of the exact top k that an index finds, averaged over the queries; every index but `exact` scores
over-fetch x k candidates again from the stored vectors. Bytes are those that a search reads besides these vectors.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from remargin import BiEncoder, Collection, Run, compare, evaluate
from remargin.model.encoder import PAPER_LENGTHS
from remargin.retrieval.building import build_index
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Vectors

MEASURES = ["nDCG@10", "R@1000"]
K = 1000


def run_of(index: DenseIndex, ids: list[str], queries: np.ndarray) -> tuple[Run, float]:
    start = time.perf_counter()
    rankings = index.search_vectors(queries, K)
    seconds = time.perf_counter() - start
    names = index.vectors.ids
    rankings = {
        id: {names[row]: float(score) for row, score in zip(rows.tolist(), scores, strict=True)}
        for id, (rows, scores) in zip(ids, rankings, strict=True)
    }
    return Run.of(rankings), seconds


def overlap(run: Run, exact: Run) -> float:
    return float(np.mean([len(run.rankings[q].keys() & exact.rankings[q].keys()) / len(exact.rankings[q]) for q in exact.rankings]))  # fmt: skip  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--queries", type=int, default=500, help="so many of the test queries")
    parser.add_argument("--over-fetch", type=int, nargs="+", default=[2, 4, 8])
    given = parser.parse_args()
    collection = Collection.load(given.data, "test", skip_bad=True)
    vectors = Vectors.load(given.vectors)
    model = BiEncoder.from_pretrained(vectors.made.model, lengths=PAPER_LENGTHS)
    ids = list(collection.queries)[: given.queries]
    qrels = {id: collection.qrels[id] for id in ids}
    encoded = model.encode_queries([collection.queries[id] for id in ids])
    exact, seconds = run_of(DenseIndex(model, vectors), ids, encoded)
    means = evaluate(exact, qrels, MEASURES).means
    documents, name = len(vectors.ids), Path(given.data).name
    print(f"{name}: {documents:,} documents, {len(ids)} queries, k = {K}, vectors of {vectors.matrix.shape[1]} numbers, {len(os.sched_getaffinity(0))} CPU cores, {time.strftime('%Y-%m-%d')}\n")  # fmt: skip  # noqa: E501
    columns = ["index", "over-fetch", "overlap at 1,000", *MEASURES, "equivalent", "bytes a document", "build, s", "search, ms a query"]  # fmt: skip  # noqa: E501
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    size = vectors.matrix.itemsize * vectors.matrix.shape[1]
    row = ["exact", "", "1", *(f"{mean:.4f}" for mean in means.values()), "", f"{size:,}", "0", f"{seconds / len(ids) * 1e3:.1f}"]  # fmt: skip  # noqa: E501
    print("| " + " | ".join(row) + " |", flush=True)
    kinds = {
        "exact, int8 codes": BackendSettings(coding="int8"),
        "exact, binary codes": BackendSettings(coding="binary"),
        "faiss, the paper's (HNSW32 over OPQ32)": BackendSettings("faiss"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind, settings in kinds.items():
            place = Path(folder) / "index"
            start = time.perf_counter()
            build_index(vectors, place, settings, overwrite=True)
            built = time.perf_counter() - start
            files = [file for file in place.iterdir() if file.name.startswith(("codes", "coder", "faiss"))]
            extra = sum(file.stat().st_size for file in files) / documents
            index = open_index(place, model)
            for over_fetch in given.over_fetch:
                index._over_fetch = over_fetch
                run, seconds = run_of(index, ids, encoded)
                means = evaluate(run, qrels, MEASURES).means
                same = compare({"exact": exact, "this": run}, qrels, MEASURES, reference="exact", bound=0.01)
                marks = "".join("†" if same.row(measure, "this").equivalent else "-" for measure in MEASURES)
                cells = [
                    kind,
                    str(over_fetch),
                    f"{overlap(run, exact):.4f}",
                    *(f"{mean:.4f}" for mean in means.values()),
                ]
                cells += [marks, f"{extra:,.0f}", f"{built:.0f}", f"{seconds / len(ids) * 1e3:.1f}"]
                print("| " + " | ".join(cells) + " |", flush=True)
    print("\n† equivalent to exact search in nDCG@10 and R@1000: paired TOST over queries, bound 0.01, p < 0.05.")


if __name__ == "__main__":
    main()
