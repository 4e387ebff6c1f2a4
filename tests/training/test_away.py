"""Forgetting, measured on texts that training did not see."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, evaluate, search
from remargin.data.preparation import prepare
from remargin.errors import InputError
from remargin.training import away
from remargin.training.away import AGREEMENT, Away, AwayOutcome, agreement, nearest_neighbours, paragraphs


def changed(folder: Path, spread: float) -> BiEncoder:
    """The encoder of a folder with some noise on its weights, as training might leave it."""
    model, own = BiEncoder.from_pretrained(folder), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += spread * torch.randn(weight.shape, generator=own)
    return model


@pytest.fixture(scope="module")
def texts() -> Away:
    return Away("paragraphs", Collection("", "test", paragraphs(count=60), {}, {}))


def test_nearest_neighbours_are_those_of_a_double_loop() -> None:
    rng = np.random.default_rng(0)
    vectors = {f"t{i}": rng.standard_normal(5).astype(np.float32) for i in range(30)}
    for id, near in nearest_neighbours(vectors, 10).items():
        scores = {other: float(vectors[id] @ vectors[other]) for other in vectors if other != id}
        assert near == set(sorted(scores, key=lambda other: -scores[other])[:10])


def test_a_text_is_not_its_own_neighbour_even_among_equal_vectors() -> None:
    vectors = {id: np.ones(3, np.float32) for id in "abcdef"}
    for id, near in nearest_neighbours(vectors, 3).items():
        assert len(near) == 3
        assert id not in near


def test_fewer_texts_than_neighbours_are_all_neighbours() -> None:
    vectors = {id: np.full(2, i, np.float32) for i, id in enumerate("abc")}
    assert nearest_neighbours(vectors, 10) == {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}


def test_agreement_is_the_shared_part() -> None:
    rng = np.random.default_rng(0)
    before, after = ({i: set(map(str, rng.choice(9, 4, replace=False))) for i in "abc"} for _ in range(2))
    oracle = {id: sum(other in after[id] for other in before[id]) / 4 for id in "abc"}
    assert agreement(before, after) == oracle
    assert 0 < sum(oracle.values()) < 3  # not vacuous


def test_an_encoder_agrees_with_itself_and_less_the_more_it_changes(texts: Away, tiny_model: Any) -> None:
    before = texts.measure(BiEncoder.from_pretrained(tiny_model()))
    outcomes = [texts.compare(before, texts.measure(changed(tiny_model(), spread))) for spread in (0.0, 0.01, 0.3)]
    assert outcomes[0].after == outcomes[0].before == 1
    assert 1 > outcomes[1].after > outcomes[2].after
    for outcome in outcomes:
        assert outcome.low <= outcome.difference <= outcome.high
        assert outcome.difference == pytest.approx(outcome.after - outcome.before)
        assert json.loads(json.dumps(asdict(outcome))) == asdict(outcome)
    assert "60 texts" in outcomes[1].line()
    assert f"{outcomes[1].after:.1%} of nearest neighbours stayed" in outcomes[1].line()


def test_a_collection_is_ranked_as_search_ranks_it(beir: Path, tiny_model: Any) -> None:
    model, collection = BiEncoder.from_pretrained(tiny_model()), Collection.load(beir, "test")
    for by in ("nDCG@10", "RR"):
        chosen = Away.choose("pairs:any.csv", str(beir), by=by)
        assert chosen is not None
        measured = chosen.measure(model).per_query
        assert measured == evaluate(search(collection, "exact", model), collection, [by]).per_query[by]
        assert 0 < sum(measured.values()) < len(measured)


def test_a_query_that_is_a_document_does_not_find_itself(tiny_model: Any) -> None:
    documents = {f"d{i}": f"text {word}" for i, word in enumerate(["margins", "a list", "the file", "query"])}
    collection = Collection("", "test", documents, {"d0": documents["d0"]}, {"d0": {"d1": 1, "d2": 1, "d3": 1}})
    model = BiEncoder.from_pretrained(tiny_model())
    assert collection.self_matches == {"d0"}
    for by in ("RR", "nDCG@1"):  # one document more is ranked than the cutoff
        assert Away("", collection, by).measure(model).per_query == {"d0": 1.0}


def test_the_difference_is_paired_over_queries(beir: Path, tiny_model: Any) -> None:
    chosen = Away("made up", Collection.load(beir, "test"))
    before, after = (chosen.measure(model) for model in (changed(tiny_model(), 0.0), changed(tiny_model(), 0.2)))
    outcome = chosen.compare(before, after)
    differences = [after.per_query[query] - before.per_query[query] for query in before.per_query]
    assert any(differences)
    assert outcome.difference == pytest.approx(np.mean(differences))
    assert outcome.queries == 10
    assert "(made up, 10 queries): nDCG@10" in outcome.line()
    assert "1 query)" in AwayOutcome("x", "RR", 1, 0, 0, 0, 0, 0).line()


def test_texts_are_tokenised_once_for_one_tokenizer(
    texts: Away, tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = BiEncoder.from_pretrained(tiny_model())
    first = texts.measure(model)
    calls: list[int] = []
    real = type(model.tokenizer).__call__
    monkeypatch.setattr(type(model.tokenizer), "__call__", lambda *given: calls.append(1) or real(*given))
    assert texts.measure(model) == first
    assert not calls
    shorter = BiEncoder.from_pretrained(tiny_model(), document_length=8)
    assert texts.measure(shorter) != first
    assert calls


def test_home_decides_what_is_measured(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    prepare("docstrings:json", tiny_model(), tmp_path / "docs")
    prepare(tmp_path / "docs", tiny_model(), tmp_path / "again")
    prepare(beir, tiny_model(), tmp_path / "made-up", document_length=64)
    homes = {"docstrings:json": True, tmp_path / "docs": True, tmp_path / "again": True}
    homes |= {tmp_path / "made-up": False, beir: False, "pairs:faq.csv": False}
    assert {home: away.made_of_docstrings(home) for home in homes} == homes
    by = {home: getattr(Away.choose(home), "by", None) for home in (tmp_path / "again", beir)}
    assert by == {tmp_path / "again": AGREEMENT, beir: "nDCG@10"}


def test_the_standard_library_is_sampled_with_all_that_is_relevant() -> None:
    sample = away.standard_library(seed=3, queries=50, documents=120)
    assert len(sample.queries) == 50
    assert len(sample.documents) == 120
    assert list(sample.qrels) == list(sample.queries)
    assert {document for judged in sample.qrels.values() for document in judged} < sample.documents.keys()
    again, other = away.standard_library(3, 50, 120), away.standard_library(4, 50, 120)
    assert (again.queries, again.documents) == (sample.queries, sample.documents)
    assert other.queries != sample.queries
    few = away.standard_library(seed=3, queries=50, documents=1)
    assert few.documents.keys() == {document for judged in few.qrels.values() for document in judged}


def test_also_needs_a_test_split(tmp_path: Path, beir: Path) -> None:
    (tmp_path / "qrels").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text((beir / name).read_text())
    (tmp_path / "qrels" / "train.tsv").write_text("q0\td0\t1\n")
    with pytest.raises(InputError, match=r"measured on a test split; this collection has: train.*--also"):
        Away.choose(beir, str(tmp_path))
    with pytest.raises(InputError, match="unknown measure"):
        Away.choose(beir, by="nothing@all")


class _Broken:
    @property
    def metadata(self) -> Any:
        raise ValueError("damaged")


def test_a_machine_without_distributions_or_without_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = paragraphs(count=50)
    kinds = {id.partition(":")[0] for id in usual}
    assert kinds == {"reference", "distribution"}
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [_Broken()])
    alone = paragraphs(count=50)
    assert len(alone) == 50
    assert {id.partition(":")[0] for id in alone} == {"reference"}
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert paragraphs(count=50) == {}
    assert Away.choose("docstrings:json") is None


def test_a_python_without_sources_measures_neighbours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("remargin.data.docstrings.find_code", lambda package: tmp_path)
    chosen = Away.choose("pairs:faq.csv")
    assert chosen is not None
    assert chosen.by == AGREEMENT


def test_paragraphs_are_prose() -> None:
    text = "\n\n".join(
        [
            "A sentence of more than twelve words, which somebody wrote so that others can read it.",
            "Too short.",
            "    indented = code(that, is, longer, than, twelve, words) if only it were prose and not code here",
            "See https://example.org for a list of many other things that one can read about this topic here.",
            "| a | b | c | d | e | f | g | h | i | j | k | l | m |",
            "1.2.3 2.3.4 3.4.5 4.5.6 5.6.7 6.7.8 7.8.9 8.9.10 9.10.11 10.11.12 numbers are not words",
        ]
    )
    assert list(away._prose(text)) == [text.partition("\n")[0]]


def test_the_script_that_compares_the_proxies_with_forgetting(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("away_proxy", Path(__file__).parents[2] / "benchmarks/away_proxy.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    models = []
    for spread in (0.01, 0.1, 0.3):
        changed(tiny_model(), spread).save(tmp_path / f"model{spread}")
        models.append(str(tmp_path / f"model{spread}"))
    few = Collection("", "test", paragraphs(count=40), {}, {})
    aways = {"neighbours": Away("paragraphs", few), beir.name: Away("made up", Collection.load(beir, "test"))}
    measured = script.outcomes(str(tiny_model()), models, aways)
    columns = script.changes(measured, [str(beir)])
    assert columns["neighbours"] == sorted(columns["neighbours"], reverse=True)
    assert columns["mean"] == columns[beir.name]
    assert [line.count("|") for line in script.report(measured, [str(beir)])] == [5, 5, 5, 5, 5, 0, 4, 4, 4]
    assert script.rank_correlation([1.0, 2.0, 3.0], [1.0, 10.0, 11.0]) == pytest.approx(1)
    assert script.rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)
    assert np.isnan(script.rank_correlation([1.0, 2.0], [3.0, 2.0]))
