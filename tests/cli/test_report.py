"""report as a user runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError, report
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("b", "a"):
        table = Table(f"Table {name}", ["run"], [Block("", [[Cell("x")]])])
        Section(name, f"Section {name}", ["In short."], [table]).save(tmp_path / "results" / name)
    return tmp_path / "results"


def test_a_folder_of_sections_becomes_one_page(remargin: Any, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    result = remargin("report", results, "--out", out)
    size = f"{out.stat().st_size / 1000:,.0f} kB"
    assert result == (0, f"wrote {out}: 2 sections, 2 tables, 0 figures, {size}\n", "")
    page = out.read_text()
    assert page.index("<h2>Section a</h2>") < page.index("<h2>Section b</h2>")
    assert "<h1>remargin report</h1>" in page


def test_figures_for_a_paper(remargin: Any, results: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panel = Panel("", "step", "loss", [Series("ours", [1, 2], [0.5, 0.25])])
    Section("c", "Section c", figures=[LineFigure("loss", "Loss", "", [[panel]])]).save(tmp_path / "results" / "c")
    figures = tmp_path / "figures"
    result = remargin("report", results, "--out", tmp_path / "report.html", "--figures", figures)
    assert result.stdout.splitlines()[-1] == f"wrote {figures}: 1 figure, each as PDF, PNG, SVG and CSV"
    assert sorted(path.name for path in (figures / "c").iterdir()) == ["loss.csv", "loss.pdf", "loss.png", "loss.svg"]


def test_figures_without_matplotlib(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"PDF and PNG need Matplotlib; pip install 'remargin\[figures\]'"):
        report([results], tmp_path / "report.html", figures=tmp_path / "figures")
    assert not (tmp_path / "report.html").exists()


def test_folders_come_in_the_order_in_which_they_are_given(remargin: Any, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert remargin("report", results / "b", results / "a", "--out", out, "--title", "Mine & yours").returncode == 0
    page = out.read_text()
    assert page.index("<h2>Section b</h2>") < page.index("<h2>Section a</h2>")
    assert "<h1>Mine &amp; yours</h1>" in page


def test_a_single_section_gives_the_page_its_title(remargin: Any, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert "1 section, 1 table, 0 figures" in remargin("report", results / "a", "--out", out).stdout
    assert "<h1>Section a</h1>" in out.read_text()


def test_a_page_is_overwritten_only_when_asked_to(remargin: Any, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    result = remargin("report", results, "--out", out)
    assert result.returncode == 2
    assert "already exists" in result.stderr
    assert out.read_text() == "mine"
    assert remargin("report", results, "--out", out, "--overwrite").returncode == 0
    assert "Section a" in out.read_text()


def test_options_may_come_from_a_file(remargin: Any, results: Path, tmp_path: Path) -> None:
    config = tmp_path / "report.yaml"
    config.write_text(f"title: From a file\nout: {tmp_path / 'report.html'}\n")
    assert remargin("report", results, "--config", config).returncode == 0
    assert "<h1>From a file</h1>" in (tmp_path / "report.html").read_text()


def test_bad_input_is_one_line_and_exit_code_2(remargin: Any, results: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "section.json").write_text("{}")
    for folders, words in [
        (
            [tmp_path / "empty"],
            "empty: nothing to report: no section.json in it at any depth, and no training run;",
        ),
        ([tmp_path / "nowhere"], "nowhere: no such folder; check the path"),
        ([results / "a" / "section.json"], "section.json: is not a folder; check the path"),
        ([tmp_path / "damaged"], "section.json: not a header that remargin wrote; make it again"),
        ([results, results / "a" / ".."], "given twice; give each folder once"),
    ]:
        result = remargin("report", *folders, "--out", tmp_path / "report.html")
        assert (result.returncode, result.stdout) == (2, "")
        [line] = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert words in line
    assert not (tmp_path / "report.html").exists()
    assert remargin("report", "--out", tmp_path / "report.html").returncode == 2
