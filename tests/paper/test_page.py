"""The report of a whole study in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remargin.paper.experiments import CLAIMS as CLAIMS_FOLDER
from remargin.paper.experiments import EXPERIMENTS
from remargin.reports.page import write_page
from remargin.reports.sections import Section


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_study_is_all_to_be_seen(browser: Any, study_folder: Path, tmp_path: Path, scheme: str) -> None:
    sections = [Section.load(study_folder / name) for name in (*EXPERIMENTS, CLAIMS_FOLDER)]
    path = write_page(tmp_path / "report.html", sections, "A study")
    page = browser.new_context(color_scheme=scheme).new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri(), wait_until="networkidle")
    assert page.locator(".table table").count() == sum(len(section.tables) for section in sections)
    for section in sections:
        assert page.get_by_role("heading", name=section.title, exact=True).count() >= 1
        for table in section.tables:
            for row in table.blocks[0].rows[:2]:
                assert page.get_by_text(" ".join(row[0].text.split())).count() >= 1 or not row[0].text
    figures = page.locator("figure svg")
    assert figures.count() == sum(len(section.figures) for section in sections) >= 6
    for figure in figures.all():
        box = figure.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 100
        assert figure.locator("path, circle, line, rect, polyline").count() > 5
    assert requests == [path.as_uri()]
    assert complaints == []
