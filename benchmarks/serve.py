"""Load on `remargin serve`: many clients at once, a flood past the queue, and a new model meanwhile.

    python benchmarks/serve.py --model MINILM --data path/to/scifact [--seconds 60] [--out results/serve.md]
    python benchmarks/serve.py --data path/to/scifact --flood INDEX     # the flood alone, on an index of these data

Every server is a process of its own at 127.0.0.1; the clients, in this process, share its cores. They ask for the 10
best documents of the collection's own queries, each client one query after the other. The rival is
sentence-transformers behind the same FastAPI application and over the same vectors: its encode is called for one
request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remargin import BiEncoder, Collection, index
from remargin.model.folder import local_folder

HOST = "127.0.0.1"
QUEUE = 64  # of the server that is flooded
FLOOD = 400  # clients
PATIENCE = 600.0  # seconds until a server answers, or has taken a model over


@dataclass
class Load:
    """What clients saw."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # of requests with status 200

    @property
    def failed(self) -> int:
        """Requests that were neither answered nor cleanly refused."""
        return sum(count for status, count in self.statuses.items() if status not in (200, 429))

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.statuses[200] / self.seconds

    def percentile(self, percent: float) -> float:
        """Of the latency, in milliseconds."""
        return 1000 * float(np.percentile(self.latencies, percent)) if self.latencies else float("nan")


async def client(port: int, queries: list[str], end: asyncio.Event, load: Load, seed: int) -> None:
    """Ask one query after the other over one connection, until the end. A status of 0 is a connection that broke."""
    choose = random.Random(seed)
    reader = writer = None
    while not end.is_set():
        body = json.dumps({"query": choose.choice(queries), "k": 10, "system": "after"}).encode()
        head = f"POST /api/search HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: "
        started = time.perf_counter()
        try:
            if writer is None or reader is None:
                reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
            header = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: (\d+)", header)
            assert size is not None
            answer = await reader.readexactly(int(size[1]))
            status = int(header.split(b" ", 2)[1])
            if status == 200:
                assert answer.endswith(b"}")
                load.latencies.append(time.perf_counter() - started)
            elif status == 429:
                assert b"too many queries wait" in answer
                await asyncio.sleep(0.01)  # as clients do that were told to wait, only sooner
        except (OSError, asyncio.IncompleteReadError):
            status, reader, writer = 0, None, None
            await asyncio.sleep(0.05)
        load.statuses[status] += 1
    if writer is not None:
        writer.close()


async def put_under_load(port: int, queries: list[str], clients: int, seconds: float, during: Any = None) -> Load:
    """Clients for some seconds; with `during`, a coroutine, until that is done."""
    load, end = Load(), asyncio.Event()
    started = time.perf_counter()
    team = [asyncio.create_task(client(port, queries, end, load, seed)) for seed in range(clients)]
    await asyncio.sleep(seconds)
    if during is not None:
        await during
    end.set()
    load.seconds = time.perf_counter() - started
    done, late = await asyncio.wait(team, timeout=90)
    for task in late:
        task.cancel()
        load.statuses[0] += 1  # a request that hung
    for task in done:
        task.result()
    return load


@contextmanager
def server(*command: object) -> Iterator[int]:
    """A server in a process of its own; its port."""
    process = subprocess.Popen([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = next(int(found[1]) for line in process.stdout if (found := re.search(r"http://[\d.]+:(\d+)/", line)))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                asyncio.run(asked(port, "/healthz"))
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0, "the server did not end well"
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def ours(*options: object) -> tuple[object, ...]:
    return ("-m", "remargin", "serve", "--port", 0, *options)


async def asked(port: int, path: str) -> str:
    """The answer to one request."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def metric(port: int, name: str) -> float:
    found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", asyncio.run(asked(port, "/metrics")))
    return float(found[1]) if found else 0.0


def memory(port: int) -> float:
    """Resident memory of a server, in MB."""
    return metric(port, "process_resident_memory_bytes") / 1e6


async def swap(port: int, model: Path, folder: Path, times: int) -> None:
    """Put another model into the place of the one that is served, and wait until it is taken over, a few times."""
    for number in range(1, times + 1):
        encoder = BiEncoder.from_pretrained(model)
        with torch.no_grad():
            for weights in encoder.parameters():
                weights.mul_(1 + 1e-3 * number)
        await asyncio.to_thread(encoder.save, folder, overwrite=True)
        end = time.monotonic() + PATIENCE
        while f'remargin_reloads_total{{result="taken over"}} {float(number)}' not in await asked(port, "/metrics"):
            assert time.monotonic() < end, "the new model was not taken over"
            await asyncio.sleep(0.5)


def measure(model: Path, data: str, seconds: float, clients: int) -> list[str]:
    """The lines of the page."""
    collection = Collection.load(data, "test")
    queries = list(collection.queries.values())
    rows: dict[str, Load] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        index(folder, data=data, model=model)
        ways = {
            "remargin serve": ours("--index", folder),
            "the same, one at a time (`--batch-size 1 --batch-wait 0`)": ours(
                "--index", folder, "--batch-size", 1, "--batch-wait", 0
            ),
            "sentence-transformers, one at a time": (__file__, "--rival", "--model", model, "--index", folder),
        }
        for name, command in ways.items():
            with server(*command) as port:
                asyncio.run(put_under_load(port, queries, 8, 2))  # it is warm then
                rows[name] = asyncio.run(put_under_load(port, queries, clients, seconds))
            print(name, rows[name].statuses, f"{rows[name].rate:.0f}/s", file=sys.stderr)
        flood_line = flooded(folder, queries, seconds, clients)
        served = Path(scratch) / "model"
        BiEncoder.from_pretrained(model).save(served)
        with server(*ours("--model", served, "--data", data, "--hybrid", "off")) as port:
            changing = asyncio.run(put_under_load(port, queries, clients, 2, swap(port, model, served, times=2)))
    fast, slow, theirs = rows.values()
    busy = f"15-minute load average {os.getloadavg()[2]:.1f}"  # other work makes all rates smaller
    lines = [
        "# Serving under load",
        "",
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d')}; {busy}. Made by `python benchmarks/serve.py --model MINILM --data "
        f"{Path(data).name} --seconds {seconds:g}`.",
        "",
        f"{clients} clients, each with one query after the other, for {seconds:g} s: the 10 best of "
        f"{len(collection.documents):,} documents of {Path(data).name}, with their texts. Clients and server share the "
        "cores.",
        "",
        "| server | answers | failed | answers per second | p50, ms | p99, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, load in rows.items():
        cells = [f"{load.statuses[200]:,}", f"{load.failed}", f"{load.rate:.0f}"]
        cells += [f"{load.percentile(p):.0f}" for p in (50, 99)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Batches are worth {fast.rate / slow.rate:.1f}x; {fast.rate / theirs.rate:.1f}x of sentence-transformers.",
        "",
        flood_line,
        "",
        f"Two new models in {changing.seconds:.0f} s under the load of {clients} clients, each encoding all documents "
        f"beside the queries: {changing.statuses[200]:,} answers, {changing.failed} failed, "
        f"{changing.statuses[429]} refused, p50 {changing.percentile(50):.0f} ms, "
        f"p99 {changing.percentile(99):.0f} ms.",
    ]
    for load in (fast, slow, theirs, changing):
        assert load.failed == 0, load.statuses
    assert changing.statuses[429] == 0
    assert fast.rate > 3 * slow.rate, "batches should be worth 3x"
    return lines


def flooded(folder: Path, queries: list[str], seconds: float, clients: int) -> str:
    """A line about a server that gets more queries than its queue holds, and answers afterwards."""
    with server(*ours("--index", folder, "--queue", QUEUE)) as port:
        asyncio.run(put_under_load(port, queries, clients, seconds / 6))  # batches of all sizes come in this time
        memories, floods = [memory(port)], list[Load]()
        for _ in range(3):
            floods.append(asyncio.run(put_under_load(port, queries, FLOOD, seconds / 3)))
            memories.append(memory(port))
        after = asyncio.run(put_under_load(port, queries, 8, 3))
    flood = Load(sum(f.seconds for f in floods), sum((f.statuses for f in floods), Counter()))
    assert flood.failed == after.failed == after.statuses[429] == 0, (flood.statuses, after.statuses)
    kept = ", ".join(f"{m:.0f}" for m in memories)
    return (
        f"A flood of {FLOOD} clients on a queue of {QUEUE}, {flood.seconds:.0f} s: {flood.statuses[200]:,} answers, "
        f"{flood.statuses[429]:,} refusals with status 429, {flood.failed} failed. Resident memory before and after "
        f"each third of the flood: {kept} MB. Afterwards {after.statuses[200]:,} answers, {after.failed} failed, "
        f"p50 {after.percentile(50):.0f} ms."
    )


def rival(model: str, folder: str) -> None:
    """sentence-transformers in the place of our encoder, in the same application."""
    import socket

    import uvicorn
    from sentence_transformers import SentenceTransformer

    from remargin.serving.app import create_app
    from remargin.serving.engine import Encoded, Engine
    from remargin.serving.loading import ServedIndex
    from remargin.serving.service import Service

    encoder = SentenceTransformer(model, device="cpu")

    class Theirs(Engine):
        def encode(self, several: Any, kind: str = "queries", name: str = "after") -> list[Encoded]:  # type: ignore[override]
            return [
                Encoded(encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False), 0, 0)
                for texts in several
            ]

    class Served(ServedIndex):
        def load(self) -> Engine:
            found = super().load()
            return Theirs(found.after, None, None, None, found.texts, found.known)

    service = Service(Served(folder), batch_size=1, batch_seconds=0)
    with socket.create_server((HOST, 0)) as listening:
        print(f"http://{HOST}:{listening.getsockname()[1]}/", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn's own handler stops it
        app: Any = create_app(service)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--flood", type=Path, metavar="INDEX", help="only the flood, on an index of the collection")
    parser.add_argument("--rival", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--index", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if given.rival:
        rival(given.model, given.index)
        return
    if given.flood is not None:
        queries = list(Collection.load(given.data, "test").queries.values())
        print(flooded(given.flood, queries, given.seconds, given.clients))
        return
    lines = measure(local_folder(given.model), given.data, given.seconds, given.clients)
    print("\n".join(lines))
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
