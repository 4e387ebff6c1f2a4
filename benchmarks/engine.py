"""The engine against its rivals on a GPU: training, encoding, validation, memory.

    python benchmarks/engine.py [results/engine-h200.md]

Everything in one run, on made-up texts of MS MARCO's lengths, random weights, no attention dropout on any side, best of
several stretches. sentence-transformers' trainer takes part where `datasets` is installed.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import made_up
import numpy as np
import torch
from made_up import PASSAGE, QUERY, Size
from transformers import AutoModel

from remargin import BiEncoder, MarginLoss, Run, train
from remargin.model.encoder import PAPER_LENGTHS
from remargin.training.engine import matmul_rate
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

DEVICE = torch.device("cuda")
POOLING: dict[Size, Any] = {"distilbert": "cls", "minilm": "mean"}


def best_of(step: Callable[[int], None], stretches: int = 3, steps: int = 30, warm_up: int = 8) -> float:
    """Seconds a step."""
    for number in range(warm_up):
        step(number)
    best = float("inf")
    for _ in range(stretches):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(steps):
            step(number)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / steps)
    return best


def released_way(folder: Path, batch_size: int, steps: int = 30) -> tuple[float, float]:
    """Triplets a second and peak memory: pads to 30 and 200, three forward passes, fp16, tokens ready on the GPU."""
    rng, batches = np.random.default_rng(0), []
    for _ in range(8):
        sides = []
        for like, width in ((QUERY, 30), (PASSAGE, 200), (PASSAGE, 200)):
            drawn = torch.from_numpy(made_up.lengths(batch_size, like, rng))
            mask = (torch.arange(width)[None] < drawn[:, None]).long().to(DEVICE)
            sides.append((torch.randint(1000, 30_000, mask.shape, device=DEVICE) * mask, mask))
        batches.append(sides)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).to(DEVICE).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-7)
    scaler, loss = torch.amp.GradScaler(), MarginLoss()

    def step(number: int) -> None:
        with torch.autocast("cuda", torch.float16):
            sides = batches[number % len(batches)]
            vectors = [model(ids, attention_mask=mask).last_hidden_state[:, 0] for ids, mask in sides]
            value = loss(*vectors)
        scaler.scale(value).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()

    torch.cuda.reset_peak_memory_stats()
    seconds = best_of(step, steps=steps)
    return batch_size / seconds, torch.cuda.max_memory_allocated()


def our_fit(
    size: Size,
    model: Path,
    data: Path,
    batch_size: int,
    steps: int,
    validator: Validator | None = None,
    **settings: Any,
) -> dict[str, float]:
    """What `fit` itself logs, in its best stretch of 25 steps once it is warm; and its peak memory."""
    chosen = FitSettings.preset(
        steps=steps, batch_size=batch_size, log_every=25, validate_every=500, save_every=10**6, learning_rate=5e-7,
        precision="bf16", **settings,
    )  # fmt: skip
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as out:
        encoder = BiEncoder.from_pretrained(model, pooling=POOLING[size], lengths=PAPER_LENGTHS)
        train(encoder, data, out, settings=chosen, validator=validator, say=lambda line: None)
        with open(Path(out) / "metrics.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["loss"]][3:]
    best = max(rows, key=lambda row: float(row["triplets_per_second"]))
    names = ("triplets_per_second", "tokens_per_second", "utilisation", "padding", "data_wait")
    return {**{name: float(best[name]) for name in names}, "memory": torch.cuda.max_memory_allocated()}


class Timed(Validator):
    """A validator with a watch."""

    seconds: list[float]

    def __call__(self, *arguments: Any) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        value = super().__call__(*arguments)
        torch.cuda.synchronize()
        self.seconds = [*getattr(self, "seconds", []), time.perf_counter() - start]
        return value


def sentence_transformers_fit(model: Path, batch_size: int) -> float:
    """Triplets a second of their trainer as shipped: bf16, no loader workers (with workers it hung), their own loss."""
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.models import Pooling, Transformer
    from transformers import TrainerCallback

    rng, count = np.random.default_rng(0), batch_size * 75
    sides = {"anchor": QUERY, "positive": PASSAGE, "negative": PASSAGE}
    columns = {name: made_up.texts(count, like, rng) for name, like in sides.items()}
    body = Transformer(str(model), max_seq_length=200)
    encoder = SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension(), "cls")], device="cuda")
    marks: dict[int, float] = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % 15 == 0:
                torch.cuda.synchronize()
                marks[state.global_step] = time.perf_counter()

    with tempfile.TemporaryDirectory() as out:
        arguments = SentenceTransformerTrainingArguments(
            out, per_device_train_batch_size=batch_size, max_steps=60, bf16=True, save_strategy="no", report_to=[],
            logging_steps=1000, dataloader_num_workers=0, disable_tqdm=True, dataloader_drop_last=True,
        )  # fmt: skip
        loss = MultipleNegativesRankingLoss(encoder)
        data = datasets.Dataset.from_dict(columns)
        SentenceTransformerTrainer(encoder, arguments, train_dataset=data, loss=loss, callbacks=[Watch()]).train()
    times = [marks[step] for step in (15, 30, 45, 60)]
    return 15 * batch_size / min(b - a for a, b in itertools.pairwise(times))


def row(what: str, ours: str, against: str = "", ratio: str = "") -> str:
    return f"| {what} | {ours} | {against} | {ratio} |"


def encoding(size: Size, model: Path, rate: float) -> list[str]:
    """Documents a second, from texts to vectors, both in bfloat16."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    documents = made_up.texts(65_536, PASSAGE, np.random.default_rng(0))
    body = Transformer(str(model), max_seq_length=200, model_kwargs={"dtype": torch.bfloat16})
    pooling = Pooling(body.get_word_embedding_dimension(), POOLING[size])
    theirs = SentenceTransformer(modules=[body, pooling], device="cuda")
    ours = BiEncoder.from_pretrained(model, pooling=POOLING[size], precision="bf16", lengths=PAPER_LENGTHS)
    linear = sum(m.weight.numel() for m in ours.backbone.modules() if isinstance(m, torch.nn.Linear))
    ready = ours.tokenizer(documents, 200)[0]

    def speed(encode: Callable[[int], Any], count: int) -> float:
        encode(2048)
        best = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            encode(count)
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        return count / best

    def rival(batch_size: int) -> float:
        return speed(lambda n: theirs.encode(documents[:n], batch_size=batch_size, show_progress_bar=False), 16_384)

    def utilised(speed: float) -> str:
        share = 2 * linear * float(ready.lengths.mean()) * speed / rate
        return f"{speed:,.0f} documents/s, {share:.0%} utilised"

    mine = speed(lambda n: ours.encode_documents(documents[:n]), len(documents))
    from_tokens = speed(lambda n: ours.encode_tokens(ready) if n > 2048 else None, len(documents))
    other = max(rival(128), rival(512))
    against = f"sentence-transformers, better of batches of 128 and 512: {other:,.0f}"
    return [
        row(f"encode, {size}, from texts", utilised(mine), against, f"{mine / other:.2f}x"),
        row(f"encode, {size}, from tokens", utilised(from_tokens), against, f"{from_tokens / other:.2f}x"),
    ]


def training(size: Size, model: Path, data: Path, run: Run) -> Iterator[str]:
    """Rows about `fit`."""
    released, _ = released_way(model, 128)
    eager = our_fit(size, model, data, 128, 250, graphs=False)["triplets_per_second"]
    graphs = our_fit(size, model, data, 128, 300)
    watched = Timed(data, "dev", FitSettings.preset(validation_depth=1000, validation_queries=43), run)
    best = our_fit(size, model, data, 128, 1100, watched, compile="on")
    mine = best["triplets_per_second"]
    said = f"{mine:,.0f} triplets/s, {best['utilisation']:.0%} utilised, {best['padding']:.1%} padding"
    said += f", {best['data_wait']:.1%} waiting for data"
    what = f"fit, {size}, B = 128"
    yield row(f"{what}, compiled", said, f"the released code's way: {released:,.0f}", f"{mine / released:.2f}x")
    yield row(f"{what}, compiled", said, f"our own eager packed mode: {eager:,.0f}", f"{mine / eager:.2f}x")
    plain = graphs["triplets_per_second"]
    said = f"{plain:,.0f} triplets/s, {graphs['utilisation']:.0%} utilised"
    yield row(f"{what}, not compiled", said, f"the released code's way: {released:,.0f}", f"{plain / released:.2f}x")
    seconds = min(watched.seconds[1:])
    share = f"{seconds:.2f} s, {seconds / (seconds + 500 * 128 / mine):.1%} of the time"
    yield row(f"validation, {size}, 43 x 1,000 passages every 500 steps", share)
    if size == "minilm":
        return
    if importlib.util.find_spec("datasets"):
        rival = sentence_transformers_fit(model, 128)
        against = f"sentence-transformers' trainer: {rival:,.0f}"
        yield row(f"{what}, compiled", f"{mine:,.0f} triplets/s", against, f"{mine / rival:.2f}x")
    _, padded = released_way(model, 1024, steps=5)
    large = our_fit(size, model, data, 1024, 125, compile="off")
    said = f"{large['memory'] / 2**30:.1f} GiB ({large['triplets_per_second']:,.0f} triplets/s, not compiled)"
    share = f"{large['memory'] / padded:.0%}"
    yield row(f"peak memory, {size}, B = 1,024", said, f"padded: {padded / 2**30:.1f} GiB", share)


def main() -> None:
    started = time.perf_counter()
    rate = matmul_rate(DEVICE, torch.bfloat16)
    lines = [
        "# The engine against its rivals, on a GPU",
        "",
        f"{torch.cuda.get_device_name()}, {os.cpu_count()} CPU cores, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by `python benchmarks/engine.py`.",
        "",
        f"The largest matrix products in bfloat16 reach {rate / 1e12:.0f} TFLOP/s here. Utilisation is a share of "
        "that, counting real tokens' products with all weights: 6 operations a weight and token in training, 2 in "
        "encoding. The last layer counts in full, though with [CLS] pooling (distilbert here) most of it is not "
        "computed.",
        "",
        row("what", "ours", "against", "ratio"),
        "|---|---|---|---|",
    ]

    def add(line: str) -> None:
        lines.append(line)
        print(line, f"[{time.perf_counter() - started:.0f} s]", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        models = {size: made_up.save_encoder(folder / size, size) for size in POOLING}
        print(made_up.prepared(folder, models["distilbert"], 100_000, 20_000, triplets=128 * 600), flush=True)
        run = Run.of({f"q{q}": {f"d{1000 * q + i}": float(-i) for i in range(1000)} for q in range(43)})
        for size, model in models.items():
            for line in training(size, model, folder / "data", run):
                add(line)
            for line in encoding(size, model, rate):
                add(line)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
