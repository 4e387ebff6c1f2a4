"""A hook for mkdocs: the same Markdown works in the repository and on the site.

README, CHANGELOG, CONTRIBUTING, the results and the examples become pages. A link to another file of the repository,
which the site does not have, becomes that file's path as code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PROJECT = {f"{name}.md": f"project/{name.lower()}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")}
EXAMPLES = "examples/README.md"
# Code is matched first, so that nothing in it is taken for a link.
LINK = re.compile(r"```.*?```|`[^`\n]*`|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and the figures that are kept outside docs/."""
    kinds = ("results/*.md", "results/paper/**/*.svg", EXAMPLES)
    outside = (path.relative_to(ROOT).as_posix() for kind in kinds for path in sorted(ROOT.glob(kind)))
    for path in [*PROJECT, *outside]:
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, wherever in the repository it is kept."""
    path = Path(page.file.abs_src_path or "").relative_to(ROOT).as_posix()
    rewritten = rewrite(markdown, path, {file.src_uri for file in files})
    return rewritten + "".join(_listings()) if path == EXAMPLES else rewritten


def site_path(path: str) -> str:
    """Where a file of the repository is on the site, if it is there.

    >>> site_path("docs/training.md"), site_path("README.md"), site_path("results/recipe.md")
    ('training.md', 'project/readme.md', 'results/recipe.md')
    """
    return PROJECT.get(path, path.removeprefix("docs/"))


def rewrite(markdown: str, source: str, known: set[str]) -> str:
    """Markdown of a file of the repository with the links that the site needs.

    >>> pages = {"training.md", "results/README.md", "project/readme.md"}
    >>> rewrite("[fit](docs/training.md#how), [all](results), [x](benchmarks/pack.py)", "README.md", pages)
    '[fit](../training.md#how), [all](../results/README.md), x (`benchmarks/pack.py`)'
    """
    return LINK.sub(lambda match: _rewritten(match, source, site_path(source), known), markdown)


def _rewritten(match: re.Match[str], source: str, page: str, known: set[str]) -> str:
    target = match["target"]
    if target is None or target.startswith("#") or "://" in target or target.startswith("mailto:"):
        return match[0]
    name, _, anchor = target.partition("#")
    path = os.path.normpath(PurePosixPath(source).parent / name)
    for uri in (site_path(path), f"{site_path(path)}/README.md"):
        if uri in known:
            relative = os.path.relpath(uri, PurePosixPath(page).parent)
            return f"{match['image']}[{match['text']}]({relative}{'#' + anchor if anchor else ''})"
    text = match["text"].strip("`")
    if not (ROOT / path).exists():
        return match[0]  # mkdocs says which page it is on
    return f"`{path}`" if text.rstrip("/") in path else f"{text} (`{path}`)"


def _listings() -> Iterator[str]:
    """The examples themselves, which the repository shows beside their README."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield f"\n## {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
