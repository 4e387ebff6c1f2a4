"""The engine against sentence-transformers on a CPU: training and encoding with an encoder of MiniLM's size.

    python benchmarks/engine_cpu.py [results/engine-cpu.md]

Made-up texts of MS MARCO's lengths, random weights, no attention dropout on any side. sentence-transformers runs in
float32 and in bfloat16, ours in bfloat16 where the CPU computes in it; the ratio is to the better of theirs. By turns,
best of several.
"""

from __future__ import annotations

import csv
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import made_up
import numpy as np
import torch
from made_up import PASSAGE, QUERY

from remargin import BiEncoder, train
from remargin.model.compute import fast_precision
from remargin.model.encoder import PAPER_LENGTHS
from remargin.training.settings import FitSettings

BATCH, STEPS, TURNS, DOCUMENTS = 32, 4, 3, 1024
PROFILE = "## Where the time of encoding goes"  # a section of the results, by encode_profile.py


def our_fit(model: Path, data: Path, precision: str) -> float:
    """Triplets a second, as `fit` logs them, in its best step."""
    chosen = FitSettings.preset(steps=STEPS, batch_size=BATCH, log_every=1, learning_rate=1e-6, precision=precision)
    with tempfile.TemporaryDirectory() as out:
        encoder = BiEncoder.from_pretrained(model, pooling="mean", device="cpu", lengths=PAPER_LENGTHS)
        train(encoder, data, out, settings=chosen, say=lambda line: None)
        with open(Path(out) / "metrics.csv", newline="") as file:
            return max(float(row["triplets_per_second"]) for row in csv.DictReader(file) if row["loss"])


def their_encoder(model: Path, dtype: torch.dtype = torch.float32) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    body = Transformer(str(model), max_seq_length=200, model_kwargs={"dtype": dtype})
    return SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension(), "mean")], device="cpu")


def their_fit(model: Path, bf16: bool) -> float:
    """Triplets a second of their trainer as shipped, in its best step."""
    import datasets
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    rng, sides = np.random.default_rng(0), {"anchor": QUERY, "positive": PASSAGE, "negative": PASSAGE}
    columns = {name: made_up.texts(BATCH * STEPS, like, rng) for name, like in sides.items()}
    encoder, ends = their_encoder(model), []

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as out:
        arguments = SentenceTransformerTrainingArguments(
            out, per_device_train_batch_size=BATCH, max_steps=STEPS, bf16=bf16, use_cpu=True, save_strategy="no",
            report_to=[], logging_steps=1000, disable_tqdm=True, dataloader_drop_last=True,
        )  # fmt: skip
        loss = MultipleNegativesRankingLoss(encoder)
        data = datasets.Dataset.from_dict(columns)
        SentenceTransformerTrainer(encoder, arguments, train_dataset=data, loss=loss, callbacks=[Watch()]).train()
    return BATCH / min(np.diff(ends))


def main() -> None:
    documents = made_up.texts(DOCUMENTS, PASSAGE, np.random.default_rng(0))
    best: dict[str, float] = {}

    def keep(name: str, speed: float) -> None:
        best[name] = max(best.get(name, 0), speed)
        print(f"{name}: {speed:.1f}", flush=True)

    def encode(name: str, run: Any) -> None:
        start = time.perf_counter()
        run(documents)
        keep(name, DOCUMENTS / (time.perf_counter() - start))

    with tempfile.TemporaryDirectory() as scratch:
        model = made_up.save_encoder(Path(scratch) / "model", "minilm")
        made_up.prepared(Path(scratch), model, documents=2000, queries=300, triplets=BATCH * STEPS)
        precisions = ("32", "bf16") if fast_precision() == "bf16" else ("32",)
        dtypes = {"32": torch.float32, "bf16": torch.bfloat16}
        ours = {
            p: BiEncoder.from_pretrained(model, pooling="mean", device="cpu", precision=p, lengths=PAPER_LENGTHS)
            for p in precisions
        }  # type: ignore[arg-type]
        theirs = {p: their_encoder(model, dtypes[p]).eval() for p in precisions}
        for _ in range(TURNS):
            for p in precisions:
                encode(f"encode ours {p}", lambda texts, p=p: ours[p].encode_documents(texts, progress=False))
                encode(f"encode theirs {p}", lambda texts, p=p: theirs[p].encode(texts, show_progress_bar=False))
                keep(f"fit ours {p}", our_fit(model, Path(scratch) / "data", p))
                keep(f"fit theirs {p}", their_fit(model, bf16=p == "bf16"))
    rows = []
    for what, unit in (("fit", "triplets/s"), ("encode", "documents/s")):
        rival = max(best[f"{what} theirs {p}"] for p in precisions)
        for p in precisions:
            mine, same = best[f"{what} ours {p}"], best[f"{what} theirs {p}"]
            rows.append(
                f"| {what}, {dtypes[p]} | {mine:.1f} {unit} | {same:.1f} | {mine / same:.2f}x | {mine / rival:.2f}x |"
            )
    lines = [
        "# The engine against sentence-transformers, on a CPU",
        "",
        f"{torch.get_num_threads()} threads of {_processor()}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by `python benchmarks/engine_cpu.py`.",
        "",
        f"MiniLM's size, batches of {BATCH} triplets, best step or call of {TURNS} turns.",
        "",
        "| what | ours | sentence-transformers, same precision | ratio | to the better of theirs |",
        "|---|---|---|---|---|",
        *rows,
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        file = Path(sys.argv[1])
        _, heading, profile = file.read_text().partition(PROFILE) if file.exists() else ("", "", "")
        file.write_text("\n".join(lines) + "\n" + (f"\n{heading}{profile}" if heading else ""))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
