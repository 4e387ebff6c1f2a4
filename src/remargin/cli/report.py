"""remargin report: sections and runs -> one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import Config, Overwrite
from remargin.progress import tell


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Folders that `remargin reproduce`, `benchmark`, `sweep` or `fit` wrote, packed studies, or folders "
            "of these.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    title: Annotated[
        str | None, typer.Option(help="Title of the page.", show_default="that of the only section, or remargin report")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the figures as PDF, PNG (300 dpi), SVG and CSV, sized for a paper of two columns. Needs "
            "Matplotlib.",
            show_default="none",
        ),
    ] = None,
    overwrite: Overwrite = False,
    config: Config = None,
) -> dict[str, Any]:
    """Make one HTML page of experiments and training runs: tables, figures and settings, without any other file.

    Examples:
        remargin report runs/faq --out report.html
        remargin report runs/study --out study.html --figures paper/figures
    """
    import remargin

    sections = remargin.report(folders, out, title, overwrite, figures)
    counts = {
        "section": len(sections),
        "table": sum(len(section.tables) for section in sections),
        "figure": sum(len(section.figures) for section in sections),
    }
    many = ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    tell(f"wrote {out}: {many}, {out.stat().st_size / 1000:,.0f} kB")
    if figures is not None:
        many = f"{counts['figure']:,} figure{'' if counts['figure'] == 1 else 's'}"
        tell(f"wrote {figures}: {many}, each as PDF, PNG, SVG and CSV")
    return {"out": out, **{f"{what}s": count for what, count in counts.items()}}
