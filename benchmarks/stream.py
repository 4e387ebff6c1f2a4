"""Training on a stream against retraining from scratch: pairs arrive in order of topic, and at several points of time
both have a model of all pairs so far.

    python benchmarks/stream.py path/to/medquad path/to/debian-desc --model minilm > results/stream.md

The pairs are a sample of the training pairs, ordered by topic: the clusters of their queries' vectors, one after
another. The stream trains on each pair once, with `remargin.stream`, which goes on at each point with what is new, and
accepts a blend of the trained and the last accepted model if dev gains. Retraining goes through all pairs so far once
more, from the starting encoder: mine, prepare, train, and blend with the start by the same rule. Both are measured on
the same test queries. Costs are CPU seconds of the process, which other work on the machine does not change much.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import platform
import random
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from remargin import BiEncoder, Collection, FitSettings, Validator, mine, prepare, stream, train
from remargin.model.blend import blended
from remargin.training.blending import choose_weight
from remargin.training.streaming.accepting import POINTS
from remargin.training.streaming.request import DEFAULTS
from remargin.training.topics import kmeans

MEASURE = "nDCG@10"


def tell_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass
class Costs:
    """What a way of training has cost so far."""

    triplets: int = 0
    seconds: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began


@dataclass
class Point:
    """What both ways have at a point of time: test values and costs so far."""

    pairs: int
    values: dict[str, float] = field(default_factory=dict)
    costs: dict[str, tuple[int, float]] = field(default_factory=dict)


def part_of(data: Path, given: argparse.Namespace, out: Path) -> tuple[Path, list[tuple[str, str]], Collection]:
    """A smaller collection: some pairs, dev and test queries, their documents and others."""
    rng = random.Random(given.seed)
    splits = {split: Collection.load(data, split) for split in ("train", "dev", "test")}
    wanted = {"train": given.pairs, "dev": given.dev_queries, "test": given.test_queries}
    chosen = {split: set(rng.sample(sorted(splits[split].queries), wanted[split])) for split in wanted}
    kept = {d for split, queries in chosen.items() for query in queries for d in splits[split].qrels[query]}
    others = [id for id in splits["train"].documents if id not in kept]
    kept |= set(rng.sample(others, max(0, given.documents - len(kept))))
    (out / "qrels").mkdir(parents=True)
    write_jsonl(out / "corpus.jsonl", [(id, text) for id, text in splits["train"].documents.items() if id in kept])
    queries = [
        (id, splits[split].queries[id]) for split in wanted for id in splits[split].queries if id in chosen[split]
    ]
    write_jsonl(out / "queries.jsonl", queries)
    for split, collection in splits.items():
        pairs = [(query, d) for query in collection.qrels if query in chosen[split] for d in collection.qrels[query]]
        write_qrels(out / "qrels" / f"{split}.tsv", pairs)
    train_split = Collection.load(out, "train")
    pairs = [(query, document) for query, judged in train_split.qrels.items() for document in judged]
    return out, pairs, train_split


def write_jsonl(path: Path, texts: list[tuple[str, str]]) -> None:
    path.write_text("".join(json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts))


def write_qrels(path: Path, pairs: list[tuple[str, str]]) -> None:
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in pairs)
    path.write_text(f"query-id\tcorpus-id\tscore\n{rows}")


def by_topic(pairs: list[tuple[str, str]], queries: dict[str, str], model: BiEncoder, topics: int) -> list[Any]:
    """The pairs, topic after topic."""
    ids = list(dict.fromkeys(query for query, _ in pairs))
    vectors = torch.from_numpy(model.encode_queries([queries[id] for id in ids]))
    topic = dict(zip(ids, kmeans(vectors, topics, seed=0).tolist(), strict=True))
    return sorted(pairs, key=lambda pair: topic[pair[0]])


def settings(given: argparse.Namespace) -> dict[str, Any]:
    dev = {"validation_queries": given.dev_queries, "validation_documents": given.dev_documents}
    return {"batch_size": given.batch_size, "seed": given.seed, **dev}


def retrained(
    data: Path, pairs: list[tuple[str, str]], start: BiEncoder, dev: Validator, given: argparse.Namespace
) -> BiEncoder:
    """A model of these pairs, from the start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(data, folder / "data")
        write_qrels(folder / "data" / "qrels" / "train.tsv", pairs)
        mine(Collection.load(folder / "data", "train"), folder / "t.tsv", depth=200, seed=given.seed)
        prepare(folder / "data", given.model, folder / "p", folder / "t.tsv", document_length=given.document_length)
        learner = copy.deepcopy(start)
        options = FitSettings(steps=max(1, len(pairs) // given.batch_size), save_every=10**6, **settings(given))
        train(learner, folder / "p", folder / "run", settings=options, say=lambda line: None)
    values = [dev.evaluate(blended(start, learner, at)).means[MEASURE] for at in POINTS]
    return blended(start, learner, choose_weight(POINTS, values))


def streamed(
    data: Path, pairs: list[tuple[str, str]], texts: Collection, out: Path, name: str, shuffle: int, given: Any
) -> tuple[BiEncoder, int]:
    """The model that a stream has accepted after these pairs, which come after those before; and triplets in all."""
    lines = out / f"{name}.jsonl"
    with open(lines, "a") as file:
        file.writelines(json.dumps({"query": texts.queries[q], "document_id": d}) + "\n" for q, d in pairs)
    run = out / name
    again = {"wait": 0.0, "say": tell_progress}
    if run.exists():
        done = stream(resume=run, **again)
    else:
        options = {**settings(given), "validate_every": 10**6, "save_every": 10**6, "shuffle": shuffle}
        options |= {"document_length": given.document_length, "also": given.away}
        done = stream(lines, data, given.model, run, **again, **options)
    return BiEncoder.from_pretrained(done.model, document_length=given.document_length), done.examples


def compare(data: Path, given: argparse.Namespace) -> list[Point]:
    """All points of one collection."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        part, pairs, texts = part_of(data, given, out / "part")
        start = BiEncoder.from_pretrained(given.model, document_length=given.document_length)
        pairs = by_topic(pairs, texts.queries, start, given.topics)
        dev = Validator.of(Collection.load(part, "dev"), start, FitSettings(**settings(given)))
        everything = FitSettings(validation_queries=given.test_queries, validation_documents=given.documents)
        test = Validator.of(Collection.load(part, "test"), start, everything)
        points = [Point(0, {"start": test.evaluate(start).means[MEASURE]})]
        costs = {name: Costs() for name in ("stream", "shuffled", "retrained")}
        bounds = [round(len(pairs) * number / given.points) for number in range(given.points + 1)]
        for before, upto in itertools.pairwise(bounds):
            point = Point(upto)
            for way, shuffle in (("stream", 1), ("shuffled", given.shuffle)):
                with costs[way].counted():
                    model, costs[way].triplets = streamed(part, pairs[before:upto], texts, out, way, shuffle, given)
                point.values[way] = test.evaluate(model).means[MEASURE]
            with costs["retrained"].counted():
                model = retrained(part, pairs[:upto], start, dev, given)
            costs["retrained"].triplets += upto
            point.values["retrained"] = test.evaluate(model).means[MEASURE]
            point.costs = {way: (cost.triplets, cost.seconds) for way, cost in costs.items()}
            points.append(point)
            tell_progress(f"{data.name}: {point}")
        return points


def about(given: argparse.Namespace) -> str:
    """Where and how it ran."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    rate = DEFAULTS["learning_rate"]
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return (
        f"{device}, {versions}. Made by `python benchmarks/stream.py {' '.join(words)}`. "
        f"{given.pairs:,} pairs in order of {given.topics} topics, batches of {given.batch_size}, documents of at most "
        f"{given.document_length} tokens; {MEASURE} of {given.test_queries} test queries over {given.documents:,} "
        f"documents; dev has {given.dev_queries} queries over {given.dev_documents:,} documents. "
        f"The learning rate of the streams is {rate:g}, constant, that of retraining {FitSettings.learning_rate:g}, "
        f"linear to 0. The shuffled stream has a buffer of {given.shuffle}. "
        "Triplets and CPU seconds are those up to the point: of mining, training, measuring on dev and saving, without "
        "measuring on test; those of the streams include measuring on texts elsewhere."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="folders of BEIR's layout with train, dev and test")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--shuffle", type=int, default=500, help="shuffle buffer of the second stream")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--document-length", type=int, default=64)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--dev-documents", type=int, default=1000, help="the pool that dev ranks")
    parser.add_argument("--dev-queries", type=int, default=200)
    parser.add_argument("--test-queries", type=int, default=400)
    parser.add_argument("--away", default="docstrings:json,csv")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("# Training on a stream against retraining\n")
    print(textwrap.fill(about(given), 130), end="\n\n")
    ways = ("stream", "shuffled", "retrained")
    print(f"| collection | pairs | {' | '.join(ways)} | triplets: stream | retrained | CPU s: stream | retrained |")
    print("|---|---|---|---|---|---|---|---|---|")
    for data in given.data:
        for point in compare(data, given):
            if not point.costs:
                print(f"| {data.name} | 0 | {' | '.join(3 * [format(point.values['start'], '.3f')])} | 0 | 0 | 0 | 0 |")
                continue
            values = " | ".join(f"{point.values[way]:.3f}" for way in ways)
            triplets = " | ".join(f"{point.costs[way][0]:,}" for way in ("stream", "retrained"))
            seconds = " | ".join(f"{point.costs[way][1]:,.0f}" for way in ("stream", "retrained"))
            print(f"| {data.name} | {point.pairs:,} | {values} | {triplets} | {seconds} |", flush=True)


if __name__ == "__main__":
    main()
