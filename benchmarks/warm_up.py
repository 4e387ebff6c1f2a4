"""What the warm-up does to dev nDCG@10: the default loss from one model, several shares of the steps.

python benchmarks/warm_up.py --model MODEL --data docstrings:stdlib,numpy,scipy path/to/beir-folder
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from remargin.training.fitting import fit
from remargin.training.settings import FitSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--warm-ups", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--document-length", type=int, default=128)
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{device}, {time.strftime('%Y-%m-%d')}, {options.steps} steps of {options.batch_size} triplets, one seed\n")
    print("| collection | warm-up | dev nDCG@10 before | dev nDCG@10 after |\n|---|---|---|---|")
    for data in options.data:
        for warm_up in options.warm_ups:
            settings = FitSettings.preset(
                steps=options.steps,
                batch_size=options.batch_size,
                warm_up=warm_up,
                validate_every=options.steps,
                validation_queries=100,
                validation_depth=20,
                save_every=options.steps,
            )
            with tempfile.TemporaryDirectory() as out:
                run, length = Path(out) / "run", options.document_length
                fitted = fit(data, options.model, run, settings, document_length=length, say=lambda line: None)
            name = Path(data).name if Path(data).is_dir() else data
            before, after = (values[settings.validation_measure] for _, values in fitted.validations)
            print(f"| {name} | {warm_up:g} | {before:.3f} | {after:.3f} |", flush=True)


if __name__ == "__main__":
    main()
