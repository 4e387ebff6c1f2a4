"""A new model or index takes over while queries come in, and none of them fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from remargin import BiEncoder, index, update
from remargin.errors import InputError
from remargin.serving.loading import ServedIndex, ServedModel, starting_encoder
from remargin.serving.service import Service

from .conftest import during, write_collection

QUERY = {"query": "how do margins 9", "system": "after"}


async def ask_until(client: httpx.AsyncClient, changed: Callable[[], bool]) -> None:
    """Ask without a pause until something has changed; no request may fail."""
    for _ in range(2000):
        answers = await asyncio.gather(*(client.post("/api/search", json=QUERY) for _ in range(4)))
        assert {answer.status_code for answer in answers} == {200}
        if changed():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the change was not taken over")


def test_a_new_model_takes_over_and_a_damaged_one_does_not(
    tiny_encoder: Any, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    BiEncoder.from_pretrained(tiny_encoder("bert")).save(folder)
    said: list[str] = []
    service = Service(ServedModel(str(folder), str(data), "none"), watch_seconds=0.05, say=said.append)
    old = service.engine

    async def run(client: httpx.AsyncClient) -> None:
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:1000])
        for _ in range(400):
            await asyncio.sleep(0.01)
            assert (await client.post("/api/search", json=QUERY)).status_code == 200
            if "a change was not taken over" in caplog.text:
                break
        assert "a change was not taken over" in caplog.text
        assert service.engine is old
        BiEncoder.from_pretrained(tiny_encoder("distilbert")).save(folder, overwrite=True)
        await ask_until(client, lambda: service.engine is not old)
        text = (await client.get("/metrics")).text
        assert 'remargin_reloads_total{result="failed"} 1.0' in text
        assert 'remargin_reloads_total{result="taken over"} 1.0' in text

    with caplog.at_level(logging.WARNING, "remargin"):
        during(service, run)
    assert service.engine is not old
    assert service.engine.bm25 is old.bm25  # not made again
    assert said == ["a new model is served: 41 documents"]
    expected = BiEncoder.from_pretrained(tiny_encoder("distilbert")).encode_queries(["x"])
    np.testing.assert_allclose(service.engine.encode([["x"]])[0].vectors, expected, atol=1e-5)


def test_an_updated_index_takes_over_with_its_new_documents(tiny_encoder: Any, tmp_path: Path) -> None:
    collection, folder = write_collection(tmp_path / "collection"), tmp_path / "index"
    index(folder, data=collection, model=tiny_encoder(), hybrid=0.5)
    service = Service(ServedIndex(str(folder)), watch_seconds=0.05)
    assert service.engine.systems == ["bm25", "after", "hybrid"]

    async def run(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).json()["documents"] == 41
        with open(collection / "corpus.jsonl", "a") as file:
            file.write(json.dumps({"_id": "fresh", "title": "", "text": "margins for everybody"}) + "\n")
        change = asyncio.create_task(asyncio.to_thread(update, folder, data=collection))
        while (await client.get("/healthz")).json()["documents"] == 41:
            assert (await client.post("/api/search", json=QUERY)).status_code == 200
            await asyncio.sleep(0.01)
        await change
        found = (await client.post("/api/search", json={"query": "everybody", "system": "bm25"})).json()["results"]
        assert [(result["id"], result["text"]) for result in found] == [("fresh", "margins for everybody")]

    during(service, run)


def test_an_index_is_served_as_it_was_made(tiny_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collection = write_collection(tmp_path / "collection")
    index(tmp_path / "dense", data=collection, model=tiny_encoder())
    index(tmp_path / "words", data=collection, index="bm25", texts=False)
    index(tmp_path / "kept", data=collection, index="bm25")
    assert ServedIndex(str(tmp_path / "dense")).load().systems == ["after"]
    words = ServedIndex(str(tmp_path / "words")).load()
    assert (words.systems, len(words)) == (["bm25"], 41)
    assert words.texts.of(["d1"])
    both = ServedIndex(str(tmp_path / "dense"), before=str(tiny_encoder("distilbert"))).load()
    assert both.systems == ["before", "after"]
    with pytest.raises(InputError, match="holds the encoder's vectors alone"):
        ServedIndex(str(tmp_path / "dense"), hybrid=0.5).load()
    with pytest.raises(InputError, match="a BM25 index has no encoder to compare with"):
        ServedIndex(str(tmp_path / "words"), before="x").load()
    collection.rename(tmp_path / "moved")
    lost = ServedIndex(str(tmp_path / "words")).load()
    assert lost.texts.of(["d1"]) == {}
    assert "texts are not shown" in caplog.text
    assert ServedIndex(str(tmp_path / "kept")).load().texts.of(["d1"])
    found = ServedIndex(str(tmp_path / "words"), data=str(tmp_path / "moved")).load()
    assert found.texts.of(["d1"])


def test_the_encoder_before_training_is_that_of_the_training_run(tmp_path: Path, tiny_encoder: Any, data: Path) -> None:
    from remargin.reports.run_files import write_config

    BiEncoder.from_pretrained(tiny_encoder("bert"), document_length=20).save(tmp_path / "model")
    assert starting_encoder(tmp_path / "model") is None
    asked = {"command": "fit", "asked": {"model": str(tiny_encoder("distilbert"))}, "versions": {}}
    write_config(tmp_path, asked)
    assert starting_encoder(tmp_path / "model") == str(tiny_encoder("distilbert"))
    engine = ServedModel(str(tmp_path / "model"), str(data)).load()
    assert engine.before is not None
    assert engine.before.model.document_length == 20
    assert ServedModel(str(tmp_path / "model"), str(data), "none").load().before is None
    write_config(tmp_path, asked | {"asked": {"model": str(tmp_path / "gone" / "away" / "x")}})
    assert ServedModel(str(tmp_path / "model"), str(data)).load().before is None
    with pytest.raises(InputError, match="no such folder"):
        ServedModel(str(tmp_path / "model"), str(data), "./gone").load()
