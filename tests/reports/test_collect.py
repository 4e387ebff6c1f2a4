"""The sections that a folder has in it: all of them, in order, and runs that no section stands for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remargin.errors import InputError
from remargin.paper.experiments import CLAIMS as CLAIMS_FOLDER
from remargin.paper.experiments import EXPERIMENTS
from remargin.reports.collect import sections_in, studies_in
from remargin.reports.sections import Section

from .conftest import REPORT, made_up


def test_sections_are_found_at_any_depth_in_order(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for name in ("b", "a/x/y", "c"):
        made_up(name).save(tmp_path / name)
    make_run("a/run", REPORT)
    make_run("c/runs/hidden", REPORT)  # the section of c stands for it
    made_up("nested").save(tmp_path / "c" / "runs" / "nested")
    (tmp_path / ".scratch").mkdir()
    made_up("scratch").save(tmp_path / ".scratch")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [section.name for section in sections_in(tmp_path)] == ["run", "a/x/y", "b", "c", "nested"]
    assert [section.name for section in sections_in(tmp_path / "a" / "run")] == ["run"]
    assert [section.name for section in sections_in(tmp_path / "c" / "runs" / "hidden")] == ["hidden"]


def test_nothing_to_report(tmp_path: Path) -> None:
    for folder, words in [
        (tmp_path, "nothing to report: no section.json in it"),
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "file", "is not a folder"),
    ]:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match=words):
            sections_in(folder)


def test_studies_come_in_the_papers_order_and_by_name_where_there_are_several(tmp_path: Path) -> None:
    order = [*EXPERIMENTS, CLAIMS_FOLDER]
    for study in ("faq", "wiki"):
        for name in ("claims", "baselines", "variants"):
            Section(name, name.title()).save(tmp_path / study / name)
        (tmp_path / study / "study.json").touch()
    assert [section.title for section in sections_in(tmp_path / "faq", order=order)] == [
        "Variants",
        "Baselines",
        "Claims",
    ]
    assert len(studies_in(tmp_path)) == 2
    titles = [section.title for section in sections_in(tmp_path, named=True, order=order)]
    assert titles == [f"{study}: {name}" for study in ("faq", "wiki") for name in ("Variants", "Baselines", "Claims")]
