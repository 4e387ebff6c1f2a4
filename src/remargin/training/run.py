"""A whole training run: from a collection to a folder with everything that is needed to trust and repeat it."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection, has_queries, open_source
from remargin.data.prepare import REMEDY, prepare, read_prepared
from remargin.data.tables import Rejects
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError, first_line
from remargin.evaluation.measures import evaluate, require_measures
from remargin.evaluation.runs import Run
from remargin.files.atomic import on_disk
from remargin.files.checksums import sha256, verify_files
from remargin.files.parts import remove_parts
from remargin.mining.negatives import MiningSettings, mine, require_ranked
from remargin.model.encoder import BiEncoder
from remargin.progress import tell
from remargin.report.run_files import write_report
from remargin.retrieval.searching import search
from remargin.training.loop import Fitted, fit
from remargin.training.run_folder import RunFolder
from remargin.training.settings import FitSettings
from remargin.training.supervision import needs_scores
from remargin.training.validation import Validator

# What every Lightning logger inherits from; the package lightning has its own copy.
LOGGERS = {(f"{package}.loggers.logger", "Logger") for package in ("lightning_fabric", "lightning.fabric")}


@dataclass
class RunRequest:
    """What to train on what, and where to put it."""

    data: str
    model: str
    out: Path
    triplets: Path | None = None
    pooling: str = "auto"
    query_length: int | None = None
    document_length: int | None = None
    validation_split: str | None = None
    validation_run: Path | None = None
    also: str | None = None
    tensorboard: bool = False
    loggers: list[str] | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        self.out = Path(self.out)


def start(
    request: RunRequest, settings: FitSettings, resume: bool = False, say: Callable[[str], None] = tell
) -> Fitted:
    """Mine, prepare, train, and measure; or go on with a run of the same settings that was stopped.

    out/
      config.yaml     what was asked for, the seed, versions, and hashes of the input
      triplets.tsv    what was mined, if no triplets were given
      data/           what `prepare` made of collection and triplets
      topics.npy      the topic of each query, if batches are sampled by topic
      metrics.csv     loss, its two parts, margins, targets, speed, validations
      checkpoint/     what `resume` needs
      teacher/        vectors of an in-batch teacher, if there is one
      best/ last/     models
      report.json     what came of it
    """
    out = request.out
    asked = {**{name: _plain(value) for name, value in asdict(request).items()}, "settings": asdict(settings)}
    folder = RunFolder(out, asked, resume)
    require_measures([settings.validation_measure])
    options: Any = {"query_length": request.query_length, "document_length": request.document_length}
    model = BiEncoder.from_pretrained(request.model, pooling=request.pooling, seed=settings.seed, **options)  # type: ignore[arg-type]
    loss = settings.loss.build(model.similarity)
    data = _training_folder(request)
    scored = "tas-balanced" if settings.sampler == "tas-balanced" else "teacher" if needs_scores(loss) else None
    if scored and request.triplets is None and data == out / "data":
        raise InputError(f'"{scored}" needs scores', do="give --triplets that have scores (`remargin teach`)")
    if settings.in_batch_teacher is not None:
        BiEncoder.from_pretrained(settings.in_batch_teacher)
    split = _validation_split(request, settings)
    first_stage = None if request.validation_run is None else Run.load(request.validation_run)
    also = None if request.also is None else Collection.load(request.also, "test", request.skip_bad)
    if also is not None and also.rejects.count:
        say(f"{request.also}: skipped bad input, {also.rejects.describe()}")
    with folder.opened():
        board = ["lightning_fabric.loggers.TensorBoardLogger name=tensorboard version="] if request.tensorboard else []
        loggers = [_logger(text, out) for text in [*board, *(request.loggers or [])]]  # some write at once
        remove_parts(out / "triplets.tsv")
        if not data.exists():
            _prepare(request, model, settings, say)
        else:
            _verify(data)
        folder.add_hashes(_input_hashes(data, request.model))
        validator = None if split is None else Validator(data, split, settings, first_stage)
        if validator is None:
            say("no dev split: training without validation")
        elif split != "dev":
            say(f"the best model is chosen on {split}: what it reaches there says little; measure it on another split")
        before = None if also is None else _measure(model, also, settings.validation_measure)
        fitted = fit(model, data, out, loss, settings, validator, loggers, resume, say)
        report: dict[str, Any] = {**asdict(fitted), "model": str(fitted.model)}
        if also is not None and before is not None:
            after = _measure(BiEncoder.from_pretrained(fitted.model), also, settings.validation_measure)
            report["also"] = {
                "data": request.also,
                "measure": settings.validation_measure,
                "before": before,
                "after": after,
            }
            say(f"{request.also}: {settings.validation_measure} {before:.4f} before, {after:.4f} after")
        write_report(out, report)
    return fitted


def _logger(text: str, out: Path) -> Any:
    """A Lightning logger from its class and arguments; where to log is the run's folder, if it wants to know.

    The text may come from a config that somebody else wrote, so nothing but a logger's class is ever called.
    """
    do = "name the class of a Lightning logger and its arguments, as in 'lightning_fabric.loggers.CSVLogger name=x'"
    try:
        path, *arguments = shlex.split(text) or [""]
        module, _, name = path.rpartition(".")
        options: dict[str, Any] = dict(argument.partition("=")[::2] for argument in arguments)
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot make logger {text!r} ({first_line(error)})", do=do) from None
    bases = kind.__mro__ if isinstance(kind, type) else ()
    if not any((base.__module__, base.__name__) in LOGGERS for base in bases):
        raise InputError(f"{path} is not the class of a Lightning logger", do=do)
    for place in ("root_dir", "save_dir"):
        if place in inspect.signature(kind).parameters:
            options.setdefault(place, str(out))
    try:
        return kind(**options)
    except Exception as error:  # a logger raises whatever the package that it is for raises
        raise InputError(f"cannot make logger {text!r} ({first_line(error)})", do=do) from None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _training_folder(request: RunRequest) -> Path:
    """What to train on: the collection itself, if `prepare` wrote it with triplets and no others are given."""
    folder = on_disk(request.data)
    if request.triplets is None and folder is not None and (folder / "triplets").is_dir():
        return folder
    return request.out / "data"


def _prepare(request: RunRequest, model: BiEncoder, settings: FitSettings, say: Callable[[str], None]) -> None:
    triplets = request.triplets
    if triplets is None:
        triplets = request.out / "triplets.tsv"
        if not triplets.exists():
            train = Collection.load(request.data, "train", request.skip_bad)
            mined = mine(train, triplets, MiningSettings(seed=settings.seed))
            require_ranked(mined)
            say(f"mined {mined.triplets:,} triplets for {mined.queries:,} queries with BM25")
            if mined.without_ranking:
                say(f"BM25 found nothing for {mined.without_ranking:,} of them: their negatives are random")
    texts = model.text_settings
    report = prepare(request.data, request.model, request.out / "data", triplets, texts, request.skip_bad)
    say(f"prepared {report.documents:,} documents, {report.queries:,} queries and {report.triplets or 0:,} triplets")
    if report.rejected:
        say(f"set aside as bad input: {report.rejected:,}; see {request.out / 'data' / 'rejects.jsonl'}")
    for what, count in report.notes.items():
        if what.startswith("WARNING"):
            say(f"{what}: {count:,}")


def _verify(data: Path) -> None:
    """See that all is as it was written: one damaged score spoils a run silently."""
    verify_files(data, read_prepared(data)["sha256"], REMEDY)
    for name in ("queries", "documents"):
        TokenStore(data / "tokens" / name).verify()
    Triplets(data / "triplets").verify()


def _validation_split(request: RunRequest, settings: FitSettings) -> str | None:
    """Dev, if there is one. Another split, the one to be reported above all, only if it is asked for by name."""
    source, split = open_source(request.data, Rejects(skip=request.skip_bad)), request.validation_split or "dev"
    if split in source.splits() and (request.validation_split is not None or has_queries(source, split)):
        return split
    if request.validation_split is not None:
        have = ", ".join(source.splits()) or "none"
        raise InputError(f"no split {split!r}; it has: {have}", file=request.data, do="choose one of those")
    if settings.patience is not None:
        do = "name a split to stop on with --validation-split, but not the one that you will report"
        raise InputError("patience needs a dev split, and there is none", file=request.data, do=do)
    return None


def _measure(model: BiEncoder, collection: Collection, measure: str) -> float:
    return evaluate(search(collection, "exact", model), collection.qrels, [measure]).means[measure]


def _input_hashes(data: Path, model: str) -> dict[str, str]:
    """Hashes of all that a run is made from: collection, triplets, and the model's weights if they are in a folder."""
    of_triplets = Triplets(data / "triplets").header["sha256"]
    hashes = {**read_prepared(data)["sha256"], **{f"triplets/{name}": of for name, of in of_triplets.items()}}
    weights = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return hashes | {f"model/{path.name}": sha256(path) for path in weights}
