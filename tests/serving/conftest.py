"""A small collection with judged queries and a hostile document, and services over it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from remargin.serving.app import create_app
from remargin.serving.loading import ServedModel
from remargin.serving.service import Service

WORDS = ["value", "list", "text", "model", "file", "test", "query", "train", "returns", "margins", "adapt", "document"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202eright to left \x1b[31m \x00 " + "value" * 3000
Make = Callable[..., Service]


def write_collection(folder: Path, documents: int = 40) -> Path:
    """A BEIR folder: document n repeats word n; query n asks for it."""
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{n}": f"The {WORDS[n % 12]} of {WORDS[n // 12]} number {n}. " * (1 + n % 3) for n in range(documents)}
    texts["hostile"] = HOSTILE
    rows = [{"_id": id, "title": "", "text": text} for id, text in texts.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": f"q{n}", "text": f"how do {WORDS[n]} {n}"} for n in range(12)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    for split, numbers in {"train": range(6), "dev": range(6, 9), "test": range(9, 12)}.items():
        judgments = "".join(f"q{n}\td{n}\t1\n" for n in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgments}")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("served") / "collection")


@pytest.fixture(scope="session")
def make_service(tiny_encoder: Any, data: Path) -> Make:
    """A service of the tiny models before (DistilBERT) and after (BERT); options are the service's."""
    served = ServedModel(str(tiny_encoder()), str(data), str(tiny_encoder("distilbert")), hybrid=0.5)

    def make(**options: Any) -> Service:
        return Service(served, **options)

    return make


@asynccontextmanager
async def opened(service: Service, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A running service, and a client of its app."""
    transport = httpx.ASGITransport(create_app(service, **options))  # type: ignore[arg-type]
    async with service.running(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@contextmanager
def live(service: Service, **options: Any) -> Iterator[str]:
    """The address of a service that a real server offers on this machine, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app: Any = create_app(service, **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def during(service: Service, work: Callable[[httpx.AsyncClient], Awaitable[None]], **options: Any) -> None:
    """Run a coroutine with a client of a running service."""

    async def run() -> None:
        async with opened(service, **options) as client:
            await work(client)

    asyncio.run(run())
