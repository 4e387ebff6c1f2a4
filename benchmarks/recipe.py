"""What `remargin fit` does without options: on few, some and many training pairs of a collection, with several seeds.

    python benchmarks/recipe.py path/to/squadmix --pairs 300 3000 30000 --seeds 0 1 2 > results/recipe.md

The training pairs are subsampled, another sample for each seed; corpus, dev and test stay whole. Training runs that are
done are not repeated, and one that was interrupted continues, so that it can be run over several sittings.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import sys
import time
from pathlib import Path

import torch

from remargin import fit
from remargin.model.names import bundled_minilm


def subsample(data: Path, pairs: int, seed: int, out: Path) -> Path:
    """The collection with some of its training pairs."""
    if not out.exists():
        (out / "qrels").mkdir(parents=True)
        for path in [*data.glob("*.jsonl*"), *data.glob("qrels/*.tsv")]:
            shutil.copyfile(path, out / path.relative_to(data))
        path = out / "qrels" / "train.tsv"
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *random.Random(seed).sample(rows, min(pairs, len(rows)))]) + "\n")
    return out


def tell_progress(line: str) -> None:
    print(line, file=sys.stderr)


def row(report: dict, name: str, pairs: int, seed: int) -> str:
    measure = "nDCG@10"
    systems, away = report["outcome"]["systems"], report["away"]
    gain = systems["gain"][measure]
    cells = [
        name,
        f"{pairs:,}",
        str(seed),
        str(report["steps"]),
        f"{report['weight']:g}",
        *(f"{systems[system][measure]['mean']:.3f}" for system in ("bm25", "before", "after")),
        f"{systems['hybrid'][measure]['mean']:.3f}" if "hybrid" in systems else "",
        f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})",
        f"{away['difference']:+.3f} ({away['low']:+.3f} to {away['high']:+.3f})",
        f"{report['seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, nargs="+", default=[300, 3000, 30000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--model", default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"))
    given = parser.parse_args()
    model, rows = given.model or str(bundled_minilm()), []
    for seed in given.seeds:
        for data in given.data:
            for pairs in given.pairs:
                name = f"{data.name}-{pairs}-{seed}"
                folder = given.out / "runs" / name
                if not (folder / "report.json").exists():
                    part = subsample(data, pairs, seed, given.out / "data" / name)
                    fit(
                        part,
                        model,
                        folder,
                        seed=seed,
                        resume=folder.exists(),
                        say=lambda line: print(line, file=sys.stderr),
                    )
                    for bulky in ("checkpoint", "last", "data"):
                        shutil.rmtree(folder / bulky, ignore_errors=True)
                rows.append((data.name, pairs, seed, json.loads((folder / "report.json").read_text())))
                print(row(rows[-1][3], data.name, pairs, seed), file=sys.stderr)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"# `remargin fit` without options\n\n{device}, {versions}. Made by `python benchmarks/recipe.py`.\n")
    print(f"{Path(model).name}; test nDCG@10 on all test queries, gains with paired 95% intervals. Away: the change on")
    print(f"{rows[0][3]['away']['what']} ({rows[0][3]['away']['measure']}). Seconds are those of training alone.\n")
    print("| collection | pairs | seed | steps | weight | BM25 | before | after | with BM25 | gain | away | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, pairs, seed, report in sorted(rows, key=lambda each: each[:3]):
        print(row(report, name, pairs, seed))


if __name__ == "__main__":
    main()
