"""Memory while a stream of any length goes through: as much at its end as at its beginning."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from remargin import stream

LINES, CHARACTERS, BATCH = 12_000, 4_000, 64
# Steps between which nothing is made once: later, the last batches are smaller. All texts are of the same length, as
# oneDNN keeps what it made for each shape of a batch, up to some hundred MB, whatever trains.
SETTLED, UNTIL = 20, 160
MOST = 24 << 20  # bytes, which allocators may hold back; the lines have twice as many


def resident() -> int:
    """How many bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_stream(tiny_model: Any, tmp_path: Path) -> None:
    with open(tmp_path / "in.jsonl", "w") as file:
        for n in range(LINES):
            texts = {"query": "query", "positive": "value " * (CHARACTERS // 6), "negative": "other", "line": n}
            file.write(json.dumps(texts) + "\n")
    sizes: dict[int, int] = {}

    def look(line: str) -> None:
        if line.startswith("step ") and "loss" in line:
            sizes[int(line.split()[1].replace(",", ""))] = resident()

    done = stream(
        tmp_path / "in.jsonl",
        None,
        tiny_model("bert"),
        tmp_path / "run",
        wait=0,
        shuffle=500,
        batch_size=BATCH,
        training_length=16,
        log_every=SETTLED,
        validate_every=100,
        also="docstrings:json",
        say=look,
    )
    assert done.examples == LINES
    written = (tmp_path / "in.jsonl").stat().st_size
    print(f"{written:,} bytes of lines; memory in MB: {[size >> 20 for size in sizes.values()]}")
    assert written > 1.9 * MOST
    assert max(size for step, size in sizes.items() if step <= UNTIL) - sizes[SETTLED] < MOST
