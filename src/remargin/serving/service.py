"""The server without HTTP: the engine of the moment, the batches, the votes, and what watches for a new engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remargin.model.tokenizer import Kind
from remargin.serving.batching import Batcher, Closed
from remargin.serving.engine import Encoded, Engine, Hit, Name
from remargin.serving.judgments import Judgments
from remargin.serving.limits import ANSWER_SECONDS
from remargin.serving.loading import Served
from remargin.serving.metrics import Metrics
from remargin.serving.reloading import Reloader


@dataclass(frozen=True)
class SearchJob:
    """A query for a system of an engine."""

    engine: Engine
    query: str
    system: Name
    k: int


@dataclass(frozen=True)
class EncodeJob:
    """Texts for an encoder of an engine."""

    engine: Engine
    texts: tuple[str, ...]
    kind: Kind
    system: Name


Job = SearchJob | EncodeJob
Done = list[Hit] | Encoded


def work(jobs: Sequence[Job]) -> list[Done]:
    """Do jobs together: queries for the same engine are one search, texts for the same encoder are encoded at once."""
    done: dict[int, Done] = {}  # by place
    searches: dict[int, list[int]] = defaultdict(list)
    encodings: dict[tuple[int, Kind, Name], list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        if isinstance(job, SearchJob):
            searches[id(job.engine)].append(place)
        else:
            encodings[id(job.engine), job.kind, job.system].append(place)
    for places in searches.values():
        asked = [job for place in places if isinstance(job := jobs[place], SearchJob)]
        hits = asked[0].engine.search([(job.query, job.system) for job in asked], max(job.k for job in asked))
        done |= {place: best[: job.k] for place, job, best in zip(places, asked, hits, strict=True)}
    for places in encodings.values():
        texts = [job for place in places if isinstance(job := jobs[place], EncodeJob)]
        encoded = texts[0].engine.encode([job.texts for job in texts], texts[0].kind, texts[0].system)
        done |= dict(zip(places, encoded, strict=True))
    return [done[place] for place in range(len(jobs))]


class Service:
    """Answers searches and encodings, by the newest engine.

    Args:
        served: what is on disk; it is loaded here, and watched while the service runs.
        collect: the JSONL file for votes; without it, none are taken.
        batch_size: queries or texts that are encoded together at most.
        batch_seconds: how long a query waits for others if nothing else is to be done.
        queue: queries and texts that may wait.
        watch_seconds: between two looks at what is served.
        say: called with a line when a new engine took over.

    Raises:
        InputError: if what is served cannot be loaded, or votes cannot be written.
    """

    def __init__(
        self,
        served: Served,
        collect: str | Path | None = None,
        batch_size: int = 64,
        batch_seconds: float = 0.004,
        queue: int = 512,
        watch_seconds: float = 1.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.judgments = None if collect is None else Judgments(collect)
        self.metrics = Metrics()
        self._served, self._say, self._watch_seconds = served, say, watch_seconds
        self._state = served.state()
        self.engine = served.load()
        self._batcher: Batcher[Job, Done] | None = None
        self._batching = (batch_size, batch_seconds, queue)
        self.metrics.watch(lambda: self._batcher.waiting if self._batcher else 0, lambda: len(self.engine))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take jobs until the block ends, then finish those that were taken."""
        size, seconds, queue = self._batching
        reloader = Reloader(
            self._served, self._state, self._swap, lambda: self.metrics.reload(False), self._watch_seconds
        )
        async with Batcher(work, size, seconds, queue, self.metrics.batch) as self._batcher, reloader:
            yield
        if self.judgments is not None:
            self.judgments.close()

    def _swap(self, engine: Engine) -> None:
        self.engine = engine
        self.metrics.reload(True)
        self._say(f"a new {'model' if engine.after else 'index'} is served: {len(engine):,} documents")

    async def search(self, query: str, system: Name | None, k: int) -> tuple[Engine, Name, list[Hit]]:
        """The documents that a system finds, and the engine that found them: its texts and judgments go with them.

        Raises:
            QueueFull, Closed, TimeoutError: as in `Batcher.submit`, or if the answer takes too long.
            InputError: if the system is not loaded.
        """
        engine = self.engine
        name = system or engine.default
        engine.require(name)
        hits = await self._submit(SearchJob(engine, query, name, k))
        assert isinstance(hits, list)
        return engine, name, hits

    async def encode(self, texts: Sequence[str], kind: Kind, system: Name) -> tuple[Engine, Encoded]:
        """Vectors of texts, and the engine that made them.

        Raises:
            QueueFull, Closed, TimeoutError, InputError: as in `search`.
        """
        engine = self.engine
        engine.encoder(system)
        encoded = await self._submit(EncodeJob(engine, tuple(texts), kind, system), len(texts))
        assert isinstance(encoded, Encoded)
        self.metrics.truncated(encoded.truncated)
        return engine, encoded

    async def _submit(self, job: Job, size: int = 1) -> Done:
        if self._batcher is None:
            raise Closed
        return await asyncio.wait_for(self._batcher.submit(job, size), ANSWER_SECONDS)
