"""The text of an HTML page, block by block, without what surrounds it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import NamedTuple

_BLOCKS = frozenset(
    (
        *(
            "p",
            "div",
            "section",
            "article",
            "main",
            "ul",
            "ol",
            "li",
            "dl",
            "dt",
            "dd",
            "table",
            "tr",
            "pre",
            "blockquote",
        ),
        *("br", "hr", "body", "header", "figure", "figcaption", "details", "summary", "fieldset", "form"),
        *("h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_UNSEEN = frozenset(
    ("script", "style", "nav", "aside", "footer", "template", "noscript", "svg", "button", "head", "select")
)
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)


class Block(NamedTuple):
    """A paragraph, an item, a row, or a heading of some level, and the line that it is on; text has level 0."""

    level: int
    text: str
    line: int


def read_page(text: str) -> tuple[str, list[Block]]:
    """The title of a page and its blocks. Text that is no HTML is a block as well.

    >>> read_page("<title>Shop</title><nav>Home</nav><h1>Refunds</h1><p>Within <b>14</b> days.")
    ('Shop', [Block(level=1, text='Refunds', line=1), Block(level=0, text='Within 14 days.', line=1)])
    """
    parser = _Page()
    try:
        parser.feed(f"{text}<!---->")  # ends what is not ended, for which it would look again and again
        parser.close()
    except (AssertionError, ValueError, RecursionError):  # the rest is not HTML; what came before it is kept
        pass
    parser.flush()
    return " ".join(parser.title.split()), parser.blocks


class _Page(HTMLParser):
    """Collects the blocks of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.title = ""
        self._parts: list[str] = []
        self._level = self._preformatted = 0
        self._unseen: list[str] = []
        self._in_title = False
        self._line = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = self._in_title or (tag == "title" and self._unseen in ([], ["head"]))
        if self._unseen:
            if tag == "body":  # a head that was not closed
                self._unseen = []
            elif tag == self._unseen[-1]:
                self._unseen.append(tag)
        elif tag in _UNSEEN or (("role", "navigation") in attrs and tag not in _VOID):
            self.flush()
            self._unseen = [tag]
        elif tag in _BLOCKS:
            self.flush()
            self._preformatted += tag == "pre"
            if re.fullmatch("h[1-6]", tag):
                self._level = int(tag[1])
        elif tag in ("td", "th"):
            self._parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
        elif tag in _BLOCKS:
            self.flush()
            self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._unseen:
            if not self._parts:
                self._line = self.getpos()[0]
            self._parts.append(data)

    def flush(self) -> None:
        """End a block."""
        text = "".join(self._parts)
        text = text.strip("\n").rstrip() if self._preformatted else " ".join(text.split())
        if text.strip():
            self.blocks.append(Block(self._level, text, self._line))
        self._parts, self._level = [], 0
