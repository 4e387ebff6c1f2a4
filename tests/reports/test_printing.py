"""Figures for a paper: vector PDF with its text, and PNG, of the width of a column."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from remargin.errors import InputError
from remargin.paper.loss_geometry import overview
from remargin.reports.figures import Figure, LineFigure, Panel, Series
from remargin.reports.printing import COLUMN, PAGE, width_of_print, write_figures
from remargin.reports.sections import Section
from remargin.reports.svg.printed import POINT, printed

from .conftest import made_up
from .drawing import circle, one_panel

pypdf = pytest.importorskip("pypdf")
pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")


def wide() -> LineFigure:
    panels = [Panel(f"panel {i}", "step", "nDCG@10", [Series("ours", [1, 2, 3], [0.5, 0.7, 0.6])]) for i in range(3)]
    return LineFigure("wide", "A title that is not in the figure", "", [panels])


def tall() -> LineFigure:
    panels = [
        Panel(title, "margin", "Success@100", [Series("MiniLM", [0, 0.5, 1], [0.9, 0.95, 0.85])], mark_maxima=True)
        for title in ("without in-batch negatives", "with in-batch negatives")
    ]
    return LineFigure("tall", "A title that is not in the figure", "", [panels])


FIGURES = [wide(), tall(), circle(), overview()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    write_figures([Section("one", "One", figures=list(FIGURES))], folder)
    return folder / "one"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_pdf_has_the_width_of_a_column_and_all_texts(figure: Figure, folder: Path) -> None:
    reader = pypdf.PdfReader(folder / f"{figure.name}.pdf")
    (page,) = reader.pages
    assert float(page.mediabox.width) == pytest.approx(width_of_print(figure), abs=1)
    text = "".join(page.extract_text().split())
    svg = ElementTree.fromstring((folder / f"{figure.name}.svg").read_text())
    shown = ["".join("".join(element.itertext()).split()) for element in svg.findall(".//{*}text")]
    assert len(shown) > 8
    for words in shown:
        assert words in text or sorted(words) == sorted(set(words) & set(text))  # a name's parts may stand apart
    assert figure.title.replace(" ", "") not in text
    assert reader.metadata.title == figure.title
    assert not page.images  # it is drawn, not painted


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_its_fonts_are_embedded_and_legible(figure: Figure, folder: Path) -> None:
    (page,) = pypdf.PdfReader(folder / f"{figure.name}.pdf").pages
    for font in page["/Resources"]["/Font"].values():
        inner = font.get_object()
        inner = inner["/DescendantFonts"][0].get_object() if "/DescendantFonts" in inner else inner
        assert inner["/Subtype"] in ("/TrueType", "/CIDFontType2")
        assert "/FontFile2" in inner["/FontDescriptor"].get_object()
    sizes: list[float] = []
    page.extract_text(visitor_text=lambda text, cm, tm, font, size: sizes.append(size) if text.strip() else None)
    assert min(sizes) >= 8 * 0.75  # the signs and numbers of d+ and d-1 are the smallest
    assert sum(size >= 7.3 for size in sizes) > len(sizes) / 2


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_png_has_300_dots_an_inch_and_shows_what_a_pdf_shows(figure: Figure, folder: Path) -> None:
    with Image.open(folder / f"{figure.name}.png") as image:
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
        assert image.width == pytest.approx(width_of_print(figure) / 72 * 300, abs=5)
        shades = np.asarray(image.convert("L"), float)
    assert 0.01 < (shades < 128).mean() < 0.5
    assert shades[0].min() == shades[-1].min() == 255  # nothing touches the upper and the lower edge


def test_lines_are_where_the_svg_has_them(tmp_path: Path) -> None:
    """A horizontal line of one colour: the rows of its pixels, against the place in the SVG."""
    flat = one_panel(Series("flat", [0, 1, 2], [0.5, 0.5, 0.5]))
    svg = flat.svg(width=360)
    line = next(
        e for e in ElementTree.fromstring(svg).iter("path") if e.get("class") == "line" and "L" in e.get("d", "")
    )
    y = float(line.get("d", "").split("L")[0].split()[1])
    image = np.asarray(Image.open(io.BytesIO(printed(svg, "png"))).convert("RGB"), int)
    blue = np.abs(image - np.array([0x00, 0x72, 0xB2])).sum(2) < 30
    rows = np.flatnonzero(blue.sum(1) > 0.4 * image.shape[1])
    assert (rows.mean() + 0.5) / (300 / 72 * POINT) - 3 == pytest.approx(y, abs=0.5)


def test_arcs_go_the_way_that_the_svg_says() -> None:
    """An arc over the right, one over the left, a long one: the middle of each is painted, its mirror image is not."""
    for large, sweep, middle in ((0, 1, (50, 10)), (0, 0, (50, 90)), (1, 1, (50, 10))):
        ends = ("10 50", "90 50") if not large else ("40 89", "60 89")
        svg = (
            f'<svg width="100" height="100"><g class="k0"><path class="line" d="M{ends[0]}A40 40 0 {large} {sweep} '
            f'{ends[1]}"/></g></svg>'
        )
        shades = np.asarray(Image.open(io.BytesIO(printed(svg, "png"))).convert("L"), float)
        scale = shades.shape[0] / 106
        x, y = (int((place + 3) * scale) for place in middle)
        assert shades[y - 4 : y + 4, x].min() < 200, (large, sweep)
        assert shades[int(103 * scale) - y - 4 : int(103 * scale) - y + 4, x].min() == 255 or large


def test_the_same_figure_is_the_same_file() -> None:
    svg = tall().svg(width=360)
    for format in ("pdf", "png"):
        assert len({hashlib.sha256(printed(svg, format)).hexdigest() for _ in range(2)}) == 1


def test_figures_of_every_kind_and_hostile_names_are_written(tmp_path: Path) -> None:
    plain = made_up()
    written = write_figures([plain, plain], tmp_path)
    names = sorted(str(path.relative_to(tmp_path)) for path in written)
    assert names[:4] == ["variants-2/loss.csv", "variants-2/loss.pdf", "variants-2/loss.png", "variants-2/loss.svg"]
    assert len(names) == len(set(names)) == 2 * 3 * 4
    with pytest.raises(InputError, match="already exists"):
        write_figures([plain], tmp_path)
    write_figures([plain], tmp_path, overwrite=True)


def test_columns() -> None:
    assert [width_of_print(figure) for figure in FIGURES] == [PAGE, COLUMN, COLUMN, COLUMN]
