"""The sections in a folder: those that were saved, and one for each training run that none of them covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remargin.errors import InputError
from remargin.reports.sections import FILE, Section
from remargin.reports.training_run import is_run, run_section

STUDY = "study.json"


def sections_in(folder: str | Path, named: bool = False, order: Sequence[str] = ()) -> list[Section]:
    """Every section in a folder, at any depth, and training runs that none of them covers.

    They come in the order of their paths, except that sections of a study whose names are in `order` come first, in
    that order. `named` puts the name of a study's folder before the titles of its sections, for a page with several.

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
    sections = list(_sections(folder, True, named, order))
    if not sections:
        problem = f"nothing to report: no {FILE} in it at any depth, and no training run"
        raise InputError(problem, file=folder, do="give a folder that `remargin reproduce` or `remargin fit` wrote")
    return sections


def studies_in(folder: Path) -> list[Path]:
    """The folders of studies, which `remargin reproduce` writes, in a folder at any depth."""
    return [path.parent for path in folder.rglob(STUDY)]


def _sections(folder: Path, with_runs: bool, named: bool, order: Sequence[str]) -> Iterator[Section]:
    """Sections of a folder and of those in it. Training runs under a section are left out: it is about them."""
    if (folder / FILE).is_file():
        yield Section.load(folder)
        with_runs = False
    elif with_runs and is_run(folder):
        yield run_section(folder)
    is_study = (folder / STUDY).is_file()
    for child in sorted(folder.iterdir(), key=partial(_place, order if is_study else ())):
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            for section in _sections(child, with_runs, named, order):
                name = f"{folder.absolute().name}: " if is_study and named else ""
                yield replace(section, title=f"{name}{section.title}")


def _place(order: Sequence[str], folder: Path) -> tuple[int, str]:
    return (order.index(folder.name) if folder.name in order else len(order)), folder.name
