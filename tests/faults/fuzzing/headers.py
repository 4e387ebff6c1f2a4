"""One reader each of files that remargin writes itself, and of configs: cheap enough for many inputs; see `inputs`."""

from __future__ import annotations

import gzip
from pathlib import Path

from remargin.cli.config import read_config
from remargin.data.tokens import TokenStore
from remargin.model.folder import read_settings, read_text_settings
from remargin.reports.run_files import read_config as read_run_config
from remargin.reports.run_files import read_metrics, read_report
from remargin.retrieval.index_folder import IndexFolder
from remargin.retrieval.vectors import Vectors
from remargin.study.dev_scores import FILE as DEV
from remargin.study.dev_scores import DevLog, DevScores
from remargin.study.header import read_study
from remargin.study.results import FILE as RESULT
from remargin.study.results import Result
from remargin.study.targets import read_targets

from . import models, runs, stores
from .mutations import BINARY, CONFIG, HEADER, LEDGER, YAML
from .running import Case, require_finite
from .running import read_only_case as _case
from .world import WORDS, World


def config_yaml(world: World) -> Case:
    """Of a verb; the types of values are checked by the command line, see `configuration` of stores.py."""
    folder = world.folder("config")
    settings = {"data": "faq", "model": "minilm", "batch-size": 64, "learning-rate": 2e-05, "in-batch": True}
    YAML.write(folder / "fit.yaml", {**settings, "values": [0.1, 0.5], "target": "distributed"})
    known = ["data", "model", "batch_size", "learning_rate", "in_batch", "values", "target"]

    def read(folder: Path) -> None:
        read_config(folder / "fit.yaml", known, lists=["values"], flags=["in_batch"], verb="fit")

    return _case(folder, YAML, read)


def files_of_a_run(world: World) -> Case:
    folder = world.folder("files-of-a-run")
    for name in ("config.yaml", "metrics.csv", "report.json"):
        (folder / name).write_bytes((world.run / name).read_bytes())

    def read(folder: Path) -> None:
        read_run_config(folder)
        read_metrics(folder, read_report(folder))

    files = {"config.yaml": CONFIG, "metrics.csv": LEDGER, "report.json": HEADER}
    return Case(folder, files, (read,), reads_only=True)


def store_header(world: World) -> Case:
    TokenStore.write(world.root / "token-store", WORDS, [f"the {word}" for word in WORDS], world.encoder.tokenizer, 12)

    def read(folder: Path) -> None:
        store = TokenStore(folder)
        store.take(range(len(store)))
        assert list(store.ids) == WORDS

    return _case(world.root / "token-store", HEADER, read, files=("header.json",))


def triplets_header(world: World) -> Case:
    return _only_reads(stores.triplets(world))


def vectors_header(world: World) -> Case:
    case = stores.saved_vectors(world)

    def load(folder: Path) -> None:
        found = Vectors.load(folder)
        assert list(found.ids) == list(stores.DOCUMENTS)
        require_finite(found.matrix)

    return Case(case.folder, case.files, (load,), reads_only=True)


def index_header(world: World) -> Case:
    case = stores.index_exact(world)

    def read(folder: Path) -> None:
        index = IndexFolder.read(folder)
        index.verify()
        require_finite(index.vectors().matrix)
        assert list(index.ids) == list(stores.DOCUMENTS)
        index.storage()

    return Case(case.folder, case.files, (read,), reads_only=True)


def bm25_index(world: World) -> Case:
    return _only_reads(stores.bm25_header(world))


def checkpoint(world: World) -> Case:
    return _only_reads(runs.checkpoint(world))


def _only_reads(case: Case) -> Case:
    return Case(case.folder, case.files, case.readers, reads_only=True)


def model_settings(world: World) -> Case:
    """All JSON of a model folder that we read ourselves."""
    case = models.older_layout(world)

    def read(folder: Path) -> None:
        read_settings(folder)
        read_text_settings(folder)

    files = {name: format for name, format in case.files.items() if "tokenizer" not in name and name.endswith(".json")}
    return Case(case.folder, files, (read,), reads_only=True)


def model_folder(world: World) -> Case:
    """All of a model folder, with its weights and its tokenizer, in the libraries that read them."""
    case = models.saved_cls_linear(world)
    return Case(case.folder, case.files, (models.bi_encoder,), reads_only=True)


def study(world: World) -> Case:
    folder = world.folder("study-header")
    (folder / "study.json").write_bytes((world.study / "study.json").read_bytes())

    def read(folder: Path) -> None:
        read_study(folder)

    return _case(folder, HEADER, read)


def result_of_a_study(world: World) -> Case:
    run = next(iter(sorted(world.study.glob(f"runs/tiny-distributed*/{RESULT}")))).parent

    def load(folder: Path) -> None:
        Result.load(folder, None)

    return _case(run, HEADER, load, files=(RESULT,))


def dev_scores(world: World) -> Case:
    folder = world.folder("dev-scores")
    DevScores((10, 20), ("q", "r"), {"RR": ((0.5, 1.0), (0.25, 0.25))}).save(folder / DEV)

    def read(folder: Path) -> None:
        DevLog(folder / DEV)

    return _case(folder, HEADER, read)


def targets_of_batches(world: World) -> Case:
    folder = world.folder("targets")
    text = "batch,mean,low,high\n0,0.5,0.0,1.0\n1,0.25,-0.5,1.0\n"
    (folder / "targets.csv").write_text(text)
    (folder / "targets.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))

    def read(folder: Path) -> None:
        read_targets(folder / "targets.csv")
        read_targets(folder / "targets.csv.gz")

    return _case(folder, BINARY, read)


TARGETS = [
    config_yaml,
    files_of_a_run,
    store_header,
    triplets_header,
    vectors_header,
    index_header,
    bm25_index,
    checkpoint,
    model_settings,
    model_folder,
    study,
    result_of_a_study,
    dev_scores,
    targets_of_batches,
]
