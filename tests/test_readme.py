"""The README says what the scripts printed, and its examples run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from remargin.paper.static_margins import findings as static_margins
from remargin.study.results import Results

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_figure_in_the_table_stands_in_results() -> None:
    machines = {"2 CPU cores": "losses-cpu.md", "H200": "losses-h200.md"}
    rows = re.findall(r"^\| (2 CPU cores|H200) (\|.*)$", README, re.MULTILINE)
    assert len(rows) >= 4
    for machine, row in rows:
        assert f"| distributed {row}" in (ROOT / "results" / machines[machine]).read_text()
    [(direct, moments)] = re.findall(r"takes ([\d,]+) MB beyond inputs and gradients, the moments ([\d,]+) MB", README)
    assert f"| distributed | {direct} | {moments} |" in (ROOT / "results" / "losses-h200.md").read_text()


def test_the_demo_table_is_the_demos() -> None:
    metrics = json.loads((ROOT / "results" / "demo.json").read_text())
    for name, label in {"bm25": "BM25", "before": "before", "after": "after", "gain": "gain, paired"}.items():
        cells = (metrics[name][measure] for measure in ("nDCG@10", "R@100", "RR"))
        row = " | ".join(f"{c['mean']:.3f} ({c['low']:.3f} to {c['high']:.3f})" for c in cells)
        assert f"| {label} | {row} |" in README
    assert metrics["gain"]["nDCG@10"]["mean"] >= 0.02
    assert metrics["gain"]["nDCG@10"]["low"] > 0
    assert metrics["seconds"] < 600


def test_the_tables_of_the_paper_are_the_studies() -> None:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    assert readme.updated(README) == README  # else: python benchmarks/readme.py
    assert readme.updated(README.replace("| distributed | ", "| distributed | 1")) == README


def test_what_it_says_of_figure_3_is_the_studies() -> None:
    text, paper = " ".join(README.split()), ROOT / "results" / "paper"
    gains = {}
    for study in ("medquad", "squadmix"):
        for model, margins in static_margins(Results.open(paper / study)).items():
            gains[study, model] = [f"{m.gain:.3f}" for m in (margins.without_in_batch, margins.with_in_batch)]
    (first, second), (third, fourth), (fifth, sixth) = gains.values()
    assert f"is worth {first} nDCG@10 there from MiniLM without in-batch negatives, and {second} with them" in text
    assert f"{third} and {fourth} from distilBERT; on squadmix, from MiniLM, {fifth} and {sixth}." in text
    (table,) = json.loads((paper / "medquad" / "static-margins" / "section.json").read_text())["tables"]
    rows = [row for block in table["blocks"] for row in block["rows"]]
    minutes = {row[0]["text"]: 0.0 for row in rows}
    for row in rows:
        minutes[row[0]["text"]] += row[-1]["value"] / 60
    assert f"{minutes['MiniLM']:.0f} minutes of training for MiniLM, {minutes['distilBERT']:.0f} for distilBERT" in text


def test_the_figures_of_search_stand_in_results() -> None:
    indexes = (ROOT / "results" / "indexes.md").read_text()
    rows = re.findall(
        r"^\| ((?:exact|faiss)[^|]*) \| (\d*) ?\| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", README, re.MULTILINE
    )
    assert len(rows) == 4
    for name, over_fetch, overlap, ndcg, size in rows:
        cells = [name, over_fetch, overlap, ndcg]
        (row,) = (r for r in indexes.splitlines() if [c.strip() for c in r.split("|")][1:5] == cells)
        assert row.split("|")[7].strip() == size
    text = " ".join(README.split())
    for pattern, file in [
        (r"takes ([\d.]+) times as long as FAISS Flat", "exact-cpu.md"),
        (r"and ([\d.]+) times as long as the whole score matrix", "exact-h200.md"),
        (r"with ([\d.]+) of its memory", "exact-h200.md"),
        (r"takes ([\d.]+) times as long as pytrec_eval", "evaluation.md"),
        (r"documents is ([\d.]+x) faster than with sentence-transformers", "rerank.md"),
    ]:
        [figure] = re.findall(pattern, text)
        assert f"| {figure} |" in (ROOT / "results" / file).read_text()


def test_the_figures_of_the_engine_stand_in_results() -> None:
    gpu, cpu = ((ROOT / "results" / f"engine-{name}.md").read_text() for name in ("h200", "cpu"))
    rows = re.findall(r"^\| (?:fit|encode|peak memory), .*\|$", README, re.MULTILINE)
    assert len(rows) >= 6
    for row in rows:
        assert row in gpu.splitlines()
    text = " ".join(README.split())
    [(released, theirs)] = re.findall(r"our ratios were ([\d.]+x) and ([\d.]+x)\.", text)
    other = (ROOT / "results" / "engine-h200-other-host.md").read_text()
    for against, ratio in (("the released code's way", released), ("sentence-transformers' trainer", theirs)):
        assert re.search(
            rf"^\| fit, distilbert, B = 128, compiled .*{against}: [\d,]+ \| {ratio} \|$", other, re.MULTILINE
        )
    [memory] = re.findall(r"over 9 million documents keeps (\d+) MB resident", text)
    assert f"| +{memory} |" in (ROOT / "results" / "memory.md").read_text().splitlines()[-1]
    [validation] = re.findall(r"every 500 steps of 128 triplets takes (.*? of the time)\.", text)
    assert validation in gpu
    [(fit, encode)] = re.findall(r"training is ([\d.]+x) and encoding ([\d.]+x) as fast as with", text)
    for what, ratio in (("fit", fit), ("encode", encode)):
        (line,) = (row for row in cpu.splitlines() if row.startswith(f"| {what}, torch.bfloat16 |"))
        assert line.endswith(f"| {ratio} |")


def test_the_sentence_on_static_margins_is_the_studies() -> None:
    text = " ".join(README.split())
    [gains] = re.findall(
        r"worth ([\d.]+) nDCG@10 there from MiniLM without in-batch negatives, and ([\d.]+) with them; ([\d.]+) and "
        r"([\d.]+) from distilBERT; on squadmix, from MiniLM, ([\d.]+) and ([\d.]+)\. ",
        text,
    )
    [minutes] = re.findall(
        r"each run; (\d+) minutes of training for MiniLM, (\d+) for distilBERT\) is of medquad\.", text
    )
    medquad, squadmix = (
        static_margins(Results.open(ROOT / "results" / "paper" / collection)) for collection in ("medquad", "squadmix")
    )
    studied = [medquad["MiniLM"], medquad["distilBERT"], squadmix["MiniLM"]]
    sweeps = [(margins.without_in_batch, margins.with_in_batch) for margins in studied]
    assert list(gains) == [f"{swept.gain:.3f}" for pair in sweeps for swept in pair]
    assert list(minutes) == [f"{(one.seconds + other.seconds) / 60:.0f}" for one, other in sweeps[:2]]


def test_so_is_what_a_study_takes() -> None:
    text = " ".join(README.split())
    [found] = re.findall(
        r"MiniLM took (\d+) runs and (\d+) minutes of training for medquad, (\d+) runs and (\d+) minutes for squad",
        text,
    )
    expected = []
    for study in ("medquad", "squadmix"):
        runs = [json.loads(path.read_text()) for path in (ROOT / "results" / "paper" / study).glob("runs/*/run.json")]
        seconds = [run["seconds"] for run in runs if run["spec"] and run["spec"]["model"] == "MiniLM"]
        expected += [f"{len(seconds)}", f"{sum(seconds) / 60:.0f}"]
    assert list(found) == expected


def test_the_files_it_links_to_are_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 5
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_python_examples_run(tiny_model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    rows = [f"how is number {i} made?,it is {i} times one" for i in range(60)]
    Path("faq.csv").write_text("\n".join(["question,answer", *rows]))
    batch = torch.randn(3, 4, 8)
    names: dict[str, object] = dict(zip(("queries", "positives", "negatives"), batch, strict=True))
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(re.sub(r'"[\w-]+/(all-MiniLM|distilbert)[\w-]+"', repr(str(tiny_model(positions=256))), example), names)
    assert (tmp_path / "runs" / "own" / "best" / "modules.json").is_file()
    assert (tmp_path / "my-retriever" / "modules.json").is_file()
