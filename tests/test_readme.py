"""README and the pages under docs/ say what the scripts printed, their links lead somewhere, and their examples run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import typer

from remargin import cli
from remargin.paper.beyond.collections import draw_together
from remargin.paper.beyond.systems import OURS, RATE
from remargin.study.results import Results
from remargin.training.settings import rate_for

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
README, PAPER, PERFORMANCE = (
    (ROOT / name).read_text() for name in ("README.md", "docs/the-paper.md", "docs/performance.md")
)


def test_every_figure_in_the_table_stands_in_results() -> None:
    machines = {"2 CPU cores": "losses-cpu.md", "H200": "losses-h200.md"}
    rows = re.findall(r"^\| (2 CPU cores|H200) (\|.*)$", PERFORMANCE, re.MULTILINE)
    assert len(rows) >= 4
    for machine, row in rows:
        assert f"| distributed {row}" in (ROOT / "results" / machines[machine]).read_text()
    [(direct, moments)] = re.findall(
        r"takes ([\d,]+) MB beyond inputs and gradients, the moments ([\d,]+) MB", PERFORMANCE
    )
    assert f"| distributed | {direct} | {moments} |" in (ROOT / "results" / "losses-h200.md").read_text()


def test_the_demo_table_is_the_demos() -> None:
    metrics = json.loads((ROOT / "results" / "demo.json").read_text())
    labels = {
        "bm25": "BM25",
        "before": "before",
        "after": "after",
        "hybrid": "after, with BM25",
        "gain": "gain, paired",
    }
    for name, label in labels.items():
        cells = (metrics[name][measure] for measure in ("nDCG@10", "R@100", "RR"))
        row = " | ".join(f"{c['mean']:.3f} ({c['low']:.3f} to {c['high']:.3f})" for c in cells)
        assert f"| {label} | {row} |" in README
    assert metrics["gain"]["nDCG@10"]["low"] > 0.05
    assert metrics["seconds"] < 600
    text = " ".join(README.split())
    assert f"{1 + metrics['away']['difference']:.0%} of the nearest neighbours" in text
    proxy = (ROOT / "results" / "away-proxy.md").read_text()
    means = {a: float(row.split("|")[-2]) for a, row in re.findall(r"^\| a = ([\d.]+) (\|.*\|)$", proxy, re.MULTILINE)}
    blended, trained = f"{means['0.6']:.3f} nDCG@10 on average", f"without blending, by {means['1']:.3f}"
    assert f"changed by {blended}; {trained}" in text


def test_the_gains_of_fit_stand_in_results() -> None:
    gpu, cpu, *_ = (ROOT / "results" / "recipe.md").read_text().split("\n## ")[1:]
    seeds, one = ([_cells(line) for line in part.splitlines() if line.startswith("| squadmix")] for part in (gpu, cpu))
    text = " ".join(README.split())
    assert [row[2] for row in one] == ["300", "3,000", "30,000"]
    first, second, third = (float(row[10].split()[0]) for row in one)
    assert f"{first:.3f}, {second:.3f} and {third:.3f} nDCG@10 on test" in text
    few, some = (
        fmean(float(row[10].split()[0]) for row in seeds if row[2] == pairs and row[3] in "012")
        for pairs in ("300", "3,000")
    )
    assert len(seeds) == 6
    assert f"and {few:.3f} and {some:.3f} from the first two on a GPU (three seeds;" in text
    for row in (*one, *seeds):  # "lost nothing significant elsewhere"
        assert float(row[11].split()[-1].rstrip(")")) > 0


def test_the_first_afternoon_stands_in_results() -> None:
    table = (ROOT / "results" / "recipe.md").read_text().split("## Beside sentence-transformers' trainer")[1]
    rows = {cells[1]: cells for cells in map(_cells, table.splitlines()) if len(cells) == 10}
    before, ours, theirs = (
        rows[name] for name in ("untrained", "remargin fit", "sentence-transformers, the trainer's defaults")
    )
    text = " ".join(README.split())
    assert f"from {before[2]} to {ours[2]} nDCG@10 with `remargin fit`, in {ours[6]} minutes and one command" in text
    assert f"and to {theirs[2]} with sentence-transformers' trainer" in text
    assert f"in {theirs[6]} minutes and {theirs[8]} of Python" in text
    assert min(float(row[5]) for row in (ours, theirs)) > 0  # "neither lost anything"
    highest = float(theirs[3].split()[-1].rstrip(")"))
    assert float(ours[3].split()[1].strip("(")) > highest  # the intervals of the gains do not overlap


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def test_the_study_of_the_recipe_and_the_verdicts_stand_in_readme() -> None:
    readme = script()
    tables = [readme.recipe, readme.verdicts]
    assert readme.updated(README, tables) == README  # else: python benchmarks/readme.py
    assert readme.updated(README.replace("the default of fit", "fit's default"), tables) == README
    assert readme.updated(README.replace(" claims, on medquad", " claims, on medquad 1"), tables) == README
    table = readme.beyond_section().tables[2]
    of = {row[0].text: row[table.header.index("squadmix home")].value for block in table.blocks for row in block.rows}
    behind = of[readme.RIVAL.text] - of[readme.RECIPE.text]
    assert f"on squadmix it is {behind:.3f} behind that rival" in " ".join(README.split())


def test_what_the_study_of_the_recipe_says_of_cost_and_collections_is_so() -> None:
    text = " ".join(PAPER.split())
    tuned = []
    for folder in sorted((ROOT / "results" / "beyond").iterdir()):
        runs = [run for run in Results.open(folder, say=str).all_runs() if run.spec is not None]
        chosen = [run for run in runs if run.spec.target == OURS.name and run.spec.rate == RATE and run.spec.seed]
        assert {round(run.triplets, -4) for run in chosen} == {100_000}
        theirs = [run.triplets for run in runs if run.spec.target == "contrastive" and run.spec.seed == 0]
        tuned.append(50_000 * round(sum(theirs) / 50_000))
    assert f"one of the rival with its trials {min(tuned):,} to {max(tuned):,}" in text
    table = script().beyond_section().tables[2]
    ours, rival = (
        {name: cell.value for name, cell in zip(table.header, row, strict=True)}
        for of in (script().RECIPE, script().RIVAL)
        for row in chain.from_iterable(block.rows for block in table.blocks)
        if row[0].text == of.text
    )
    apart = {name: ours[name] - rival[name] for name in table.header if name.endswith(" home")}
    assert f"the recipe is {-apart.pop('squadmix home'):.3f} behind the rival without blending" in text
    assert f"on scifact the recipe is {apart.pop('SCF home'):.3f} ahead" in text
    assert len(apart) == 4
    assert f"the two are at most {max(map(abs, apart.values())):.3f} apart" in text
    assert f"0.434 away became {rival['medquad away']:.3f}" in text


def test_the_learning_rate_of_fit_is_the_one_that_dev_chooses_at_each_length() -> None:
    (table, _) = draw_together(ROOT / "results" / "beyond", ["beyond-lengths"], str)[0].tables
    dev: dict[int, dict[float, float]] = {}
    for rate, triplets, mean, *_ in table.blocks[0].rows:
        dev.setdefault(int(triplets.value or 0), {})[rate.value or 0.0] = mean.value or 0.0
    assert list(dev) == [6_250, 25_000, 100_000]
    for length, by_rate in dev.items():
        assert max(by_rate, key=by_rate.__getitem__) == pytest.approx(rate_for(length), rel=0.02)


def test_the_tables_of_the_paper_are_the_studies() -> None:
    readme = script()
    assert readme.updated(PAPER) == PAPER  # else: python benchmarks/readme.py
    assert readme.updated(PAPER.replace("| distributed | ", "| distributed | 1")) == PAPER


@cache
def script() -> Any:
    """benchmarks/readme.py as a module."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    return readme


def static_margins(study: str) -> dict[tuple[str, str], dict[str, float]]:
    """The rows of figure 3's table, by model and "without" or "with" in-batch negatives."""
    (table,) = script().sections(study)["static-margins"].tables
    return {
        (row[0].text, row[1].text.split()[0]): dict(zip(table.header, [cell.value for cell in row], strict=True))
        for block in table.blocks
        for row in block.rows
    }


def test_what_it_says_of_figure_3_is_the_studies() -> None:
    text = " ".join(PAPER.split())
    rows = {(study, *key): row for study in ("medquad", "squadmix") for key, row in static_margins(study).items()}
    first, second, third, fourth, fifth, sixth = (f"{row['gain']:.3f}" for row in rows.values())
    assert [key[1:] for key in rows][:2] == [("MiniLM", "without"), ("MiniLM", "with")]
    assert f"is worth {first} nDCG@10 there from MiniLM without in-batch negatives, and {second} with them" in text
    assert f"{third} and {fourth} from distilBERT; on squadmix, from MiniLM, {fifth} and {sixth}." in text
    minutes = dict.fromkeys(("MiniLM", "distilBERT"), 0.0)
    for (study, model, _), row in rows.items():
        minutes[model] += row["seconds"] / 60 if study == "medquad" else 0.0
    assert f"{minutes['MiniLM']:.0f} minutes of training for MiniLM, {minutes['distilBERT']:.0f} for distilBERT" in text


def test_the_figures_of_search_stand_in_results() -> None:
    indexes = (ROOT / "results" / "indexes.md").read_text()
    rows = re.findall(
        r"^\| ((?:exact|faiss)[^|]*) \| (\d*) ?\| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", PERFORMANCE, re.MULTILINE
    )
    assert len(rows) == 4
    for name, over_fetch, overlap, ndcg, size in rows:
        cells = [name, over_fetch, overlap, ndcg]
        (row,) = (r for r in indexes.splitlines() if [c.strip() for c in r.split("|")][1:5] == cells)
        assert row.split("|")[7].strip() == size
    text = " ".join(PERFORMANCE.split())
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
    rows = re.findall(r"^\| (?:fit|encode|peak memory), .*\|$", PERFORMANCE, re.MULTILINE)
    assert len(rows) >= 6
    for row in rows:
        assert row in gpu.splitlines()
    text = " ".join(PERFORMANCE.split())
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


def test_the_ratios_of_the_readme_stand_elsewhere() -> None:
    rows = re.findall(
        r"^\| (?:sentence-transformers|the paper's released code)[^|]*\|.*\| ([^|]*) \|$", README, re.MULTILINE
    )
    assert len(rows) == 4
    *speed, serving = rows
    for ratio in " and ".join(speed).split(" and "):
        assert ratio in PERFORMANCE
    assert f"; {serving} of sentence-transformers" in (ROOT / "results" / "serve.md").read_text()


def test_the_sentence_on_static_margins_is_the_studies() -> None:
    text = " ".join(PAPER.split())
    [gains] = re.findall(
        r"worth ([\d.]+) nDCG@10 there from MiniLM without in-batch negatives, and ([\d.]+) with them; ([\d.]+) and "
        r"([\d.]+) from distilBERT; on squadmix, from MiniLM, ([\d.]+) and ([\d.]+)\. ",
        text,
    )
    [minutes] = re.findall(
        r"each run; (\d+) minutes of training for MiniLM, (\d+) for distilBERT\) is of medquad\.", text
    )
    medquad, squadmix = static_margins("medquad"), static_margins("squadmix")
    studies = [(medquad, "MiniLM"), (medquad, "distilBERT"), (squadmix, "MiniLM")]
    rows = [[study[model, kind] for kind in ("without", "with")] for study, model in studies]
    assert list(gains) == [f"{row['gain']:.3f}" for pair in rows for row in pair]
    assert list(minutes) == [f"{sum(row['seconds'] for row in pair) / 60:.0f}" for pair in rows[:2]]


def test_so_is_what_a_study_takes() -> None:
    text = " ".join(PAPER.split())
    [told] = re.findall(
        r"MiniLM took (\d+) training runs and (\d+) minutes of training for medquad, (\d+) training runs and "
        r"(\d+) minutes for squad",
        text,
    )
    expected = []
    for study in ("medquad", "squadmix"):
        runs = Results.open(ROOT / "results" / "paper" / study).all_runs()
        seconds = [run.seconds for run in runs if run.spec and run.spec.model == "MiniLM"]
        expected += [f"{len(seconds)}", f"{sum(seconds) / 60:.0f}"]
    assert list(told) == expected


def test_readme_is_short_and_lists_what_else_there_is() -> None:
    assert len(README.splitlines()) < 200
    index = (DOCS / "index.md").read_text()
    for page in PAGES[1:]:
        name = page.relative_to(DOCS).as_posix()
        assert name == "index.md" or f"]({name})" in index, page
        assert page.read_text().startswith("# ")


def test_the_files_that_pages_link_to_are_there() -> None:
    links = {page: re.findall(r"\]\(([^)]+)\)", page.read_text()) for page in PAGES}
    inside = [(page, link) for page in PAGES for link in links[page] if not link.startswith("http")]
    assert len([link for page, link in inside if page.name == "README.md"]) >= 5
    assert len(inside) > 50
    assert not [(page.name, link) for page, link in inside if not (page.parent / link.partition("#")[0]).exists()]


def test_commands_on_the_pages_have_the_options_that_they_are_shown_with() -> None:
    app: Any = typer.main.get_command(cli.app)
    checked = 0
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] != ["remargin"]:
                    continue
                command = app
                for word in words[1:]:
                    command = getattr(command, "commands", {}).get(word, command)
                known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
                assert command is not app, line
                assert {word for word in words if word.startswith("--")} <= known, line
                checked += 1
    assert checked > 20


def test_the_python_examples_run(tiny_encoder: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [f"how is number {i} made?,it is {i} times one" for i in range(60)]
    Path("faq.csv").write_text("\n".join(["question,answer", *rows]))
    batch = torch.randn(3, 4, 384)
    count = {}
    for page in PAGES:
        names: dict[str, object] = dict(zip(("queries", "positives", "negatives"), batch, strict=True))
        # Those that need other packages run in tests/ecosystem; one that needs the hub does not run.
        examples = re.findall(r"```python\n(?!# needs )(.*?)```", page.read_text(), re.DOTALL)
        count[page.stem] = len(examples)
        for example in examples:
            here = re.sub(r'"[\w-]+/(all-MiniLM|distilbert)[\w-]+"', repr(str(tiny_encoder(positions=256))), example)
            exec(here, names)
    assert {page: n for page, n in count.items() if n} == {
        "README": 2,
        "encoder": 1,
        "exporting": 3,
        "integrations": 3,
        "python": 3,
        "the-loss": 3,
    }
    assert (tmp_path / "runs" / "own" / "model" / "modules.json").is_file()
    assert (tmp_path / "my-retriever" / "modules.json").is_file()
