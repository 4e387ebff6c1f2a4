"""Candidates that score like the positive: left out of the negatives, counted, and listed for people."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, InputError
from remargin.data.tables import Rejects
from remargin.data.triplets import read_triplets
from remargin.mining import negatives as mining
from remargin.mining.candidates import Candidates
from remargin.mining.false_negatives import Compared, highest_allowed, suspicious
from remargin.mining.negatives import mine
from remargin.mining.settings import HARD, MiningSettings
from remargin.reports.suspicious import LONGEST, read_suspicious
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.vectors import Vectors

WORDS = ["margin", "query", "document", "value", "token", "model", "train", "list"]


@pytest.fixture
def collection() -> Collection:
    rng = random.Random(0)
    made = [" ".join(rng.sample(WORDS, 2)) + " " + "".join(rng.choices("abcdefgh", k=4)) for _ in range(60)]
    documents = {f"d{i}": f"the {text} text" for i, text in enumerate(made)}
    queries = {f"q{i}": f"how is {text}" for i, text in enumerate(made[:30])}
    qrels = {f"q{i}": {f"d{i if i % 2 else i + 20}": 1, f"d{i + 16}": 2, f"d{i + 1}": 0} for i in range(30)}
    return Collection("made", "train", documents, queries, qrels)


@pytest.fixture
def model(tiny_encoder: Any) -> BiEncoder:
    """Words matter to it: the vectors of a model with small random weights would all be alike."""
    encoder = BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean")
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight.mul_(50)
    return encoder


def cosine(a: Any, b: Any) -> float:
    dot, norms = sum(float(x) * float(y) for x, y in zip(a, b, strict=True)), 1.0
    for vector in (a, b):
        norms *= sum(float(x) ** 2 for x in vector) ** 0.5
    return dot / norms


def cosines(collection: Collection, model: BiEncoder) -> dict[str, dict[str, float]]:
    """Of every query with every document, pair by pair."""
    queries = {id: model.encode_queries([text])[0] for id, text in collection.queries.items()}
    documents = {id: model.encode_documents([text])[0] for id, text in collection.documents.items()}
    return {q: {d: cosine(a, b) for d, b in documents.items()} for q, a in queries.items()}


def triplets_in(path: Path) -> list[tuple[str, str, list[str]]]:
    _, triplets = read_triplets(path, Rejects(), ids=False)
    return [(t.query, t.positive, t.negatives) for t in triplets]


def allowed_pools(
    collection: Collection, model: BiEncoder, negatives: str, depth: int, bound: float
) -> tuple[dict[tuple[str, str], set[str]], int]:
    """Slowly: the candidates that each pair of query and positive may have as negatives, and how many are left out."""
    scores = cosines(collection, model)
    bm25 = BM25(collection.documents).search(collection.queries, depth)
    pools, skipped = {}, 0
    for query, judged in collection.qrels.items():
        best = sorted(scores[query], key=lambda document: -scores[query][document])[:depth]
        ranked = best if negatives == "model" else list(bm25.rankings[query])
        relevant = [document for document, grade in judged.items() if grade > 0]
        pool = [document for document in ranked if document not in relevant]
        for positive in relevant:
            similarity = scores[query][positive]
            limit = bound * similarity if similarity > 0 else (2 - bound) * similarity
            assert all(abs(scores[query][document] - limit) > 1e-6 for document in pool)  # rounding decides nothing
            pools[query, positive] = {document for document in pool if scores[query][document] <= limit}
            skipped += len(pool) - len(pools[query, positive])
    return pools, skipped


@pytest.mark.parametrize(("negatives", "bound"), [("bm25", 0.95), ("model", 0.7), ("model", 1.1)])
def test_candidates_that_score_like_the_positive_are_left_out(
    negatives: Any, bound: float, collection: Collection, model: BiEncoder, tmp_path: Path
) -> None:
    pools, skipped = allowed_pools(collection, model, negatives, 12, bound)
    drawn: dict[tuple[str, str], set[str]] = {pair: set() for pair in pools}
    mined = mine(collection, tmp_path / "t.tsv", negatives, model, depth=12, triplets=300, bound=bound)
    for query, positive, [negative] in triplets_in(tmp_path / "t.tsv"):
        drawn[query, positive].add(negative)
    full = {pair for pair, pool in pools.items() if pool}
    assert 0 < len(full) < len(pools)
    assert {pair: drawn[pair] for pair in full} == {pair: pools[pair] for pair in full}
    assert mined.skipped == skipped > 0
    assert mined.filled_at_random == 300 * (len(pools) - len(full))


def test_what_was_skipped_is_not_drawn_at_random_either(
    collection: Collection, model: BiEncoder, tmp_path: Path
) -> None:
    pools, _ = allowed_pools(collection, model, "model", 40, 0.7)
    mined = mine(collection, tmp_path / "t.tsv", "model", model, depth=40, triplets=5, per_triplet=10, bound=0.7)
    assert mined.filled_at_random > 100
    scores = cosines(collection, model)
    for query, positive, negatives in triplets_in(tmp_path / "t.tsv"):
        best = sorted(scores[query], key=lambda document: -scores[query][document])[:40]
        assert not set(best).difference(pools[query, positive]) & set(negatives)
    collection.qrels = {query: {min(of, key=lambda document: of[document]): 1} for query, of in scores.items()}
    mined = mine(collection, tmp_path / "all.tsv", "model", model, depth=60, bound=0.7)
    assert mined.skipped == 30 * 59  # all there are, and still each triplet has a negative
    assert len({negative for *_, [negative] in triplets_in(tmp_path / "all.tsv")}) > 5


def test_the_bound_of_a_similarity_below_zero_is_below_it() -> None:
    for positive in (0.8, 0.0, -0.01, -0.8, -40.0):
        assert highest_allowed(positive, 1.0) == positive
        assert highest_allowed(positive, 0.9) <= positive <= highest_allowed(positive, 1.1)
    assert highest_allowed(0.5, 0.9) == 0.45
    compared = Compared(["p", "r"], ["a", "b", "c"], np.array([-0.5, 0.5]), np.array([-0.4, -0.5, -0.6]))
    assert compared.allowed(0, 0.9) == ["c"]
    assert compared.allowed(1, 0.9) == ["a", "b", "c"]


def test_without_a_bound_all_is_as_it_was(collection: Collection, tmp_path: Path) -> None:
    """The hashes are of files that were written before there was a bound: the paper's experiments stay the same."""
    written = []
    for negatives in ("bm25", "random"):
        mined = mine(collection, tmp_path / f"{negatives}.tsv", negatives, depth=20, triplets=2, per_triplet=3, seed=5)
        assert (mined.skipped, mined.suspicious) == (0, [])
        written.append(hashlib.sha256((tmp_path / f"{negatives}.tsv").read_bytes()).hexdigest()[:16])
    assert written == ["a5bc22be08174620", "dc61ff650b273c52"]


def test_a_list_of_suspicious_negatives_changes_no_triplet(
    collection: Collection, model: BiEncoder, tmp_path: Path
) -> None:
    mine(collection, tmp_path / "t.tsv", "model", model, depth=9)
    mine(collection, tmp_path / "same.tsv", "model", model, depth=9, suspicious=tmp_path / "list.json")
    assert (tmp_path / "t.tsv").read_bytes() == (tmp_path / "same.tsv").read_bytes()
    mine(collection, tmp_path / "bm25.tsv", depth=9)
    mine(collection, tmp_path / "same25.tsv", depth=9, model=model, suspicious=tmp_path / "list25.json")
    assert (tmp_path / "bm25.tsv").read_bytes() == (tmp_path / "same25.tsv").read_bytes()


def test_vectors_that_were_made_before_are_not_made_again(
    collection: Collection, model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"negatives": "model", "model": model, "depth": 12, "bound": 0.7}
    mined = mine(collection, tmp_path / "t.tsv", **options)
    vectors = Vectors.of(model, collection.documents)
    ids = list(collection.documents)[::-1]
    matrix = model.encode_documents([collection.documents[id] for id in ids])
    monkeypatch.setattr(BiEncoder, "encode_documents", lambda *given: pytest.fail("encoded again"))
    for name, given in {"vectors": vectors, "array": (ids, matrix)}.items():
        assert mine(collection, tmp_path / f"{name}.tsv", **options, vectors=given).skipped == mined.skipped
        assert (tmp_path / f"{name}.tsv").read_bytes() == (tmp_path / "t.tsv").read_bytes()
    others = {
        "of other documents": (["x", *ids[1:]], matrix),
        r"shape \(59, 32\) for 60 ids": (ids, matrix[1:]),
        "have 16 numbers, those of the model 32": (ids, matrix[:, :16]),
        "that float32 cannot hold": (ids, matrix * np.nan),
    }
    for problem, given in others.items():
        with pytest.raises(InputError, match=problem):
            mine(collection, tmp_path / "other.tsv", **options, vectors=given)
    passages = replace(vectors, owners=np.arange(60, dtype=np.uint32))
    with pytest.raises(InputError, match="of passages"):
        mine(collection, tmp_path / "other.tsv", **options, vectors=passages)
    vectors.made = replace(vectors.made, model_fingerprint="another")
    with pytest.raises(InputError, match="made by another model"):
        mine(collection, tmp_path / "other.tsv", **options, vectors=vectors)


def interrupt(patch: pytest.MonkeyPatch, after: int) -> None:
    original, calls = Candidates.triplets, []

    def stop(self: Any, chunk: list[str], *rest: Any) -> Any:
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(chunk)
        return original(self, chunk, *rest)

    patch.setattr(Candidates, "triplets", stop)


def test_interrupted_work_resumes_with_the_same_bound_only(
    collection: Collection, model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 7)
    options: dict[str, Any] = {"negatives": "model", "model": model, "depth": 12}
    whole = mine(collection, tmp_path / "whole.tsv", bound=0.9, suspicious=tmp_path / "whole.json", **options)
    other = mine(collection, tmp_path / "other.tsv", bound=0.7, **options)
    assert whole.skipped < other.skipped
    with monkeypatch.context() as patch:
        interrupt(patch, after=3)
        with pytest.raises(KeyboardInterrupt):
            mine(collection, tmp_path / "t.tsv", bound=0.9, **options)
    with monkeypatch.context() as patch:
        interrupt(patch, after=2)  # are left
        given = {"suspicious": tmp_path / "t.json", **options}
        assert mine(collection, tmp_path / "t.tsv", bound=0.9, **given) == whole
    for ending in ("tsv", "json"):
        assert (tmp_path / f"t.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    with monkeypatch.context() as patch:
        interrupt(patch, after=3)
        with pytest.raises(KeyboardInterrupt):
            mine(collection, tmp_path / "new.tsv", bound=0.9, **options)
    assert mine(collection, tmp_path / "new.tsv", bound=0.7, **options).skipped == other.skipped
    assert (tmp_path / "new.tsv").read_bytes() == (tmp_path / "other.tsv").read_bytes()


def most_suspicious_slowly(
    collection: Collection, model: BiEncoder, pools: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """Each query and its highest negative, if it is above all positives, by the ratio of the two similarities."""
    scores, found = cosines(collection, model), []
    for query, pool in pools.items():
        best = max(scores[query][d] for d, grade in collection.qrels[query].items() if grade > 0)
        negative = max(pool, key=lambda document: scores[query][document])
        if scores[query][negative] >= best:
            found.append((scores[query][negative] / best, query, negative))
    return [(query, negative) for _, query, negative in sorted(found, reverse=True)]


def test_the_most_suspicious_negatives_of_mining(collection: Collection, model: BiEncoder, tmp_path: Path) -> None:
    collection.documents["d50"] = "how is margin a" + " and so on" * 50
    run = BM25(collection.documents).search(collection.queries, 25)
    relevant = {query: {d for d, grade in judged.items() if grade > 0} for query, judged in collection.qrels.items()}
    pools = {query: [d for d in run.rankings[query] if d not in relevant[query]] for query in collection.queries}
    expected = most_suspicious_slowly(collection, model, pools)
    assert len(expected) > 5
    listed = tmp_path / "list.json"
    mined = mine(collection, tmp_path / "t.tsv", model=model, depth=25, bound=0.9, suspicious=listed)
    assert [(one.query, one.negative) for one in mined.suspicious] == expected[:20]
    assert read_suspicious(listed) == mined.suspicious
    for one in mined.suspicious:
        assert one.negative_score >= one.positive_score
        assert collection.qrels[one.query][one.positive] > 0
        assert collection.documents[one.negative].startswith(one.negative_text[: LONGEST - 2])
        assert len(one.negative_text) <= LONGEST
    assert json.loads(listed.read_text())["suspicious"][0] == asdict(mined.suspicious[0])
    with pytest.raises(InputError, match=r"list\.json: already exists"):
        mine(collection, tmp_path / "again.tsv", model=model, suspicious=listed)
    assert not list(tmp_path.glob(".again*"))


def test_the_most_suspicious_negatives_of_triplets(collection: Collection, model: BiEncoder, tmp_path: Path) -> None:
    mine(collection, tmp_path / "t.tsv", depth=25, triplets=2, per_triplet=3)
    pools: dict[str, list[str]] = {}
    for query, _, negatives in triplets_in(tmp_path / "t.tsv"):
        pools.setdefault(query, []).extend(negatives)
    expected = most_suspicious_slowly(collection, model, pools)
    assert len(expected) > 3
    found = suspicious(collection, tmp_path / "t.tsv", model, count=len(expected) - 1)
    assert [(one.query, one.negative) for one in found] == expected[:-1]
    ratios = [one.ratio for one in found]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] >= 1
    with pytest.raises(InputError, match="0 suspicious negatives to list"):
        suspicious(collection, tmp_path / "t.tsv", model, count=0)
    (tmp_path / "strange.tsv").write_text("query_id\tpositive_id\tnegative_id\nq0\td0\tnowhere\n")
    with pytest.raises(InputError, match=r"strange\.tsv:2: id 'nowhere': document is not in the collection"):
        suspicious(collection, tmp_path / "strange.tsv", model)


def test_mining_again_takes_the_settings_by_name(collection: Collection, model: BiEncoder, tmp_path: Path) -> None:
    mined = mine(collection, tmp_path / "t.tsv", model=model, **asdict(replace(HARD, depth=20, per_triplet=2)))
    assert mined.skipped > 0
    assert (HARD.negatives, HARD.depth, HARD.bound) == ("model", 50, 0.95)


def test_settings_that_make_no_sense_are_one_clear_line(
    collection: Collection, model: BiEncoder, tmp_path: Path
) -> None:
    for bound in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"bound is .*; it must be a number above 0"):
            MiningSettings(bound=bound)
    with pytest.raises(InputError, match="--bound does nothing for random negatives"):
        MiningSettings("random", bound=0.95)
    cases: dict[str, dict[str, Any]] = {
        "similarities to the positive need an encoder; give --model": {"bound": 0.95},
        "need an encoder": {"suspicious": tmp_path / "list.json"},
        "a model goes with negatives from a model, a bound or suspicious negatives only": {"model": model},
        "random negatives are not compared": {"negatives": "random", "model": model, "suspicious": tmp_path / "l"},
        "vectors, but no model": {"vectors": (["d0"], np.zeros((1, 32)))},
    }
    for problem, options in cases.items():
        with pytest.raises(InputError, match=problem):
            mine(collection, tmp_path / "t.tsv", **options)


def test_the_command_prints_what_it_skipped(remargin: Any, tiny_encoder: Any, tmp_path: Path) -> None:
    out, listed = tmp_path / "t.tsv", tmp_path / "list.json"
    flags = ["--negatives", "model", "--model", tiny_encoder("bert"), "--depth", 50, "--bound", 0.95]
    result = remargin("mine", "--data", "docstrings:json,csv", "--out", out, "--suspicious", listed, *flags)
    assert result.returncode == 0, result.stderr
    assert "candidates skipped because they score like the positive: " in result.stdout
    assert f"wrote {listed}: {len(read_suspicious(listed))} possible false negatives" in result.stdout
