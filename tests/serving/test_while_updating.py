"""While `update` changes an index, every answer is that of the index before a change or after it, and of no other."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from remargin import BiEncoder, Collection, index, search, update
from remargin.serving.loading import ServedIndex
from remargin.serving.service import Service

from .conftest import WORDS, during

CHANGES, K = 6, 8
QUERIES = {f"q{n}": f"how do {WORDS[n]} {n}" for n in range(5)}
Answers = dict[str, dict[str, float]]


def texts(version: int) -> dict[str, str]:
    """With each version, the three oldest documents go, three come, and every fifth has another text."""
    numbers = range(3 * version, 40 + 3 * version)
    return {f"d{i}": f"{WORDS[(i + version * (i % 5 == 0)) % 12]} of {WORDS[i % 7]} number {i}" for i in numbers}


def write(folder: Path, version: int) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"_id": id, "title": "", "text": text}) + "\n" for id, text in texts(version).items()]
    (folder / "corpus.jsonl").write_text("".join(rows))
    queries = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(queries))
    (folder / "qrels").mkdir(exist_ok=True)
    judgments = "".join(f"{id}\td39\t1\n" for id in QUERIES)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgments}")
    return folder


class Updating:
    """Changes an index again and again in a thread, and says which versions an answer may be of."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.started = self.ended = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(folder, data))

    def _run(self, folder: Path, data: Path) -> None:
        try:
            for version in range(1, CHANGES + 1):
                write(data, version)
                self.started = version
                update(folder, data=data)
                self.ended = version
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Updating:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()
        assert self.error is None
        assert self.ended == CHANGES

    @property
    def running(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture(scope="module")
def model(tiny_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(folder)
    return folder


@pytest.fixture(scope="module")
def expected(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Answers]:
    """The answers of an index of each version that was made anew."""
    folder, answers = tmp_path_factory.mktemp("versions"), []
    for version in range(CHANGES + 1):
        data = write(folder / f"data-{version}", version)
        index(folder / f"index-{version}", data=data, model=model, hybrid=0.5)
        answers.append(search(data, folder / f"index-{version}", k=K).rankings)
    for query in QUERIES:
        assert len({tuple(answer[query]) for answer in answers}) > CHANGES // 2, "versions must differ in their answers"
    return answers


def versions_of(query: str, ranking: dict[str, float], expected: list[Answers]) -> list[int]:
    return [
        version
        for version, answers in enumerate(expected)
        if answers[query].keys() == ranking.keys()
        and all(abs(answers[query][id] - score) < 1e-4 for id, score in ranking.items())
    ]


def test_a_search_while_an_update_runs_finds_what_was_there_before_or_after(
    model: Path, expected: list[Answers], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, folder = write(tmp_path / "data", 0), tmp_path / "index"
    index(folder, data=data, model=model, hybrid=0.5)
    collection = Collection.load(str(data), "test")
    encoder, seen, searches = BiEncoder.from_pretrained(model), set(), 0
    with Updating(folder, data) as updating:
        while updating.running:
            first = updating.ended
            run = search(collection, folder, encoder, k=K)
            last = updating.started
            for query, ranking in run.rankings.items():
                possible = versions_of(query, ranking, expected)
                assert set(possible) & set(range(first, last + 1)), (first, last, query, ranking)
                seen.update(possible)
            searches += 1
    assert searches > CHANGES
    assert len(seen) > 2
    assert search(collection, folder, encoder, k=K).rankings.keys() == QUERIES.keys()


def test_a_server_while_an_update_runs_answers_as_before_or_after(
    model: Path, expected: list[Answers], tmp_path: Path
) -> None:
    data, folder = write(tmp_path / "data", 0), tmp_path / "index"
    index(folder, data=data, model=model, hybrid=0.5)
    service = Service(ServedIndex(str(folder)), watch_seconds=0.01)

    async def run(client: httpx.AsyncClient) -> None:
        served = answers = 0
        with Updating(folder, data) as updating:
            for number in range(20_000):
                query = f"q{number % len(QUERIES)}"
                last = updating.ended if not updating.running else CHANGES
                reply = await client.post("/api/search", json={"query": QUERIES[query], "k": K, "system": "hybrid"})
                assert reply.status_code == 200
                results = reply.json()["results"]
                ranking = {result["id"]: result["score"] for result in results}
                possible = [v for v in versions_of(query, ranking, expected) if served <= v <= last]
                assert possible, (served, last, query, ranking)
                served = possible[0]  # a later answer is of no earlier version
                assert any(all(texts(v)[r["id"]] == r["text"] for r in results) for v in possible)
                answers += 1
                if served == CHANGES:
                    break
                await asyncio.sleep(0.002)
        assert served == CHANGES
        assert answers > CHANGES

    during(service, run)
