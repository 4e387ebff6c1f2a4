"""The page as HTML: everything is in it, and nothing is loaded."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from remargin.errors import InputError
from remargin.reports.page import page_text, write_page
from remargin.reports.sections import Section

from .conftest import HOSTILE, made_up

VOID = {"meta", "link", "br", "hr", "img"}


class Page(HTMLParser):
    """Elements in their order, each with its attributes and all the text inside. Fails if tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words: list[str] = []
        self.elements.append((tag, dict(attrs), words))
        if tag not in VOID:
            self._open.append((tag, words))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag

    def handle_data(self, data: str) -> None:
        for _, words in self._open:
            words.append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(words)) for name, attributes, words in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        return [text for _, text in self.all(tag)]


@pytest.fixture(scope="module")
def text() -> str:
    return page_text([made_up("variants"), made_up("variants"), Section("empty", "Nothing yet")], f"Report {HOSTILE}")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_has_its_headings_in_order(page: Page, text: str) -> None:
    assert text.startswith('<!doctype html>\n<html lang="en">')
    headings = [(tag, "".join(words)) for tag, _, words in page.elements if re.fullmatch(r"h\d", tag)]
    titles = [("h2", "Title of variants"), ("h2", "Title of variants"), ("h2", "Nothing yet")]
    assert headings == [("h1", f"Report {HOSTILE}"), *titles]
    assert page.texts("title")[0] == f"Report {HOSTILE}"


def test_the_contents_link_to_every_section(page: Page) -> None:
    ids = [attributes["id"] for tag, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes, _ in page.all("a")]
    assert links == ["#content", "#variants", "#variants-2", "#empty"]
    assert {link.removeprefix("#") for link in links if link} <= set(ids)
    assert [attributes["id"] for attributes, _ in page.all("section")] == ["variants", "variants-2", "empty"]


def test_the_summary_comes_first(page: Page) -> None:
    [first, *_] = [words for tag, attributes, words in page.elements if attributes.get("class") == "summary"]
    assert "".join(first) == f"In short: {HOSTILE}."
    order = [tag for tag, _, _ in page.elements]
    start = order.index("section")
    assert order[start : start + 4] == ["section", "h2", "p", "p"]


def test_every_cell_is_there_with_its_marks(page: Page) -> None:
    table = made_up().tables[0]
    first = page.texts("table")[0]
    lines = [line.strip() for line in first.splitlines() if line.strip()]
    expected = [table.title, *table.header]
    for block in table.blocks:
        expected += [block.label] if block.label else []
        expected += [cell.text + cell.marks for row in block.rows for cell in row]
    assert lines == expected
    strong = page.texts("strong")
    assert "0.333" in strong
    assert "†‡" in page.texts("sup")
    notes = [words for _, attributes, words in page.elements if attributes.get("class") == "note"]
    assert ["".join(words) for words in notes[:3]] == ["† 95% sure", "a second note", "One seed."]


def test_header_cells_say_what_they_are_for(page: Page) -> None:
    scopes = [(attributes.get("scope"), text) for attributes, text in page.all("th")]
    assert all(scope in ("col", "row", "rowgroup") for scope, _ in scopes)
    assert ("row", "BM25") in scopes
    assert ("rowgroup", "published") in scopes
    assert ("col", "sci_fact") in scopes
    kinds = {text: attributes.get("class") for attributes, text in page.all("td")}
    assert kinds["0.665"] == "number"
    assert kinds["–"] == "number missing"
    long = [attributes.get("class") for attributes, text in page.all("th") if text.startswith("a claim")]
    assert long == ["long"] * 2


def test_every_figure_is_there_with_caption_and_data(page: Page) -> None:
    figures = made_up().figures
    assert len(page.all("svg")) == 2 * len(figures)
    assert {attributes["role"] for attributes, _ in page.all("svg")} == {"img"}
    captions = page.texts("figcaption")
    assert captions[:3] == [f"{figure.title}. {figure.caption}" for figure in figures]
    assert page.texts("pre")[:3] == [figure.csv() for figure in figures]


def test_settings_are_there_behind_a_click(page: Page) -> None:
    shown = next(text for attributes, text in page.all("details") if attributes["class"] == "settings")
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert lines == ["Settings", "seed0", "loss.targetdistributed", "loss.in_batchfalse", "sizes64, 128", "datax"]


def test_nothing_is_loaded_and_nothing_runs(page: Page, text: str) -> None:
    assert "http://" not in text
    assert "https://" not in text
    for forbidden in ("url(", "@import", "src=", "<script", "<iframe", "<object", "javascript:"):
        assert forbidden not in text.replace("&lt;script", "").lower()
    for tag, attributes, _ in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "script"
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    policy = [attributes["content"] for attributes, _ in page.all("meta") if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_the_same_sections_give_the_same_bytes(tmp_path: Path, text: str) -> None:
    sections = [made_up("variants"), made_up("variants"), Section("empty", "Nothing yet")]
    page = write_page(tmp_path / "a.html", sections, f"Report {HOSTILE}")
    assert page.read_text(encoding="utf-8") == text
    with pytest.raises(InputError, match="already exists"):
        write_page(tmp_path / "a.html", sections, "Again")
    write_page(tmp_path / "a.html", [], "Again", overwrite=True)
    assert "<h1>Again</h1>" in page.read_text()


def test_a_single_section_needs_no_contents() -> None:
    assert not Page(page_text([made_up()], "One")).all("nav")
