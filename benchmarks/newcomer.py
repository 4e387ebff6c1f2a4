"""A newcomer's afternoon: 1,500 questions and answers in a CSV file, with remargin and with sentence-transformers.

    python benchmarks/newcomer.py medquad --away cranfield cisi cacm > newcomer.md

Both get the same file, the same encoder (all-MiniLM-L6-v2) and no option but these. Home: all test queries of the
collection that the pairs are from, over some of its documents: the relevant ones, and others that are drawn. Away:
collections that nothing was trained on. Long documents are truncated for all alike. What is done is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from remargin import BiEncoder, Collection, evaluate, search
from remargin.evaluation.significance import paired_bootstrap
from remargin.model.names import bundled_minilm

MEASURE = "nDCG@10"
HERE = Path(__file__).parent
REMARGIN = "remargin fit --data pairs:faq.csv --model minilm --out runs/faq"


def write_pairs(data: Path, count: int, path: Path) -> None:
    """A sample of the collection's training pairs, as a CSV file with ids."""
    train = Collection.load(data, "train")
    pairs = [(query, document) for query, judged in train.qrels.items() for document, grade in judged.items() if grade]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "question", "answer"])
        for query, document in random.Random(0).sample(pairs, count):
            writer.writerow([document, train.queries[query], train.documents[document]])


def timed(command: list[str], folder: Path) -> None:
    """Run a command in a folder, unless that was done, and keep how long it took, and how long all its threads did."""
    if (folder / "seconds.json").exists():
        return
    began, used = time.perf_counter(), _processor_seconds()
    subprocess.run(command, check=True, cwd=folder, stdout=sys.stderr)
    seconds = {"wall": time.perf_counter() - began, "processor": _processor_seconds() - used}
    (folder / "seconds.json").write_text(json.dumps(seconds))


def _processor_seconds() -> float:
    """What processes that were started here, and have ended, took of all cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def scores(model: BiEncoder, collections: dict[str, Collection], kept: Path) -> dict[str, dict[str, float]]:
    """The measure of every query of every collection, kept in a file."""
    if not kept.exists():
        runs = {
            name: search(collection, "exact", model, passage_length="off") for name, collection in collections.items()
        }
        values = {name: evaluate(run, collections[name], MEASURE).per_query[MEASURE] for name, run in runs.items()}
        kept.write_text(json.dumps(values))
    return json.loads(kept.read_text())  # type: ignore[no-any-return]


def some_documents(collection: Collection, count: int) -> Collection:
    """The collection with so many of its documents: those that are relevant to a query, and others that are drawn."""
    relevant = {document for judged in collection.qrels.values() for document, grade in judged.items() if grade}
    others = [document for document in collection.documents if document not in relevant]
    kept = relevant | set(random.Random(0).sample(others, max(0, min(len(others), count - len(relevant)))))
    return replace(collection, documents={id: text for id, text in collection.documents.items() if id in kept})


def mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values)


def code_lines(path: Path) -> int:
    """Lines of a script after the mark, without empty ones."""
    _, code = path.read_text().split("the lines are counted\n")
    return sum(bool(line.strip()) for line in code.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--away", type=Path, nargs="*", default=[])
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--overview", action="store_true", help="also with the arguments of the training overview")
    parser.add_argument("--out", type=Path, default=Path("runs/newcomer"))
    given = parser.parse_args()
    out = given.out.absolute()
    lines = code_lines(HERE / "newcomer_st.py")
    start = BiEncoder.from_pretrained("minilm")
    folders = {"remargin fit": (out / "remargin", "runs/faq/model", "1 command")}
    folders["sentence-transformers, the trainer's defaults"] = (out / "st", "model", f"{lines} lines")
    if given.overview:
        folders["sentence-transformers, as in its training overview"] = (out / "st-overview", "model", f"{lines} lines")
    for folder, _, _ in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "faq.csv").exists():
            write_pairs(given.data, given.pairs, folder / "faq.csv")
    timed([sys.executable, "-m", *REMARGIN.split()], out / "remargin")
    rival = [sys.executable, str(HERE / "newcomer_st.py"), "faq.csv", str(bundled_minilm()), "."]
    timed(rival, out / "st")
    if given.overview:
        timed([*rival, "overview"], out / "st-overview")
    collections = {path.name: Collection.load(path, "test") for path in (given.data, *given.away)}
    collections[given.data.name] = some_documents(collections[given.data.name], given.documents)
    home, *away = collections
    before = scores(start, collections, out / "start.json")
    versions = f"torch {torch.__version__}, sentence-transformers {version('sentence-transformers')}"
    print(f"# A newcomer's afternoon: {given.pairs:,} pairs of {home}, two ways\n")
    print(f"{torch.get_num_threads()} CPU threads, {versions}, Python {platform.python_version()}, ", end="")
    print(f"{time.strftime('%Y-%m-%d')}. Made by `python benchmarks/newcomer.py`.\n")
    documents = len(collections[home].documents)
    print(f"{MEASURE} by exact search; gains over the untrained encoder with paired 95% intervals.")
    print(f"Home: {len(before[home]):,} test queries of {home} over {documents:,} documents. ", end="")
    print(f"Away: the mean of {', '.join(away)}.\n")
    print("| | home | gain | away | change away | minutes | minutes of a core | to write |\n" + "|---" * 8 + "|")
    print(f"| untrained | {mean(before[home]):.3f} | | {_away(before, away):.3f} | | | | |")
    for name, (folder, model, written) in folders.items():
        after = scores(BiEncoder.from_pretrained(folder / model), collections, folder / "scores.json")
        gain = paired_bootstrap(after[home], before[home])
        change = _away(after, away) - _away(before, away)
        minutes = {kind: seconds / 60 for kind, seconds in json.loads((folder / "seconds.json").read_text()).items()}
        interval = f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"
        cells = [f"{mean(after[home]):.3f}", interval, f"{_away(after, away):.3f}", f"{change:+.3f}"]
        cells += [f"{minutes['wall']:.1f}", f"{minutes['processor']:.1f}"]
        print(f"| {name} | {' | '.join(cells)} | {written} |")
    print(f"\n`{REMARGIN}` also mines, blends, measures on queries that it held out, and writes a page.")


def _away(values: dict[str, dict[str, float]], away: list[str]) -> float:
    return sum(mean(values[name]) for name in away) / len(away) if away else float("nan")


if __name__ == "__main__":
    main()
