"""What came of a training run, measured: against evaluate and plain means, and as it is kept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean

import pytest

from remargin import BiEncoder, Collection, Run, evaluate
from remargin.retrieval.hybrid import Fusion
from remargin.training.outcome import Outcome
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

QRELS = {"q1": {"a": 1}, "q2": {"a": 2, "b": 1}, "q3": {"c": 1}}
RUNS = {
    "bm25": Run.of({"q1": {"a": 3.0, "b": 1.0}, "q2": {"c": 2.0, "a": 1.0}, "q3": {}}),
    "before": Run.of({"q1": {"b": 0.9, "a": 0.1}, "q2": {"a": 0.9, "c": 0.3}, "q3": {"a": 0.5, "b": 0.4, "c": 0.3}}),
    "after": Run.of({"q1": {"a": 0.9, "b": 0.1}, "q2": {"a": 0.9, "b": 0.3}, "q3": {"a": 0.5, "c": 0.4, "b": 0.3}}),
}


@pytest.fixture
def outcome() -> Outcome:
    return Outcome.of("test", "ranked in full (3 documents)", RUNS, QRELS, ["RR", "nDCG@10"])


def test_means_and_gain_are_those_of_the_queries(outcome: Outcome) -> None:
    by_hand = {"bm25": [1, 1 / 2, 0], "before": [1 / 2, 1, 1 / 3], "after": [1, 1, 1 / 2]}
    for system, values in by_hand.items():
        interval = outcome.mean(system, "RR")
        assert interval.mean == pytest.approx(fmean(values))
        assert min(values) <= interval.low <= interval.mean <= interval.high <= max(values)
        assert outcome.mean(system, "nDCG@10").mean == pytest.approx(evaluate(RUNS[system], QRELS).means["nDCG@10"])
    differences = [a - b for a, b in zip(by_hand["after"], by_hand["before"], strict=True)]
    gain = outcome.gain("RR")
    assert gain.mean == pytest.approx(fmean(differences))
    assert min(differences) <= gain.low <= gain.mean <= gain.high <= max(differences)
    assert outcome.gain("RR", "bm25").mean == pytest.approx(fmean(by_hand["bm25"]) - fmean(by_hand["before"]))
    assert (outcome.measures, outcome.queries) == (["RR", "nDCG@10"], 3)


def test_the_table_and_the_json_have_the_same_numbers(outcome: Outcome) -> None:
    plain = json.loads(json.dumps(outcome.plain()))
    assert (plain["split"], plain["ranked"], plain["queries"]) == ("test", "ranked in full (3 documents)", 3)
    assert list(plain["systems"]) == ["bm25", "before", "after", "gain"]
    head, names, *rows = outcome.lines()
    assert head == "test: 3 queries, ranked in full (3 documents), with 95% intervals"
    assert names.split() == ["RR", "nDCG@10"]
    assert [row.split()[0] for row in rows] == list(plain["systems"])
    for row in rows:
        name, *numbers = row.replace("(", " ").replace(")", " ").replace(",", " ").split()
        means = [plain["systems"][name][measure] for measure in ("RR", "nDCG@10")]
        assert list(map(float, numbers)) == pytest.approx(
            [one[k] for one in means for k in ("mean", "low", "high")], abs=6e-4
        )
    assert len({len(row) for row in (names, *rows)}) == 1  # its columns stand below each other


def test_a_single_query_has_an_interval(outcome: Outcome) -> None:
    runs = {name: Run.of({"q1": dict(run.rankings["q1"])}) for name, run in RUNS.items()}
    alone = Outcome.of("dev", "ranked in full (3 documents)", runs, {"q1": QRELS["q1"]}, ["RR"])
    assert alone.plain()["systems"]["gain"]["RR"] == {"mean": 0.5, "low": 0.5, "high": 0.5}


def test_run_files_are_what_compare_and_evaluate_read(outcome: Outcome, tmp_path: Path) -> None:
    outcome.save_runs(tmp_path)
    outcome.save_runs(tmp_path)  # as a resumed training run does
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.trec.gz" for name in RUNS}
    for name in ("before", "after"):
        assert evaluate(Run.load(tmp_path / f"{name}.trec.gz"), QRELS).means == evaluate(RUNS[name], QRELS).means
        with gzip.open(tmp_path / f"{name}.trec.gz", "rt") as file:
            assert {line.split()[-1] for line in file} == {name}


@pytest.mark.parametrize("weight", [None, 0.0, 0.35, 1.0])
def test_rankings_are_as_deep_as_searches_rank(weight: float | None, beir: Path, model: BiEncoder) -> None:
    """The validator's own measure looks at the first ten alone; R@100 and the fusion at all there are."""
    collection = Collection.load(beir, "test")
    many = {**collection.documents, **{f"x{i}": f"the value of {'abcdefgh'[i % 8]}{i}" for i in range(200)}}
    collection = Collection("many", "test", many, collection.queries, collection.qrels)
    validator = Validator.of(collection, model, FitSettings())
    assert max(map(len, validator.rank(model).rankings.values())) < 260
    bm25 = validator.rank_by_bm25()
    fusion = None if weight is None else Fusion(weight, "nDCG@10", 0.1, 0.1, 0.2)
    outcome = Outcome.measure(validator, model, model, bm25, fusion)
    assert {len(ranking) for ranking in outcome.runs["after"].rankings.values()} == {260}
    assert outcome.gain("RR") == (0, 0, 0)
    assert list(outcome.runs) == ["bm25", "before", "after", *([] if weight is None else ["hybrid"])]
    if weight is not None:
        for query, found in outcome.runs["hybrid"].rankings.items():
            words, dense = _scaled(dict(bm25.rankings[query])), _scaled(dict(outcome.runs["after"].rankings[query]))
            by_hand = {d: (1 - weight) * words.get(d, 0.0) + weight * dense.get(d, 0.0) for d in {*words, *dense}}
            assert dict(found) == pytest.approx(by_hand)
    assert "hybrid" not in Outcome.measure(validator, model, model, None, fusion).runs


def _scaled(ranking: dict[str, float]) -> dict[str, float]:
    low, high = min(ranking.values()), max(ranking.values())
    return {document: (score - low) / (high - low) if high > low else 1.0 for document, score in ranking.items()}


def test_truncated_vectors_are_measured_at_each_trained_dimension(beir: Path, model: BiEncoder) -> None:
    """As an encoder measures that truncates by itself, though texts are encoded once."""
    validator = Validator.of(Collection.load(beir, "test"), model, FitSettings())
    trained = BiEncoder.from_pretrained(model.name)
    assert Outcome.measure(validator, model, trained, None, None).dims is None
    trained.trained_dims = (4, trained.dimension, 2)
    outcome = Outcome.measure(validator, model, trained, None, None)
    over = outcome.plain()["dims"]
    assert (over["measure"], over["dims"]) == ("nDCG@10", [trained.dimension, 4, 2])
    for place, dims in enumerate(over["dims"]):
        cut = BiEncoder.from_pretrained(model.name, dims=dims)
        assert over["after"][place] == pytest.approx(validator.evaluate(cut).means["nDCG@10"], abs=1e-6)
    assert over["before"] == over["after"]
    assert over["after"][0] == pytest.approx(outcome.mean("after", "nDCG@10").mean)
    assert len({round(value, 4) for value in over["after"]}) > 1
    [line] = [line for line in outcome.lines() if "truncated" in line]
    assert f"2 numbers {over['before'][2]:.3f} and {over['after'][2]:.3f}." in line
