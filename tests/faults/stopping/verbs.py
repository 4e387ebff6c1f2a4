"""Every verb that writes, as a command over small inputs; and how to make these inputs.

A command runs in a folder of its own: beside it lie copies of the inputs that it names, and all that it writes is in
the folder `out`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from .harness import Server

OUT = "out"
WORDS = ["value", "list", "text", "model", "file", "test", "query", "train", "returns", "margins", "adapt", "document"]
MANY = 400  # documents of the larger collection, so that its files have several pages
SPLITS = {"train": range(6), "dev": range(6, 9), "test": range(9, 12)}


@dataclass(frozen=True)
class Verb:
    """A command that writes, and what is to be expected of it.

    Attributes:
        command: its verb and options.
        older: a command that comes first, so that there is something to replace or to go on with.
        older_killed_at: kill that one when it is about to do what fits this pattern for the first time.
        again: options that the command needs to go on after it was stopped.
        grows: its output is filled step by step in sight of all, and not put in place at once.
        times: names of files in the output which have durations in them, so that no two are the same.
        kept: what it may leave behind when it fails, as the same command goes on with it. Names in `out`; # stands for
            a hash.
        every: kill at every so many changes, unless REMARGIN_KILLS=all asks for all of them.
    """

    command: str
    older: str = ""
    older_killed_at: str = ""
    again: str = ""
    grows: bool = False
    times: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    every: int = 1

    @property
    def words(self) -> list[str]:
        """The command as a list."""
        return shlex.split(self.command)


PREPARE = "prepare --data large --triplets triplets.tsv --model model --out out/prepared --query-length 20"
TEACH = "teach --triplets triplets.tsv --out out/scored.tsv"
TRAIN_FROM = "--data data --train-from model --save-model out/teacher --epochs 1 --batch-size 2"
STEPS = "--steps 3 --batch-size 4 --learning-rate 0.001 --validate-every 1 --save-every 1 --log-every 1"
FIT = f"fit --data data --model model --out out/run {STEPS}"
ROUNDS = "--rounds 2 --steps 3 --batch-size 4 --learning-rate 0.001 --save-every 1 --log-every 1"
BLENDED_FIT = f"fit --data data --model start --out out/run {ROUNDS}"
TAUGHT_FIT = f"fit --data scored --model model --out out/run --target teacher {STEPS}"
STREAM = "--batch-size 3 --validate-every 2 --save-every 1 --log-every 1 --learning-rate 0.001 --also data --wait 0"
FIT_STREAM = f"fit --stream lines.jsonl --data data --model model --out out/run {STREAM}"
INDEX = "index --out out/index"
SEARCH = "search --data large --index bm25 --out"
SWEEP = "sweep --data data --model model --out out/sweep --values 0.2 0.8 --run-triplets 8 --batch-size 4"
CURVE = f"curve --data data --model model --out out/curve --shares 0.5 1.0 --seeds 0 1 {STEPS}"
REPRODUCE = "reproduce target-evolution --data data --model model --out out/study --preset default --rates 0.001"
SMALL = "--batch-size 4 --other-batch-size 2 --epoch 8 --sweep-triplets 4 --validate-every 4"
DEMO = "demo --data data --model model --out out/demo --steps 2 --batch-size 4 --document-length 40"
TABLES = ("section.json", "tables.md", "tables.tex", "margin-on-dev.csv", "report.html")

VERBS = {
    "prepare": Verb(PREPARE, kept=(".prepared.unfinished",)),
    "prepare --overwrite": Verb(
        f"{PREPARE} --overwrite", older=f"{PREPARE} --document-length 12", kept=(".prepared.unfinished",)
    ),
    "mine": Verb("mine --data data --out out/triplets.tsv", kept=(".triplets.tsv.#",)),
    "mine --suspicious": Verb(
        "mine --data data --out out/triplets.tsv --model encoder --bound 0.9 --suspicious out/list.json",
        kept=(".triplets.tsv.#", "list.json"),
    ),
    "mine --negatives model": Verb(
        "mine --data data --out out/triplets.tsv --negatives model --model encoder", kept=(".triplets.tsv.#",)
    ),
    "teach --scores": Verb(f"{TEACH} --scores scores.tsv"),
    "teach --model": Verb(f"{TEACH} --data data --model teacher", kept=(".scored.tsv.#",)),
    "teach --train-from": Verb(f"{TEACH} {TRAIN_FROM}", kept=(".teacher.#", "teacher", ".scored.tsv.#")),
    "fit": Verb(FIT, again="--resume", grows=True, kept=("run",), every=2),
    "fit --resume": Verb(
        f"{FIT} --resume",
        older=FIT,
        older_killed_at="_swapped .* out/run/checkpoint$",
        grows=True,
        kept=("run",),
        every=2,
    ),
    "fit --resume RUN": Verb(
        "fit --resume out/run",
        older=FIT,
        older_killed_at="_swapped .* out/run/checkpoint$",
        grows=True,
        kept=("run",),
        every=4,
    ),
    "fit --devices 2": Verb(f"{FIT} --devices 2", again="--resume", grows=True, kept=("run",), every=20),
    "fit in rounds, blended": Verb(BLENDED_FIT, again="--resume", grows=True, kept=("run",), every=20),
    "fit with teachers": Verb(
        f"{TAUGHT_FIT} --sampler tas --clusters 2 --in-batch --in-batch-teacher model",
        again="--resume",
        grows=True,
        kept=("run",),
        every=4,
    ),
    "fit --stream": Verb(FIT_STREAM, again="--resume", grows=True, times=("trained.jsonl",), kept=("run",), every=2),
    "fit --stream --resume RUN": Verb(
        "fit --resume out/run --wait 0",
        older=FIT_STREAM,
        older_killed_at="_swapped .* out/run/checkpoint$",
        grows=True,
        times=("trained.jsonl",),
        kept=("run",),
        every=4,
    ),
    "blend": Verb("blend start trained --weight 0.5 --out out/blended"),
    "blend --data --overwrite": Verb(
        "blend start trained --data data --out out/blended --overwrite",
        older="blend start trained --weight 0.5 --out out/blended",
    ),
    "encode": Verb("encode --data data --model encoder --out out/vectors", kept=(".vectors.#",)),
    "encode --overwrite": Verb(
        "encode --data data --model encoder --out out/vectors --passage-length 3 --overwrite",
        older="encode --data data --model encoder --out out/vectors",
        kept=(".vectors.#",),
    ),
    "index bm25": Verb(f"{INDEX} --index bm25 --data large"),
    "index exact": Verb(f"{INDEX} --vectors vectors"),
    "index int8, from texts": Verb(
        f"{INDEX} --data data --model encoder --coding int8", kept=("index.vectors", ".index.vectors.#")
    ),
    "index faiss": Verb(f"{INDEX} --vectors vectors --index faiss --factory Flat"),
    "index --overwrite": Verb(
        f"{INDEX} --vectors vectors --index faiss --factory Flat --overwrite",
        older=f"{INDEX} --data data --model encoder",
    ),
    "index --hybrid": Verb(
        f"{INDEX} --data data --model encoder --hybrid 0.5", kept=("index.vectors", ".index.vectors.#"), every=2
    ),
    "index of sparse vectors": Verb(f"{INDEX} --data large --model splade"),
    "update": Verb(
        "update --index out/index --data changed",
        older=f"{INDEX} --data data --model encoder",
        grows=True,
        kept=("..index.new.#",),
    ),
    "update a hybrid index": Verb(
        "update --index out/index --data changed",
        older=f"{INDEX} --data data --model encoder --hybrid 0.5",
        grows=True,
        kept=("..index.new.#",),
        every=2,
    ),
    "update --vectors": Verb(
        "update --index out/index --vectors more",
        older=f"{INDEX} --vectors vectors",
        grows=True,
        kept=("..index.new.#",),
    ),
    "search": Verb(f"{SEARCH} out/run.trec"),
    "search --overwrite": Verb(f"{SEARCH} out/run.trec.gz --overwrite", older=f"{SEARCH} out/run.trec.gz --k 2"),
    "rerank": Verb("rerank --data data --model encoder --run bm25.trec --out out/run.trec"),
    "fuse": Verb("fuse --runs bm25.trec dense.trec --out out/run.trec"),
    "evaluate": Verb("evaluate --data data --run bm25.trec --per-query out/values.csv"),
    "compare": Verb("compare --data data --runs bm25.trec dense.trec --out out/table.md"),
    "report": Verb("report run --out out/page.html"),
    "export": Verb("export --model encoder --out out/hub"),
    "export --overwrite": Verb(
        "export --model trained --out out/hub --overwrite", older="export --model start --out out/hub"
    ),
    "export --safetensors": Verb("export --model pickled --safetensors --out out/converted"),
    "export --vectors": Verb("export --vectors vectors --data large --out out/large.parquet"),
    "sweep": Verb(SWEEP, grows=True, times=TABLES, kept=("sweep",), every=10),
    "curve": Verb(CURVE, grows=True, kept=("curve",), every=20),
    "reproduce loss-geometry": Verb("reproduce loss-geometry --out out/study", grows=True, kept=("study",), every=3),
    "reproduce target-evolution": Verb(f"{REPRODUCE} {SMALL}", grows=True, kept=("study",), every=10),
    "benchmark": Verb("benchmark --model encoder --data data --out out/study", grows=True, kept=("study",), every=2),
    "demo": Verb(DEMO, grows=True, times=("report.html",), kept=("demo",), every=10),
}


def write_collection(folder: Path, documents: dict[str, str]) -> None:
    """A BEIR folder: twelve queries in three splits, each of which shares a word with its document."""
    (folder / "qrels").mkdir(parents=True)
    queries = {f"q{i}": f"the {word}" for i, word in enumerate(WORDS)}
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split, rows in SPLITS.items():
        judged = "".join(f"q{i}\td{i}\t1\n" for i in rows)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


def make_pickled(model: Path, folder: Path) -> None:
    """The same model, with its weights as a pickle."""
    import torch
    from safetensors.torch import load_file

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(load_file(model / "model.safetensors"), folder / "pytorch_model.bin")


def make_splade(backbone: Path, folder: Path) -> None:
    """A SPLADE model, as sentence-transformers writes it."""
    shutil.copytree(backbone, folder)
    types = {"": "base.modules.transformer.Transformer", "1_P": "sparse_encoder.modules.splade_pooling.SpladePooling"}
    modules = [{"path": path, "type": f"sentence_transformers.{type}"} for path, type in types.items()]
    (folder / "1_P").mkdir()
    (folder / "1_P" / "config.json").write_text(json.dumps({"pooling_strategy": "max"}))
    (folder / "modules.json").write_text(json.dumps(modules))


def make_inputs(folder: Path, server: Server) -> None:
    """Write all that the commands read; the folders of models are there already, but for pickled weights."""
    make_pickled(folder / "model", folder / "pickled")
    documents = {f"d{i}": f"how do {word} {WORDS[(5 * i + 1) % 12]}" for i, word in enumerate(WORDS)}
    write_collection(folder / "data", documents)
    more = {f"e{i}": " ".join(WORDS[i // 12**place % 12] for place in range(6)) + f" {i}" for i in range(MANY)}
    write_collection(folder / "large", documents | more)
    changed = {id: text for id, text in documents.items() if id != "d3"} | {"d1": "another text", "d99": "a new value"}
    write_collection(folder / "changed", changed)
    write_collection(folder / "fresh", {f"n{i}": f"why {word}" for i, word in enumerate(WORDS)})
    pairs = [(f"q{i}", f"d{j}", f"{(7 * i + 3 * j) % 11}.5") for i in SPLITS["train"] for j in range(12)]
    (folder / "scores.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    lines = [{"query": f"the {WORDS[i]}", "document_id": f"d{i}"} for i in SPLITS["train"]]
    lines = [*map(json.dumps, lines), "no line", '{"query": "value", "document": "a value", "grade": -1}', "", "{}"]
    (folder / "lines.jsonl").write_text("\n".join(lines) + "\n")
    for command in (
        "mine --data data --out triplets.tsv",
        "teach --triplets triplets.tsv --scores scores.tsv --out scored.tsv",
        "prepare --data data --triplets scored.tsv --model model --out scored --document-length 64",
        "teach --triplets triplets.tsv --data data --train-from model --save-model teacher --epochs 1 --out unused.tsv",
        "encode --data large --model encoder --out vectors",
        "encode --data fresh --model encoder --out more",
        "search --data data --index bm25 --out bm25.trec",
        "search --data data --model encoder --out dense.trec",
        f"fit --data data --model model --out run {STEPS}",
    ):
        outcome = server.run(folder, shlex.split(command))
        assert outcome.code == 0, outcome.stderr
    for name, model in (("start", "best"), ("trained", "last")):
        shutil.copytree(folder / "run" / model, folder / name)


def make_work(folder: Path, inputs: Path, verb: Verb) -> None:
    """A fresh folder to run a verb in: copies of the inputs that it names, and an empty `out`."""
    (folder / OUT).mkdir(parents=True)
    named = {*verb.words, *shlex.split(verb.older)}
    for path in inputs.iterdir():
        if path.name in named:
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, folder / path.name)


def make_older(folder: Path, verb: Verb, server: Server) -> None:
    """Write into `out` what is there before the verb runs."""
    if not verb.older:
        return
    command = shlex.split(verb.older)
    kill_at = 0
    if verb.older_killed_at:
        trial = server.run(folder, command)
        assert trial.code == 0, trial.stderr
        kill_at = 1 + next(i for i, done in enumerate(trial.operations) if re.search(verb.older_killed_at, done))
        shutil.rmtree(folder / OUT)
        (folder / OUT).mkdir()
    outcome = server.run(folder, command, kill_at)
    assert outcome.killed if kill_at else outcome.code == 0, outcome.stderr
