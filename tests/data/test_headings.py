"""Sections of text files: what is a heading in each format, and what is not."""

from __future__ import annotations

import time

import pytest

from remargin.data.headings import PARSERS, sections

MARKDOWN = """---
title: "Unused, as there is a first heading"
---
Before everything.

# The *Handbook* <!-- not
shown --> of `us`

See [our page](http://x.org "t") and ![a logo](logo.png).

```python
# no heading
```

~~~
## nor this
~~~

Refunds
-------
Soon, in [code][1]: `<branch>` <br> stays.

[1]: http://code

### 14 days ###
    # indented code
- a list
---
| a | b |
|---|---|
<h2 align="center">HTML &amp; more</h2>
last
# #
#nothing
"""


def of(text: str, suffix: str) -> list[tuple[tuple[str, ...], str]]:
    return [(section.headings, section.text) for section in sections(text, suffix)]


def test_markdown() -> None:
    found = of(MARKDOWN, ".md")
    assert [headings for headings, _ in found] == [
        (),
        ("The Handbook",),
        ("The Handbook", "Refunds"),
        ("The Handbook", "Refunds", "14 days"),
        ("The Handbook", "HTML & more"),
    ]
    texts = [text for _, text in found]
    assert texts[0] == "Before everything."
    assert "See our page and a logo." in texts[1]
    assert "# no heading" in texts[1]
    assert "## nor this" in texts[1]
    assert texts[2] == "Soon, in code: `<branch>`  stays."
    assert texts[3].splitlines()[:3] == ["# indented code", "- a list", "---"]
    assert texts[4] == "last\n# #\n#nothing"
    assert [section.leaf for section in sections(MARKDOWN, ".md")] == [True, False, False, True, True]
    assert [section.line for section in sections(MARKDOWN, ".md")][1:] == [6, 19, 25, 31]


def test_a_title_in_front_matter_is_a_heading_if_there_is_no_other() -> None:
    assert of("---\ntitle: 'Refunds'\n---\ntext\n## Deadlines\n14 days", ".md") == [
        (("Refunds",), "text"),
        (("Refunds", "Deadlines"), "14 days"),
    ]
    assert of("---\nnot front matter", ".md") == [((), "---\nnot front matter")]


RST = """
.. _target:

========
Handbook
========

Intro with :ref:`a link <target>`, :class:`~a.b` and ``code``.

.. toctree::
   :maxdepth: 2

   refunds

Refunds
=======

.. note:: Read this::

    =====  =====
    a      table
    =====  =====

.. code-block:: python
   :linenos:

   x = 1

.. a comment
   of two lines

Deadlines
---------
14 days

-----

after a transition

Other
=====
the end
"""


def test_restructured_text() -> None:
    found = of(RST, ".rst")
    assert [headings for headings, _ in found] == [
        ("Handbook",),
        ("Handbook", "Refunds"),
        ("Handbook", "Refunds", "Deadlines"),
        ("Handbook", "Other"),
    ]
    texts = [text for _, text in found]
    assert texts[0] == "Intro with a link, a.b and code."
    assert texts[1].startswith("Read this:")
    assert "x = 1" in texts[1]
    assert "comment" not in texts[1]
    assert "linenos" not in texts[1]
    assert texts[2].splitlines()[0] == "14 days"
    assert texts[2].endswith("after a transition")


HTML = """<!DOCTYPE html><html><head><title>The page</title><style>h1 {}</style></head><body>
<nav><h2>Menu</h2><ul><li>Home</ul></nav>
<p>Before &amp; after</p>
<h2 id=a>Refunds<a class="headerlink" href="#a">¶</a></h2>
<p>Soon, <b>really</b>.<script>var x = "<h1>no</h1>";</script>
<pre>
a = 1
  b = 2
</pre>
<table><tr><td>one</td><td>two</td></tr></table>
<h3>Deadlines</h3>14 days<br>or more
<div role="navigation">next <div>page</div></div>
<footer>(c)</footer>
"""


def test_html() -> None:
    found = of(HTML, ".html")
    assert [headings for headings, _ in found] == [
        ("The page",),
        ("The page", "Refunds"),
        ("The page", "Refunds", "Deadlines"),
    ]
    assert [text for _, text in found] == [
        "Before & after",
        "Soon, really.\na = 1\n  b = 2\none two",
        "14 days\nor more",
    ]
    assert of("<title>t</title><h1>a</h1>text", ".htm") == [(("a",), "text")]


def test_plain_text() -> None:
    assert of("Refunds\n\nWithin 14 days.\n\nOr later.", ".txt") == [(("Refunds",), "Within 14 days.\n\nOr later.")]
    assert of("This is a sentence.\n\nAnd another.", ".txt") == [((), "This is a sentence.\n\nAnd another.")]
    assert of("Refunds\n=======\nsoon\n\nDeadlines\n=========\n14 days", ".txt") == [
        (("Refunds",), "soon"),
        (("Deadlines",), "14 days"),
    ]
    long = "Title\n\n" + "\n\n".join("word " * 90 for _ in range(7))
    parts = sections(long, ".txt")
    assert [len(part.text.split()) for part in parts] == [270, 270, 90]
    assert [part.line for part in parts] == [3, 9, 15]


@pytest.mark.parametrize("suffix", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        *("", " \n\n", "#", "# " + " " * 50_000, "![" * 50_000, "`" * 50_000, ":a" * 50_000, "=\n" * 20_000),
        *(
            "<" * 50_000,
            "<!--" * 20_000,
            "<p" * 20_000,
            "<p a='" * 20_000,
            "</p" * 20_000,
            "<?" * 20_000,
            "<!x" * 20_000,
        ),
        *("\n" * 100_000, "&#xd800;</title><h1>", "<![x", "```\n# a", "\t\x00\r", "<!--\n" * 20_000, "&" * 50_000),
    ],
)
def test_whatever_a_file_holds_is_read_in_time(text: str, suffix: str) -> None:
    start = time.perf_counter()
    sections(text, suffix)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <!-- b --> c", "a  c"),
        ("a <!-- b\n```\nc --> d", "a\n\n d"),
        ("```html\n<!-- a -->\n```\nb <!-- c -->", "```html\n<!-- a -->\n```\nb"),
        ("~~~\n<!-- a\n~~~\nb -->", "~~~\n<!-- a\n~~~\nb -->"),
        ("a <!-- b", "a <!-- b"),
        ("<!-- a --> <!-- b --> c <!-- d", "c <!-- d"),
        ("a --> b <!-- c -->", "a --> b"),
    ],
)
def test_readers_see_comments_in_code_alone(text: str, shown: str) -> None:
    (section,) = sections(f"# About comments\n{text}\n", ".md")
    assert section.text == shown


def test_a_heading_in_a_comment_around_a_fence_is_none() -> None:
    found = sections("# One\n<!--\n# Two\n```\n-->\n# Three\n```\n# code\n```\n", ".md")
    assert [section.headings for section in found] == [("One",), ("Three",)]
