"""The command: what it refuses before it starts, and a real server that is stopped while it answers."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from remargin import InputError, serve
from remargin.serving.loading import ServedModel
from remargin.serving.server import read_token

Start = Callable[..., "tuple[subprocess.Popen[str], str]"]


def test_other_machines_need_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InputError, match="is reached by other machines, and there is no token"):
            serve("model", "data", host=host)
    monkeypatch.setenv("REMARGIN_TOKEN", "short")
    with pytest.raises(InputError, match=r"REMARGIN_TOKEN: a token has 16 characters or more.*secrets.token_urlsafe"):
        serve("model", "data", host="0.0.0.0")
    monkeypatch.setenv("REMARGIN_TOKEN", "x" * 20)
    assert read_token(None) == "x" * 20
    (tmp_path / "token").write_text(f"{'y' * 20}\n")
    assert read_token(tmp_path / "token") == "y" * 20
    with pytest.raises(InputError, match="the token cannot be read from it"):
        read_token(tmp_path / "nothing")


def test_what_is_missing_is_said_in_a_line(
    remargin: Any, tiny_encoder: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, message in (
        ([], "a server needs an index, or a model and a collection; give --index, or --model --data"),
        (["--model", tiny_encoder()], "a server needs an index, or a model and a collection"),
        (["--index", tmp_path / "none", "--port", "0"], "none"),
        (["--index", tmp_path, "--skip-bad"], "--skip-bad does nothing for an index folder"),
        (["--index", tmp_path, "--dims", "8"], "--dims does nothing for an index folder"),
        (["--model", tiny_encoder(), "--data", data, "--dims", "999", "--port", "0"], "999"),
        (["--model", tmp_path, "--data", data, "--port", "0"], "no weights"),
        (["--model", tiny_encoder(), "--data", "pairs:nothing.csv", "--port", "0"], "nothing.csv: no such file"),
        (["--model", "x", "--data", data, "--collect", "votes.csv", "--port", "0"], "a name that ends in .jsonl"),
    ):
        result = remargin("serve", *given)
        assert result.returncode == 2, result
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = remargin("serve", "--model", tiny_encoder(), "--data", data, "--port", port)
        assert f"127.0.0.1:{port} cannot be used (Address already in use); choose another --port" in result.stderr
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "fastapi is not installed; pip install 'remargin[serve]'" in remargin("serve").stderr


def test_vectors_are_truncated_if_asked_for(tiny_encoder: Any, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = ServedModel(str(tiny_encoder()), str(data), hybrid=0.5, used={"dims": 8}).load()
    (encoded,) = engine.encode([["a question"]])
    assert encoded.vectors.shape == (1, 8)
    assert engine.search([("a question", "after")], 3)[0]
    assert "vectors are truncated to 8 numbers" in caplog.text


@pytest.fixture
def start(tiny_encoder: Any, data: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a server on a free port, in a process of its own; returns the process and its address."""
    processes: list[subprocess.Popen[str]] = []

    def run(*options: Any) -> tuple[subprocess.Popen[str], str]:
        given = ["--model", tiny_encoder(), "--data", data, "--port", 0, *options]
        command = [sys.executable, "-m", "remargin", "serve", *map(str, given)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
        )
        processes.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"page: (http://\S+)/", line):
                break
        else:
            raise AssertionError(process.stderr.read() if process.stderr else "")
        for _ in range(200):
            try:
                httpx.get(f"{found[1]}/healthz")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        return process, found[1]

    yield run
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_answers_what_it_accepted(start: Start, number: int) -> None:
    process, address = start("--batch-wait", 700)  # every query waits that long for others
    with concurrent.futures.ThreadPoolExecutor(8) as team:
        waiting = [
            team.submit(httpx.post, f"{address}/api/search", json={"query": f"text {n}", "system": "after"}, timeout=30)
            for n in range(8)
        ]
        metrics = ""
        while "remargin_queue 8.0" not in metrics and not waiting[0].done():
            metrics = httpx.get(f"{address}/metrics").text
        process.send_signal(number)
        answers = [one.result() for one in waiting]
    assert [answer.status_code for answer in answers] == [200] * 8
    assert all(answer.json()["results"] for answer in answers)
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")


@pytest.mark.slow
def test_a_server_with_a_token_and_votes(start: Start, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-many-characters")
    process, address = start("--token-file", tmp_path / "token", "--collect", "votes.jsonl")
    vote = {"query": "the list", "id": "d1", "grade": 1, "system": "after"}
    assert httpx.post(f"{address}/api/judgments", json=vote).status_code == 401
    headers = {"authorization": "Bearer a-token-of-many-characters"}
    assert httpx.post(f"{address}/api/judgments", json=vote, headers=headers).status_code == 200
    assert '"document_id": "d1"' in (tmp_path / "votes.jsonl").read_text()
    large = httpx.post(f"{address}/api/search", content=b"x" * (3 << 20), headers=headers)
    assert large.status_code == 413
    process.terminate()
    assert process.wait(30) == 0
