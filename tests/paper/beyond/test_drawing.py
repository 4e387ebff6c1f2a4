"""The tables and figures of one collection and of several, from results that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError, reproduce
from remargin.paper.beyond.constants import left_out_weights
from remargin.paper.beyond.drawing import section
from remargin.paper.beyond.experiments import BEYOND
from remargin.paper.beyond.factors import changes
from remargin.paper.beyond.lengths import CollectionLengths, Length, LengthRow
from remargin.paper.beyond.lengths import section as section_of_lengths
from remargin.paper.beyond.rows import CollectionRows, RowName
from remargin.paper.beyond.systems import MARGIN_WEIGHTS, weighted
from remargin.paper.experiments import EVERY, EXPERIMENTS
from remargin.paper.running import experiment_names
from remargin.reports.sections import Section
from remargin.reports.tables import Table
from remargin.study.scheduler import schedule

from .by_hand import PLAN, make_results, train
from .made_up import collections, row

TOGETHER = ["beyond", "beyond-path", "beyond-lengths", "beyond-constants"]


def cells(table: Table) -> dict[str, list[str]]:
    """The texts of a table, by the first column."""
    return {line[0].text: [cell.text for cell in line[1:]] for block in table.blocks for line in block.rows}


def test_the_overview_has_means_differences_and_cost() -> None:
    drawn = section("beyond", "Beyond", {"m": collections()}, {})
    overview, verdicts, by_collection = drawn.tables
    lines = cells(overview)
    assert lines["softmax, blended"] == [
        *("0.730", "0.440", *["+0.010 (+0.010 to +0.010)"] * 2, "0.60", "11:00 min", "–")
    ]
    assert lines["no training"] == ["0.500", "0.430", "-0.220 (-0.220 to -0.220)", "–", "–", "–", "–"]
    assert lines["contrastive, tuned"][2] == "–"
    assert [line[2] for line in cells(verdicts).values()] == ["holds"] * 7
    assert cells(by_collection)["BM25"] == ["0.400", "0.450"] * 6
    assert drawn.summary == [
        "m: no training home 0.500, away 0.430; contrastive, tuned home 0.720, away 0.410; softmax, blended home "
        "0.730, away 0.440. Of 7 requirements: 7 hold."
    ]
    assert drawn.settings["seeds by collection"] == {"m": {f"c{i}": 3 for i in range(6)}}


def test_figures_join_a_system_and_its_blended_model() -> None:
    home_away, compute = section("beyond", "Beyond", {"m": collections(2)}, {}).figures
    lines = {line[1]: line for line in (text.split(",") for text in home_away.csv().splitlines()[1:])}
    assert float(lines["softmax"][2]) == pytest.approx(0.44)  # the last of its points: sorted by away
    assert float(lines["softmax"][3]) == pytest.approx(0.73)
    points = [text.split(",")[1:4] for text in compute.csv().splitlines()[1:]]
    minutes = [float(x) for name, x, _ in points if name == "softmax"]
    assert minutes == pytest.approx([200 / 60, 220 / 60])
    assert "<svg" in home_away.svg()


def test_a_row_that_a_collection_lacks_is_named() -> None:
    few = collections(2)
    few[1] = replace(few[1], rows={name: value for name, value in few[1].rows.items() if name.system != "BM25"})
    overview, _, by_collection = section("beyond", "Beyond", {"m": few}, {}).tables
    assert "BM25" not in cells(overview)
    assert overview.notes[1] == "Not on every collection, and so left out: BM25."
    assert cells(by_collection)["BM25"] == ["0.400", "0.450", "–", "–"]


def test_every_experiment_is_drawn_from_results(tmp_path: Path) -> None:
    results = make_results(tmp_path / "study")
    train(results, *BEYOND)
    for name, experiment in BEYOND.items():
        assert not schedule(results, experiment.tasks).ready
        drawn = experiment.section(results)
        assert drawn.name == name
        assert drawn.tables
        assert Section.load(drawn.save(tmp_path / name)) == drawn
    variants = cells(BEYOND["beyond-variants"].section(results).tables[0])
    assert {"softmax, running spread, blended", "softmax, unstopped target", "static", "distributed, blended"} <= {
        *variants
    }
    weights = cells(BEYOND["beyond-constants"].section(results).tables[-1])
    assert weights["1.0"] == ["0.600", "0.650", "0.450"]  # dev, home, away


def test_the_weight_that_the_others_choose() -> None:
    """On a and b dev is best with c = 1, on c with c = 2: so c gets 1, and a gets what b and c choose together."""
    best = {"a": (1.0, 0.8), "b": (1.0, 0.7), "c": (2.0, 0.9)}
    every = []
    for name, (chosen, dev) in best.items():
        rows = {
            RowName(weighted(c).name, True): row(0.5 + c / 10, 0.4, dev=dev if c == chosen else 0.5)
            for c in MARGIN_WEIGHTS
        }
        every.append(CollectionRows(name, 3, rows))
    left_out = {one.collection: one for one in left_out_weights(every)}
    assert {name: one.chosen for name, one in left_out.items()} == {"a": 2.0, "b": 2.0, "c": 1.0}
    assert left_out["c"].home == pytest.approx(0.6)
    assert left_out["c"].ours == pytest.approx(0.55)
    assert left_out_weights(every[:1]) == []


def test_the_rate_and_the_length_that_the_others_choose() -> None:
    """On a and b dev is best after a quarter, on c in the end: so c gets a quarter, a and b what is best in sum."""
    lengths = [Length(1e-4, 25), Length(1e-4, 100)]
    dev = {"a": (0.8, 0.7), "b": (0.8, 0.7), "c": (0.5, 0.9)}
    collections = [
        CollectionLengths(
            name,
            lengths[1],
            {one: LengthRow(value, value - 0.1, None, 0.5) for one, value in zip(lengths, values, strict=True)},
        )
        for name, values in dev.items()
    ]
    every, left_out = section_of_lengths({"m": collections}).tables
    assert cells(left_out) == {
        "a": ["0.0001, 100 triplets", "0.600", "0.600", "0.700"],
        "b": ["0.0001, 100 triplets", "0.600", "0.600", "0.700"],
        "c": ["0.0001, 25 triplets", "0.400", "0.800", "0.800"],
    }
    means = [[cell.text for cell in line[:5]] for line in every.blocks[0].rows]
    assert means == [["0.0001", "25", "0.700", "0.600", "–"], ["0.0001", "100", "0.767", "0.667", "–"]]


def test_studies_of_several_collections_are_drawn_together(tmp_path: Path, remargin: Callable[..., Any]) -> None:
    folder = tmp_path / "studies"
    for i, name in enumerate(("one", "two")):
        train(make_results(folder / name, name=name), *TOGETHER, shift=0.1 * i)
    unfinished = make_results(folder / "three", name="three")
    said: list[str] = []
    made = reproduce(TOGETHER, folder, say=said.append)
    assert [path.name for path in made.sections] == TOGETHER
    assert any(line.startswith("three is left out of beyond: ") for line in said)
    core, path, rate_and_length, constants = map(Section.load, made.sections)
    assert cells(core.tables[0])["softmax"][0] == "0.700"  # of 0.65 and 0.75
    assert "2 of 6 collections; 2 of 3 seeds" in core.tables[1].markdown()
    assert [table.title for table in path.tables if "leave-one" in table.title]
    assert constants.tables[-1].header[0] == rate_and_length.tables[-1].header[0] == "left out"
    assert "Beyond the paper" in made.page.read_text()
    result = remargin("reproduce", "beyond", "--out", folder)
    assert result.returncode == 0
    assert "softmax, blended" in result.stdout
    assert "claims" not in result.stdout
    with pytest.raises(InputError, match="beyond-factors is about one collection"):
        reproduce("beyond-factors", folder, say=str)
    with pytest.raises(InputError, match="variants is about one collection"):
        reproduce("variants", folder, say=str)
    make_results(folder / "four", name="one")
    with pytest.raises(InputError, match="two studies are of one"):
        reproduce("beyond", folder, say=str)
    make_results(folder / "four", name="four", model="another")
    with pytest.raises(InputError, match="m is another model here"):
        reproduce("beyond", folder, say=str)
    assert unfinished.out.exists()


def test_it_is_not_among_all_of_the_papers() -> None:
    assert not {*BEYOND} & {*experiment_names("all")}
    assert experiment_names(["beyond", "variants"]) == ["beyond", "variants"]
    assert {*EVERY} == {*EXPERIMENTS, *BEYOND}


def test_factors_change_one_thing_at_a_time(tmp_path: Path) -> None:
    assert {name: [value for value, _ in values] for name, values in changes(PLAN).items()} == {
        "triplets": [50, 200, 1000, 4000],
        "batch size": [10, 32, 64, 256, 512],
        "negatives of a triplet": [1, 2, 4],
        "round of mining": [1, 2],
    }
    results = make_results(tmp_path / "study")
    train(results, "beyond-factors")
    rows = BEYOND["beyond-factors"].findings(results)["m"]["batch size"]["softmax"]
    assert [one.value for one in rows] == [10, 32, 64, 256, 512]
    assert (rows[0].home, rows[0].blended_home, rows[0].seconds) == (pytest.approx(0.55), pytest.approx(0.65), 103.0)


@pytest.mark.parametrize(
    ("config", "total"), [("beyond.yaml", 2 + 3 + (3 + 5 + 3 + 2)), ("beyond-small.yaml", 2 + 1 + 2)]
)
def test_the_configurations_plan_what_they_say(
    config: str, total: int, remargin: Callable[..., Any], tiny_model: Any, tmp_path: Path
) -> None:
    """BM25 and the backbone; the recipe with each seed; rates, temperatures, rates again, and the other seeds."""
    file = Path(__file__).parents[3] / "configs" / "paper" / config
    where = ("--data", "docstrings:json,csv", "--model", f"m={tiny_model()}", "--zero-shot", "docstrings:string")
    result = remargin("reproduce", "beyond", "--config", file, *where, "--out", tmp_path / "study", "--plan")
    assert result.returncode == 0, result.stderr
    assert f"{total} training runs and measurements" in result.stderr + result.stdout
