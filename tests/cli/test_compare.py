"""compare as a user runs it, and options that take several values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.cli.verb import repeat_flags

QUERIES = 8


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    for name, letter, count in (("corpus", "d", 20), ("queries", "q", QUERIES)):
        lines = [json.dumps({"_id": f"{letter}{i}", "text": f"text {i}"}) + "\n" for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "qrels" / "test.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in range(QUERIES)))
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, ranks: list[int]) -> Path:
        """A run that has the relevant document of each query at that rank, as long as there are ranks."""
        lines = []
        for i, rank in enumerate(ranks):
            ranking = [f"d{j}" for j in range(QUERIES, QUERIES + 9)]
            ranking.insert(rank - 1, f"d{i}")
            lines += [f"q{i} Q0 {document} 0 {20 - at} tag\n" for at, document in enumerate(ranking)]
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
        return path

    return write


@pytest.fixture
def runs(make_run: Callable[..., Path]) -> list[Path]:
    return [
        make_run("good_one.trec", [1, 1, 1, 1, 1, 1, 1, 1]),
        make_run("worse.trec", [4, 2, 5, 2, 3, 4, 2, 6]),
        make_run("part.trec", [1, 1, 1, 1, 1, 1]),
    ]


def test_the_marks_and_the_numbers(remargin: Any, beir: Path, make_run: Any, runs: list[Path]) -> None:
    same = make_run("same.trec", [1, 1, 1, 1, 1, 1, 1, 1])
    result = remargin("compare", "--data", beir, "--runs", *runs, same, "--measures", "RR", "R@5")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1] == ["run", "RR", "R@5"]
    assert lines[3] == ["good_one", "*1.000*", "*1.000*"]
    assert lines[5] == ["part", "0.750", "0.750"]
    assert lines[6] == ["same", "*1.000*†", "*1.000*†"]
    assert "n = 8 queries, Bonferroni over 3 comparisons per measure" in result.stdout
    assert "part lacks 2 of the queries, counted as 0." in result.stdout
    assert "0/8/0" in result.stdout


def test_csv_and_one_flag_for_each_value_or_one_for_all(remargin: Any, beir: Path, runs: list[Path]) -> None:
    together = remargin("compare", "--data", beir, "--runs", *runs, "--measure", "RR", "R@5", "--format", "csv")
    assert (together.returncode, together.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(together.stdout)))
    assert [(row["measure"], row["run"]) for row in rows] == [
        (measure, run) for measure in ("RR", "R@5") for run in ("good_one", "worse", "part")
    ]
    assert rows[1]["losses"] == "8"
    one_by_one = [f"--runs={runs[0]}", "--runs", runs[1], "--measures=RR", "--runs", runs[2], "--measures", "R@5"]
    assert remargin("compare", "--data", beir, *one_by_one, "--format", "csv").stdout == together.stdout


@pytest.mark.parametrize("named", ["worse", "worse.trec", "the path"])
def test_the_reference_by_name_by_file_and_by_path(remargin: Any, beir: Path, runs: list[Path], named: str) -> None:
    reference = runs[1] if named == "the path" else named
    arguments = ("compare", "--data", beir, "--runs", *runs, "--reference", reference, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(remargin(*arguments).stdout)))
    assert {row["reference"] for row in rows} == {"worse"}
    assert [row["wins"] for row in rows] == ["8", "", "6"]


def test_settings_reach_the_tests(remargin: Any, beir: Path, runs: list[Path]) -> None:
    options = ("--bound", 0.2, "--alpha", 0.01, "--correction", "holm", "--samples", 77, "--seed", 3)
    result = remargin("compare", "--data", beir, "--runs", *runs, *options, "--format", "csv")
    [row, *_] = csv.DictReader(io.StringIO(result.stdout))
    names = ("measure", "bound", "alpha", "correction", "samples", "seed")
    assert [row[name] for name in names] == ["nDCG@10", "0.2", "0.01", "holm", "77", "3"]


@pytest.mark.parametrize(
    ("file", "arguments", "words"),
    [
        ("t.tex", [], [r"\begin{tabular}{lr}", r"good\_one & \textbf{1.000} \\"]),
        ("t.md", [], ["| run | nDCG@10 |", r"| good\_one | **1.000** |"]),
        ("t.csv", [], ["measure,run,reference"]),
        ("t.txt", [], ["good_one  *1.000*"]),
        ("t.docx", ["--format", "latex"], [r"\toprule"]),
    ],
)
def test_files(
    remargin: Any, beir: Path, runs: list[Path], tmp_path: Path, file: str, arguments: list[str], words: list[str]
) -> None:
    command = ("compare", "--data", beir, "--runs", *runs, "--out", tmp_path / file, *arguments)
    result = remargin(*command)
    assert (result.returncode, result.stdout) == (0, f"wrote {tmp_path / file}\n")
    assert all(word in (tmp_path / file).read_text() for word in words)
    again = remargin(*command)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert remargin(*command, "--overwrite").returncode == 0


def test_a_config_may_hold_lists_or_one_value(remargin: Any, beir: Path, runs: list[Path], tmp_path: Path) -> None:
    config = tmp_path / "compare.yaml"
    config.write_text(f"data: {beir}\nruns: [{', '.join(map(str, runs))}]\nmeasures: RR\nformat: csv\n")
    result = remargin("compare", "--config", config)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 4
    assert len(remargin("compare", "--config", config, "--measures", "RR", "R@5").stdout.splitlines()) == 7
    assert len(remargin("compare", "--config", config, "--runs", *runs[:2]).stdout.splitlines()) == 3
    config.write_text(f"data: {beir}\nrun: {runs[0]}\nmeasures: RR\n")
    assert remargin("evaluate", "--config", config).stdout.startswith("RR\t1.0000")


BAD: dict[str, tuple[list[Any], str]] = {
    "unknown reference": (
        ["--reference", "nobody.trec"],
        "reference 'nobody.trec' is none of the runs; choose best or",
    ),
    "unknown measure": (["--measures", "nDGC@10"], "unknown measure 'nDGC@10'"),
    "no bound": (["--bound", "0"], "a bound of 0.0 is not a positive number"),
    "negative bound": (["--bound", "-0.05"], "a bound of -0.05 is not a positive number"),
    "bound that is no number": (["--bound", "nan"], "a bound of nan is not a positive number"),
    "alpha": (["--alpha", "5"], "an alpha of 5.0"),
    "correction": (["--correction", "tukey"], "unknown correction 'tukey'; choose one of bonferroni, holm, none"),
    "format": (["--format", "pdf"], "unknown format 'pdf'; choose one of terminal, csv, latex, markdown"),
    "ending": (["--out", "table.docx"], "table.docx: its ending names no format; end it in .csv, .tex, .md, .txt, or"),
    "split": (["--split", "dev"], "dev"),
    "missing file": (["--runs", "nothing.trec"], "nothing.trec: no such file"),
    "samples": (["--samples", "0"], "0 samples"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_exit_code_2(remargin: Any, beir: Path, runs: list[Path], kind: str) -> None:
    arguments, words = BAD[kind]
    result = remargin("compare", "--data", beir, "--runs", *runs, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_bad_runs_are_one_line_and_exit_code_2(remargin: Any, beir: Path, runs: list[Path], make_run: Any) -> None:
    twins = [make_run("x/run.trec", [1] * 8), make_run("y/run.trec", [2] * 8)]
    for given, words in [
        ([runs[0]], "too few runs to compare: 1; give two or more"),
        ([runs[0], runs[1], runs[0]], "good_one.trec: given twice"),
        (
            [*twins, "--reference", "run.trec"],
            "reference 'run.trec' fits more than one run; choose best or one of x/run",
        ),
    ]:
        result = remargin("compare", "--data", beir, "--runs", *given)
        assert (result.returncode, result.stdout) == (2, "")
        [line] = result.stderr.splitlines()
        assert words in line


def test_too_few_queries_are_one_line(remargin: Any, beir: Path, runs: list[Path]) -> None:
    (beir / "qrels" / "test.tsv").write_text("q1\td1\t1\n")
    result = remargin("compare", "--data", beir, "--runs", *runs)
    assert (result.returncode, result.stderr) == (
        2,
        "error: too few queries for a test: 1; measure on two or more\n",
    )


def test_bad_documents_are_skipped_only_when_asked_for(remargin: Any, beir: Path, runs: list[Path]) -> None:
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": "d 99", "text": "an id with a blank"}\n')
    assert remargin("compare", "--data", beir, "--runs", *runs).returncode == 2
    skipped = remargin("compare", "--data", beir, "--runs", *runs, "--skip-bad")
    assert skipped.returncode == 0
    assert "skipped bad input: 1" in skipped.stderr


def test_documents_that_are_the_query_itself_are_left_out(
    remargin: Any, beir: Path, runs: list[Path], make_run: Any
) -> None:
    command = ("compare", "--data", beir, "--runs", *runs, "--measures", "RR", "--format", "csv")
    before = remargin(*command)
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": "q0", "text": "text 0"}\n')
    with open(runs[0], "a") as file:
        file.write("q0 Q0 q0 0 99 tag\n")
    after = remargin(*command)
    assert after.stdout == before.stdout
    assert after.stderr == "good_one: documents that are the query itself, left out: 1\n"


def test_only_further_values_of_list_options_get_a_flag() -> None:
    flags = {"--runs", "-r"}
    for given, expected in {
        "": "",
        "--data x --runs a": "--data x --runs a",
        "--runs a b c --data x": "--runs a --runs b --runs c --data x",
        "-r a b": "-r a -r b",
        "--runs=a b --bound -1": "--runs=a --runs b --bound -1",
        "--other a b --runs": "--other a b --runs",
    }.items():
        assert repeat_flags(given.split(), flags) == expected.split()


def test_runs_of_which_no_query_is_judged_are_not_compared(
    remargin: Any, beir: Path, runs: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "other.trec").write_text("q99 Q0 d1 0 1 tag\n")
    result = remargin("compare", "--data", beir, "--runs", runs[0], tmp_path / "other.trec")
    assert result.returncode == 2
    assert "other.trec: none of its queries is judged in split 'test'" in result.stderr
