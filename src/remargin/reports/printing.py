"""Figures for a paper: PDF and PNG, as wide as one column or both of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from remargin.files.atomic import new_file
from remargin.reports.figures import Figure, LineFigure
from remargin.reports.sections import Section, unique_names
from remargin.reports.svg.printed import FORMATS, MARGIN, POINT, printed

COLUMN, PAGE = 240.0, 504.0  # points: 3.33 and 7 inches, as in the template of ACM; columns of IEEE's are wider


def write_figures(sections: Sequence[Section], folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write the figures of sections for a paper, FOLDER/SECTION/FIGURE.pdf, .png, .svg and .csv; returns their paths.

    Raises:
        InputError: if a file is there already, and it is not to be overwritten.
    """
    written: list[Path] = []
    for within, section in zip(unique_names(section.name for section in sections), sections, strict=True):
        names = unique_names(figure.name for figure in section.figures)
        for name, figure in zip(names, section.figures, strict=True):
            for suffix, content in _files(figure):
                written.append(Path(folder) / within / f"{name}.{suffix}")
                with new_file(written[-1], overwrite) as file:
                    file.write(content)
    return written


def width_of_print(figure: Figure) -> float:
    """In points: COLUMN, or PAGE for more than two panels side by side.

    >>> from remargin.reports.figures import Panel, Series
    >>> panel = Panel("", "step", "loss", [Series("ours", [1, 2], [0.5, 0.25])])
    >>> [width_of_print(LineFigure("loss", "", "", [[panel] * count])) for count in (1, 2, 3)]
    [240.0, 240.0, 504.0]
    """
    side_by_side = max(map(len, figure.rows)) if isinstance(figure, LineFigure) else 1
    return COLUMN if side_by_side <= 2 else PAGE


def _files(figure: Figure) -> Iterator[tuple[str, bytes]]:
    """What there is of a figure, by the end of its name."""
    pixels = width_of_print(figure) / POINT - 2 * MARGIN
    for format in FORMATS:
        yield format, printed(figure.svg(width=pixels), format)
    yield "svg", (figure.svg(standalone=True, width=pixels) + "\n").encode()
    yield "csv", figure.csv().encode()
