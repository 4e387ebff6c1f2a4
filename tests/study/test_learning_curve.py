"""`remargin curve`: nested shares, the same negatives, resuming, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from remargin import BiEncoder, Collection, InputError, evaluate, search
from remargin.mining.negatives import mine
from remargin.mining.recipe import RECIPE
from remargin.reports.collect import sections_in
from remargin.study import learning_curve
from remargin.study.learning_curve import curve, nested

from ..small_study import silent

SHARES, SEEDS = [0.25, 1.0], [0, 3]


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of 40 training queries, one of them with two positives, and ten test queries."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(60)]
    texts = [f"the value of {word} in {' '.join(rng.sample(words, 2))}" for word in words]
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": f"how is {word}"} for i, word in enumerate(words)]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split, rows in {"train": range(40), "dev": range(40, 50), "test": range(50, 60)}.items():
        more = "q0\td1\t1\n" if split == "train" else ""
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in rows) + more)
    return folder


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for `fit`: notes what it was given, and writes a model that depends on it."""
    calls: list[dict[str, Any]] = []

    def fake(
        data: str, model: str, out: Path, *, triplets: Path, seed: int, preset: str | None = None, **options: Any
    ) -> Any:
        lines = triplets.read_text().splitlines()
        calls.append({"model": model, "out": out, "lines": lines, "seed": seed, **options})
        (out / "data").mkdir(parents=True, exist_ok=True)
        (out / "checkpoint").mkdir(exist_ok=True)
        (out / "metrics.csv").touch()
        encoder = BiEncoder.from_pretrained(model)
        torch.manual_seed(100 * len(lines) + seed)
        with torch.no_grad():
            encoder.backbone.embeddings.word_embeddings.weight.normal_()
        encoder.save(out / "best", overwrite=True)
        return SimpleNamespace(model=out / "best")

    monkeypatch.setattr(learning_curve, "fit", fake)
    return calls


def test_shares_are_nested_and_do_not_depend_on_the_order() -> None:
    queries = [f"q{i}" for i in range(1000)]
    subsets = nested(queries, [0.1, 0.33, 1.0])
    assert [len(subset) for subset in subsets.values()] == [100, 330, 1000]
    tenth, third, whole = map(set, subsets.values())
    assert tenth < third < whole == set(queries)
    assert nested(queries[::-1], [0.1, 0.33, 1.0]) == subsets
    numbers = sorted(int(query[1:]) for query in tenth)
    assert 350 < sum(numbers) / 100 < 650  # not the first ones
    without = nested([query for query in queries if query != "q7"], [0.1, 1.0])
    assert len(set(without[0.1]) - tenth) <= 1
    assert nested(["a"], [1.0]) == {1.0: ["a"]}
    with pytest.raises(InputError, match=r"shares 0\.1 and 0\.12 of 10 queries are not distinct"):
        nested(queries[:10], [0.1, 0.12])


def test_every_run_has_the_triplets_of_its_share(beir: Path, tiny_model: Any, tmp_path: Path, fits: Any) -> None:
    model, out = tiny_model("bert"), tmp_path / "curve"
    found = curve(beir, model, out, SHARES, SEEDS, say=silent, steps=7, batch_size=4)
    whole = (out / "triplets.tsv").read_text().splitlines()
    assert len(whole) == 1 + 41
    subsets = nested([f"q{i}" for i in range(40)], SHARES)
    assert [(call["out"].parent.name, call["seed"]) for call in fits] == [("0.25", 0), ("0.25", 3), ("1", 0), ("1", 3)]
    for call, share in zip(fits, [0.25, 0.25, 1.0, 1.0], strict=True):
        assert call["lines"] == [whole[0], *(line for line in whole[1:] if line.split("\t")[0] in subsets[share])]
        assert (call["steps"], call["batch_size"], call["resume"], call["model"]) == (7, 4, True, str(model))
    assert [point.queries for point in found.points] == [10, 40]
    assert found.points[1].pairs == 41
    test = Collection.load(beir, "test")
    for point, folder in zip(found.points, ("0.25", "1"), strict=True):
        for seed in SEEDS:
            run = search(test, "exact", out / "runs" / folder / f"seed-{seed}" / "best")
            assert point.seeds[seed] == pytest.approx(evaluate(run, test, ["nDCG@10"]).means["nDCG@10"])
    used = {"pooling": "cls", "similarity": "cosine"}  # as `fit` uses a raw backbone
    start = evaluate(search(test, "exact", model, **used), test, ["nDCG@10"]).means["nDCG@10"]
    assert found.before.mean == pytest.approx(start)
    assert len({found.before.mean, *(mean for point in found.points for mean in point.seeds.values())}) > 3
    assert json.loads((out / "curve.json").read_text())["answer"] == found.answer
    assert not list(out.rglob("checkpoint"))
    assert [section.title for section in sections_in(out)] == ["Would more data help?"]


def test_negatives_are_those_that_fit_would_mine(beir: Path, tiny_model: Any, tmp_path: Path, fits: Any) -> None:
    def negatives(name: str, **options: Any) -> int:
        curve(beir, tiny_model("bert"), tmp_path / name, SHARES, [0], say=silent, **options)
        return (tmp_path / name / "triplets.tsv").read_text().splitlines()[0].count("negative_id")

    assert negatives("default") == RECIPE.per_triplet
    assert negatives("paper", preset="paper", steps=7) == 1
    assert negatives("many", per_triplet=9) == 9


def test_finished_runs_are_not_repeated(
    beir: Path, tiny_model: Any, tmp_path: Path, fits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tiny_model("bert"), tmp_path / "curve"
    whole = curve(beir, model, tmp_path / "whole", SHARES, SEEDS, say=silent, steps=7)
    fits.clear()
    measured = learning_curve._measured

    def stop(*given: Any) -> Any:
        if len(fits) == 3:
            raise KeyboardInterrupt
        return measured(*given)

    with monkeypatch.context() as patch:
        patch.setattr(learning_curve, "_measured", stop)
        with pytest.raises(KeyboardInterrupt):
            curve(beir, model, out, SHARES, SEEDS, say=silent, steps=7)
    assert not (out / "curve.json").exists()
    fits.clear()
    said: list[str] = []
    assert curve(beir, model, out, SHARES, SEEDS, say=said.append, steps=7) == whole
    assert [(call["out"].parent.name, call["seed"]) for call in fits] == [("1", 0), ("1", 3)]
    assert "training run 3 of 4: share 1, 41 pairs, seed 0" in said
    fits.clear()
    assert curve(beir, model, out, SHARES, SEEDS, say=silent, steps=7) == whole
    assert fits == []
    more = curve(beir, model, out, [*SHARES, 0.5], [*SEEDS, 4], say=silent, steps=7)  # what is there is used
    assert len(fits) == 5
    assert [point.share for point in more.points] == [0.25, 0.5, 1.0]
    assert more.points[0].seeds.items() > whole.points[0].seeds.items()


def test_a_folder_has_one_curve(beir: Path, tiny_model: Any, tmp_path: Path, fits: Any) -> None:
    model, out = tiny_model("bert"), tmp_path / "curve"
    curve(beir, model, out, SHARES, [0], say=silent, steps=7)
    for problem, changed in {
        "another steps": {"steps": 8},
        "another measure": {"steps": 7, "measure": "RR"},
        "another batch_size": {"steps": 7, "batch_size": 4},
        "other triplets": {"steps": 7, "triplets": out / "triplets.tsv"},
    }.items():
        with pytest.raises(InputError, match=rf"has a curve of {problem}; choose another place"):
            curve(beir, model, out, SHARES, [0], say=silent, **changed)
    with pytest.raises(InputError, match="has a curve of other model"):
        curve(beir, tiny_model("distilbert"), out, SHARES, [0], say=silent, steps=7)
    scores = out / "runs" / "1" / "seed-0.json"
    scores.write_text(scores.read_text().replace("q5", "q6", 1))
    with pytest.raises(InputError, match=r"seed-0\.json: header damaged.*delete it: it is made again"):
        curve(beir, model, out, SHARES, [0], say=silent, steps=7)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(InputError, match="has other files in it"):
        curve(beir, model, tmp_path / "other", say=silent)


def test_what_failed_before_training_can_be_corrected(
    beir: Path, tiny_model: Any, tmp_path: Path, fits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **options: Any) -> Any:
        raise InputError("no such thing", do="name another")

    with monkeypatch.context() as patch:
        patch.setattr(learning_curve, "fit", fail)
        with pytest.raises(InputError, match="no such thing"):
            curve(beir, tiny_model("bert"), tmp_path / "curve", SHARES, [0], say=silent, batch_size=3)
    assert len(curve(beir, tiny_model("bert"), tmp_path / "curve", SHARES, [0], say=silent).points) == 2


def test_given_triplets_keep_their_scores_and_negatives(beir: Path, tiny_model: Any, tmp_path: Path, fits: Any) -> None:
    mine(Collection.load(beir, "train"), tmp_path / "mined.tsv", per_triplet=2)
    header, *lines = (tmp_path / "mined.tsv").read_text().splitlines()
    scored = [f"{line}\t{i}.5\t0.25\t-1" for i, line in enumerate(lines)]
    names = f"{header}\tpositive_score\tnegative_score_1\tnegative_score_2"
    (tmp_path / "scored.tsv").write_text("\n".join([names, *scored]) + "\n")
    curve(beir, tiny_model("bert"), tmp_path / "curve", SHARES, [0], triplets=tmp_path / "scored.tsv", say=silent)
    assert fits[1]["lines"] == [names, *scored]
    assert set(fits[0]["lines"]) < set(fits[1]["lines"])
    (tmp_path / "few.tsv").write_text("\n".join([names, scored[0].replace("q0\t", "nobody\t")]) + "\n")
    with pytest.raises(InputError, match="id 'nobody': query is not in the collection's train split"):
        curve(beir, tiny_model("bert"), tmp_path / "few", SHARES, [0], triplets=tmp_path / "few.tsv", say=silent)


def test_settings_that_make_no_sense_are_one_clear_line(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "a curve needs two shares or more": {"shares": [1.0]},
        r"1\.5 is not a share of the training queries": {"shares": [0.1, 1.5]},
        "the seeds are missing or not distinct": {"seeds": []},
        "seed is not an option of a learning curve; give --seeds": {"seed": 1},
        "resume is not an option of a learning curve": {"resume": True},
        "rounds is not an option of a learning curve; give --triplets": {"rounds": 2},
        "the preset paper needs to know how long to train": {"preset": "paper"},
        "temperature is -1": {"target": "contrastive", "temperature": -1.0},
        "seed is -1": {"seeds": [-1]},
        "nDCG@x": {"measure": "nDCG@x"},
    }
    for problem, changed in cases.items():
        with pytest.raises(InputError, match=problem):
            curve(beir, tiny_model("bert"), tmp_path / "curve", say=silent, **changed)
    with pytest.raises(TypeError, match="stepz"):  # as `fit` does
        curve(beir, tiny_model("bert"), tmp_path / "curve", say=silent, stepz=5)
    assert not (tmp_path / "curve").exists()


def test_the_command_trains_and_passes_on_the_options_of_fit(
    remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    out = tmp_path / "curve"
    given = ["--data", beir, "--model", tiny_model("bert"), "--out", out, "--shares", 0.3, 1, "--seeds", 0]
    result = remargin("curve", *given, "--steps", 2, "--batch-size", 4, "--target", 0.3, "--no-in-batch")
    assert result.returncode == 0, result.stderr
    assert "More training data" in result.stdout
    assert "With 10 test queries, a gain of" in result.stdout
    assert f"wrote {out}" in result.stdout
    config = (out / "runs" / "1" / "seed-0" / "config.yaml").read_text()
    assert "steps: 2" in config
    assert (out / "runs" / "1" / "seed-0" / "report.json").exists()
    again = remargin("curve", *given, "--steps", 2, "--batch-size", 4, "--target", 0.3, "--no-in-batch")
    assert again.returncode == 0
    assert "training run" not in again.stderr
    assert again.stdout == result.stdout
    refused = remargin("curve", *given, "--stepz", 2)
    assert refused.returncode == 2
    assert (
        refused.stderr
        == "error: no option --stepz for curve; did you mean --steps? (remargin curve --help lists all)\n"
    )
