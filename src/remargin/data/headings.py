"""Text files as sections under headings: Markdown, reStructuredText, HTML and plain text.

Parsing is simple on purpose: headings are found as their formats define them, and of the text between them only what
readers do not see is taken away. Nothing that a file may hold is an error.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from remargin.data.html_page import read_page

WORDS_OF_A_PART = 200  # of plain text without headings
LONGEST_TITLE = 100  # characters of a first line that may be a title
LONGEST_LINE = 5_000  # characters of a line that a person wrote, and in which markup is looked for


class Section(NamedTuple):
    """The text under a heading, up to the next heading.

    Attributes:
        headings: those that the section is under, its own last; none before the first heading.
        text: the text, without its heading.
        line: where the section begins.
        leaf: whether no heading is below its own.
    """

    headings: tuple[str, ...]
    text: str
    line: int
    leaf: bool = True


class _Heading(NamedTuple):
    level: int
    text: str
    line: int
    start: int  # of the section's text among the lines
    end: int = 0  # of the text before: the line of the heading, or that above it


def sections(text: str, suffix: str) -> list[Section]:
    """The sections of a file, by the ending of its name.

    >>> found = sections("# Refunds\\n\\nSoon.\\n\\n## Deadlines\\n14 days.", ".md")
    >>> [(section.headings, section.text) for section in found]
    [(('Refunds',), 'Soon.'), (('Refunds', 'Deadlines'), '14 days.')]
    """
    return PARSERS[suffix](text)


def _nested(headings: list[_Heading], lines: list[str], clean: Callable[[list[str]], str]) -> list[Section]:
    """The sections between headings. The headings above one are the latest ones of each higher level."""
    above: list[_Heading] = []
    first = headings[0].end if headings else len(lines)
    found = [Section((), clean(lines[:first]), 1)]
    for number, heading in enumerate(headings):
        following = headings[number + 1] if number + 1 < len(headings) else None
        above = [*(other for other in above if other.level < heading.level), heading]
        body = clean(lines[heading.start : following.end if following else len(lines)])
        leaf = following is None or following.level <= heading.level
        found.append(Section(tuple(other.text for other in above), body, heading.line, leaf))
    return [section for section in found if section.headings or section.text]


# Markdown

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]")
_HTML_HEADING = re.compile(r"\s*<h([1-6])\b[^<>]*>(.+)</h\1>\s*$", re.IGNORECASE)
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*([-*+>|#]|\d+[.)])|    |\t|\s*$")  # what an underline does not make a heading of
_IMAGE = re.compile(r"!\[([^\[\]]*)\](\([^()\s]*(?:\s+[^()]*)?\)|\[[^\]]*\])")
_LINK = re.compile(r"\[([^\[\]]+)\](\([^()\s]*(?:\s+[^()]*)?\)|\[[^\]]*\])")
_DEFINITION = re.compile(r" {0,3}\[[^\]]+\]:\s+\S+.*$")
_TAG = re.compile(
    r"</?(?:a|abbr|b|blockquote|br|center|code|dd|del|details|div|dl|dt|em|figcaption|figure|font|h[1-6]|hr|i|iframe|img"
    r"|ins|kbd|li|mark|ol|p|picture|pre|s|small|source|span|strong|sub|summary|sup|table|tbody|td|th|thead|tr|u|ul|video)"
    r"(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)  # of HTML; other words in angle brackets are placeholders
_ATTRIBUTES = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")


def markdown(text: str) -> list[Section]:
    """Sections of Markdown: headings with # or underlined, but not those in code. A title in front matter is one."""
    lines, title = _front_matter(_without_comments(text))
    headings = list(_markdown_headings(lines))
    if title and not any(heading.level == 1 for heading in headings):
        headings = [_Heading(0, title, 1, 0, 0), *headings]
    return _nested(headings, lines, _clean_markdown)


def _without_comments(text: str) -> list[str]:
    """The lines of a text without HTML comments, except in fenced code, where readers see them.

    >>> _without_comments("a <!-- b\\nc --> d\\n~~~\\n<!-- e -->")
    ['a ', ' d', '~~~', '<!-- e -->']
    """
    lines, fence, hidden = text.splitlines(), "", False
    if "<!--" not in text:
        return lines
    last = max((i for i, line in enumerate(lines) if "-->" in line), default=-1)  # behind it, no comment ends
    for i, line in enumerate(lines):
        if hidden or not (fence or _FENCE.match(line)):
            lines[i], hidden = _shown(line, hidden, ends_below=i < last)
        fence = _fence_after(fence, lines[i])
    return lines


def _shown(line: str, hidden: bool, ends_below: bool) -> tuple[str, bool]:
    """The parts of a line that are in no comment, and whether its end is in one; `hidden` says so of its beginning."""
    kept: list[str] = []
    place = 0
    while True:
        if hidden:
            end = line.find("-->", place)
            if end < 0:
                return "".join(kept), True
            place = end + len("-->")
        start = line.find("<!--", place)
        if start < 0 or not (ends_below or line.find("-->", start) >= 0):
            return "".join([*kept, line[place:]]), False
        kept.append(line[place:start])
        hidden, place = True, start


def _front_matter(lines: list[str]) -> tuple[list[str], str]:
    """The lines with YAML front matter left blank, and the title in it."""
    if not lines or lines[0].rstrip() != "---":
        return lines, ""
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), 0)
    if not end:
        return lines, ""
    titles = [line.partition(":")[2].strip().strip("\"'") for line in lines[1:end] if line.startswith("title:")]
    return [*[""] * (end + 1), *lines[end + 1 :]], (titles or [""])[0]


def _markdown_headings(lines: list[str]) -> Iterator[_Heading]:
    for i, line in _outside_of_code(lines):
        if len(line) > LONGEST_LINE:
            continue
        if atx := _ATX.match(line):
            text = line[atx.end() :].strip()
            opened = text.rstrip("#")  # of a heading that is closed with # as well
            if text := opened.rstrip() if opened[-1:] in ("", " ", "\t") else text:
                yield _Heading(len(atx[1]), _inline_markdown(text), i + 1, i + 1, i)
        elif tag := _HTML_HEADING.match(line):
            yield _Heading(int(tag[1]), _inline_markdown(tag[2]), i + 1, i + 1, i)
        elif i and (under := _UNDERLINE.match(line)):
            above = lines[i - 1]
            alone = i == 1 or not lines[i - 2].strip()
            if alone and not _NO_PARAGRAPH.match(above):
                yield _Heading(1 if under[1][0] == "=" else 2, _inline_markdown(above), i, i + 1, i - 1)


def _outside_of_code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not in a fenced block, nor its fences."""
    fence = ""
    for i, line in enumerate(lines):
        before, fence = fence, _fence_after(fence, line)
        if not (before or fence):
            yield i, line


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open behind a line, if `fence` was before it; none is an empty one."""
    match = _FENCE.match(line)
    if not fence:
        return match[1] if match else ""
    closes = match and match[1].startswith(fence) and not line.strip().strip(fence[0])
    return "" if closes else fence


def _inline_markdown(text: str) -> str:
    """A heading as readers see it."""
    text = _ATTRIBUTES.sub("", _TAG.sub("", _links(text)))
    text = re.sub(r"(?<!\\)(\*\*|__|`+)(.+?)\1", r"\2", text)
    text = re.sub(r"(?<![\w\\*])([*_])([^*_]+)\1(?!\w)", r"\2", text)
    return " ".join(html.unescape(re.sub(r"\\([^\w\s])", r"\1", text)).split())


def _links(text: str) -> str:
    return _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))


def _clean_markdown(lines: list[str]) -> str:
    """Text without the targets of links; code stays as it is."""
    prose = dict(_outside_of_code(lines))
    kept = [
        _TAG.sub("", _links(line)) if i in prose and len(line) < LONGEST_LINE else line for i, line in enumerate(lines)
    ]
    return _joined([line for i, line in enumerate(kept) if i not in prose or not _DEFINITION.match(line)])


def _joined(lines: list[str]) -> str:
    """Lines without blank ones at the ends and without more than one in a row."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


# reStructuredText

_RULE = re.compile(r"([^\w\s])\1*$")
_INVISIBLE = re.compile(r"\.\.( |$)")
_HIDDEN = re.compile(r"\.\. (_|\||toctree|contents|image|figure|index|raw|highlight|meta|include|only|tabs|auto)")
_DIRECTIVE = re.compile(r"\s*\.\. ([\w:.+-]+?)::\s*(.*)$")
_SHOWN = re.compile(
    "note|warning|tip|hint|important|caution|danger|attention|error|admonition|topic|sidebar|rubric|seealso"
)
_OPTION = re.compile(r"\s+:[\w-]+:")
_ROLE = re.compile(r"(?::[\w.:+-]{1,60}:)?`~?([^`<>]+?)(?:\s*<[^<>`]*>)?`_{0,2}")


def restructured(text: str) -> list[Section]:
    """Sections of reStructuredText: underlined headings, whose level is the order in which their styles come first."""
    lines = text.expandtabs().splitlines()
    return _nested(list(_underlined(lines)), lines, _clean_restructured)


def _underlined(lines: list[str]) -> Iterator[_Heading]:
    styles: list[tuple[str, bool]] = []
    for i in range(1, len(lines)):
        under, title = lines[i].rstrip(), lines[i - 1].strip()
        if not _RULE.match(under) or not title or _RULE.match(title) or len(under) < min(4, len(title)):
            continue
        over = i > 1 and lines[i - 2].rstrip() == under
        alone = over or i == 1 or not lines[i - 2].strip() or _INVISIBLE.match(lines[i - 2])
        if not alone or (lines[i - 1][:1].isspace() and not over) or _INVISIBLE.match(title):
            continue
        style = (under[0], over)
        if style not in styles:
            styles.append(style)
        yield _Heading(styles.index(style) + 1, _inline_restructured(title), i, i + 1, i - 2 if over else i - 1)


def _inline_restructured(text: str) -> str:
    text = re.sub(r"``(.+?)``", r"\1", text)
    text = re.sub(r"(?<![\w*])(\*\*?)([^*\s][^*]*)\1(?!\w)", r"\2", _ROLE.sub(r"\1", text))
    return " ".join(re.sub(r"\\(.)", r"\1", text).split())


def _clean_restructured(lines: list[str]) -> str:
    """Text without comments, targets and directives that show no text; the texts of other directives stay."""
    kept: list[str] = []
    hidden: int | None = None  # the indent of what is hidden
    options = False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if hidden is not None:
            if not line.strip() or indent > hidden:
                continue
            hidden = None
        directive = _DIRECTIVE.match(line)
        if _HIDDEN.match(line.strip()) or (_INVISIBLE.match(line.strip()) and not directive):
            hidden = indent
        elif directive:
            options = True
            name, argument = directive.groups()
            if name.startswith(("version", "deprecated")):
                kept.append(f"{name}: {argument}")
            elif _SHOWN.fullmatch(name):
                kept.append(" " * indent + argument)
        elif options and _OPTION.match(line):
            continue
        else:
            options = options and bool(line.strip())
            short = len(line) < LONGEST_LINE
            kept.append(_ROLE.sub(r"\1", line.replace("``", "")).replace("::", ":") if short else line)
    return _joined(kept)


# HTML


def page(text: str) -> list[Section]:
    """Sections of HTML, without what surrounds its text: navigation, scripts, buttons. Without h1, the title is one."""
    title, blocks = read_page(text)
    headings: list[_Heading] = []
    lines: list[str] = []
    if title and not any(block.level == 1 for block in blocks):
        headings.append(_Heading(0, title, 1, 0, 0))
    for block in blocks:
        if not block.level:
            lines.append(block.text)
        elif heading := " ".join(block.text.rstrip("¶#🔗\uf0c1 \t").split()):
            headings.append(_Heading(block.level, heading, block.line, len(lines), len(lines)))
    return _nested(headings, lines, lambda body: "\n".join(body).strip())


# Plain text


def plain(text: str) -> list[Section]:
    """Sections of plain text under underlined headings; or parts of some paragraphs under a first line like a title."""
    lines = text.expandtabs().splitlines()
    headings = list(_underlined(lines))
    if headings:
        return _nested(headings, lines, _joined)
    paragraphs = list(_paragraphs(lines))
    first = paragraphs[0][1].strip() if len(paragraphs) > 1 else ""
    is_title = bool(first) and "\n" not in first and len(first) <= LONGEST_TITLE and first[-1] not in ".,;:!"
    title = (first,) if is_title else ()
    parts: list[Section] = []
    gathered: list[str] = []
    words, start = 0, 1
    for line, paragraph in paragraphs[is_title:]:
        start = start if gathered else line
        gathered.append(paragraph)
        words += len(paragraph.split())
        if words >= WORDS_OF_A_PART:
            parts.append(Section(title, "\n\n".join(gathered), start))
            gathered, words = [], 0
    return parts + ([Section(title, "\n\n".join(gathered), start)] if gathered else [])


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines between blank ones, and the number of the first."""
    gathered: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            gathered.append(line.rstrip())
        elif gathered:
            yield number - len(gathered), "\n".join(gathered)
            gathered = []


PARSERS: dict[str, Callable[[str], list[Section]]] = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), markdown),
    **dict.fromkeys((".rst", ".rest"), restructured),
    **dict.fromkeys((".html", ".htm", ".xhtml"), page),
    **dict.fromkeys((".txt", ".text"), plain),
}
