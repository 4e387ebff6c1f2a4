"""`export` of a model: a folder that sentence-transformers loads, its card, and pushing it to the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants

import remargin as package
from remargin import BiEncoder
from remargin.errors import InputError
from remargin.integrations import exporting
from remargin.integrations import onnx as onnx_files
from remargin.retrieval.hybrid import read_fusion

from .conftest import SECRET, MakeRun

TEXTS = ["a query", "how do margins adapt", "the value of the text"]


def silent(line: str) -> None:
    pass


def test_a_folder_for_the_hub(make_run: MakeRun, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = make_run()
    package.export(tmp_path / "hub", model, say=silent)
    theirs = SentenceTransformer(str(tmp_path / "hub"), device="cpu")
    ours, before = (BiEncoder.from_pretrained(folder) for folder in (tmp_path / "hub", model))
    assert np.array_equal(ours.encode_queries(TEXTS), before.encode_queries(TEXTS))
    assert np.allclose(theirs.encode_query(TEXTS), before.encode_queries(TEXTS), atol=1e-5)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    assert 'SentenceTransformer("hub")' in card
    fusion = read_fusion(tmp_path / "hub")
    assert fusion is not None
    assert (fusion.weight, fusion.data) == (0.4, "pairs:faq.csv")
    for file in (tmp_path / "hub").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_is_there_stays(tiny_encoder: Any, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    package.export(out, tiny_encoder(), say=silent)
    (out / "README.md").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        package.export(out, tiny_encoder(), say=silent)
    assert (out / "README.md").read_text() == "mine"
    package.export(out, tiny_encoder(), overwrite=True, say=silent)
    assert "library_name" in (out / "README.md").read_text()
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("not ours")
    with pytest.raises(InputError, match="not ours to overwrite"):
        package.export(other, tiny_encoder(), overwrite=True, say=silent)


def test_a_failed_check_leaves_nothing(tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_files, "_export", lambda model: SimpleNamespace(save=write_nothing))
    monkeypatch.setattr(onnx_files, "_remove_traces", lambda file: None)
    monkeypatch.setattr(onnx_files, "OnnxEncoder", lambda folder: None)
    monkeypatch.setattr(onnx_files, "largest_difference", lambda model, encoder: 0.01)
    monkeypatch.setattr("onnx.checker.check_model", lambda file: None)
    with pytest.raises(InputError, match=r"vectors differ from the model's by 0\.01, more than 0\.0001"):
        package.export(tmp_path / "hub", tiny_encoder(), onnx=True, say=silent)
    assert list(tmp_path.iterdir()) == []


def write_nothing(path: str, external_data: bool) -> None:
    Path(path).write_bytes(b"")


def test_int8_from_the_command_line(
    remargin: Callable[..., Any], tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (
        "export",
        "--model",
        tiny_encoder(),
        "--out",
        tmp_path / "hub",
        "--int8",
        "--data",
        "docstrings:json,csv",
    )
    found = remargin(*command)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0].startswith("ONNX: vectors differ from the model's by ")
    assert lines[1].startswith("int8: ")
    assert "CPU threads: " in lines[2]
    assert lines[3].startswith("int8 on test of docstrings:json,csv (")
    assert lines[4] == f"wrote {tmp_path / 'hub'}: the model and its card, README.md"
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "## int8" in card
    assert "int8 on test of docstrings:json,csv" in card
    assert {"model.onnx", "model_int8.onnx", "tokenizer.json"} <= {path.name for path in (tmp_path / "hub").iterdir()}
    encoder = onnx_files.OnnxEncoder(tmp_path / "hub")
    expected = BiEncoder.from_pretrained(tiny_encoder()).encode_documents(TEXTS)
    assert np.abs(encoder.encode_documents(TEXTS) - expected).max() < 1e-4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "nothing to export; give one of --model, --vectors, --index"),
        ({"model": "a", "index": "b"}, "model and index to export"),
        ({"model": "a", "texts": False}, "--no-texts does nothing for a model"),
        ({"model": "a", "data": "b", "onnx": True}, "--data does nothing for an export without --int8"),
        ({"model": "a", "public": True}, "--public does nothing for an export without --push"),
        ({"index": "a", "push": "b"}, "--push does nothing for vectors"),
        ({"index": "nowhere"}, "remargin_index.json: not found"),
        ({"vectors": "nowhere"}, "remargin_vectors.json: not found"),
        ({"model": "./nowhere"}, "no such folder"),
    ],
)
def test_what_makes_no_sense_is_one_line(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        package.export(tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


class Hub:
    """Stands in for `HfApi`: remembers what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None

    def __call__(self, **options: Any) -> Hub:
        return self

    def create_repo(self, name: str, **options: Any) -> Any:
        self.asked.append(("create_repo", {"name": name, **options}))
        if self.error is not None:
            raise self.error
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{name}")

    def upload_folder(self, **options: Any) -> None:
        options["files"] = sorted(path.name for path in Path(options["folder_path"]).iterdir())
        self.asked.append(("upload_folder", options))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return hub


@pytest.mark.parametrize("public", [False, True])
def test_pushing(hub: Hub, remargin: Callable[..., Any], tiny_encoder: Any, tmp_path: Path, public: bool) -> None:
    push = ("--push", "ada/faq", *(["--public"] if public else []))
    found = remargin("export", "--model", tiny_encoder(), "--out", tmp_path / "hub", *push)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "pushed to https://huggingface.co/ada/faq"
    (_, created), (_, uploaded) = hub.asked
    assert created == {"name": "ada/faq", "private": not public, "exist_ok": True}
    assert uploaded["repo_id"] == "ada/faq"
    assert {"README.md", "model.safetensors", "modules.json"} <= set(uploaded["files"])
    assert "# ada/faq\n" in (tmp_path / "hub" / "README.md").read_text()


def test_a_push_that_fails_is_one_line_and_keeps_the_folder(hub: Hub, tiny_encoder: Any, tmp_path: Path) -> None:
    for error in (httpx.ConnectError("no route to host"), PermissionError("not yours")):
        hub.error = error
        out = tmp_path / type(error).__name__
        with pytest.raises(InputError, match=rf"could not be pushed to ada/faq \({error}\).*hf upload ada/faq"):
            package.export(out, tiny_encoder(), push="ada/faq", say=silent)
        assert json.loads((out / "modules.json").read_text())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda patch: patch.setattr(huggingface_hub, "get_token", lambda: None), "no token of the Hugging Face hub"),
        (lambda patch: patch.setattr(constants, "HF_HUB_OFFLINE", True), "HF_HUB_OFFLINE is set"),
    ],
)
def test_a_push_that_cannot_be_is_refused_before_the_work(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None], problem: str
) -> None:
    change(monkeypatch)
    monkeypatch.setattr(exporting, "as_encoder", lambda *given: pytest.fail("too late"))
    with pytest.raises(InputError, match=problem):
        package.export(tmp_path / "hub", "anything", push="ada/faq", say=silent)
    assert hub.asked == []


def test_a_package_that_is_missing_is_named(tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"onnxruntime is not installed; pip install 'remargin\[onnx\]'"):
        package.export(tmp_path / "hub", tiny_encoder(), onnx=True, say=silent)
    assert list(tmp_path.iterdir()) == []
