"""Validation: what it ranks, that its figures are those of search and evaluate, and what it refuses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, InputError, Run, Validator, evaluate, search
from remargin.data.preparation import prepare
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.candidates import candidates
from remargin.training import validation
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings
from remargin.training.validation import pool

from .conftest import settings

MEASURES = ["R@5", "RR", "AP"]


def engine_of(model: BiEncoder, chosen: FitSettings) -> Engine:
    return Engine(model, chosen, torch.device("cpu"), torch.float32, np.array([1]))


def spread(model: BiEncoder) -> BiEncoder:
    """With larger weights, so that no two texts are so alike that rounding decides which is ranked first."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    return model


def test_candidates_are_the_best_of_a_first_stage(beir: Path) -> None:
    dev = Collection.load(beir, "dev")
    run, some = search(dev, "bm25", k=20), dev.sample(4, seed=1)
    found = candidates(some, 3, run)
    assert {id: list(of_query) for id, of_query in found.items()} == {id: run.top(id, 3) for id in some.queries}
    assert all(run.rankings[id][document] == score for id in found for document, score in found[id].items())
    assert candidates(some, 3) == found  # BM25's without a run


def test_a_run_of_other_queries_or_documents_is_refused(prepared: Path) -> None:
    with pytest.raises(InputError, match="the first-stage run has none of the validation queries"):
        Validator(prepared, "dev", settings(), Run.of({"q1": {"d1": 1.0}}))
    with pytest.raises(InputError, match="id 'z': the first-stage run has a document that is not in the collection"):
        Validator(prepared, "dev", settings(), Run.of({"q41": {"d1": 2.0, "z": 1.0}}))


def test_binary_measures_count_high_grades_where_there_are_some(
    prepared: Path, model: BiEncoder, tmp_path: Path
) -> None:
    dev, measure = Collection.load(prepared, "dev"), "Success@5"
    some = list(dev.documents)[:9]
    graded = {query: {**dict.fromkeys(some, 1), **dict.fromkeys(judged, 3)} for query, judged in dev.qrels.items()}
    shutil.copytree(prepared, tmp_path / "graded")
    rows = [f"{query}\t{document}\t{grade}" for query, judged in graded.items() for document, grade in judged.items()]
    (tmp_path / "graded" / "qrels" / "dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))

    def measured(folder: Path, relevant: int) -> dict[str, float]:
        validator = Validator(folder, "dev", settings(validation_depth=None), also=[measure], relevant=relevant)
        run, means = validator.rank(model), validator.evaluate(model).means
        chosen = engine_of(model, settings())
        assert validator(chosen, model.similarity)[measure] == means[measure]
        return {"binarised": means[measure]} | evaluate(run, graded, [measure, "Success(rel=2)@5"]).means

    strict, loose = (measured(tmp_path / "graded", relevant) for relevant in (2, 1))
    assert strict["binarised"] == strict["Success(rel=2)@5"] < loose["binarised"] == loose[measure]
    assert measured(prepared, 2)["binarised"] == measured(prepared, 1)["binarised"] > 0  # all its grades are 1


def test_an_unknown_measure_is_refused_before_training(prepared: Path) -> None:
    with pytest.raises(InputError, match="unknown measure 'nDGC@10'"):
        Validator(prepared, "dev", settings(), also=["nDGC@10"])


def restricted(model: BiEncoder, collection: Collection, documents: dict[str, list[str]]) -> Run:
    """Slowly: each query's documents, one dot product after another."""
    queries = dict(zip(collection.queries, model.encode_queries(list(collection.queries.values())), strict=True))
    vectors = dict(zip(collection.documents, model.encode_documents(list(collection.documents.values())), strict=True))
    return Run.of({q: {d: float(queries[q] @ vectors[d]) for d in documents[q]} for q in documents})


def test_with_a_depth_it_re_ranks_a_first_stage(prepared: Path, model: BiEncoder) -> None:
    chosen, dev, model = settings(validation_depth=4), Collection.load(prepared, "dev"), spread(model)
    validator = Validator(prepared, "dev", chosen, also=MEASURES)
    documents = {query: list(ranked) for query, ranked in candidates(dev, 4).items()}
    expected = evaluate(restricted(model, dev, documents), dev.qrels, ["nDCG@10", *MEASURES])
    assert 0 < expected.means["nDCG@10"] < 1
    assert validator.evaluate(model).per_query == expected.per_query
    assert validator(engine_of(model, chosen), model.similarity) == expected.means
    assert validator.describe() == "re-ranking the first 4 documents of BM25"
    run = Run.of({query: dict.fromkeys(dev.documents, 1.0) for query in dev.queries})
    given = Validator(prepared, "dev", settings(validation_depth=None), run)  # without a depth, a run is re-ranked too
    assert given.describe() == "re-ranking the first 100 documents of the run that was given"
    assert given.evaluate(model).means["nDCG@10"] == full(prepared).evaluate(model).means["nDCG@10"]


def test_bm25_ranks_the_documents_that_are_re_ranked(prepared: Path) -> None:
    dev = Collection.load(prepared, "dev")
    every = {query: {f"d{i}": 1.0 for i in range(0, 60, 1 + row % 2)} for row, query in enumerate(dev.queries)}
    run = Run.of(every)
    validator = Validator(prepared, "dev", settings(validation_depth=None), run)
    found = BM25(dev.documents).search(dev.queries, 60).rankings
    expected = {query: [d for d in ranking if d in run.rankings[query]] for query, ranking in found.items()}
    assert any(len(expected[query]) < len(found[query]) for query in found)
    assert {query: list(ranking) for query, ranking in validator.rank_by_bm25().rankings.items()} == expected
    assert (validator.reranks, full(prepared).reranks) == (True, False)


def full(folder: Path, split: str = "dev", **options: Any) -> Validator:
    return Validator(folder, split, settings(validation_depth=None), also=MEASURES, **options)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("split", ["dev", "test"])
def test_ranked_in_full_the_figures_are_those_of_search_and_evaluate(
    prepared: Path, tiny_model: Any, split: str, similarity: Any
) -> None:
    model = spread(BiEncoder.from_pretrained(tiny_model("bert"), "mean", similarity))
    collection, chosen = Collection.load(prepared, split), settings(validation_depth=None)
    expected = evaluate(search(collection, "exact", model), collection.qrels, ["nDCG@10", *MEASURES])
    validator = full(prepared, split)
    assert 0 < expected.means["RR"] < 1
    assert validator.evaluate(model).per_query == expected.per_query
    assert validator(engine_of(model, chosen), similarity) == expected.means
    assert validator.queries == list(collection.queries)
    assert (validator.describe(), validator.texts) == ("ranked in full (60 documents)", 70)
    in_memory = Validator.of(collection, model, chosen, also=MEASURES)
    assert in_memory.evaluate(model).per_query == expected.per_query


def test_what_bm25_cannot_find_counts(prepared: Path, model: BiEncoder) -> None:
    """A ranker that knows all answers has 1; but among BM25's documents only those that BM25 found."""
    dev = Collection.load(prepared, "dev")
    lost = Run.of({query: {"d0": 1.0} for query in dev.queries})
    vectors = model.encode_documents(list(dev.documents.values()))

    class Knows(BiEncoder):
        def encode_tokens(self, tokens: Any, batch_size: Any = None) -> Any:
            rows = [list(dev.documents).index(next(iter(dev.qrels[query]))) for query in dev.queries]
            return np.concatenate([vectors[rows], vectors if len(tokens.lengths) > 11 else vectors[:1]])

    model.__class__ = Knows
    assert full(prepared).evaluate(model).means["RR"] == 1
    assert Validator(prepared, "dev", settings(), lost).evaluate(model).means["nDCG@10"] == 0


def test_a_query_that_is_a_document_does_not_find_itself(tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "own" / "qrels").mkdir(parents=True)
    texts = [f'{{"_id": "d{i}", "text": "the value of {word} in a file"}}\n' for i, word in enumerate("abcdef")]
    (tmp_path / "own" / "corpus.jsonl").write_text("".join(texts))
    (tmp_path / "own" / "queries.jsonl").write_text("".join(texts[:3]))
    (tmp_path / "own" / "qrels" / "dev.tsv").write_text("d0\td1\t1\nd1\td2\t1\nd2\td2\t1\n")  # d2 is its own answer
    prepare(tmp_path / "own", tiny_model(), tmp_path / "data", document_length=64)
    model, dev = spread(BiEncoder.from_pretrained(tiny_model())), Collection.load(tmp_path / "data", "dev")
    assert dev.self_matches == {"d0", "d1"}
    expected = evaluate(search(dev, "exact", model), dev.qrels, ["nDCG@10", *MEASURES])
    assert full(tmp_path / "data").evaluate(model).per_query == expected.per_query
    shallow = Validator(tmp_path / "data", "dev", settings(validation_depth=None, validation_measure="P@1"))
    assert shallow.evaluate(model).per_query["P@1"]["d2"] == 1


def test_a_pool_has_all_relevant_documents_then_bm25s_then_others(beir: Path) -> None:
    dev = Collection.load(beir, "dev")
    relevant = {document for judged in dev.qrels.values() for document in judged}
    ranked = search(dev, "bm25", k=100)
    best = [ranked.top(query, 1)[0] for query in dev.queries]
    assert len(relevant) == 10
    chosen = pool(dev, 15, seed=0)
    assert len(chosen) == 15
    assert relevant <= set(chosen)
    found = {document for query in dev.queries for document in ranked.rankings[query]}
    assert set(chosen) <= relevant | found
    assert len(relevant | found) < 50
    drawn = pool(dev, 55, seed=0)
    assert set(drawn) > relevant | found > set(best)
    assert drawn == pool(dev, 55, seed=0) != pool(dev, 55, seed=1)
    assert drawn == [document for document in dev.documents if document in drawn]
    assert set(pool(dev, 3, seed=0)) == relevant  # all of them, however many
    no_answers = replace(dev, qrels={query: dict.fromkeys(judged, 0) for query, judged in dev.qrels.items()})
    layers = [d for rank in range(2) for q in dev.queries for d in ranked.top(q, 2)[rank : rank + 1]]
    assert set(pool(no_answers, 12, seed=0)) == set(list(dict.fromkeys(layers))[:12])


def test_every_query_ranks_the_whole_pool(prepared: Path, model: BiEncoder) -> None:
    dev, validator, model = Collection.load(prepared, "dev"), full(prepared, most_documents=25), spread(model)
    chosen = pool(dev, 25, seed=0)
    expected = evaluate(restricted(model, dev, dict.fromkeys(dev.queries, chosen)), dev.qrels, ["nDCG@10", *MEASURES])
    assert validator.evaluate(model).per_query == expected.per_query
    assert expected.per_query != full(prepared).evaluate(model).per_query
    assert (validator.describe(), validator.texts) == ("over a pool of 25 of 60 documents", 35)


def test_how_many_are_ranked_in_full_depends_on_the_device(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "CPU_DOCUMENTS", 20)
    assert full(prepared).describe() == "over a pool of 20 of 60 documents"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert full(prepared).describe() == "ranked in full (60 documents)"


def test_only_so_many_queries_and_models_that_fit(prepared: Path, model: BiEncoder, tiny_model: Any) -> None:
    chosen = settings(validation_depth=None, validation_queries=4)
    validator = Validator(prepared, "dev", chosen)
    assert validator.queries == list(Collection.load(prepared, "dev").sample(4, seed=0).queries)
    assert list(validator.evaluate(model).per_query["nDCG@10"]) == validator.queries
    for other in (
        BiEncoder.from_pretrained(tiny_model("bert"), document_length=20),
        BiEncoder.from_pretrained(tiny_model("bert"), query_prefix="query: "),
        BiEncoder.from_pretrained(tiny_model("roberta"), "cls", document_length=64),
    ):
        with pytest.raises(InputError, match="has another tokenizer, other lengths or other prefixes than the"):
            validator.evaluate(other)
    with torch.no_grad():
        model.backbone.encoder.layer[0].output.dense.bias[0] = float("nan")
    with pytest.raises(InputError, match="gives vectors with numbers that are not finite"):
        validator.evaluate(model)


def test_a_depth_below_one_is_refused() -> None:
    assert settings(validation_depth=None).validation_depth is None
    with pytest.raises(InputError, match="validation_depth is 0; it must be at least 1"):
        settings(validation_depth=0)
