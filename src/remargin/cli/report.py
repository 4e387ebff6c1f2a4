"""remargin report: sections and runs -> one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Overwrite
from remargin.errors import InputError
from remargin.progress import tell


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="What `remargin reproduce` or `remargin fit` wrote, or folders that have such folders in them.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")],
    title: Annotated[str | None, typer.Option(help="Its heading; without, that of a single section.")] = None,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Make one HTML page of experiments and training runs: tables, figures and settings, without any other file."""
    from remargin.files.atomic import refuse_existing
    from remargin.report.collect import sections_in, studies_in
    from remargin.report.page import write_page

    refuse_existing(out, overwrite)
    for i, folder in enumerate(folders):
        if folder.resolve() in (other.resolve() for other in folders[:i]):
            raise InputError("given twice", file=folder, do="give each folder once")
    several = sum(len(studies_in(folder)) for folder in folders) > 1
    sections = [section for folder in folders for section in sections_in(folder, named=several)]
    write_page(out, sections, title or (sections[0].title if len(sections) == 1 else "remargin report"), overwrite)
    counts = {
        "section": len(sections),
        "table": sum(len(section.tables) for section in sections),
        "figure": sum(len(section.figures) for section in sections),
    }
    many = ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    tell(f"wrote {out}: {many}, {out.stat().st_size / 1000:,.0f} kB")
