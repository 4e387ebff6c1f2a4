"""Nothing loads wrongly in silence: what a folder does not say is asked for, and what it is not is said by name."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder, Collection, export, index, search, update
from remargin.errors import InputError
from remargin.model.layouts.base import LAYOUTS, layout_of
from remargin.retrieval.index_folder import read_index_header

from . import checkpoints

DATA = "docstrings:json"


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "first.trec"
    search(DATA, "bm25", k=3, out=path)
    return path


@pytest.mark.parametrize("verb", ["search", "encode", "index", "rerank", "export", "benchmark"])
def test_a_raw_backbone_is_refused_until_its_use_is_said(
    verb: str, remargin: Callable[..., Any], tiny_model: Any, tmp_path: Path, run_file: Path
) -> None:
    out = tmp_path / "out"
    more = {"rerank": ["--run", run_file], "benchmark": ["--no-bm25"]}.get(verb, [])
    words = [verb, "--model", tiny_model(), "--out", out, *more, *(["--data", DATA] if verb != "export" else [])]
    for given, lacking in (
        ([], "does not say the pooling and the similarity of its encoder; give --pooling mean"),
        (["--pooling", "mean"], "does not say the similarity of its encoder; give --similarity dot (or cosine)"),
        (["--similarity", "dot"], "does not say the pooling of its encoder; give --pooling mean (or cls)"),
    ):
        result = remargin(*words, *given)
        assert result.returncode == 2
        assert lacking in result.stderr
        assert not out.exists()
    result = remargin(*words, "--pooling", "mean", "--similarity", "dot")
    assert result.returncode == 0, result.stderr
    assert out.exists()


def test_an_index_keeps_how_its_encoder_is_used(tiny_model: Any, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index(folder, data=DATA, model=tiny_model(), pooling="mean", similarity="dot")
    made = read_index_header(folder)["made"]
    assert (made["pooling"], made["similarity"]) == ("mean", "dot")
    collection = Collection.load(DATA, "test")
    expected = search(collection, "exact", tiny_model(), pooling="mean", similarity="dot")
    checkpoints.assert_same(search(collection, folder), expected)
    with pytest.raises(InputError, match="was made with a similarity of 'dot', not 'cosine'"):
        search(collection, folder, similarity="cosine")
    with pytest.raises(InputError, match="was made with a pooling of 'mean', not 'cls'"):
        search(collection, folder, pooling="cls")
    assert update(folder, data=DATA).added == 0


def test_fit_says_how_it_uses_a_raw_backbone(tiny_model: Any, tmp_path: Path) -> None:
    from remargin import fit

    said: list[str] = []
    fit(DATA, tiny_model("roberta"), tmp_path / "run", steps=1, batch_size=4, say=said.append)
    (line,) = [line for line in said if "does not say how it is used" in line]
    assert line.endswith("pooling cls+linear, similarity cosine (--pooling and --similarity)")


def test_halves_of_dpr_are_told_apart(tiny_model: Any, tmp_path: Path) -> None:
    both, _ = checkpoints.dpr(tmp_path, tiny_model())
    question, context = both.split("+")
    alone = "which encodes {} only; give both as QUERIES\\+DOCUMENTS"
    for name, problem in (
        (question, f"holds DPR's question encoder, {alone.format('queries')}"),
        (context, f"holds DPR's context encoder, {alone.format('documents')}"),
        (f"{context}+{question}", "DPR's context encoder.*, where the encoder of queries belongs"),
        (f"{question}+{question}", "DPR's question encoder.*, where the encoder of documents belongs"),
    ):
        with pytest.raises(InputError, match=problem):
            search(DATA, "exact", name)
    with pytest.raises(InputError, match="DPR's context encoder"):
        BiEncoder.from_pretrained(context)


def test_two_encoders_must_belong_together(tiny_model: Any, tiny_encoder: Any, tmp_path: Path) -> None:
    both, _ = checkpoints.dpr(tmp_path, tiny_model(), projection=24)
    question = both.split("+")[0]
    with pytest.raises(InputError, match="dimension 24 of the query encoder"):
        search(DATA, "exact", f"{question}+{tiny_encoder()}", similarity="dot")
    with pytest.raises(InputError, match="does not say the pooling"):
        search(DATA, "exact", f"{question}+{tiny_model()}")


def test_an_index_of_two_encoders_finds_them_from_anywhere(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.dpr(tmp_path, tiny_model())
    monkeypatch.chdir(tmp_path)
    expected = search(DATA, "exact", "question+context")
    index("index", data=DATA, model="question+context")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    checkpoints.assert_same(search(DATA, tmp_path / "index"), expected)


@pytest.mark.parametrize(
    ("make", "kind"), [(checkpoints.splade, "a SPLADE model"), (checkpoints.stanford, "a ColBERT")]
)
def test_what_makes_no_single_vectors_is_refused_by_name(
    make: Any, kind: str, remargin: Callable[..., Any], tiny_model: Any, tmp_path: Path
) -> None:
    name, _ = make(tmp_path / "model", tiny_model(head=make is checkpoints.splade))
    for words in (
        ["encode", "--data", DATA, "--out", tmp_path / "out"],
        ["fit", "--data", DATA, "--out", tmp_path / "out", "--steps", "1"],
        ["mine", "--data", DATA, "--negatives", "model", "--out", tmp_path / "out.tsv"],
        ["export", "--out", tmp_path / "out"],
    ):
        result = remargin(*words, "--model", name)
        assert result.returncode == 2
        assert f"holds {kind}" in result.stderr
        assert "which has no single vector of a text" in result.stderr
    for given, problem in (
        (["--index", "faiss"], f"index 'faiss' takes a vector of each text, and {name} is {kind}"),
        (["--pooling", "mean"], f"--pooling does nothing for {kind}"),
        (["--passage-length", "20"], f"--passage-length does nothing for {kind}"),
        (["--hybrid", "0.5"], f"--hybrid does nothing for {kind}"),
    ):
        result = remargin("search", "--data", DATA, "--model", name, "--out", tmp_path / "out.trec", *given)
        assert result.returncode == 2
        assert problem in result.stderr


def test_a_sparse_index_says_what_it_is(remargin: Callable[..., Any], tiny_model: Any, tmp_path: Path) -> None:
    name, _ = checkpoints.splade(tmp_path / "model", tiny_model(head=True))
    folder = tmp_path / "index"
    index(folder, data=DATA, model=name)
    for words, problem in (
        (["update", "--index", folder, "--data", DATA], "an index of sparse vectors cannot be changed"),
        (["export", "--index", folder, "--out", tmp_path / "x.parquet"], "is an index of sparse vectors"),
        (["serve", "--index", folder], "is an index of sparse vectors"),
    ):
        result = remargin(*words)
        assert result.returncode == 2
        assert problem in result.stderr
    (folder / "data.bin").write_bytes(b"\1" + (folder / "data.bin").read_bytes()[1:])
    with pytest.raises(InputError, match="damaged: not what was written"):
        search(DATA, folder)


def test_a_late_interaction_folder_that_is_not_supported_is_named(tiny_model: Any, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    MultiVectorEncoder(str(tiny_model()), device="cpu").save(str(tmp_path / "native"))
    with pytest.raises(InputError, match=r"MultiVectorMask.*; save it with PyLate"):
        search(DATA, "exact", tmp_path / "native")
    name, _ = checkpoints.pylate(tmp_path / "pylate", tiny_model(), query_prefix="[Q] ")
    with pytest.raises(InputError, match=r"the prefix '\[Q\] ' is no token of the tokenizer"):
        search(DATA, "exact", name)


def test_pickled_weights_are_converted_on_demand_only(
    remargin: Callable[..., Any], tiny_model: Any, tmp_path: Path
) -> None:
    name, _ = checkpoints.contriever(tmp_path / "contriever", tiny_model())
    with pytest.raises(InputError, match=r"only pickled weights .*, which are never read; convert them once"):
        search(DATA, "exact", name, pooling="mean", similarity="dot")
    result = remargin("export", "--model", name, "--safetensors", "--out", tmp_path / "converted")
    assert result.returncode == 0
    assert "pytorch_model.bin: " in result.stdout
    assert not list((tmp_path / "converted").rglob("*.bin"))
    assert search(DATA, "exact", tmp_path / "converted", pooling="mean", similarity="dot").rankings


class Evil:
    """Unpickled, it makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_a_conversion_runs_no_code(tiny_model: Any, tmp_path: Path) -> None:
    name, _ = checkpoints.contriever(tmp_path / "model", tiny_model())
    weights = tmp_path / "model" / "pytorch_model.bin"
    state = torch.load(weights, weights_only=True)
    for content in ({**state, "x": Evil(tmp_path / "made")}, Evil(tmp_path / "made")):
        torch.save(content, weights)
        with pytest.raises(InputError, match="holds more than tensors, or is damaged"):
            export(tmp_path / "out", name, safetensors=True)
        assert not (tmp_path / "made").exists()
        assert not (tmp_path / "out").exists()
    pickle.loads(pickle.dumps(Evil(tmp_path / "made")))  # which is what would have happened
    assert (tmp_path / "made").exists()
    for content, problem in ((torch.ones(2), "no tensors by their names"), ({"epoch": 3}, "'epoch' is no tensor")):
        torch.save(content, weights)
        with pytest.raises(InputError, match=problem):
            export(tmp_path / "out", name, safetensors=True)


def test_a_plain_folder_has_no_layout(tiny_model: Any, tiny_encoder: Any, minilm: Path) -> None:
    assert layout_of(tiny_model()) is layout_of(tiny_encoder()) is layout_of(minilm) is None
    assert len(LAYOUTS) == 5


def test_a_folder_says_its_similarity_by_normalising(tiny_encoder: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    BiEncoder.from_pretrained(tiny_encoder()).save(folder)
    card = folder / "config_sentence_transformers.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "similarity_fn_name": None}))
    assert search(DATA, "exact", folder).rankings
    modules = [m for m in json.loads((folder / "modules.json").read_text()) if "Normalize" not in m["type"]]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="does not say the similarity"):
        search(DATA, "exact", folder)
