"""Whether answers are right while an index changes, and how long they take then.

    python benchmarks/updating.py [--model minilm] [--documents 2000] [--changes 10] > results/updating.md

One process changes an index again and again with `update`: a twentieth of the documents go, as many come, and as many
have another text. Meanwhile another process opens and searches the folder without a pause, as `remargin search` does,
a client asks a server in a third process. An answer is wrong unless the scores of its documents are, to 1e-4, those of
the k best of a version that the index may have had then, by a matrix product in NumPy over that version's vectors.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from remargin import BiEncoder, index, update
from remargin.progress import silenced
from remargin.retrieval.index_folder import open_index

K = 10
WORDS = [
    "margin",
    "query",
    "document",
    "vector",
    "index",
    "search",
    "update",
    "server",
    "passage",
    "encoder",
    "batch",
    "score",
]
QUERIES = [f"which {word} has the number {n}?" for n, word in enumerate(WORDS)]


def texts(version: int, count: int) -> dict[str, str]:
    """The documents of a version."""
    step = count // 20
    numbers = range(version * step, version * step + count)
    return {f"d{n}": f"The {WORDS[(n + version * (n % 20 == 0)) % 12]} of {WORDS[n % 11]} {n}" for n in numbers}


def write(folder: Path, version: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    rows = (json.dumps({"_id": id, "title": "", "text": text}) for id, text in texts(version, count).items())
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "a query"}) + "\n")
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\td{count - 1}\t1\n")


class Oracle:
    """The scores of all documents of all versions."""

    def __init__(self, model: BiEncoder, versions: int, count: int) -> None:
        known = sorted({text for version in range(versions) for text in texts(version, count).values()})
        rows = {text: row for row, text in enumerate(known)}
        scores = model.encode_queries(QUERIES) @ model.encode_documents(known).T
        self.scores = [
            [{id: float(of[rows[text]]) for id, text in texts(version, count).items()} for of in scores]
            for version in range(versions)
        ]
        self.best = [[np.sort([*of.values()])[::-1][:K] for of in version] for version in self.scores]

    def is_right(self, query: int, ranking: dict[str, float], first: int, last: int) -> bool:
        """Whether a ranking is that of one of these versions."""
        given = np.array([*ranking.values()])
        return len(given) == K and any(
            np.allclose(given, self.best[version][query], atol=1e-4)
            and all(abs(self.scores[version][query].get(id, 9.0) - score) < 1e-4 for id, score in ranking.items())
            for version in range(first, last + 1)
        )


def measure(ask: Callable[[int], tuple[dict[str, float], float]], oracle: Oracle, state: Any, end: Callable[[], bool]) -> dict[str, Any]:  # fmt: skip  # noqa: E501
    """Ask until the end; `state` holds the last version that an update has ended with, and that it has begun."""
    seconds, wrong, number = [], 0, 0
    while not end():
        query, first = number % len(QUERIES), state[0]
        ranking, took = ask(query)
        seconds.append(took)
        wrong += not oracle.is_right(query, ranking, 0 if ask.__name__ == "served" else first, state[1])
        number += 1
    return {"answers": number, "wrong": wrong, "p50": np.percentile(seconds, 50), "p99": np.percentile(seconds, 99)}


def searched(folder: Path, model: BiEncoder) -> Callable[[int], tuple[dict[str, float], float]]:
    def ask(query: int) -> tuple[dict[str, float], float]:
        started = time.perf_counter()
        run = open_index(folder, model).search({"q": QUERIES[query]}, K)
        return run.rankings["q"], time.perf_counter() - started

    return ask


def asking(port: int) -> Callable[[int], tuple[dict[str, float], float]]:
    def served(query: int) -> tuple[dict[str, float], float]:
        started = time.perf_counter()
        body = json.dumps({"query": QUERIES[query], "k": K, "system": "after"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/search", body, {"Content-Type": "application/json"})  # fmt: skip  # noqa: E501
        with urllib.request.urlopen(request) as reply:
            results = json.load(reply)["results"]
        return {result["id"]: result["score"] for result in results}, time.perf_counter() - started

    return served


def change(folder: Path, data: Path, changes: int, count: int, state: Any, ready: Any) -> None:
    ready.wait()
    with silenced():
        for version in range(1, changes + 1):
            write(data, version, count)
            state[1] = version
            update(folder, data=data)
            state[0] = version
    state[2] = 1


def ask_in_process(
    kind: str, given: Any, model: str, oracle: Oracle, state: Any, seconds: float | None, ready: Any, out: Any
) -> None:
    ask = asking(given) if kind == "serve" else searched(given, BiEncoder.from_pretrained(model))
    ask(0)
    ready.wait()
    end = time.time() + (seconds or 0)
    out.put((kind, measure(ask, oracle, state, lambda: state[2] > 0 if seconds is None else time.time() > end)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--quiet-seconds", type=float, default=10, help="before the changes, to compare with")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    state, out = context.Array("i", [0, 0, 0]), context.Queue()
    with tempfile.TemporaryDirectory() as place:
        folder, data = Path(place) / "index", Path(place) / "data"
        write(data, 0, given.documents)
        with silenced():
            index(folder, data=data, model=given.model, hybrid="off")
        oracle = Oracle(BiEncoder.from_pretrained(given.model), given.changes + 1, given.documents)
        command = [sys.executable, "-m", "remargin", "serve", "--index", str(folder), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = next(int(found[1]) for line in server.stdout if (found := re.search(r"http://[\d.]+:(\d+)/", line)))
            rows = []
            for phase in ("at rest", "while it changes"):
                seconds = given.quiet_seconds if phase == "at rest" else None
                kinds = {"search, opened anew each time": folder, "serve": port}
                ready = context.Barrier(len(kinds) + 1 + (seconds is None))
                work = [(kind, of, given.model, oracle, state, seconds, ready, out) for kind, of in kinds.items()]
                team = [context.Process(target=ask_in_process, args=arguments) for arguments in work]
                if seconds is None:
                    team.append(context.Process(target=change, args=(folder, data, given.changes, given.documents, state, ready)))  # fmt: skip  # noqa: E501
                for process in team:
                    process.start()
                ready.wait()
                started = time.perf_counter()
                rows += [(kind, phase, seen) for kind, seen in sorted(out.get(timeout=900) for _ in kinds)]
                for process in team:
                    process.join()
                    assert process.exitcode == 0
                took = time.perf_counter() - started
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    print(f"{given.documents:,} documents, {given.changes} changes of {3 * (given.documents // 20)} documents each in {took:.0f} s, {given.model}, {len(os.sched_getaffinity(0))} CPU cores, {time.strftime('%Y-%m-%d')}\n")  # fmt: skip  # noqa: E501
    print("| | the index | answers | wrong | p50, ms | p99, ms |\n|---|---|---|---|---|---|")
    for kind, phase, seen in rows:
        print(f"| {kind} | {phase} | {seen['answers']:,} | {seen['wrong']} | {1e3 * seen['p50']:.0f} | {1e3 * seen['p99']:.0f} |")  # fmt: skip  # noqa: E501


if __name__ == "__main__":
    main()
