"""An ONNX file with weights of 8 bits: smaller, often faster on a CPU, and what that costs, measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remargin.data.collection import Collection
from remargin.errors import InputError, first_line
from remargin.evaluation.inputs import without_self_matches
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import Interval, paired_bootstrap
from remargin.integrations.onnx import FILE, INT8_FILE, OnnxEncoder, needed
from remargin.model.tokenizer import Tokens

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder

MEASURE = "nDCG@10"
DOCUMENTS = 12_000  # are ranked at most: as many as `fit` ranks on a CPU for its figures on test
TIMED = 256  # documents, whose encoding is timed
ROUNDS = 3  # of which the best counts


@dataclass(frozen=True)
class Cost:
    """What 8 bits cost on the queries of a split: the mean with float32 weights, with int8, and the paired difference.

    >>> Cost("faq.csv", "test", 100, 2000, 0.61, 0.608, Interval(-0.002, -0.005, 0.001)).line()
    'int8 on test of faq.csv (100 queries, 2,000 documents): nDCG@10 0.610 to 0.608 (-0.002, -0.005 to 0.001)'
    """

    data: str
    split: str
    queries: int
    documents: int
    before: float
    after: float
    difference: Interval

    def line(self) -> str:
        """In a line."""
        means = f"{MEASURE} {self.before:.3f} to {self.after:.3f}"
        change = f"{self.difference.mean:+.3f}, {self.difference.low:.3f} to {self.difference.high:.3f}"
        counts = f"{self.queries:,} queries, {self.documents:,} documents"
        return f"int8 on {self.split} of {self.data} ({counts}): {means} ({change})"


@dataclass(frozen=True)
class Speeds:
    """Texts per second of the encoder itself, of its ONNX file and of the int8 one, in one run on one CPU.

    >>> Speeds(100.0, 150.0, 300.0, tokens=64.0, threads=2).line()
    'texts of 64 tokens per second, 2 CPU threads: 100 BiEncoder, 150 ONNX (1.50x), 300 int8 (3.00x; 2.00x ONNX)'
    """

    encoder: float
    onnx: float
    int8: float
    tokens: float
    threads: int

    def line(self) -> str:
        """In a line."""
        head = f"texts of {self.tokens:.0f} tokens per second, {self.threads} CPU threads"
        onnx = f"{self.onnx:,.0f} ONNX ({self.onnx / self.encoder:.2f}x)"
        int8 = f"{self.int8:,.0f} int8 ({self.int8 / self.encoder:.2f}x; {self.int8 / self.onnx:.2f}x ONNX)"
        return f"{head}: {self.encoder:,.0f} BiEncoder, {onnx}, {int8}"


@dataclass(frozen=True)
class Int8:
    """What became of an int8 file: its size as a share of the float32 one, its speed, and its cost if measured."""

    share: float
    speeds: Speeds
    cost: Cost | None = None

    def lines(self) -> list[str]:
        """For people."""
        size = f"int8: {self.share:.0%} of the size of the float32 ONNX file"
        return [size, self.speeds.line(), *([] if self.cost is None else [self.cost.line()])]


def write_int8(folder: Path) -> float:
    """Write model_int8.onnx beside model.onnx, by dynamic quantisation. Returns its size as a share of the other's.

    Weights have 7 bits and a scale for each column (`reduce_range`, `per_channel`): with 8 bits, CPUs without VNNI
    instructions overflow, and the file should give the same ranking on all of them.
    """
    needed("onnxruntime")
    quantization = needed("onnxruntime.quantization")
    source, file = folder / FILE, folder / INT8_FILE
    beside = source.with_name(f"{FILE}.data").is_file()
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it advises, through the root logger, to prepare the file by another tool
    try:
        quantization.quantize_dynamic(
            source, file, per_channel=True, reduce_range=True, use_external_data_format=beside
        )
    except Exception as error:  # whatever its parts raise
        problem = f"cannot be quantised to int8 ({first_line(error)})"
        raise InputError(problem, file=source, do="leave --int8 out") from error
    finally:
        root.setLevel(level)
    size, before = (sum(path.stat().st_size for path in folder.glob(f"{name}*")) for name in (INT8_FILE, FILE))
    return size / before


def cost_of_int8(model: BiEncoder, encoder: OnnxEncoder, collection: Collection, name: str) -> Cost:
    """Rank a split's queries with both encoders, and compare them query by query.

    Args:
        model: the encoder itself.
        encoder: its int8 file.
        collection: with judgments; of a large one, a pool of documents is ranked, the same for both.
        name: what to call it.
    """
    from remargin.training.validation import pool

    documents = pool(collection, DOCUMENTS, seed=0)
    before, after = (
        evaluate(_ranked(each, collection, documents), collection.qrels, [MEASURE]) for each in (model, encoder)
    )
    change = paired_bootstrap(after.per_query[MEASURE], before.per_query[MEASURE])
    means = before.means[MEASURE], after.means[MEASURE]
    return Cost(name, collection.split, len(collection.queries), len(documents), *means, change)


def _ranked(encoder: Any, collection: Collection, documents: Sequence[str]) -> Run:
    from remargin.retrieval.exact import top_k

    queries = encoder.encode_queries(list(collection.queries.values()))
    vectors = encoder.encode_documents([collection.documents[id] for id in documents])
    scores, rows = top_k(queries, vectors, 50)
    rankings = {
        query: {documents[row]: score for row, score in zip(of_rows, of_scores, strict=True)}
        for query, of_rows, of_scores in zip(collection.queries, rows.tolist(), scores.tolist(), strict=True)
    }
    return without_self_matches(Run.of(rankings), collection)[0]


def speeds(model: BiEncoder, onnx: OnnxEncoder, int8: OnnxEncoder, texts: Sequence[str] = ()) -> Speeds:
    """Time all three in turns on the same tokens: the first documents, or random tokens of full length without any."""
    import torch

    if texts:
        chosen = [model.document_prefix + text for text in texts[:TIMED]]
        tokens, _ = model.tokenizer(chosen, model.document_length)
    else:
        lengths = np.full(TIMED // 4, model.document_length, np.int64)
        tokens = Tokens(np.random.default_rng(0).integers(5, model.tokenizer.vocabulary, lengths.sum()), lengths)
    encoders: dict[str, Any] = {"encoder": model, "onnx": onnx, "int8": int8}
    best = dict.fromkeys(encoders, 0.0)
    for _ in range(ROUNDS):
        for name, encoder in encoders.items():
            start = time.perf_counter()
            encoder.encode_tokens(tokens)
            best[name] = max(best[name], len(tokens.lengths) / (time.perf_counter() - start))
    return Speeds(**best, tokens=tokens.lengths.mean().item(), threads=torch.get_num_threads())
