"""Everything that is published about results/paper follows from the packed runs and per-query scores there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from remargin.files.headers import read_header
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.pages import report
from remargin.reports.sections import Section

ROOT = Path(__file__).parent.parent
STUDIES = sorted((ROOT / "results" / "paper").iterdir())


def script(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pack = script("pack")


@pytest.fixture(scope="module", params=STUDIES, ids=lambda study: study.name)
def study(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def drawn(study: Path) -> dict[str, Section]:
    sections: dict[str, Section] = pack.drawn(study)
    return sections


def test_there_are_studies_and_few_files() -> None:
    assert [study.name for study in STUDIES] == ["medquad", "squadmix"]
    assert sum(path.is_file() for path in (ROOT / "results").rglob("*")) < 60


def test_every_published_cell_follows_from_the_scores(study: Path, drawn: dict[str, Section]) -> None:
    """Tables, figures and verdicts as they were when their digests were taken, to the last character."""
    published = read_header(study / pack.DIGESTS, dict, pack.FORMAT, "")["sha256"]
    assert len(published) >= 11  # ten experiments and the claims; one that is not published has no digest
    assert {name: pack.digest(drawn[name]) for name in published} == published
    assert {name: section.name for name, section in drawn.items()} == {name: name for name in drawn}
    tables = drawn["variants"].tables
    cell = tables[0].blocks[0].rows[0][2]
    assert cell.value is not None
    tables[0].blocks[0].rows[0][2] = type(cell)(cell.text, cell.bold, cell.marks, cell.value + 1e-12)
    assert pack.digest(drawn["variants"]) != published["variants"]  # the digest notices anything
    tables[0].blocks[0].rows[0][2] = cell


def test_the_picture_is_the_figure(study: Path, drawn: dict[str, Section]) -> None:
    picture = study / f"{pack.PICTURE}.svg"
    if study.name == "medquad":  # README shows it
        assert picture.read_text() == pack.picture(drawn[pack.PICTURE])


def test_report_makes_the_page_of_a_packed_study(study: Path, drawn: dict[str, Section], tmp_path: Path) -> None:
    sections = report([study], tmp_path / "report.html")
    assert [section.name for section in sections] == [*EXPERIMENTS, "claims"]
    text = (tmp_path / "report.html").read_text()
    assert all(section.title in text for section in drawn.values())
    assert "<script src" not in text
