"""How far what `fit` measures elsewhere by itself goes with real forgetting.

    python benchmarks/away_proxy.py START MODEL [MODEL ...] --collections DIR [DIR ...]

For every trained model: the share of nearest neighbours of unlabelled paragraphs that stayed as the start had them, the
change of nDCG@10 on docstrings of the standard library, and its change on the test split of each collection, none of
which the models may have been trained on. Then Spearman's rank correlation over the models of each of the first two
with each collection's change and with the mean of these changes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from remargin import BiEncoder
from remargin.model.encoder import PAPER_LENGTHS
from remargin.study.hardware import hardware
from remargin.training.away import Away, AwayOutcome


def places(collections: list[str], seed: int) -> dict[str, Away]:
    """Where to measure, by name: the two that `fit` chooses by itself, and the collections."""
    chosen = {
        "neighbours": Away.choose("docstrings:stdlib", seed=seed),
        "stdlib": Away.choose(collections[0], seed=seed),
        **{Path(data).name: Away.choose(data, data, skip_bad=True) for data in collections},
    }
    return {name: away for name, away in chosen.items() if away is not None}


def outcomes(start: str, models: list[str], aways: dict[str, Away]) -> dict[str, dict[str, AwayOutcome]]:
    """For each model, what became of it in each place."""
    encoder = BiEncoder.from_pretrained(start, lengths=PAPER_LENGTHS)
    before = {name: away.measure(encoder) for name, away in aways.items()}
    measured = {}
    for model in models:
        encoder = BiEncoder.from_pretrained(model, lengths=PAPER_LENGTHS)
        measured[model] = {name: away.compare(before[name], away.measure(encoder)) for name, away in aways.items()}
    return measured


def changes(measured: dict[str, dict[str, AwayOutcome]], collections: list[str]) -> dict[str, list[float]]:
    """For each place the differences of all models, and their mean over the collections."""
    names = list(next(iter(measured.values())))
    columns = {name: [of_model[name].difference for of_model in measured.values()] for name in names}
    of_collections = [columns[Path(data).name] for data in collections]
    return columns | {"mean": [sum(row) / len(row) for row in zip(*of_collections, strict=True)]}


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Spearman's; NaN for fewer than three models or without any differences."""
    from scipy.stats import spearmanr

    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return float("nan")
    return float(spearmanr(first, second).statistic)


def report(measured: dict[str, dict[str, AwayOutcome]], collections: list[str]) -> list[str]:
    """Two tables: the models, and the correlations."""
    columns = changes(measured, collections)
    named = [name for name in columns if name not in ("neighbours", "stdlib")]
    proxies = [name for name in ("neighbours", "stdlib") if name in columns]
    lines = [f"| model | {' | '.join([*proxies, *named])} |", "|---" * (1 + len(proxies) + len(named)) + "|"]
    for number, model in enumerate(measured):
        cells = [
            f"{1 + columns[name][number]:.3f}" if name == "neighbours" else f"{columns[name][number]:+.4f}"
            for name in [*proxies, *named]
        ]
        lines.append(f"| {Path(model).parent.name}/{Path(model).name} | {' | '.join(cells)} |")
    lines += ["", f"| rank correlation over models | {' | '.join(named)} |", "|---" * (1 + len(named)) + "|"]
    for proxy in proxies:
        cells = [f"{rank_correlation(columns[proxy], columns[name]):.2f}" for name in named]
        lines.append(f"| {proxy} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("start")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--collections", nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(f"{hardware()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}.\n", flush=True)
    aways = places(asked.collections, asked.seed)
    for name, away in aways.items():
        if away.collection.rejects.count:
            print(f"{name}: {away.collection.rejects.count} bad records skipped\n", flush=True)
    measured = outcomes(asked.start, asked.models, aways)
    print("\n".join(report(measured, asked.collections)), flush=True)
