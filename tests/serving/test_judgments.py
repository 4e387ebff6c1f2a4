"""Votes: a file that `fit` takes as pairs, with thumbs up alone, whole after a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from remargin import Collection, InputError
from remargin.serving.judgments import Judgments

from .conftest import HOSTILE, Make, during


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line] if path.exists() else []


def test_thumbs_up_are_pairs_to_train_on_and_thumbs_down_are_not(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path / "votes.jsonl")
    for n in range(12):
        judgments.vote(f"query {n}", f"d{n}", f"document\u2028 {n}\nof two lines", 1 if n % 3 else -1, "after")
    assert len(rows(judgments.path)) == 8
    assert {row["grade"] for row in rows(judgments.down)} == {-1}
    collection = Collection.load(f"pairs:{judgments.path}", "train")
    assert set(collection.queries.values()) <= {f"query {n}" for n in range(12) if n % 3}
    assert len(collection.documents) == 8
    row = rows(judgments.path)[0]
    assert row == row | {"query": "query 1", "document_id": "d1", "grade": 1, "system": "after"}
    assert str(row["time"]).endswith("+00:00")


def test_the_last_vote_counts_and_one_may_be_taken_back(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path / "votes.jsonl")
    for grade in (1, 1, -1, 1, 0, -1):
        judgments.vote("q", "d1", "text", grade, "bm25")  # type: ignore[arg-type]
        judgments.vote("other", "d1", "text", 1, "bm25")
        assert judgments.of("q") == ({"d1": grade} if grade else {})
        up = [row["query"] for row in rows(judgments.path)]
        assert sorted(up) == ["other", "q"] if grade == 1 else ["other"]
        assert len(rows(judgments.down)) == (grade == -1)
    judgments.close()
    again = Judgments(tmp_path / "votes.jsonl")
    assert (again.of("q"), again.of("other")) == ({"d1": -1}, {"d1": 1})


def test_a_line_that_a_crash_left_unfinished_goes_and_a_finished_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "votes.jsonl"
    whole = json.dumps({"query": "q", "document": "x", "document_id": "d1"})
    path.write_text(f"{whole}\n{whole[:-9]}")
    judgments = Judgments(path)
    assert "the last line was not finished" in caplog.text
    assert path.read_text() == f"{whole}\n"
    judgments.close()
    path.write_text(whole)
    Judgments(path).vote("q", "d2", "y", 1, "after")
    assert [row["document_id"] for row in rows(path)] == ["d1", "d2"]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judgments = Judgments(tmp_path / "votes.jsonl")
    judgments.vote("q", "d1", "text", 1, "after")
    before = judgments.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            judgments.vote("q", "d2", "text", 1, "after")
    assert judgments.path.read_bytes() == before
    assert judgments.of("q") == {"d1": 1}


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "faq.jsonl").write_text('{"question": "x"}\n{"questio')
    with pytest.raises(InputError, match=r"faq\.jsonl:1: not a vote that remargin wrote"):
        Judgments(tmp_path / "faq.jsonl")
    assert (tmp_path / "faq.jsonl").read_text().endswith('{"questio')
    with pytest.raises(InputError, match=r"a name that ends in \.jsonl"):
        Judgments(tmp_path / "votes.csv")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        Judgments(tmp_path / "folder.jsonl")
    held = Judgments(tmp_path / "votes.jsonl")
    with pytest.raises(InputError, match="another server collects votes in it"):
        Judgments(tmp_path / "votes.jsonl")
    held.close()
    Judgments(tmp_path / "votes.jsonl").close()


def test_votes_come_by_http_only_if_they_are_collected(make_service: Make, tmp_path: Path) -> None:
    vote = {"query": "how do margins 9", "id": "d9", "grade": 1, "system": "after"}

    async def refused(client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/judgments", json=vote)
        assert (answer.status_code, answer.json()["detail"]) == (403, "this server does not collect votes (--collect)")

    async def collected(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/systems")).json()["collects"]
        assert (await client.post("/api/judgments", json=vote)).json() == {"id": "d9", "grade": 1}
        down = vote | {"id": "hostile", "grade": -1}
        assert (await client.post("/api/judgments", json=down)).status_code == 200
        for bad in ({"id": "../votes"}, {"grade": 2}, {"query": ""}, {"system": "x"}, {"file": "/tmp/x"}):
            assert (await client.post("/api/judgments", json=vote | bad)).status_code in (404, 422)
        found = (await client.post("/api/search", json={"query": vote["query"], "system": "bm25"})).json()
        assert {result["id"]: result["vote"] for result in found["results"]}["d9"] == 1
        assert 'remargin_votes_total{grade="-1"} 1.0' in (await client.get("/metrics")).text

    during(make_service(), refused)
    during(make_service(collect=tmp_path / "votes.jsonl"), collected)
    assert [row["document_id"] for row in rows(tmp_path / "votes.jsonl")] == ["d9"]
    assert [row["document"] for row in rows(tmp_path / "votes.down.jsonl")] == [HOSTILE.strip()]
