"""What docs/how-to/scale.md says of costs is what the script computed from rates that were measured."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def script() -> Any:
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(path: Path) -> list[dict[str, str]]:
    """The rows of a page's tables, each by its columns."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif set(line) != {"|", "-"}:
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def test_the_page_says_what_the_script_printed() -> None:
    printed = [row for row in tables(ROOT / "results" / "scale.md") if "passages" in row]
    page = [row for row in tables(ROOT / "docs" / "how-to" / "scale.md") if "passages" in row]
    assert len(page) == 6
    for row in page:
        same = [other for other in printed if (other["passages"], other["model"]) == (row["passages"], row["model"])]
        together = {"shards": "", **same[0], **same[1]}
        together["shards"] = together["shards of 65,536"]
        assert row.items() <= together.items()


def test_the_script_computes_from_what_was_measured() -> None:
    scale = script()
    assert (scale.rate("minilm"), scale.rate("distilbert"), scale.exact_ms()) == (32_983, 27_359, 13.1)
    for row in tables(ROOT / "results" / "scale.md"):
        if "GPU hours" in row:
            count = scale.PASSAGES[row["passages"]]
            seconds = 60 * float(row["GPU hours"].split()[0]) * (60 if row["GPU hours"].endswith("h") else 1)
            assert abs(seconds / (count / scale.rate(row["model"])) - 1) < 0.05
            assert row[f"shards of {scale.SHARD:,}"] == f"{math.ceil(count / 65_536):,}"
            dimension = scale.MODELS[row["model"]]
            assert row["vectors, float16"] == scale.size(2 * count * dimension)
    assert scale.at(scale.SIZES[-1], [0.9 * 0.8**n for n in range(len(scale.SIZES))]) < 0.9 * 0.8**5
