"""How long it takes to measure a run file, against one call of pytrec_eval, reading included.

    python benchmarks/evaluation.py > results/evaluation.md

7,000 queries with 1,000 documents each, the size of a run on MS MARCO's dev queries; once as programs write it, best
documents first, and once with each query's lines shuffled. Both sides read the same run file and the same judgments
and compute the same measures, each time in a new process. Both give the same means; the script checks it. Times are
those of the processor, so that other jobs on the machine count little; neither side uses more than one core.
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pytrec_eval

from remargin.data.beir import read_qrels
from remargin.data.tables import Rejects
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run

QUERIES, DEPTH, CORPUS, JUDGED = 7_000, 1_000, 8_841_823, 20
MEASURES = {"nDCG@10": "ndcg_cut_10", "R@100": "recall_100", "R@1000": "recall_1000", "RR": "recip_rank"}
REPEATS = 3
SEED = 0


def write(folder: Path) -> None:
    """A run in two orders, and judgments, most of them for documents that it has."""
    rng = np.random.default_rng(SEED)
    with (
        open(folder / "ordered", "w") as ordered,
        open(folder / "shuffled", "w") as shuffled,
        open(folder / "qrels", "w") as qrels,
    ):
        for query in range(QUERIES):
            documents = rng.choice(CORPUS, DEPTH + JUDGED // 4, replace=False)
            scores = np.sort(rng.normal(70, 3, DEPTH).astype(np.float32))[::-1]
            pairs = enumerate(zip(documents.tolist(), scores.tolist(), strict=False), 1)
            lines = [f"{query} Q0 {document} {rank} {score:.9g} run\n" for rank, (document, score) in pairs]
            ordered.write("".join(lines))
            shuffled.write("".join(lines[i] for i in rng.permutation(DEPTH)))
            judged = [*documents[DEPTH:], *rng.choice(documents[:DEPTH], JUDGED, replace=False)]
            qrels.write("".join(f"{query} 0 {id} {rng.integers(4)}\n" for id in judged))


def with_remargin(run: Path, qrels: Path) -> dict[str, float]:
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade, *_ in read_qrels(qrels, Rejects()):
        grades.setdefault(query, {})[document] = grade
    return evaluate(Run.load(run), grades, list(MEASURES)).means


def with_pytrec_eval(run: Path, qrels: Path) -> dict[str, float]:
    with open(qrels) as file:
        grades = pytrec_eval.parse_qrel(file)
    with open(run) as file:
        scores = pytrec_eval.parse_run(file)
    values = pytrec_eval.RelevanceEvaluator(grades, set(MEASURES.values())).evaluate(scores)
    return {name: sum(query[key] for query in values.values()) / len(values) for name, key in MEASURES.items()}


def timed(
    call: Callable[[Path, Path], dict[str, float]], folder: Path, name: str
) -> tuple[float, float, dict[str, float]]:
    """Processor seconds, peak memory in GB, and the means."""
    assert ir_measures.pytrec_eval.is_available()  # imported before the clock starts, for both
    start = time.process_time()
    means = call(folder / name, folder / "qrels")
    seconds = time.process_time() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, means


def processor() -> str:
    """The model that Linux names, or what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    cores = multiprocessing.cpu_count()
    machine = f"{processor()}, {cores} cores, Python {platform.python_version()}"
    print(f"{machine}, pytrec_eval {pytrec_eval.__version__}, {time.strftime('%Y-%m-%d')}\n")
    print(f"{QUERIES:,} queries x {DEPTH:,} documents; {', '.join(MEASURES)}; best of {REPEATS}\n")
    print("| run file | remargin s | pytrec_eval s | remargin / pytrec_eval | remargin GB | pytrec_eval GB |")
    print("|---|---|---|---|---|---|")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as temporary, context.Pool(1, maxtasksperchild=1) as pool:
        folder = Path(temporary)
        write(folder)
        for name in ("ordered", "shuffled"):
            ours, theirs = [], []
            for _ in range(REPEATS):  # by turns, so that a busy machine hits both
                ours.append(pool.apply(timed, (with_remargin, folder, name)))
                theirs.append(pool.apply(timed, (with_pytrec_eval, folder, name)))
            for measure in MEASURES:
                assert abs(ours[0][2][measure] - theirs[0][2][measure]) < 1e-9
            (a, a_memory, _), (b, b_memory, _) = min(ours), min(theirs)
            print(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} | {a_memory:.2f} | {b_memory:.2f} |", flush=True)


if __name__ == "__main__":
    main()
