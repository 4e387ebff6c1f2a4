"""Lengths in training and in what `fit` measures: those of the model, with passages where searches have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Collection, evaluate, search
from remargin.data.preparation import read_prepared
from remargin.model.tokenizer import TextSettings
from remargin.training.fitting import fit
from remargin.training.measuring import Fit

from .conftest import quick

WORDS = ["margin", "query", "value", "test", "list", "text", "model", "part"]


@pytest.fixture(scope="module")
def long_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs whose documents say at the end, far beyond 24 tokens, what they are about."""
    folder = tmp_path_factory.mktemp("long")
    rows = []
    for number in range(60):
        key = " ".join(WORDS[(number * k + k) % 8] for k in (1, 3, 5))
        filler = " ".join(WORDS[(number + k) % 8] for k in range(30 if number % 2 else 3))
        rows.append({"query": f"how is {key} {number}", "document": f"{filler} {key} is number {number}"})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


@pytest.fixture(scope="module")
def run(long_data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Fit, list[str]]:
    said: list[str] = []
    out = tmp_path_factory.mktemp("run") / "run"
    fitted = fit(f"pairs:{long_data}", encoder, out, quick(), also=f"pairs:{long_data}", say=said.append)
    return fitted, said


def test_the_figures_are_those_of_a_search_afterwards(
    run: tuple[Fit, list[str]], long_data: Path, encoder: Path
) -> None:
    fitted, _ = run
    assert fitted.outcome is not None
    test = Collection.load(f"pairs:{long_data}", "test")
    for name, model in (("after", fitted.model), ("before", encoder)):
        ranking = search(test, model=model)
        assert fitted.outcome.runs[name].rankings.keys() == ranking.rankings.keys()
        for query, scores in ranking.rankings.items():
            assert fitted.outcome.runs[name].rankings[query] == pytest.approx(scores, abs=1e-5)
        measured = evaluate(ranking, test, ["nDCG@10", "RR"]).means
        assert measured == pytest.approx({m: fitted.outcome.mean(name, m).mean for m in ("nDCG@10", "RR")}, abs=1e-9)
    truncated = search(test, model=fitted.model, passage_length="off")
    assert truncated.rankings != search(test, model=fitted.model).rankings  # so that there is something to get wrong


def test_what_is_longer_is_said(run: tuple[Fit, list[str]]) -> None:
    fitted, said = run
    longer = [line for line in said if "are longer: truncated in training, split into passages in search" in line]
    assert [line.partition(";")[0] for line in longer] == ["documents have up to 32 tokens"]
    assert fitted.outcome is not None
    assert "are longer than 32 tokens and score as their best passage" in fitted.outcome.ranked


def test_prefixes_are_options_and_are_saved(long_data: Path, tiny_model: Any, tmp_path: Path) -> None:
    prefixes: Any = {"query_prefix": "query ", "document_prefix": "text "}
    fitted = fit(f"pairs:{long_data}", tiny_model(), tmp_path / "run", steps=1, batch_size=8, say=str, **prefixes)
    model = BiEncoder.from_pretrained(fitted.model)
    assert (model.query_prefix, model.document_prefix) == ("query ", "text ")
    assert read_prepared(tmp_path / "run" / "data")["settings"]["document_prefix"] == "text "


def test_long_context_models_train_on_512_tokens(long_data: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = BiEncoder.from_pretrained(
        tiny_model("bert", positions=1024), "mean", document_length=1024, query_length=700
    )
    start.save(tmp_path / "long")
    said: list[str] = []
    fitted = fit(f"pairs:{long_data}", tmp_path / "long", tmp_path / "run", steps=1, batch_size=8, say=said.append)
    made = read_prepared(tmp_path / "run" / "data")["settings"]
    assert (made["query_length"], made["document_length"]) == (512, 512)
    line = "training reads at most 512 tokens of a document, of 1,024 that the encoder reads (--training-length)"
    assert line in said
    model = BiEncoder.from_pretrained(fitted.model)
    assert (model.query_length, model.document_length) == (700, 1024)
    assert TextSettings.for_model(tmp_path / "long") == TextSettings(512, 512)


def test_fit_reads_more_than_512_tokens_if_asked_to(tiny_model: Any, tmp_path: Path) -> None:
    """A raw ModernBERT, whose pooling `fit` chooses and says."""
    rows = [{"query": f"how is {n}", "document": f"value {n} " * (300 if n % 20 == 0 else 1)} for n in range(40)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data, raw, said = f"pairs:{tmp_path / 'pairs.jsonl'}", tiny_model("modernbert", positions=8192), list[str]()
    options: Any = {"document_length": 2048, "preset": "paper", "steps": 2, "batch_size": 8, "patience": None}
    fitted = fit(data, raw, tmp_path / "run", also=data, say=said.append, **options)
    model = BiEncoder.from_pretrained(fitted.model)
    assert (model.document_length, model.pooling) == (2048, "cls")
    assert any("does not say how it is used: pooling cls, similarity cosine" in line for line in said)
    assert any(line.startswith("engine: packed") for line in said)
    assert read_prepared(tmp_path / "run" / "data")["settings"]["document_length"] == 2048


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_papers_presets_keep_the_papers_lengths(
    preset: str, long_data: Path, tiny_model: Any, tmp_path: Path
) -> None:
    said: list[str] = []
    options: Any = {"preset": preset, "steps": 1, "batch_size": 8, "patience": None, "say": said.append}
    fitted = fit(f"pairs:{long_data}", tiny_model("bert", positions=256), tmp_path / "run", **options)
    made = read_prepared(tmp_path / "run" / "data")["settings"]
    model = BiEncoder.from_pretrained(fitted.model)
    assert (made["query_length"], made["document_length"]) == (model.query_length, model.document_length) == (30, 200)
    assert not any("passages" in line for line in said)
