"""`report`: one HTML page of studies, packed or not, of other sections, and of training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remargin.errors import InputError
from remargin.files.atomic import refuse_existing
from remargin.paper.claims.table import claims
from remargin.paper.experiments import CLAIMS, EVERY
from remargin.paper.findings import Findings
from remargin.paper.regimes import side_by_side, study_folder, titled
from remargin.paper.running import sections_of
from remargin.reports.collect import sections_in, studies_in
from remargin.reports.page import write_page
from remargin.reports.printing import write_figures
from remargin.reports.sections import Section
from remargin.reports.svg.printed import require_matplotlib
from remargin.study.files import is_packed
from remargin.study.header import is_study
from remargin.study.plan import PAPERS, REGIMES
from remargin.study.results import Results


def report(
    folders: Sequence[str | Path],
    out: str | Path,
    title: str | None = None,
    overwrite: bool = False,
    figures: str | Path | None = None,
) -> list[Section]:
    """Make one HTML page of experiments and training runs: tables, figures and settings, without any other file.

    Args:
        folders: what `reproduce`, `fit` and others wrote, or folders that have such folders in them. A packed study is
            drawn from its results.
        out: the page.
        title: its heading; that of the section, if there is only one, or "remargin report".
        overwrite: replace `out` if it is there, and files in `figures`.
        figures: a folder for the page's figures as PDF, PNG, SVG and CSV, as wide as a column of a paper, or two. Needs
            Matplotlib.

    Returns:
        The sections of the page.

    Raises:
        InputError: if a folder is given twice or has nothing to report, or `out` is there already, or Matplotlib is
            needed and not installed.

    Example:
        >>> import tempfile
        >>> from remargin import reproduce
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = reproduce("loss-geometry", folder / "study")
        >>> [section.title for section in report([folder / "study"], folder / "page.html")]
        ['Loss geometry']
    """
    refuse_existing(Path(out), overwrite)
    if figures is not None:
        require_matplotlib()
    paths = [Path(folder) for folder in folders]
    for i, folder in enumerate(paths):
        if folder.resolve() in (other.resolve() for other in paths[:i]):
            raise InputError("given twice", file=folder, do="give each folder once")
    several = sum(len(studies_in(folder)) for folder in paths) > 1
    sections = [section for folder in paths for section in _sections(folder, several)]
    heading = title or (sections[0].title if len(sections) == 1 else "remargin report")
    if figures is not None:
        write_figures(sections, figures, overwrite)
    write_page(Path(out), sections, heading, overwrite)
    return sections


def _sections(folder: Path, named: bool) -> list[Section]:
    folders = {regime: study_folder(folder, regime) for regime in REGIMES}
    if any(is_packed(path) for path in folders.values()):
        studies = {
            regime: Results.open(path, say=lambda line: None) for regime, path in folders.items() if is_packed(path)
        }
        drawn = {regime: draw_packed(results) for regime, results in studies.items()}
        return side_by_side(drawn, {regime: results.plan for regime, results in studies.items()})
    if is_study(folders[PAPERS]):
        return sections_of(folder)
    return sections_in(folder, named, order=[*EVERY, CLAIMS])


def draw_packed(results: Results) -> dict[str, Section]:
    """Every section that a packed study has the results for, and the verdicts on the claims."""
    findings = Findings(triplets=results.plan.triplets)
    findings.add_all(EVERY.values(), results)
    sections = {
        name: experiment.draw(results, findings[experiment])
        for name, experiment in EVERY.items()
        if experiment in findings
    }
    return {name: titled(section, results.plan) for name, section in {**sections, CLAIMS: claims(findings)}.items()}
