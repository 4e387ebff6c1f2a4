"""The paper's own set-up, one command: the configuration for MS MARCO and TREC-DL, over a miniature of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder, Collection, Run, evaluate
from remargin.data.irds import scored_documents
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.systems import DISTRIBUTED, whole_run
from remargin.reports.sections import Section
from remargin.retrieval.settings import BackendSettings
from remargin.study import full_ranking
from remargin.study.results import HITS, MEASURE, Results
from remargin.study.systems import choose
from remargin.training import loop

from . import miniature
from .miniature import NAME, REAL, Judged

CONFIG = Path(__file__).parents[2] / "configs" / "paper" / "all.yaml"
SMALL = [
    *(
        "--data",
        f"irds:{NAME}/train",
        "--triplets",
        f"irds:{NAME}/train/triples",
        "--also-test",
        f"DL20=irds:{NAME}/dl20",
    ),
    *("--first-stage", f"irds:{NAME}/test", "--validation-depth", "30", "--zero-shot", "other=docstrings:json"),
    *(
        "--epoch",
        "32",
        "--sweep-triplets",
        "16",
        "--batch-size",
        "8",
        "--other-batch-size",
        "4",
        "--validate-every",
        "8",
    ),
    *("--margins", "1", "--temperatures", "0.05", "--teacher-scales", "1", "--rates", "0.01"),
]  # sizes and names; all else is the configuration's


@pytest.fixture(scope="module")
def start(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone with larger weights: no two texts are so alike that rounding decides which is ranked first."""
    model, folder = BiEncoder.from_pretrained(tiny_model("distilbert")), tmp_path_factory.mktemp("start") / "model"
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    model.save(folder)
    return folder


@pytest.fixture
def reproduce(remargin: Any, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command over judgments, with an index that needs few vectors; gives what it says, and its results."""
    monkeypatch.setattr(full_ranking, "PAPERS_INDEX", BackendSettings("faiss", over_fetch=1, factory="PQ4x4"))
    monkeypatch.setattr(full_ranking, "DEPTH", 20)
    monkeypatch.setattr(loop, "fast_precision", lambda: "32")  # bfloat16 may rank in another order
    monkeypatch.setattr(full_ranking, "CENTROIDS", 16)

    def run(years: dict[str, Judged], *experiments: str) -> tuple[str, Results]:
        out = tmp_path / "out"
        with miniature.registered(tmp_path, years):
            done = remargin(
                "reproduce", *experiments, "--config", CONFIG, *SMALL, "--model", f"tiny={start}", "--out", out
            )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr, Results.open(out / "regime-paper", say=str)

    return run


def check(said: str, results: Results, years: dict[str, Judged]) -> None:
    """What the paper's set-up is, in what came of it."""
    plan = results.plan
    assert (plan.regime, plan.validation_split, plan.index, plan.relevant) == ("paper", "test", "faiss", 2)
    assert (plan.preset, plan.patience, plan.seeds) == ("paper", 16, (0,))
    assert results.header["triplets"] == f"irds:{NAME}/train/triples"
    assert "chosen on the test queries, as in the paper" in said
    assert results.tests == {"test": "mini-marco/train", "test-DL20": "DL20"}
    run = results.run(choose(results, "tiny", DISTRIBUTED).spec, *results.tests)
    for test, year in (("test", "test"), ("test-DL20", "dl20")):
        assert run.test(test)[MEASURE].keys() == years[year].keys()
        assert {"exact nDCG@10", "exact R@1000"} < run.test(test).keys()
    costs = [t for t in Section.load(results.out / "variants").tables if t.title.startswith("What the index costs")]
    assert [table.title for table in costs] == [
        "What the index costs on mini-marco/train",
        "What the index costs on DL20",
    ]
    for table in costs:
        for cells in table.blocks[0].rows:
            found, exact, lost = (cell.value for cell in cells[1:4])
            assert lost == pytest.approx(exact - found)
    figure = Section.load(results.out / "distributed-margins").figures[0]
    assert "test: a first-stage run's documents re-ranked" in figure.caption


@pytest.mark.parametrize("judgments", ["made up", "real"])
def test_the_papers_set_up_in_one_command(
    reproduce: Callable[..., Any], judgments: str, start: Path, tmp_path: Path
) -> None:
    if judgments == "real" and not REAL.exists():
        pytest.skip("TREC-DL's judgments are not here")
    years = (miniature.real if judgments == "real" else miniature.made_up)(3, 40)
    grades = {grade for of_year in years.values() for judged in of_year.values() for grade in judged.values()}
    assert grades == {0, 1, 2, 3}
    said, results = reproduce(years, "variants", "distributed-margins")
    check(said, results, years)
    curve = results.run(whole_run(results.plan, choose(results, "tiny", DISTRIBUTED))).curve
    assert [step for step, _ in curve] == [0, 2, 4]
    assert curve[0][1] == pytest.approx(reranked(BiEncoder.from_pretrained(start), years, tmp_path))


def reranked(model: BiEncoder, years: dict[str, Judged], folder: Path) -> dict[str, float]:
    """What validation measures of a model: the first 30 documents of the run that was given, by its similarities."""
    with miniature.registered(folder, years):
        test = Collection.load(f"irds:{NAME}/train", "test")
        first: dict[str, dict[str, float]] = {query: {} for query in test.queries}
        for query, document, score in scored_documents(f"{NAME}/test"):
            first[query][document] = score
    scores: dict[str, dict[str, float]] = {}
    for query, ranking in Run.of(first, depth=30).rankings.items():
        documents = model.encode_documents([test.documents[document] for document in ranking])
        similarities = documents @ model.encode_queries([test.queries[query]])[0]
        scores[query] = dict(zip(ranking, similarities.tolist(), strict=True))
    means = evaluate(Run.of(scores), test.qrels, [MEASURE, "Success(rel=2)@100"]).means
    return {MEASURE: means[MEASURE], HITS: means["Success(rel=2)@100"]}


@pytest.mark.slow
def test_every_table_and_figure_in_the_papers_set_up(reproduce: Callable[..., Any]) -> None:
    years = (miniature.real if REAL.exists() else miniature.made_up)(6, 60)
    said, results = reproduce(years, "all")
    check(said, results, years)
    assert all((results.out / name).exists() for name in EXPERIMENTS)
