"""The sections in a folder: those that were saved, and one for each training run that none of them covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from remargin.errors import InputError
from remargin.report.sections import FILE, PAPERS_ORDER, Section
from remargin.report.training_run import is_run, run_section

STUDY = "study.json"


def sections_in(folder: str | Path, named: bool = False) -> list[Section]:
    """Every section in a folder, at any depth, and training runs that none of them covers.

    They come in the order of their paths, except that sections of a study come in the order of the paper. `named` puts
    the name of a study's folder before the titles of its sections, for a page with several studies.

    Raises:
        InputError: if there is nothing.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b", "a/deep"):
        ...     _ = Section(name, name.upper()).save(folder / name)
        >>> [section.title for section in sections_in(folder)]
        ['A/DEEP', 'B']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("is not a folder" if folder.exists() else "no such folder", file=folder, do="check the path")
    found = list(_sections(folder, with_runs=True, named=named))
    if not found:
        problem = f"nothing to report: no {FILE} in it at any depth, and no training run"
        raise InputError(problem, file=folder, do="give a folder that `remargin reproduce` or `remargin fit` wrote")
    return found


def studies_in(folder: Path) -> list[Path]:
    """The folders of studies, which `remargin reproduce` writes, in a folder at any depth."""
    return [path.parent for path in folder.rglob(STUDY)]


def _sections(folder: Path, with_runs: bool, named: bool) -> Iterator[Section]:
    """Sections of a folder and of those in it. Training runs under a section are left out: it is about them."""
    if (folder / FILE).is_file():
        yield Section.load(folder)
        with_runs = False
    elif with_runs and is_run(folder):
        yield run_section(folder)
    is_study = (folder / STUDY).is_file()
    for child in sorted(folder.iterdir(), key=_in_papers_order if is_study else None):
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            for section in _sections(child, with_runs, named):
                name = f"{folder.absolute().name}: " if is_study and named else ""
                yield replace(section, title=f"{name}{section.title}")


def _in_papers_order(folder: Path) -> tuple[int, str]:
    return (PAPERS_ORDER.index(folder.name) if folder.name in PAPERS_ORDER else len(PAPERS_ORDER)), folder.name
