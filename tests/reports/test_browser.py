"""The page in a real browser, in light and dark, wide and narrow: it is all to be seen, and it asks for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remargin import report
from remargin.reports.page import write_page

from .conftest import HOSTILE, made_up

pytestmark = pytest.mark.browser
STUDIES = sorted((Path(__file__).parents[2] / "results" / "paper").iterdir())


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sections = [made_up("variants"), made_up("margins")]
    return write_page(tmp_path_factory.mktemp("page") / "report.html", sections, f"Report {HOSTILE}")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_everything_and_loads_nothing(browser: Any, page_file: Path, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(page_file.as_uri(), wait_until="networkidle")
    assert page.title() == f"Report {HOSTILE}"
    assert page.locator("h1").inner_text() == f"Report {HOSTILE}"

    tables = page.locator(".table table")
    assert tables.count() == 4
    for table in tables.all():
        assert table.is_visible()
        cells = table.locator("tbody tr:not(.label) > *").all_inner_texts()
        assert cells
        assert all(cells)

    assert page.locator("svg").count() == 6
    all_drawn(page)

    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(channels(back)) > 3 * 128) == (scheme == "light")
    for selector in ("p.summary", "figcaption", ".note", "td.number", "thead th", "a[href='#margins']", "summary"):
        colour = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).color")
        assert contrast(colour, back) >= 4.5, selector
    for selector, kind, least in (("svg text", "fill", 4.5), ("svg .tick", "fill", 4.5), ("svg .line", "stroke", 3)):
        for colour in page.eval_on_selector_all(selector, f"all => all.map(e => getComputedStyle(e).{kind})"):
            assert contrast(colour, back) >= least, selector

    # Tables scroll, the page does not.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_text("Data", exact=True).first.click()
    assert "panel,series,x,y,low,high" in page.locator("pre").first.inner_text()
    page.locator("details.settings summary").first.click()
    assert page.get_by_text("loss.target").first.is_visible()
    page.locator("nav a").nth(1).click()
    assert page.evaluate("document.querySelector('#margins').getBoundingClientRect().top") < 900
    assert complaints == []
    assert [url.partition("#")[0] for url in requests] == [page_file.as_uri()] * len(requests)
    context.close()


@pytest.fixture(scope="module", params=STUDIES, ids=lambda study: study.name)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a packed study, as `remargin report` makes it."""
    out = tmp_path_factory.mktemp("published") / "report.html"
    report([request.param], out)
    return out


@pytest.mark.parametrize("width", [1100, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_published_page_is_whole(browser: Any, published: Path, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(published.as_uri(), wait_until="networkidle")
    assert page.locator(".table tbody td.number").count() > 10
    assert page.locator("svg").count() >= 6
    all_drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(OUTSIDE) == []
    page.evaluate("document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = 60)")
    assert page.locator(".table caption").count() >= 10
    assert page.evaluate(CUT_TITLES) == []
    if width == 1100:  # nothing has to be scrolled
        wider = page.eval_on_selector_all(".scroll", "all => all.map(e => e.scrollWidth - e.clientWidth)")
        assert max(wider) <= 0
    assert (complaints, requests) == ([], [published.as_uri()])
    context.close()


def test_the_page_prints_in_light_colours(browser: Any, page_file: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert sum(channels(page.evaluate("getComputedStyle(document.body).color"))) < 3 * 128
    assert sum(channels(page.evaluate("getComputedStyle(document.querySelector('svg text')).fill"))) < 3 * 128
    assert page.pdf()[:5] == b"%PDF-"
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_opens_alone(browser: Any, tmp_path: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    for figure in made_up().figures:
        file = tmp_path / f"{figure.name}.svg"
        file.write_text(figure.svg(standalone=True), encoding="utf-8")
        page.goto(file.as_uri())
        paper = page.evaluate("getComputedStyle(document.querySelector('.paper')).fill")
        ink = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
        assert (sum(channels(paper)) > 3 * 128) == (scheme == "light")
        assert contrast(ink, paper) >= 7
    context.close()


def all_drawn(page: Any) -> None:
    """Every figure has an extent, with something in it that is neither hidden nor cut off."""
    for figure in page.locator("svg").all():
        box = figure.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
        drawn = figure.evaluate(VISIBLE)
        assert drawn["shapes"] > 0
        assert drawn["texts"] > 0
        assert drawn["hidden"] == []
        assert drawn["outside"] == []


# What reaches beyond the page to the right, other than inside a part that scrolls by itself.
OUTSIDE = """[...document.querySelectorAll("main *, header *")].filter(e => !e.closest(".scroll, pre")
    && e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.outerHTML.slice(0, 99))"""

# Titles of tables that are cut off where the table scrolls.
CUT_TITLES = """[...document.querySelectorAll(".table caption")].filter(e => {
    const text = document.createRange(), room = e.closest(".scroll").getBoundingClientRect();
    text.selectNodeContents(e);
    const box = text.getBoundingClientRect();
    return box.left < room.left - 1 || box.right > room.right + 1;
}).map(e => e.textContent)"""

# How many shapes and texts have an extent, which of them are hidden, and which are cut off.
VISIBLE = """svg => {
    const whole = svg.getBoundingClientRect();
    const found = {shapes: 0, texts: 0, hidden: [], outside: []};
    for (const e of svg.querySelectorAll("path, circle, polygon, text")) {
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        if (!box.width && !box.height) continue;
        found[e.tagName === "text" ? "texts" : "shapes"]++;
        const hidden = style.visibility !== "visible" || style.display === "none" || style.opacity === "0";
        if (hidden || (style.fill === "none" && style.stroke === "none")) found.hidden.push(e.outerHTML);
        const slack = 2;
        if (box.left < whole.left - slack || box.right > whole.right + slack
            || box.top < whole.top - slack || box.bottom > whole.bottom + slack) found.outside.push(e.outerHTML);
    }
    return found;
}"""


def channels(colour: str) -> list[float]:
    return [float(channel) for channel in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def contrast(a: str, b: str) -> float:
    """The contrast ratio of the accessibility guidelines (WCAG 2)."""
    luminances = []
    for colour in (a, b):
        shares = [channel / 255 for channel in channels(colour)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)
