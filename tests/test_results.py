"""Everything that is published under results/paper follows from the scores of queries and validations beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin.paper.claims.table import claims
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.findings import Findings
from remargin.paper.running import CLAIMS as CLAIMS_FOLDER
from remargin.paper.running import sections_of
from remargin.report.page import write_page
from remargin.report.sections import FILE, Section
from remargin.study.results import Results

STUDIES = sorted((Path(__file__).parent.parent / "results" / "paper").iterdir())
PUBLISHED = [(study, name) for study in STUDIES for name in EXPERIMENTS if (study / name / FILE).exists()]


def silent(line: str) -> None:
    pass


def same(made: Section, published: Path) -> None:
    assert made == Section.load(published)
    files = dict(made.files())
    on_disk = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    assert on_disk - {"numbers.json"} == {*files, FILE}  # which earlier versions wrote
    for name, text in files.items():
        assert (published / name).read_text() == text, name


def test_there_are_studies() -> None:
    assert STUDIES
    assert PUBLISHED


@pytest.mark.parametrize(("study", "name"), PUBLISHED, ids=lambda value: getattr(value, "name", value))
def test_every_published_cell_follows_from_the_scores(study: Path, name: str) -> None:
    same(EXPERIMENTS[name].section(Results.open(study, say=silent)), study / name)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_so_do_the_verdicts_and_the_page(study: Path, tmp_path: Path) -> None:
    findings = Findings()
    findings.add_all(EXPERIMENTS.values(), Results.open(study, say=silent))
    same(claims(findings), study / CLAIMS_FOLDER)
    title = f"{Results.open(study, say=silent).name}: the paper's experiments"
    write_page(tmp_path / "report.html", sections_of(study), title)
    assert (tmp_path / "report.html").read_text() == (study / "report.html").read_text()
    assert "<script src" not in (study / "report.html").read_text()
