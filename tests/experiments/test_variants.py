"""The table of loss variants, in small."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from remargin.experiments import variants


def test_the_table_has_a_row_for_every_variant_and_the_scores_of_every_query(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made"
    (folder / "qrels").mkdir(parents=True)
    for name, text in {"corpus": "value{} is made of parts", "queries": "how is value{} made"}.items():
        records = ({"_id": f"{name[0]}{i}", "text": text.format(i)} for i in range(30))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for split, rows in {"train": range(20), "dev": range(20, 25), "test": range(25, 30)}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\tc{i}\t1\n" for i in rows))
    command = f"x --model {tiny_model('bert')} --data {folder} --out {tmp_path / 'out'} --steps 2 --batch-size 4"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--rates", "0.001", "0.0001", "--validate-every", "1"])
    variants.main()
    lines = (tmp_path / "out" / "made.md").read_text().splitlines()
    table = [line.split(" | ")[1] for line in lines if line.startswith("| made")]
    assert table == ["BM25", "no training", *variants.VARIANTS]
    scores = sorted((tmp_path / "out" / "per-query").iterdir())
    assert len(scores) == len(table)
