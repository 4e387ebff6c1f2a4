"""Documents and queries that share words, some of them rare, for the tests of hybrid retrieval."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["margin", "query", "value", "token", "list", "file", "text", "model"]
DOCUMENTS = {f"d{i}": " ".join(WORDS[(i * j) % 8] for j in range(1, 3 + i % 5)) + f" number{i}" for i in range(40)}
QUERIES = {f"q{i}": f"{WORDS[i % 8]} {WORDS[(3 * i) % 8]} number{i}" for i in range(6)}


def write_beir(folder: Path) -> Path:
    """A collection of DOCUMENTS and QUERIES. One query is itself a document."""
    (folder / "qrels").mkdir(parents=True)
    for name, records in (("corpus", DOCUMENTS), ("queries", QUERIES | {"d5": DOCUMENTS["d5"]})):
        lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in records.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split in ("dev", "test"):
        judged = "".join(f"{query}\td{10 + i}\t1\n" for i, query in enumerate([*QUERIES, "d5"]))
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder
