"""An extension of griffe: the examples of docstrings are code on the site, not quotations within quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE)


class FencedDoctests(Extension):
    """Puts every doctest of a docstring into a fenced block."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Griffe calls this for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with its examples, which end at an empty line, in fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """

    def in_fence(match: re.Match[str]) -> str:
        return f"{match['indent']}```pycon\n{match[0]}\n{match['indent']}```"

    return EXAMPLE.sub(in_fence, docstring)
