"""Every route, and what is refused: with a status of 4xx and a reason, never by waiting or by a traceback."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from remargin.serving import service as serving
from remargin.serving.engine import Hit
from remargin.serving.limits import BODY_BYTES, DRAINED_BYTES, QUERY_CHARACTERS, SHOWN_CHARACTERS

from .conftest import HOSTILE, Make, during
from .test_engine import same_ranking

TOKEN = "a-token-of-many-characters"


def test_search_by_post_and_get(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        for system in ("bm25", "before", "after", "hybrid"):
            asked = {"query": "how do margins 9", "k": 4, "system": system}
            answer = (await client.post("/api/search", json=asked)).json()
            assert answer["system"] == system
            assert answer["judged"] == 1
            assert [result["rank"] for result in answer["results"]] == list(range(1, len(answer["results"]) + 1))
            assert all(result["relevant"] == (result["id"] == "d9") for result in answer["results"])
            scores = [result["score"] for result in answer["results"]]
            assert scores == sorted(scores, reverse=True)
            by_get = (await client.get("/api/search", params=asked)).json()
            assert by_get["results"] == answer["results"]
        default = (await client.post("/api/search", json={"query": "text"})).json()
        assert (default["system"], default["judged"], len(default["results"])) == ("hybrid", None, 10)
        assert {result["relevant"] for result in default["results"]} == {None}
        nothing = (await client.post("/api/search", json={"query": "zzz", "system": "bm25"})).json()
        assert nothing["results"] == []

    during(make_service(), run)


def test_a_long_document_comes_in_part_and_whole_when_asked_for(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/api/search", json={"query": "script alert", "system": "bm25"})).json()
        (found,) = answer["results"]
        assert (found["id"], found["more"], found["text"]) == ("hostile", True, HOSTILE.strip()[:SHOWN_CHARACTERS])
        whole = (await client.get("/api/document", params={"id": "hostile"})).json()
        assert whole == {"id": "hostile", "text": HOSTILE.strip()}
        for id in ("nothing", "../../etc/passwd", "/etc/passwd"):
            unknown = await client.get("/api/document", params={"id": id})
            assert (unknown.status_code, list(unknown.json())) == (404, ["detail"])

    during(make_service(), run)


def test_encode_and_embeddings(make_service: Make) -> None:
    service = make_service()

    async def run(client: httpx.AsyncClient) -> None:
        texts = ["the list", "value " * 400]
        ours = (await client.post("/api/encode", json={"texts": texts, "kind": "document"})).json()
        assert (ours["dimension"], ours["similarity"], ours["truncated"]) == (32, "cosine", 1)
        vectors = service.engine.encoder("after").encode_documents(texts)
        np.testing.assert_allclose(ours["vectors"], vectors, atol=1e-6)
        theirs = (await client.post("/v1/embeddings", json={"input": texts, "model": "text-embedding-3-small"})).json()
        assert [item["index"] for item in theirs["data"]] == [0, 1]
        np.testing.assert_allclose([item["embedding"] for item in theirs["data"]], vectors, atol=1e-6)
        assert theirs["usage"]["total_tokens"] == theirs["usage"]["prompt_tokens"] > 60
        packed = {"input": "the list", "model": "before:query", "encoding_format": "base64", "user": "me"}
        (item,) = (await client.post("/v1/embeddings", json=packed)).json()["data"]
        expected = service.engine.encoder("before").encode_queries(["the list"])[0]
        np.testing.assert_allclose(np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), expected, atol=1e-6)
        refused = await client.post("/v1/embeddings", json={"input": "x", "dimensions": 7})
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith("dimensions 7: the vectors have 32")

    during(service, run)


def test_what_the_server_says_of_itself(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).json() == {"status": "ok", "documents": 41}
        about = (await client.get("/api/systems")).json()
        labels = ["BM25", "Before training", "After training", "Hybrid"]
        assert [system["label"] for system in about["systems"]] == labels
        assert (about["default"], about["documents"], about["collects"]) == ("hybrid", 41, False)
        assert about["data"] == "collection"  # not where it lies
        assert len(about["examples"]) == 3
        await client.get("/no/such/path")
        await client.post("/api/search", json={"query": "text"})
        text = (await client.get("/metrics")).text
        assert 'remargin_requests_total{route="/api/search",status="200"} 1.0' in text
        assert 'remargin_requests_total{route="other",status="404"} 1.0' in text
        assert "remargin_batch_size_count 1.0" in text
        assert "remargin_documents 41.0" in text
        document = (await client.get("/openapi.json")).json()
        assert set(document["paths"]) >= {"/api/search", "/api/encode", "/v1/embeddings", "/healthz", "/metrics"}
        searched = document["components"]["schemas"]["SearchRequest"]["properties"]
        assert (searched["query"]["maxLength"], searched["k"]["maximum"]) == (QUERY_CHARACTERS, 100)

    during(make_service(), run)


def test_the_page_may_run_its_own_script_and_nothing_else(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
            answer = await client.get(path)
            assert answer.headers["content-type"].startswith(kind)
            assert len(answer.content) > 1000
        for path in ("/", "/api/systems", "/nothing"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers
        page = (await client.get("/")).text
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in page + (await client.get("/page.js")).text + (await client.get("/page.css")).text
        assert " style=" not in page
        assert "innerHTML" not in (await client.get("/page.js")).text

    during(make_service(), run)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({}, "query: Field required"),
        ({"query": ""}, "query: String should have at least 1 character"),
        ({"query": " \n"}, "query: String should match pattern"),
        ({"query": "x" * (QUERY_CHARACTERS + 1)}, f"query: String should have at most {QUERY_CHARACTERS} characters"),
        ({"query": "x", "k": 101}, "k: Input should be less than or equal to 100"),
        ({"query": "x", "k": 0}, "k: Input should be greater than or equal to 1"),
        ({"query": "x", "system": "google"}, "system: Input should be 'bm25', 'before', 'after' or 'hybrid'"),
        ({"query": "x", "path": "/etc/passwd"}, "path: Extra inputs are not permitted"),
        ({"query": ["x"]}, "query: Input should be a valid string"),
    ],
)
def test_a_search_past_the_limits_is_refused(make_service: Make, asked: dict[str, Any], reason: str) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        for answer in (await client.post("/api/search", json=asked),):
            assert answer.status_code == 422
            assert answer.json()["detail"].startswith(reason)

    during(make_service(), run)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"query": "\\ud800"}', b'{"\\ud800": 1}', b"[" * 100_000, b"1" * 9000, b"\xff"]
)
def test_bodies_that_are_no_request_are_refused(make_service: Make, body: bytes) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/search", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422)
        assert answer.json()["detail"]

    during(make_service(), run)


def test_a_large_body_is_refused_whether_or_not_it_says_its_size(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        async def endless() -> Any:
            for _ in range(2 * DRAINED_BYTES >> 16):
                yield b"x" * (1 << 16)

        for content in (b"x" * (BODY_BYTES + 1), endless()):
            answer = await client.post("/api/search", content=content)
            assert (answer.status_code, answer.headers["connection"]) == (413, "close")
        texts = {"texts": ["x"] * 129}
        assert (await client.post("/api/encode", json=texts)).status_code == 422

    during(make_service(), run)


def test_other_systems_than_those_loaded_are_refused(make_service: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    engine = service.engine
    service.engine = type(engine)(None, None, engine.bm25, None, engine.texts, engine.known)

    async def run(client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/search", json={"query": "x", "system": "after"})
        assert (answer.status_code, answer.json()) == (400, {"detail": "no system 'after' is loaded; use bm25"})
        for path, body in (("/api/encode", {"texts": ["x"]}), ("/v1/embeddings", {"input": "x"})):
            assert (await client.post(path, json=body)).status_code == 400
        about = (await client.get("/api/systems")).json()
        assert [system["name"] for system in about["systems"]] == ["bm25"]

    during(service, run)


def test_past_the_queue_there_are_only_clean_refusals(make_service: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, free = threading.Event(), threading.Event()
    done = serving.work

    def slow(jobs: Sequence[serving.Job]) -> list[serving.Done]:
        busy.set()
        free.wait(20)
        return done(jobs)

    monkeypatch.setattr(serving, "work", slow)

    async def run(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post("/api/search", json={"query": "text"}))
        await asyncio.to_thread(busy.wait, 20)
        asked = [asyncio.create_task(client.post("/api/search", json={"query": f"text {n}"})) for n in range(60)]
        await asyncio.wait(asked[8:], timeout=20)
        refused = [task.result() for task in asked if task.done()]  # while the others wait
        assert len(refused) == 52
        for answer in refused:
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.json() == {"detail": "too many queries wait already; try again in a second"}
        assert (await client.get("/healthz")).status_code == 200
        openai = await client.post("/v1/embeddings", json={"input": "x"})
        assert openai.status_code == 429, openai.text
        assert openai.json()["error"]["type"] == "rate_limit"
        free.set()
        answers = await asyncio.gather(first, *asked)
        assert sum(answer.status_code == 200 for answer in answers) == 1 + 8
        assert (await client.post("/api/search", json={"query": "text"})).status_code == 200

    during(make_service(batch_size=4, queue=8), run)


def test_concurrent_queries_share_batches_and_find_the_same(make_service: Make) -> None:
    service = make_service(batch_seconds=0.05)
    asked = [{"query": f"the {word} {n}", "system": "after"} for n, word in enumerate(["list", "text", "value"] * 7)]

    async def run(client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.post("/api/search", json=one) for one in asked))
        together = [answer.json()["results"] for answer in answers]
        assert "remargin_batch_size_count 1.0" in (await client.get("/metrics")).text
        for one, results in zip(asked, together, strict=True):
            alone = (await client.post("/api/search", json=one)).json()["results"]
            assert same_ranking(*([Hit(r["id"], r["score"]) for r in ranking] for ranking in (alone, results)))

    during(service, run)


def test_a_token_guards_all_but_the_page_itself(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        for path in ("/", "/page.js", "/page.css", "/healthz"):
            assert (await client.get(path)).status_code == 200
        for path in ("/api/systems", "/metrics", "/openapi.json", "/api/document?id=d1", "/nothing"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        for given in ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xff"):
            headers = {"authorization": given.encode("latin-1")}
            answer = await client.post("/api/search", json={"query": "x"}, headers=headers)
            assert answer.status_code == 401
            assert TOKEN not in answer.text
        headers = {"authorization": f"bearer {TOKEN}"}
        assert (await client.post("/api/search", json={"query": "x"}, headers=headers)).status_code == 200

    during(make_service(), run, token=TOKEN)


def test_without_a_token_the_server_answers_to_this_machines_names_alone(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 421)):
            answer = await client.get("/api/systems", headers={"host": host})
            assert answer.status_code == status, host

    during(make_service(), run, hosts={"localhost", "127.0.0.1", "::1"})


def test_a_query_that_breaks_the_encoder_is_one_failed_request(
    make_service: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = serving.work

    def fragile(jobs: Sequence[serving.Job]) -> list[serving.Done]:
        if any(isinstance(job, serving.SearchJob) and "boom" in job.query for job in jobs):
            raise RuntimeError("boom")
        return done(jobs)

    monkeypatch.setattr(serving, "work", fragile)

    async def run(client: httpx.AsyncClient) -> None:
        queries = ["text", "boom", "list"]
        tasks = (client.post("/api/search", json={"query": query}) for query in queries)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, Exception) for answer in answers] == [False, True, False]

    during(make_service(batch_seconds=0.05), run)


def test_json_is_plain(make_service: Make) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/search", json={"query": "übung 日本 \u2028 <b>"})
        assert json.loads(answer.content.decode())["query"] == "übung 日本 \u2028 <b>"

    during(make_service(), run)
