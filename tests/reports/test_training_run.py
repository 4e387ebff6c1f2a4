"""The section of a training run: what it says, shows and tells of damaged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from remargin.errors import InputError
from remargin.files.headers import write_header
from remargin.reports.blend_file import AwayValues, BlendPath, save_path
from remargin.reports.figures import LineFigure
from remargin.reports.page import page_text
from remargin.reports.sections import Section
from remargin.reports.suspicious import FILE, Suspicious, write_suspicious
from remargin.reports.training_run import SPEEDS, run_section

from .conftest import REPORT, write_metrics

MakeRun = Callable[..., Path]
PATH = BlendPath(
    measure="nDCG@10",
    points=[0.0, 0.5, 1.0],
    values={"nDCG@10": [0.5, 0.72, 0.7], "RR": [0.4, 0.6, 0.65]},
    weight=0.5,
    split="dev",
    queries=1234,
    ranked="over a pool of 6,000 of 56,094 documents",
    away=AwayValues("scifact", "nDCG@10", [0.6, 0.61, 0.5]),
)


def lines(section: Section) -> dict[str, LineFigure]:
    return {figure.name: figure for figure in section.figures if isinstance(figure, LineFigure)}


def test_a_finished_run(make_run: MakeRun) -> None:
    away = {"what": "scifact", "measure": "nDCG@10", "queries": 300, "before": 0.6, "after": 0.55}
    away |= {"difference": -0.05, "low": -0.07, "high": -0.03}
    section = run_section(make_run("faq", {**REPORT, "away": away}))
    assert (section.name, section.title) == ("faq", "Training run faq")
    assert section.summary == [
        "minilm/best was trained on pairs:faq.csv for 2 steps of 64 triplets. Target: 0.3, in-batch negatives.",
        "nDCG@10 on the validation queries: 0.500 before, 0.750 at best, at step 2: a gain of 0.250.",
        "Elsewhere (scifact, 300 queries): nDCG@10 0.600 before, 0.550 after (-0.050, -0.070 to -0.030).",
        "Training took 1,234 seconds, at a median of 15.0 triplets a second.",
    ]
    assert section.notes == []
    found = lines(section)
    assert list(found) == ["loss", "validation-nDCG@10", "targets"]
    loss, mean, spread = found["loss"].panels[0].series
    assert (loss.x, loss.y, mean.y, spread.y) == ([1, 2], [0.5, None], [0.3, 0.2], [0.2, 0.2])
    [validation] = found["validation-nDCG@10"].panels
    assert validation.mark_maxima
    assert (validation.series[0].x, validation.series[0].y) == ([0, 2], [0.5001, 0.7502])  # as precise as the report
    [targets] = found["targets"].panels  # there are no margins in this log
    assert (targets.series[0].low, targets.series[0].high) == ([0.1, 0.2], [0.9, 0.8])
    validations, speed = section.tables
    assert [[cell.text for cell in row] for row in validations.blocks[0].rows] == [["0", "0.5001"], ["2", "0.7502"]]
    assert [cell.bold for row in validations.blocks[0].rows for cell in row[1:]] == [False, True]
    assert [cell.text for cell in speed.blocks[0].rows[0]] == ["triplets/s", "15.0", "10.0", "20.0"]
    assert section.settings["loss"] == {"target": "0.3", "in_batch": True}
    assert section.settings["versions"] == {"torch": "2.13"}


def test_the_outcome_comes_first_with_its_intervals(make_run: MakeRun) -> None:
    systems = {
        name: {"nDCG@10": {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}}
        for name, mean in {"bm25": 0.6, "before": 0.5, "after": 0.7, "hybrid": 0.75, "gain": 0.2}.items()
    }
    outcome = {"split": "test", "ranked": "ranked in full (60 documents)", "queries": 1234, "systems": systems}
    section = run_section(make_run("faq", {**REPORT, "outcome": outcome}))
    assert section.summary[0].startswith("nDCG@10 on 1,234 test queries: ")
    assert any("was trained on" in note for note in section.notes)
    table = section.tables[0]
    assert (table.title, table.header) == ("What came of it", ["system", "nDCG@10"])
    assert [[cell.text for cell in row] for row in table.blocks[0].rows] == [
        ["BM25", "0.600 (0.550 to 0.650)"],
        ["before training", "0.500 (0.450 to 0.550)"],
        ["after training", "0.700 (0.650 to 0.750)"],
        ["after, with BM25", "0.750 (0.700 to 0.800)"],
        ["gain of training, paired", "0.200 (0.150 to 0.250)"],
    ]
    assert table.notes == ["1,234 test queries, ranked in full (60 documents); with 95% bootstrap intervals."]
    for name, incomplete in {"a": {"before": systems["before"]}, "b": {**systems, "after": {}}}.items():
        folder = make_run(name, {**REPORT, "outcome": {**outcome, "systems": incomplete}})
        with pytest.raises(InputError, match=r"report\.json: .*not systems and the gain, all by the same measures"):
            run_section(folder)


def test_a_report_of_an_older_format_is_refused_by_name(make_run: MakeRun) -> None:
    folder = make_run("faq", REPORT)
    header = {**json.loads((folder / "report.json").read_text()), "format": "remargin-report-1"}
    del header["checksum"]
    write_header(folder / "report.json", header)
    with pytest.raises(InputError, match=r"report.json: format 'remargin-report-1', expected 'remargin-report-2'"):
        run_section(folder)


def test_a_run_that_was_blended(make_run: MakeRun) -> None:
    folder = make_run("faq", REPORT)
    save_path(folder, PATH)
    section = run_section(folder)
    assert section.tables[1].notes[0] == (
        "Blended: 0.5 x trained + 0.5 x starting weights, chosen on 1,234 dev queries, over a pool of 6,000 of 56,094 "
        "documents: nDCG@10 0.500 at the start, 0.720 blended, 0.700 trained. The same on scifact, which chose "
        "nothing: nDCG@10 0.600, 0.610, 0.500."
    )
    found = lines(section)
    assert list(found) == ["loss", "validation-nDCG@10", "blend", "targets"]
    [panel] = found["blend"].panels
    home, away, chosen = panel.series
    assert (home.name, home.x, home.y) == ("home (dev)", [0.0, 0.5, 1.0], [0.5, 0.72, 0.7])
    assert (away.name, away.y) == ("away (scifact)", [0.6, 0.61, 0.5])
    assert (chosen.name, chosen.x, chosen.y) == ("chosen: 0.5", [0.5, 0.5], [0.72, 0.61])
    assert "chosen: 0.5" in found["blend"].svg()
    table = section.tables[1]
    assert table.header == ["weight", "nDCG@10", "RR", "scifact, nDCG@10"]
    assert [[cell.bold for cell in row[1:]] for row in table.blocks[0].rows] == [[False] * 3, [True] * 3, [False] * 3]
    save_path(folder, replace(PATH, away=replace(PATH.away, measure="R@5") if PATH.away else None))
    assert lines(run_section(folder))["blend"].panels[0].series[1].name == "away (R@5, scifact)"
    save_path(folder, replace(PATH, away=None))
    home, chosen = lines(run_section(folder))["blend"].panels[0].series
    assert (chosen.x, chosen.y) == ([0.5], [0.72])


def broken(**changes: Any) -> dict[str, Any]:
    return {"format": "remargin-blend-1", **asdict(PATH), **changes}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (broken(points=[0.0, 0.5]), "not a value of nDCG@10 and the other measures for each of the points"),
        (broken(points=[0.0, 1.0, 0.5]), "do not ascend from 0"),
        (broken(points=[0.1, 0.5, 1.0]), "do not ascend from 0"),
        (broken(points=[]), "do not ascend from 0"),
        (broken(points=[0.0, 0.5, 1.5]), r"points\[2\] is 1.5, not between 0 and 1"),
        (broken(values={"RR": [0.4, 0.6, 0.65]}), "not a value of nDCG@10"),
        (broken(values={"nDCG@10": [0.4, 0.6, float("inf")]}), "not a finite number"),
        (broken(weight=0.3), "weight 0.3 is none of the points"),
        (broken(away={"data": "x", "measure": "RR", "values": [1.0]}), "not a value of"),
        (broken(away={"data": "x"}), "away"),
        (broken(format="remargin-blend-9"), "format 'remargin-blend-9', expected 'remargin-blend-1'"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused(make_run: MakeRun, content: dict[str, Any], words: str) -> None:
    folder = make_run("faq", REPORT)
    write_header(folder / "blend.json", content)
    with pytest.raises(InputError, match=words) as caught:
        run_section(folder)
    assert "blend.json" in str(caught.value)


def test_possible_false_negatives_are_a_table(make_run: MakeRun) -> None:
    folder = make_run("faq", REPORT)
    without = run_section(folder)
    found = [Suspicious(f"q{i}", "d1", "d2", 0.5, 0.75 - i / 10, "<b>which?", "this", "that") for i in range(3)]
    write_suspicious(folder / FILE, found)
    *others, table = run_section(folder).tables
    assert others == without.tables
    assert table.title == "Possible false negatives"
    assert [[cell.text for cell in row][2:] for row in table.blocks[0].rows] == [
        ["0.500", "that", "0.750"],
        ["0.500", "that", "0.650"],
        ["0.500", "that", "0.550"],
    ]
    assert "&lt;b&gt;which?" in page_text([run_section(folder)], "a page")
    write_suspicious(folder / FILE, [])
    assert run_section(folder).tables == without.tables
    (folder / FILE).write_text((folder / FILE).read_text().replace("remargin", "other"))
    with pytest.raises(InputError, match=r"suspicious\.json: header damaged"):
        run_section(folder)


def test_a_run_that_is_not_done(make_run: MakeRun) -> None:
    section = run_section(make_run("faq"))
    assert section.notes == ["There is no report.json: the run is not done, or it was stopped."]
    assert section.summary[-1] == "So far it ran, at a median of 15.0 triplets a second."
    assert lines(section)["validation-nDCG@10"].panels[0].series[0].y == [0.5, 0.75]


def test_a_run_that_only_began(make_run: MakeRun) -> None:
    folder = make_run("faq")
    write_metrics(folder, "step,loss\n")
    section = run_section(folder)
    assert (section.tables, section.figures) == ([], [])
    assert "for 0 steps" in section.summary[0]


def test_validations_by_several_measures(make_run: MakeRun) -> None:
    validations = [
        [step, {"nDCG@10": 0.5 + 0.01 * (step % 7), "R@100": 1 - 0.001 * step}] for step in range(0, 200, 10)
    ]
    section = run_section(make_run("faq", {**REPORT, "stopped_early": True, "validations": validations}))
    assert list(lines(section)) == ["loss", "validation-nDCG@10", "validation-R@100", "targets"]
    assert len(lines(section)["validation-R@100"].panels[0].series[0].y) == 20
    table = section.tables[0]
    assert table.header == ["step", "nDCG@10", "R@100"]
    assert [row[0].text for row in table.blocks[0].rows] == ["0", "20", "190"]
    assert table.notes[1] == "The first, the best and the last of 20 validations; the figure has all."
    assert "stopped early" in section.summary[0]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.yaml", "asked: 3", "not the config of a training run"),
        ("config.yaml", "a: [", "not the config of a training run"),
        ("config.yaml", "a: " + "[" * 100_000, "not the config of a training run"),
        ("report.json", "{", "not a header that remargin wrote"),
        ("report.json", "[]", "not a header that remargin wrote"),
        ("metrics.csv", "", "its first line is damaged"),
        ("metrics.csv", "step,loss\n1,0.5\n", "its first line is damaged"),
    ],
)
def test_damaged_runs_say_which_file(make_run: MakeRun, file: str, content: str, words: str) -> None:
    folder = make_run("faq", REPORT)
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        run_section(folder)
    assert file in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("loss\n0.5\n", "no column 'step'"),
        ("step,loss\n1,0.5\n2,many\n", "metrics.csv:3: 'many' is not a number"),
        ("step,loss\n1,0.5\n,0.5\n", "metrics.csv:3: no step"),
    ],
)
def test_rows_that_are_none_say_which_line(make_run: MakeRun, table: str, words: str) -> None:
    folder = make_run("faq")
    write_metrics(folder, table)
    with pytest.raises(InputError, match=words):
        run_section(folder)


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("file", ["config.yaml", "report.json", "metrics.csv", "blend.json"])
def test_every_bit_counts(make_run: MakeRun, file: str) -> None:
    """Damage that leaves a file readable would pass into a report unseen: a digit of a loss or of a setting."""
    path = make_run("faq", REPORT) / file
    save_path(path.parent, PATH)
    whole = path.read_bytes()
    run_section(path.parent)
    refused: list[str] = []
    for place in range(0, len(whole), 3):
        path.write_bytes(flipped(whole, place))
        try:
            changed = run_section(path.parent)
        except InputError as error:
            refused.append(str(error))
            continue
        path.write_bytes(whole)
        assert changed == run_section(path.parent), whole[place - 20 : place + 20]  # white space of YAML and JSON
    assert len(refused) > len(whole) / 6
    assert all(file in words for words in refused)


def test_rows_that_are_missing_are_noticed(make_run: MakeRun) -> None:
    folder = make_run("faq", REPORT)
    lines = (folder / "metrics.csv").read_text().splitlines(keepends=True)
    for kept in (lines[:-1], [*lines[:2], *lines[3:]], [lines[0], lines[2], lines[1], *lines[3:]]):
        (folder / "metrics.csv").write_text("".join(kept))
        with pytest.raises(InputError, match=r"metrics.csv: not the rows that report|metrics.csv:\d: damaged"):
            run_section(folder)


def test_the_last_line_of_a_run_that_was_killed_does_not_count(make_run: MakeRun) -> None:
    folder = make_run("faq")
    before = run_section(folder)
    with (folder / "metrics.csv").open("a") as file:
        file.write("3,0.1,0.")
    assert run_section(folder) == before


def test_the_columns_are_those_that_fit_writes() -> None:
    from remargin.training.log import COLUMNS

    read = {"step", "loss", "explicit_mean", "spread", "validation", *SPEEDS}
    read |= {f"{what}_{edge}" for what in ("target", "margin") for edge in ("mean", "min", "max")}
    assert read <= set(COLUMNS)


def test_truncated_vectors_have_a_table_and_a_figure(make_run: MakeRun) -> None:
    mean = {"nDCG@10": {"mean": 0.5, "low": 0.4, "high": 0.6}}
    outcome = {"split": "test", "ranked": "ranked in full (60 documents)", "queries": 9}
    outcome |= {"systems": dict.fromkeys(("before", "after", "gain"), mean)}
    over = {"measure": "nDCG@10", "dims": [32, 16, 4], "before": [0.5, 0.4, 0.1], "after": [0.6, 0.6, 0.3]}
    plain = run_section(make_run("plain", {**REPORT, "outcome": outcome}))
    section = run_section(make_run("faq", {**REPORT, "outcome": {**outcome, "dims": over}}))
    [table] = [table for table in section.tables if table not in plain.tables]
    assert [[cell.text for cell in row] for row in table.blocks[0].rows] == [
        ["32", "0.500", "0.600", "100%"],
        ["16", "0.400", "0.600", "100%"],
        ["4", "0.100", "0.300", "50%"],
    ]
    assert table.notes == ["9 test queries, ranked in full (60 documents)."]
    before, after = lines(section)["dims"].panels[0].series
    assert (before.x, before.y, after.y) == ([4, 16, 32], [0.1, 0.4, 0.5], [0.3, 0.6, 0.6])
    assert "Truncated vectors" in page_text([section], "a page")
    folder = make_run("short", {**REPORT, "outcome": {**outcome, "dims": {**over, "after": [0.6]}}})
    with pytest.raises(InputError, match=r"report\.json: .*not as many values as dimensions"):
        run_section(folder)
