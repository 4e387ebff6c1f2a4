#!/usr/bin/env python3
"""Writes a lock file: pins read from standard input, each with the hashes of the files that pip may install for it.

    pip freeze --all | .ci/lock.py > requirements.lock
    pip install --dry-run --ignore-installed --report - torch==VERSION | .ci/lock.py --cuda > requirements-cuda.lock

Hashes that a pin has already are left out and asked for again, so a lock file can be its own input. They are those of
the index that pip uses, for the Pythons and platforms below, and of the files in pip's --find-links. A source
distribution counts only where there is no wheel.

requirements.lock has the CPU builds of torch: on an index such as PyPI those for macOS and Windows, for Linux what is
in --find-links. With --cuda, the lock has only torch as PyPI has it for Linux and the packages of CUDA that it needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

from pip._internal.models.index import PyPI  # where pip looks if nobody says otherwise

PYTHONS = re.compile(r"(py2\.)?py3$|cp31[1-4]$")
PLATFORMS = re.compile(r"any$|manylinux.*_(x86_64|aarch64)$|linux_x86_64$|macosx_.*_(arm64|universal2)$|win_amd64$")
HEADER = "# Made by `make lock`. To add a package by hand, write its name==version here and run `make lock-hashes`.\n"
OF_CUDA = re.compile(r"(nvidia|cuda)-|triton$")  # packages that only a build of torch for CUDA needs


class Links(HTMLParser):
    """The targets of all links of a page, and what else they say."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the attributes of a link."""
        if tag == "a":
            self.found.append(dict(attrs))


def setting(name: str, otherwise: str) -> str:
    """What pip is told by its environment or its configuration."""
    known = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", f"global.{name}"], capture_output=True, text=True
    )
    return os.environ.get(f"PIP_{name.replace('-', '_').upper()}") or known.stdout.strip() or otherwise


def normalised(name: str) -> str:
    """The name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_of(file: str, name: str, version: str) -> bool:
    """Whether a file is a distribution of this version, or of a local build of it such as 2.13.0+cpu."""
    stem = re.sub(r"(\.tar\.gz|\.zip|\.whl)$", "", file)
    if stem == file:
        return False
    parts = stem.split("-")
    found, of_file = parts[:2] if file.endswith(".whl") else ("-".join(parts[:-1]), parts[-1])
    return normalised(found) == normalised(name) and of_file.partition("+")[0] == version


def is_usable(wheel: str) -> bool:
    """Whether a wheel is for one of the Pythons and platforms."""
    *_, pythons, abi, platforms = wheel.removesuffix(".whl").split("-")
    newest = [re.fullmatch(r"cp3(\d+)", python) for python in pythons.split(".")]
    stable = abi == "abi3" and any(found and int(found[1]) <= 14 for found in newest)
    fits = stable or any(PYTHONS.match(python) for python in (pythons, *pythons.split(".")))
    threaded = not re.fullmatch(r"cp\d+t", abi)
    return fits and threaded and any(PLATFORMS.match(platform) for platform in platforms.split("."))


def listed(index: str, name: str) -> Iterator[tuple[str, str]]:
    """The files that the index has of a package, and their hashes."""
    page = f"{index.rstrip('/')}/{normalised(name)}/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = Links()
        links.feed(answer.read().decode())
    for link in links.found:
        url, hash = urldefrag(urljoin(page, link.get("href") or ""))
        if hash.startswith("sha256=") and "data-yanked" not in link:
            yield unquote(url.rpartition("/")[2]), hash.removeprefix("sha256=")


def beside(folders: str) -> Iterator[tuple[str, str]]:
    """The files in the folders of --find-links, and their hashes."""
    for folder in filter(Path.is_dir, map(Path, folders.split())):
        for path in folder.iterdir():
            if path.is_file():
                with path.open("rb") as file:
                    yield path.name, hashlib.file_digest(file, "sha256").hexdigest()


def read_pins(text: str) -> list[tuple[str, str]]:
    """Names and versions in a report of `pip install`, a lock file, or what `pip freeze` prints."""
    if text.startswith("{"):
        found = [item["metadata"] for item in json.loads(text)["install"]]
        return [(item["name"], item["version"].partition("+")[0]) for item in found]
    return re.findall(r"^([\w.-]+)==([^\s;+]+)", text.replace("\\\n", " "), re.MULTILINE)


def is_wanted(name: str, cuda: bool) -> bool:
    """Whether a package belongs into the lock file."""
    of_cuda = bool(OF_CUDA.match(normalised(name)))
    return name not in ("pip", "remargin") and (of_cuda or name == "torch" if cuda else not of_cuda)


def main() -> None:
    """Read pins, and print them with their hashes."""
    cuda = "--cuda" in sys.argv[1:]
    pins = [pin for pin in read_pins(sys.stdin.read()) if is_wanted(pin[0], cuda)]
    if not pins:
        sys.exit("no name==version on standard input")
    index, local = setting("index-url", PyPI.simple_url), list(beside(setting("find-links", "")))

    def hashes(pin: tuple[str, str]) -> list[str]:
        known = listed(index, pin[0])
        if pin[0] == "torch":
            known = (file for file in known if ("linux" in file[0]) == cuda)
        files = [file for file in [*known, *([] if cuda else local)] if is_of(file[0], *pin)]
        wheels = [file for file in files if file[0].endswith(".whl") and is_usable(file[0])]
        if not files:
            sys.exit(f"{pin[0]}=={pin[1]}: the index has no such version")
        return sorted({hash for _, hash in wheels or files})

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(hashes, pins))
    sys.stdout.write(HEADER)
    for (name, version), known in sorted(zip(pins, found, strict=True), key=lambda item: normalised(item[0][0])):
        print(f"{name}=={version}", *(f"    --hash=sha256:{hash}" for hash in known), sep=" \\\n")


if __name__ == "__main__":
    main()
