"""What fit makes of the trained model: blended, fused with BM25, measured; and that it says so truly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, evaluate, search
from remargin.reports.blend_file import read_path
from remargin.reports.page import page_text
from remargin.reports.run_files import REPORT_FORMAT, read_report
from remargin.reports.suspicious import read_suspicious
from remargin.reports.training_run import run_section
from remargin.retrieval.hybrid import read_fusion
from remargin.training import measuring
from remargin.training.blending import POINTS, choose_weight
from remargin.training.devices import rounds
from remargin.training.fitting import fit
from remargin.training.measuring import Fit
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

from .conftest import Start, models, quick, silent, weights

SYSTEMS = ("bm25", "before", "after", "hybrid")


def test_the_model_to_use_is_the_blend_that_dev_chose(fitted: Fit, encoder: Path) -> None:
    path, run = fitted.path, fitted.model.parent
    assert fitted.model.name == "model"
    assert path is not None
    assert path == read_path(run)
    assert (tuple(path.points), path.split, path.queries) == (POINTS, "dev", 10)
    assert fitted.weight == path.weight == choose_weight(path.points, path.values["nDCG@10"])
    assert len(set(path.values["nDCG@10"])) > 1, "no point differs from another: this test would see nothing"
    assert (fitted.before, fitted.best) == (path.at(0), path.at(path.weight))
    assert (fitted.validations, (run / "best").exists()) == ([], False)
    begun, last, model = weights(encoder), *models(run, "last", "model")
    for name, tensor in model.items():
        between = (1 - fitted.weight) * begun[name].double() + fitted.weight * last[name].double()
        torch.testing.assert_close(tensor.double(), between, rtol=1e-6, atol=1e-7)
    assert any(not torch.equal(begun[name], last[name]) for name in begun)


def test_figures_of_dev_are_those_of_a_validator(fitted: Fit, beir: Path, encoder: Path) -> None:
    assert fitted.path is not None
    for point, folder in ((0.0, encoder), (1.0, fitted.model.parent / "last"), (fitted.weight, fitted.model)):
        model = BiEncoder.from_pretrained(folder)
        validator = Validator.of(Collection.load(beir, "dev"), model, FitSettings())
        assert fitted.path.at(point) == pytest.approx(validator.evaluate(model).means["nDCG@10"], abs=1e-12)


def test_figures_are_those_that_search_and_evaluate_give(fitted: Fit, beir: Path, encoder: Path) -> None:
    """Of all four systems, the fusion as an index would rank, every query, every measure."""
    assert fitted.outcome is not None
    assert fitted.fusion is not None
    assert (fitted.outcome.split, fitted.outcome.queries) == ("test", 10)
    judged = Collection.load(beir, "test").qrels
    runs = {
        "bm25": search(beir, "bm25"),
        "before": search(beir, "exact", encoder),
        "after": search(beir, "exact", fitted.model),
        "hybrid": search(beir, "exact", fitted.model, hybrid="on"),
    }
    assert tuple(fitted.outcome.runs) == SYSTEMS
    for name, run in runs.items():
        measured, again = fitted.outcome.evaluations[name].per_query, evaluate(run, judged).per_query
        assert measured.keys() == again.keys()
        for measure in again:
            assert measured[measure] == pytest.approx(again[measure], abs=1e-12), (name, measure)
    dev = search(beir, "exact", fitted.model, split="dev", hybrid="on")
    means = evaluate(dev, Collection.load(beir, "dev").qrels).means
    assert fitted.fusion.fused == pytest.approx(means["nDCG@10"])


def test_the_fusion_is_chosen_on_rankings_as_deep_as_searches_rank(
    start: Start, beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are scaled by the least of a ranking: one that ends where the measure does gives another fusion."""
    choose, depths = measuring.choose_fusion, set[int]()

    def watched(bm25: Any, dense: Any, *others: Any, **options: Any) -> Any:
        depths.update(map(len, dense.rankings.values()))
        return choose(bm25, dense, *others, **options)

    monkeypatch.setattr(measuring, "choose_fusion", watched)
    given = start(tmp_path / "run", quick(validation_measure="nDCG@1"))
    assert depths == {60}  # all; the measure would look at 51
    found = search(beir, "exact", given.model, split="dev", hybrid="on")
    means = evaluate(found, Collection.load(beir, "dev").qrels, ["nDCG@1"]).means
    assert given.fusion is not None
    assert given.fusion.fused == pytest.approx(means["nDCG@1"])


def test_where_bfloat16_is_fast_it_is_measured_in_it(
    start: Start, beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "fast_precision", lambda: "bf16")
    given = start(tmp_path / "run", quick(precision="auto"), blend="1")
    found = search(beir, "exact", BiEncoder.from_pretrained(given.model, precision="bf16"))
    assert given.outcome is not None
    measured = given.outcome.evaluations["after"].per_query
    assert measured == evaluate(found, Collection.load(beir, "test").qrels).per_query
    rounded = given.outcome.runs["after"].rankings["q50"]
    assert rounded != search(beir, "exact", given.model).rankings["q50"]


def test_the_report_has_all_of_it(fitted: Fit, beir: Path) -> None:
    run = fitted.model.parent
    report: Any = read_report(run)
    assert report is not None
    assert report["format"] == REPORT_FORMAT == "remargin-report-2"
    expected = {
        "format", "steps", "triplets", "before", "best", "best_step", "best_triplets", "stopped_early", "seconds",
        "model", "validations", "metrics", "weight", "away", "outcome", "fusion", "data",
        "learning_rate",
    }  # fmt: skip
    assert report.keys() == expected
    assert (report["steps"], report["triplets"], report["model"], report["weight"]) == (8, 64, "model", fitted.weight)
    assert report["outcome"]["systems"].keys() == {*SYSTEMS, "gain"}
    assert fitted.outcome is not None
    for system in SYSTEMS:
        for measure, value in fitted.outcome.evaluations[system].means.items():
            assert report["outcome"]["systems"][system][measure]["mean"] == pytest.approx(value)
    assert (report["away"]["what"], report["away"]["queries"]) == (str(beir), 10)
    assert fitted.path is not None
    assert fitted.path.away is not None
    ends = fitted.path.at(0, away=True), fitted.path.at(fitted.weight, away=True)
    assert (report["away"]["before"], report["away"]["after"]) == pytest.approx(ends)
    assert report["data"]["pairs"] == 40
    assert {path.name for path in (run / "test").iterdir()} == {f"{name}.trec.gz" for name in SYSTEMS}


def test_what_is_suspicious_is_listed_and_shown(fitted: Fit) -> None:
    run = fitted.model.parent
    listed = read_suspicious(run / "suspicious.json")
    assert listed, "nothing is listed: this test would see nothing"
    rows = [line.split("\t") for line in (run / "triplets.tsv").read_text().splitlines()[1:]]
    negatives = {row[0]: set(row[2:]) for row in rows}
    model = BiEncoder.from_pretrained(fitted.model)
    for one in listed:
        assert one.negative in negatives[one.query]
        query = model.encode_queries([one.query_text])[0]
        scores = model.encode_documents([one.positive_text, one.negative_text]) @ query
        assert [one.positive_score, one.negative_score] == pytest.approx(scores.tolist(), abs=1e-5)
        assert one.negative_score >= one.positive_score
    page = page_text([run_section(run)], "run")
    assert "Possible false negatives" in page
    assert listed[0].negative_text in page
    assert "What came of it" in page


def test_the_folder_is_still_one_of_sentence_transformers(fitted: Fit) -> None:
    """With fusion.json in it, which `index` and `search` read."""
    from sentence_transformers import SentenceTransformer

    assert read_fusion(fitted.model) == fitted.fusion
    texts = ["the value of abcd", "how is it"]
    theirs = SentenceTransformer(str(fitted.model), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, BiEncoder.from_pretrained(fitted.model).encode_documents(texts), atol=1e-5)


def test_what_people_read(fitted: Fit) -> None:
    lines = fitted.lines()
    assert lines[0].startswith("Blended: ") or lines[0].startswith("Not blended")
    assert any(line.startswith("Hybrid of BM25 and the model, weight ") for line in lines)
    assert "test: 10 queries, ranked in full (60 documents), with 95% intervals" in lines
    assert lines[-1].startswith("elsewhere (")
    assert not [line for line in lines if "no test split" in line]


def test_a_weight_of_ones_own_is_taken(start: Start, encoder: Path, fitted: Fit, tmp_path: Path) -> None:
    """Training is the same, whatever is made of it."""
    given = start(tmp_path / "run", quick(), blend=0.25)
    assert (given.weight, given.measure) == (0.25, "nDCG@10")
    assert given.path is not None
    assert given.path == read_path(tmp_path / "run")
    assert (given.path.given, given.path.points) == (True, [0.0, 0.25, 1.0])
    assert (given.before, given.best) == (given.path.at(0), given.path.at(0.25))
    assert "measured on 10 dev queries" in given.lines()[0]
    assert not (tmp_path / "run" / "best").exists()
    last, model, begun = *models(tmp_path / "run", "last", "model"), weights(encoder)
    for name, tensor in weights(fitted.model.parent / "last").items():
        assert torch.equal(tensor, last[name])
        between = 0.75 * begun[name].double() + 0.25 * last[name].double()
        torch.testing.assert_close(model[name].double(), between, rtol=1e-6, atol=1e-7)
    assert given.outcome is not None
    assert given.away is not None
    assert given.away.before == fitted.away.before if fitted.away else False


def test_without_blending_the_best_model_is_the_one_to_use(start: Start, tmp_path: Path) -> None:
    given = start(tmp_path / "run", quick(validate_every=2), blend="off")
    assert [step for step, _ in given.validations] == [0, 2, 4, 6, 8]
    assert given.best == max(values["nDCG@10"] for _, values in given.validations)
    assert (given.weight, given.path, given.measure) == (1.0, None, "nDCG@10")
    best, model = models(tmp_path / "run", "best", "model")
    assert all(torch.equal(best[name], model[name]) for name in best)
    assert not (tmp_path / "run" / "blend.json").exists()


def test_both_can_be_asked_for(start: Start, tmp_path: Path) -> None:
    given = start(tmp_path / "run", quick(validate_every=4))
    assert [step for step, _ in given.validations] == [0, 4, 8]
    assert given.path is not None
    values = given.path.values["nDCG@10"]
    ends = [given.validations[i][1]["nDCG@10"] for i in (0, -1)]
    assert ends == pytest.approx([values[0], values[-1]], abs=1e-9)  # the same texts, ranked in full
    assert (given.before, given.best) == (values[0], given.path.at(given.weight))


def test_a_raw_backbone_is_no_place_to_go_back_to(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    given = fit(str(beir), str(tiny_model("bert")), tmp_path / "run", quick(), also=str(beir), say=lines.append)
    assert given.path is not None
    assert (given.weight, given.path.given, given.path.points) == (1.0, True, [0.0, 1.0])
    last, model = models(tmp_path / "run", "last", "model")
    assert all(torch.equal(last[name], model[name]) for name in last)
    assert given.fusion is not None  # dev chooses that all the same
    assert "no blending: the start was not trained to encode texts, so there is nothing to go back to" in lines


def test_few_dev_queries_choose_nothing(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FEWEST_QUERIES", 11)
    lines: list[str] = []
    given = start(tmp_path / "run", quick(), say=lines.append)
    assert given.path is not None
    assert (given.weight, given.path.given, given.fusion) == (0.5, True, None)
    assert any(line.startswith("10 dev queries are too few to choose by: ") for line in lines)
    few = "10 dev queries are too few to choose its weight by (`index --hybrid` sets one)"
    assert f"No hybrid of BM25 and the model: {few}." in lines


def without(beir: Path, split: str, folder: Path) -> Path:
    shutil.copytree(beir, folder)
    (folder / "qrels" / f"{split}.tsv").unlink()
    return folder


def test_without_test_queries_the_figures_are_those_of_dev(
    beir: Path, encoder: Path, fitted: Fit, tmp_path: Path
) -> None:
    lines: list[str] = []
    data = without(beir, "test", tmp_path / "data")
    given = fit(str(data), str(encoder), tmp_path / "run", quick(), also=str(beir), say=lines.append)
    assert given.outcome is not None
    assert (given.outcome.split, given.outcome.measures) == ("dev", ["nDCG@10", "R@100", "RR"])
    assert "There is no test split: dev also made choices, and flatters them." in lines
    assert given.path is not None
    assert given.outcome.evaluations["after"].means["nDCG@10"] == given.path.at(given.weight)
    judged = Collection.load(data, "dev").qrels
    found = evaluate(search(data, "exact", given.model, split="dev"), judged)
    assert given.outcome.evaluations["after"].means == pytest.approx(found.means)


def test_a_resumed_run_measures_what_it_was_prepared_from(beir: Path, encoder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(beir, data)
    began = fit(str(data), str(encoder), tmp_path / "run", quick(), also=str(beir), say=silent)
    shutil.rmtree(tmp_path / "run" / "test")
    (data / "qrels" / "test.tsv").write_text("q0\td0\t1\n")  # a query of train
    again = fit(str(data), str(encoder), tmp_path / "run", quick(), also=str(beir), resume=True, say=silent)
    assert began.outcome is not None
    assert again.outcome is not None
    assert again.outcome.evaluations == began.outcome.evaluations


def test_without_dev_nothing_is_chosen(beir: Path, encoder: Path, tmp_path: Path) -> None:
    data = without(beir, "dev", tmp_path / "data")
    given = fit(str(data), str(encoder), tmp_path / "run", quick(), also=str(beir), say=silent)
    assert (given.weight, given.path, given.fusion, given.best) == (1.0, None, None, None)
    assert given.outcome is not None
    assert tuple(given.outcome.runs) == SYSTEMS[:3]
    assert not (tmp_path / "run" / "model" / "fusion.json").exists()


def test_where_bm25_finds_nothing_on_dev_there_is_no_fusion(beir: Path, encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(beir, tmp_path / "data")
    queries = [json.loads(line) for line in (tmp_path / "data" / "queries.jsonl").read_text().splitlines()]
    for number, query in enumerate(queries[40:]):  # of dev and test
        query["text"] = f"zz{number}"
    (tmp_path / "data" / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    given = fit(str(tmp_path / "data"), str(encoder), tmp_path / "run", quick(), also=str(beir), say=silent)
    assert given.fusion is None
    assert given.outcome is not None
    assert tuple(given.outcome.runs) == SYSTEMS[:3]
    assert given.outcome.mean("bm25", "RR") == (0, 0, 0)


def test_documents_without_words_are_measured_without_bm25(
    beir: Path, encoder: Path, fitted: Fit, tmp_path: Path
) -> None:
    """Not an error after training, of a row that training does not need."""
    shutil.copytree(beir, tmp_path / "data")
    texts = [{"_id": f"d{i}", "text": " ".join(f"{i:02}")} for i in range(60)]
    (tmp_path / "data" / "corpus.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    options: Any = {"triplets": fitted.model.parent / "triplets.tsv", "also": str(beir), "say": silent}
    given = fit(str(tmp_path / "data"), str(encoder), tmp_path / "run", quick(), **options)
    assert given.fusion is None
    assert given.outcome is not None
    assert tuple(given.outcome.runs) == ("before", "after")
    assert any(line.startswith("There is no row of BM25: ") for line in given.lines())
    assert not any(line.startswith("There is no row of BM25: ") for line in fitted.lines())


def test_no_weight_is_chosen_on_documents_that_were_re_ranked(start: Start, tmp_path: Path) -> None:
    given = start(tmp_path / "run", quick(validation_depth=5))
    assert given.fusion is None
    assert given.outcome is not None
    assert tuple(given.outcome.runs) == SYSTEMS[:3]


def test_a_test_split_that_chose_is_no_result(start: Start, tmp_path: Path) -> None:
    given = start(tmp_path / "run", quick(), validation_split="test")
    assert "The test split also made choices, as --validation-split, and flatters them." in given.lines()


def test_without_bm25_the_encoder_is_measured_alone(
    start: Start, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beir: Path
) -> None:
    monkeypatch.setattr(measuring, "find_spec", lambda name: None)
    given = start(tmp_path / "run", quick())
    assert given.fusion is None
    assert given.outcome is not None
    assert tuple(given.outcome.runs) == ("before", "after")


def test_shorter_documents_in_training_do_not_shorten_the_model(
    start: Start, encoder: Path, beir: Path, tmp_path: Path
) -> None:
    given = start(tmp_path / "run", quick(validate_every=4), training_length=8)
    lengths = {name: BiEncoder.from_pretrained(tmp_path / "run" / name).document_length for name in ("last", "model")}
    assert lengths == {"last": 8, "model": 32}
    assert given.outcome is not None
    judged = Collection.load(beir, "test").qrels
    for name, model in (("before", encoder), ("after", given.model)):
        again = evaluate(search(beir, "exact", model), judged).means
        assert given.outcome.evaluations[name].means == pytest.approx(again)
    cut = BiEncoder.from_pretrained(encoder, document_length=8)
    validator = Validator.of(Collection.load(beir, "dev"), cut, FitSettings())
    first = given.validations[0][1]["nDCG@10"]  # while it trains, documents are as short as those it trains on
    assert first == pytest.approx(validator.evaluate(cut).means["nDCG@10"])
    assert given.path is not None
    assert first != given.path.at(0)
