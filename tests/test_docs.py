"""The site builds without a warning, its links and numbers hold, and the tutorial can be followed."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import remargin

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@cache
def module(path: str) -> Any:
    """A script of the repository, imported."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Links(HTMLParser):
    """The ids of a page, where it links to, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.targets.append(given["href"])
        elif tag in ("img", "script", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` does."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return out


def test_links_of_the_site_lead_somewhere_and_it_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40  # results included
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        assert not [source for source in page.loaded if urlsplit(source).netloc], path
        for link in [*page.targets, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{path.relative_to(site)}: {link}"
            checked += 1
    assert checked > 1000


def test_files_that_the_site_lacks_are_code_there(site: Path) -> None:
    performance = (site / "performance.html").read_text()
    assert "<code>benchmarks/engine.py</code>" in performance
    assert 'href="results/engine-h200.html"' in performance
    assert "loss(encode(queries)" in re.sub(r"<[^>]+>", "", (site / "examples" / "index.html").read_text())
    assert 'src="../results/paper/medquad/static-margins.svg"' in (site / "project" / "readme.html").read_text()


def test_the_hooks_do_what_their_examples_say() -> None:
    for path in ("docs/hooks/repository.py", "docs/hooks/doctests.py"):
        result = doctest.testmod(module(path))
        assert result.attempted > 0
        assert result.failed == 0


def test_the_reference_has_every_public_name() -> None:
    names = re.findall(r"^::: remargin\.(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(remargin.__all__)


@pytest.mark.parametrize("name", ["targets", "softmax", "blending", pytest.param("geometry", marks=pytest.mark.slow)])
def test_a_picture_is_the_one_that_the_script_draws(name: str) -> None:
    figure = getattr(module("benchmarks/pictures.py"), name)()
    drawn = (DOCS / "pictures" / f"{figure.name}.svg").read_text()
    assert drawn == figure.svg(standalone=True) + "\n"  # else: python benchmarks/pictures.py


def test_the_comparison_has_the_numbers_of_performance_and_says_where_it_looked() -> None:
    comparison, performance = ((DOCS / f"{name}.md").read_text() for name in ("comparison", "performance"))
    ratios = re.findall(r"\d+\.\d+x", comparison)
    assert len(ratios) == 3
    assert all(ratio in performance for ratio in ratios)
    table, _, sources = comparison.partition("## Where we looked")
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", table)}
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", sources, re.MULTILINE)]
    assert sorted(cited) == listed == list(range(1, len(listed) + 1))
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert all(row.count("|") == 7 + 1 for row in rows)
    for row in rows[1:]:  # every cell about another tool was looked up
        for cell in row.split("|")[3:-1]:
            assert re.search(r"\[\d+\]|found nothing|^ no $", cell), row


def test_the_gains_in_how_much_data_are_those_of_readme() -> None:
    text, readme = (" ".join(p.read_text().split()) for p in (DOCS / "how-to" / "how-much-data.md", ROOT / "README.md"))
    [gains] = re.findall(r"gained ([\d.]+, [\d.]+ and [\d.]+) nDCG@10 on test", text)
    assert f"{gains} nDCG@10 on test" in readme


def blocks(page: Path) -> list[str]:
    """The bash blocks of a page."""
    return re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)


def shims(folder: Path) -> dict[str, str]:
    """An environment in which `python` and `remargin` are those of this test."""
    folder.mkdir()
    for name, arguments in (("python", ""), ("remargin", "-m remargin ")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        script.chmod(0o755)
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


@pytest.mark.slow
def test_the_tutorial_can_be_followed(tmp_path: Path, tiny_encoder: Callable[..., Path]) -> None:
    env = shims(tmp_path / "bin")
    install, *steps, serve = blocks(DOCS / "tutorial.md")
    assert install.startswith("pip install")
    assert serve.startswith("remargin serve ")
    small = {
        "--model minilm": f"--model {tiny_encoder(positions=256)}",
        "--minutes 5": "--steps 3",
        "numpy scipy.stats scipy.signal": "json csv string textwrap heapq shutil random statistics argparse",
        " scipy.linalg scipy.ndimage scipy.optimize scipy.special scipy.spatial": "",
    }
    commands = "".join(steps)
    for old, new in small.items():
        assert commands.count(old) == 1, old
        commands = commands.replace(old, new)
    done = subprocess.run(["bash", "-e", "-c", commands], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("faq.csv", "runs/faq/model/modules.json", "runs/faq/report.html", "faq.index"):
        assert (tmp_path / name).exists(), name
    assert "nDCG@10" in done.stdout + done.stderr
    assert "--before minilm" in serve
    follow_serve(serve.strip().replace("--before minilm", f"--before {tiny_encoder()}"), tmp_path, env)


def follow_serve(command: str, folder: Path, env: dict[str, str]) -> None:
    """Start the server, open its page, and end it with Ctrl-C, as the tutorial's last step does."""
    page = None
    server = subprocess.Popen(
        ["bash", "-c", f"exec {command} --port 8765"], cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 240
        while page is None and time.monotonic() < end and server.poll() is None:
            try:
                with urllib.request.urlopen("http://127.0.0.1:8765/", timeout=5) as answer:
                    page = answer.read().decode()
            except OSError:
                time.sleep(0.5)
    finally:
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=60)
    assert page is not None, said
    assert "<input" in page
