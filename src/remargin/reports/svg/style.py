"""How figures look: colours, sizes and strokes, as rules that become a style sheet for browsers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

PAPER, DARK_PAPER = "#ffffff", "#14171b"
TEXT = 12  # size of text, in pixels
COLOURS = 6
# The colours of Okabe and Ito, which people with any colour vision can tell apart; without yellow, too pale on white.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DARK_COLOURS = ("#56b4e9", "#e2702a", "#1fb58b", "#d992b8", "#e69f00", "#3f8fd0")


def _variables(ink: str, soft: str, axis: str, grid: str, paper: str, colours: tuple[str, ...]) -> dict[str, str]:
    named = {"ink": ink, "soft": soft, "axis": axis, "grid": grid, "paper": paper}
    return {f"--{name}": value for name, value in (named | {f"c{i}": c for i, c in enumerate(colours)}).items()}


_LIGHT = _variables("#1b2026", "#59626d", "#8a939e", "#e8ebef", PAPER, _COLOURS)
_DARK = _variables("#e8ebee", "#a3acb7", "#6d7681", "#2a3037", DARK_PAPER, _DARK_COLOURS)
_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif'
# By element or class. Where two rules are about the same, the later one holds.
_RULES: dict[str, dict[str, str]] = {
    "text": {"fill": "var(--ink)"},
    ".tick": {"fill": "var(--soft)", "font-size": "11px"},
    ".soft": {"fill": "var(--soft)"},
    ".strong": {"font-weight": "600"},
    ".grid": {"stroke": "var(--grid)", "stroke-width": "1"},
    ".axis": {"stroke": "var(--axis)", "stroke-width": "1", "fill": "none"},
    ".paper": {"fill": "var(--paper)"},
    ".line": {
        "fill": "none",
        "stroke": "currentColor",
        "stroke-width": "2",
        "stroke-linejoin": "round",
        "stroke-linecap": "butt",
    },
    ".omitted": {
        "fill": "none",
        "stroke": "currentColor",
        "stroke-width": "1.5",
        "stroke-dasharray": "1 4",
        "stroke-linecap": "round",
    },
    ".bar": {"stroke": "var(--soft)", "stroke-width": "1.5", "fill": "none"},
    ".band": {"fill": "currentColor", "fill-opacity": ".14", "stroke": "none"},
    ".edge": {"fill": "none", "stroke": "currentColor", "stroke-width": "1", "stroke-opacity": ".5"},
    ".mark": {"fill": "currentColor", "stroke": "var(--paper)", "stroke-width": "1"},
    ".maximum": {"fill": "currentColor", "stroke": "var(--paper)", "stroke-width": "2"},
    ".dot": {
        "fill": "currentColor",
        "fill-opacity": ".45",
        "stroke": "currentColor",
        "stroke-opacity": ".8",
        "stroke-width": "1",
    },
    ".sector": {"fill": "currentColor", "fill-opacity": ".15", "stroke": "currentColor", "stroke-opacity": ".5"},
    ".ink": {"color": "var(--ink)"},
    ".grey": {"color": "var(--soft)"},
    **{f".k{i}": {"color": f"var(--c{i})"} for i in range(COLOURS)},
}


def _rule(selector: str, declarations: Mapping[str, str]) -> str:
    inside = ";".join(f"{name}:{value}" for name, value in declarations.items())
    return f"{f'.remargin-figure {selector}'.strip()}{{{inside}}}"


STYLE = "\n".join(
    [
        _rule("", _LIGHT),
        f"@media screen and (prefers-color-scheme:dark){{\n{_rule('', _DARK)}\n}}",
        _rule("", {"font": f"{TEXT}px {_FONT}", "font-variant-numeric": "tabular-nums"}),
        *(_rule(selector, declarations) for selector, declarations in _RULES.items()),
        ".remargin-figure .mark:hover,.remargin-figure .dot:hover{stroke:var(--ink);stroke-opacity:1}",
        "",
    ]
)


def declared(tag: str, classes: Collection[str]) -> dict[str, str]:
    """What the style sheet says of an element on paper, for what draws figures without a browser.

    >>> declared("text", ["tick", "x"])
    {'fill': '#59626d', 'font-size': '11px'}
    """
    selectors = {tag, *(f".{name}" for name in classes)}
    found: dict[str, str] = {}
    for selector in _RULES:
        found |= _RULES[selector] if selector in selectors else {}
    return {name: re.sub(r"var\((.*)\)", lambda name: _LIGHT[name[1]], value) for name, value in found.items()}
