"""`prepare` against the tokenizer alone, on all cores.

    python benchmarks/prepare.py [results/prepare.md]

60,000 made-up texts of MS MARCO's lengths. The tokenizer gets them from memory in one batch, and its result is thrown
away; `prepare` reads JSON lines, checks and copies the texts, tokenises, and writes the store. By turns, best of three.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import made_up
import numpy as np

from remargin.data.preparation import prepare
from remargin.model.tokenizer import Tokenizer

DOCUMENTS, TURNS = 60_000, 3


def main() -> None:
    texts = made_up.texts(DOCUMENTS, made_up.PASSAGE, np.random.default_rng(0))
    best = {"tokenizer": float("inf"), "prepare": float("inf")}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made_up.tokenizer().save_pretrained(folder / "model")
        (folder / "model" / "config.json").write_text('{"model_type": "bert"}')
        (folder / "beir").mkdir()
        with open(folder / "beir" / "corpus.jsonl", "w") as file:
            file.writelines(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts))
        (folder / "beir" / "queries.jsonl").write_text("")
        backend = Tokenizer.from_pretrained(folder / "model")._backend
        backend.enable_truncation(200)
        for _ in range(TURNS):
            started = time.perf_counter()
            backend.encode_batch_fast(texts)
            best["tokenizer"] = min(best["tokenizer"], time.perf_counter() - started)
            report = prepare(folder / "beir", folder / "model", folder / "out", overwrite=True)
            best["prepare"] = min(best["prepare"], report.seconds)
    speeds = {name: DOCUMENTS / seconds for name, seconds in best.items()}
    share = speeds["prepare"] / speeds["tokenizer"]
    lines = [
        "# prepare against the tokenizer alone",
        "",
        f"{os.cpu_count()} CPU cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by "
        "`python benchmarks/prepare.py`.",
        "",
        "| | documents a second | share |",
        "|---|---|---|",
        f"| the tokenizer's own batch | {speeds['tokenizer']:,.0f} | 100% |",
        f"| prepare, from JSON lines to the store | {speeds['prepare']:,.0f} | {share:.0%} |",
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
