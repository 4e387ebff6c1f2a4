"""From a vote on the page to the answer of a model that has learnt from it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from remargin import BiEncoder, stream
from remargin.serving.loading import ServedModel
from remargin.serving.service import Service
from remargin.training.streaming import learning

from .conftest import WORDS, during

QUERY = {"query": "how do margins 9", "system": "after"}


def test_votes_are_trained_on_and_the_new_model_answers(
    tiny_encoder: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the page of docs/how-to/stream.md: a stream that is resumed now and then, and a server beside it."""
    monkeypatch.setattr(learning.Away, "choose", lambda *_, **__: None)
    votes, out, heard = tmp_path / "votes.jsonl", tmp_path / "run", list[str]()

    def learn(**options: Any) -> Any:
        return stream(wait=0, say=heard.append, **options)

    rates: dict[str, Any] = {
        "learning_rate": 0.02,
        "batch_size": 2,
        "target": "contrastive",
        "precision": "32",
        "blend": 1,
    }
    begun = learn(stream=votes, data=data, model=tiny_encoder("bert"), out=out, **rates)
    assert (begun.lines, begun.steps) == (0, 0)  # nobody has voted; what it starts from is there to be served
    service = Service(ServedModel(str(out / "model"), str(data), "none"), votes, watch_seconds=0.05)
    old = service.engine

    async def run(client: httpx.AsyncClient) -> None:
        async def vote(word: int, grade: int) -> None:
            judged = {"query": f"how do {WORDS[word]} {word}", "id": f"d{word}", "grade": grade, "system": "after"}
            assert (await client.post("/api/judgments", json=judged)).status_code == 200

        async def scores() -> dict[str, float]:
            answer = (await client.post("/api/search", json=QUERY)).json()
            return {result["id"]: result["score"] for result in answer["results"]}

        before = await scores()
        for word in range(8):
            await vote(word, 1)
        await vote(8, -1)
        learnt = await asyncio.to_thread(learn, resume=out)
        assert (learnt.lines, learnt.examples, learnt.steps) == (8, 8, 4)
        for _ in range(400):
            assert (await client.post("/api/search", json=QUERY)).status_code == 200
            if service.engine is not old:
                break
            await asyncio.sleep(0.01)
        after = await scores()
        model = BiEncoder.from_pretrained(out / "model")
        texts = {row["_id"]: row["text"] for row in map(json.loads, (data / "corpus.jsonl").read_text().splitlines())}
        expected = model.encode_documents([texts[id] for id in after]) @ model.encode_queries([QUERY["query"]])[0]
        np.testing.assert_allclose(list(after.values()), expected, atol=2e-6)  # as they are rounded
        assert max(abs(after[id] - before[id]) for id in after.keys() & before.keys()) > 1e-5
        vectors = [engine.encode([["a query"]])[0].vectors for engine in (old, service.engine)]
        np.testing.assert_allclose(vectors[1], model.encode_queries(["a query"]), atol=1e-6)
        assert np.abs(vectors[1] - vectors[0]).max() > 1e-3

    during(service, run)
    assert service.engine is not old
    assert [json.loads(line)["grade"] for line in votes.with_name("votes.down.jsonl").read_text().splitlines()] == [-1]
