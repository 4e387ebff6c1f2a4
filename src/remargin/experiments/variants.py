"""All loss variants on real collections, with the learning rate of each chosen on dev from one grid.

    python -m remargin.experiments.variants --model MODEL --data medquad squadmix scifact --out results/variants

For each collection: BM25 negatives, then each variant with each learning rate from the same base model; the model that
is best on dev (BM25's documents re-ranked) is measured on test by exact full ranking. Writes a table and, for each row,
the measures of every query.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from remargin.data.collection import Collection
from remargin.data.prepare import TextSettings, prepare
from remargin.encoder import BiEncoder
from remargin.evaluation.measures import Evaluation, evaluate
from remargin.evaluation.significance import bootstrap
from remargin.files import new_file
from remargin.mining import MiningSettings, mine
from remargin.retrieval.search import search
from remargin.training.loop import fit
from remargin.training.settings import FitSettings, fit_settings
from remargin.training.validation import Validator

VARIANTS: dict[str, dict[str, Any]] = {
    "static 0.3": {"target": "0.3"},
    "static 0.3, in-batch": {"target": "0.3", "in_batch": True},
    "adaptive": {"target": "adaptive"},
    "adaptive, in-batch": {"target": "adaptive", "in_batch": True},
    "distributed": {"target": "distributed"},
    "distributed, stopped target": {"target": "distributed", "stop_gradient": True},
    "explicit mean": {"target": "mean"},
    "contrastive": {"target": "contrastive"},
}
MEASURES = ["nDCG@10", "R@100", "R@1000"]


@dataclass
class Row:
    """One line of the table."""

    collection: str
    variant: str
    rate: float | None
    step: int | None
    dev: float | None
    evaluation: Evaluation

    def markdown(self) -> str:
        """The line, with a bootstrap interval for nDCG@10."""
        interval = bootstrap(list(self.evaluation.per_query["nDCG@10"].values()), samples=2000)
        means = self.evaluation.means
        cells = [
            self.collection,
            self.variant,
            "-" if self.rate is None else f"{self.rate:g}",
            "-" if self.step is None else f"{self.step}",
            "-" if self.dev is None else f"{self.dev:.3f}",
            f"{interval.mean:.3f} ({interval.low:.3f} to {interval.high:.3f})",
            *(f"{means[name]:.3f}" for name in MEASURES[1:]),
        ]
        return "| " + " | ".join(cells) + " |"


class Table:
    """The table of a collection, written anew with each row, and that row's measures for every query."""

    def __init__(self, out: Path, name: str, about: str) -> None:
        self._out = out
        self._name = name
        self._lines = [about, HEADER]

    def add(self, row: Row) -> None:
        """Append a row."""
        print(row.markdown(), flush=True)
        self._lines.append(row.markdown() + "\n")
        with new_file(self._out / f"{self._name}.md", overwrite=True) as file:
            file.write("".join(self._lines).encode())
        variant = row.variant.replace(", ", "-").replace(" ", "-")
        row.evaluation.save(self._out / "per-query" / f"{self._name}-{variant}.csv.gz", overwrite=True)


HEADER = (
    "| collection | loss | learning rate | best step | dev nDCG@10 | test nDCG@10 (95% interval) | R@100 | R@1000 |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def settings_for(options: argparse.Namespace, rate: float, variant: dict[str, Any], train: int) -> FitSettings:
    """The settings of one run: the same for every variant. Small collections stop early."""
    patience = 3 if train < 5000 else None
    return fit_settings(
        steps=options.steps,
        batch_size=options.batch_size,
        learning_rate=rate,
        validate_every=options.validate_every,
        patience=patience,
        save_every=options.steps,
        log_every=50,
        seed=options.seed,
        **variant,
    )


def run_collection(name: str, data: Path, options: argparse.Namespace, work: Path, table: Table) -> None:
    """All rows of a collection."""
    base = BiEncoder.from_pretrained(options.model)
    train, test = Collection.load(data, "train"), Collection.load(data, "test")
    pairs = sum(len(judged) for judged in train.qrels.values())
    per_pair = -(-options.steps * options.batch_size // pairs)
    mined = work / f"{name}.tsv"
    mine(train, mined, MiningSettings(triplets=per_pair, seed=options.seed))
    lengths = TextSettings(base.query_length, base.document_length, base.query_prefix, base.document_prefix)
    prepare(data, options.model, work / name, mined, lengths)
    table.add(Row(name, "BM25", None, None, None, evaluate(search(test, "bm25"), test.qrels, MEASURES)))
    table.add(Row(name, "no training", None, None, None, measure(base, test)))
    validator: Validator | None = None
    for variant, chosen in VARIANTS.items():
        if options.variants and variant not in options.variants:
            continue
        best: tuple[float, float, int, Path] | None = None
        for rate in options.rates:
            settings = settings_for(options, rate, chosen, len(train.queries))
            validator = validator or Validator(work / name, "dev", settings)
            folder = work / f"{name}-run-{rate:g}"
            started = time.perf_counter()
            fitted = fit(
                BiEncoder.from_pretrained(options.model), work / name, folder, None, settings, validator, say=_silent
            )
            print(
                f"{name}, {variant}, {rate:g}: dev {fitted.best:.4f} at step {fitted.best_step} of {fitted.steps}, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            assert fitted.best is not None
            assert fitted.best_step is not None
            if best is None or fitted.best > best[0]:
                best = (fitted.best, rate, fitted.best_step, fitted.model)
        assert best is not None
        dev, rate, step, model = best
        table.add(Row(name, variant, rate, step, dev, measure(BiEncoder.from_pretrained(model), test)))
        for folder in work.glob(f"{name}-run-*"):
            shutil.rmtree(folder)


def measure(model: BiEncoder, test: Collection) -> Evaluation:
    """Exact full ranking of the test split."""
    return evaluate(search(test, "exact", model), test.qrels, MEASURES)


def _silent(line: str) -> None:
    pass


def main() -> None:
    """Parse, run every collection, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="BEIR folders with train, dev and test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rates", nargs="+", type=float, default=[2e-5, 1e-4])
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--validate-every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    seen = options.steps * options.batch_size
    about = (
        f"{device}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}. "
        f"{options.steps} steps of {options.batch_size} triplets ({seen:,}), BM25 negatives, linear decay with 10% "
        f"warm-up, seed {options.seed}, learning rate chosen on dev from "
        f"{', '.join(f'{rate:g}' for rate in options.rates)}. Test: exact full ranking.\n\n"
    )
    for data in options.data:
        with tempfile.TemporaryDirectory() as work:
            run_collection(data.name, data, options, Path(work), Table(options.out, data.name, about))


if __name__ == "__main__":
    main()
