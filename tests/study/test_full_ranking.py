"""Full rankings are search and evaluate, in less memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remargin import BiEncoder, Collection
from remargin.evaluation.measures import evaluate
from remargin.retrieval import exact
from remargin.retrieval.searching import search
from remargin.study.full_ranking import FullRanking
from remargin.study.results import MEASURE, RECALL


def test_a_full_ranking_is_search_and_evaluate(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection.load("docstrings:email,logging,json,csv", "test")
    model = BiEncoder.from_pretrained(tiny_model())
    wanted = evaluate(
        search(collection, "exact", model, passage_length="off"), collection.qrels, [MEASURE, "R@100", RECALL]
    )
    at_once, encode = [], BiEncoder.encode_tokens
    monkeypatch.setattr(exact, "CPU_BLOCK", (16, 32))
    monkeypatch.setattr(
        BiEncoder, "encode_tokens", lambda self, tokens: at_once.append(len(tokens.lengths)) or encode(self, tokens)
    )
    found = FullRanking(collection).measure(model, "tiny")
    assert found.per_query == {name: pytest.approx(values) for name, values in wanted.per_query.items()}
    assert max(at_once[1:]) == 32 < len(collection.documents) == sum(at_once[1:])  # a block of documents is in memory
    bm25 = evaluate(search(collection, "bm25"), collection.qrels, [MEASURE])
    assert FullRanking(collection).measure(None, "").means[MEASURE] == pytest.approx(bm25.means[MEASURE])


def test_a_recall_counts_high_grades_where_there_are_some(tiny_model: Any) -> None:
    binary = Collection.load("docstrings:email,logging", "test")
    model = BiEncoder.from_pretrained(tiny_model())
    others = list(binary.documents)
    graded = {
        query: dict.fromkeys(judged, 3) | {others[i]: 1} | {others[-1 - i]: 2}
        for i, (query, judged) in enumerate(binary.qrels.items())
    }
    measured = FullRanking(replace(binary, qrels=graded), relevant=2).measure(model, "tiny").per_query
    run = search(binary, "exact", model, passage_length="off")
    for measure, strict in {"R@100": "R(rel=2)@100", RECALL: "R(rel=2)@1000", MEASURE: MEASURE}.items():
        assert measured[measure] == pytest.approx(evaluate(run, graded, strict).per_query[strict])
    assert measured["R@100"] != pytest.approx(evaluate(run, graded, "R@100").per_query["R@100"])
    of_ones = FullRanking(binary, relevant=2).measure(model, "tiny")  # MS MARCO's dev has no other grade
    assert of_ones.per_query == FullRanking(binary).measure(model, "tiny").per_query
