"""`fit`: from a collection to a trained model, in a folder with everything that is needed to trust and repeat it."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection, has_queries, open_source
from remargin.data.preparation import REMEDY, prepare, read_prepared
from remargin.data.tables import Rejects
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError, first_line, refuse_idle
from remargin.evaluation.measures import evaluate, require_measures
from remargin.evaluation.runs import Run
from remargin.files.atomic import on_disk
from remargin.files.checksums import sha256, verify_files
from remargin.files.parts import remove_parts
from remargin.mining.negatives import mine, require_ranked
from remargin.model.encoder import BiEncoder
from remargin.progress import tell
from remargin.reports.run_files import write_report
from remargin.retrieval.searching import search
from remargin.training.loop import Fitted, train
from remargin.training.settings import FitSettings, LossSettings, idle_settings
from remargin.training.supervision import needs_scores
from remargin.training.training_folder import TrainingFolder
from remargin.training.validation import Validator

# What every Lightning logger inherits from; the package lightning has its own copy.
LOGGERS = {(f"{package}.loggers.logger", "Logger") for package in ("lightning_fabric", "lightning.fabric")}


@dataclass
class _Asked:
    """The arguments of `fit` beside the settings: data, model, and the folder of the training run."""

    data: str
    model: str
    out: Path
    triplets: Path | None
    pooling: str
    query_length: int | None
    document_length: int | None
    validation_split: str | None
    validation_run: Path | None
    also: str | None
    tensorboard: bool
    loggers: list[str] | None
    skip_bad: bool


def fit(
    data: str | Path,
    model: str | Path,
    out: str | Path,
    settings: FitSettings | None = None,
    *,
    preset: str | None = None,
    triplets: str | Path | None = None,
    pooling: str = "auto",
    query_length: int | None = None,
    document_length: int | None = None,
    validation_split: str | None = None,
    validation_run: str | Path | None = None,
    also: str | None = None,
    tensorboard: bool = False,
    loggers: Sequence[str] | None = None,
    resume: bool = False,
    skip_bad: bool = False,
    say: Callable[[str], None] = tell,
    **changes: Any,
) -> Fitted:
    """Fine-tune an encoder on a collection: mine triplets, prepare them, train, validate; what `remargin fit` does.

    If interrupted, the same call with `resume` continues the training run. Its folder:

        config.yaml     what was asked for, the seed, versions, and hashes of the input
        triplets.tsv    the mined triplets, if none were given
        data/           what `prepare` made of collection and triplets
        topics.npy      the topic of each query, if batches are sampled by topic
        metrics.csv     loss, its two parts, margins, targets, speed, validations
        checkpoint/     what `resume` needs
        teacher/        vectors of an in-batch teacher, if there is one
        best/ last/     models
        report.json     the outcome

    Args:
        data: the collection, as `Collection.load` takes it, or a folder that `prepare` wrote.
        model: the encoder to start from: a folder, or a name of the Hugging Face hub.
        out: the folder of the training run.
        settings: how to train. Without it, they follow from `preset` and `changes`.
        preset: default, paper or released; see `FitSettings.preset`.
        triplets: a table of ids, as `mine` writes it. Without it, the triplets in a prepared folder; else triplets are
            mined with BM25.
        pooling: how token vectors become one vector; see `BiEncoder`.
        query_length, document_length: maximum lengths in tokens; longer texts are truncated.
        validation_split: the split to validate on. Without it, dev, if the collection has one.
        validation_run: a run file of the validation queries, whose documents are re-ranked. Without it, BM25's.
        also: another collection, on which the model is measured before and after training: what it forgets.
        tensorboard: log for TensorBoard.
        loggers: further Lightning loggers, each a class and its arguments.
        resume: continue a training run of the same settings that was interrupted.
        skip_bad: leave bad input out, and count it.
        say: called with progress messages.
        **changes: single settings by their names in `FitSettings` and `LossSettings`: steps, target, ...

    Raises:
        InputError: for bad input, for settings that make no sense together, and if `out` holds something else.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = [f"how is part {word} made,the part {word} is a value" for word in "abcdefgh"]
        >>> _ = (folder / "faq.csv").write_text("query,document\\n" + "\\n".join(rows))
        >>> fitted = fit(f"pairs:{folder / 'faq.csv'}", model_folder, folder / "run", steps=2, say=lambda line: None)
        >>> fitted.steps, fitted.model.name
        (2, 'best')
    """
    settings = _settings(settings, preset, changes)
    asked = _Asked(
        data=str(data),
        model=str(model),
        out=Path(out),
        triplets=None if triplets is None else Path(triplets),
        pooling=pooling,
        query_length=query_length,
        document_length=document_length,
        validation_split=validation_split,
        validation_run=None if validation_run is None else Path(validation_run),
        also=also,
        tensorboard=tensorboard,
        loggers=None if loggers is None else list(loggers),
        skip_bad=skip_bad,
    )
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(asked).items()}
    out = asked.out
    folder = TrainingFolder(out, {**plain, "settings": asdict(settings)}, resume)
    require_measures([settings.validation_measure])
    options: Any = {"query_length": asked.query_length, "document_length": asked.document_length}
    encoder = BiEncoder.from_pretrained(asked.model, pooling=asked.pooling, seed=settings.seed, **options)  # type: ignore[arg-type]
    loss = settings.loss.build(encoder.similarity)
    prepared = _data_folder(asked)
    scored = "tas-balanced" if settings.sampler == "tas-balanced" else "teacher" if needs_scores(loss) else None
    if scored and asked.triplets is None and prepared == out / "data":
        raise InputError(f'"{scored}" needs scores', do="give --triplets that have scores (`remargin teach`)")
    if settings.in_batch_teacher is not None:
        BiEncoder.from_pretrained(settings.in_batch_teacher)
    split = _validation_split(asked, settings)
    first_stage = None if asked.validation_run is None else Run.load(asked.validation_run)
    other = None if asked.also is None else Collection.load(asked.also, "test", asked.skip_bad)
    if other is not None and other.rejects.count:
        say(f"{also}: skipped bad input, {other.rejects.describe()}")
    with folder.opened():
        board = ["lightning_fabric.loggers.TensorBoardLogger name=tensorboard version="] if asked.tensorboard else []
        logging = [_logger(text, out) for text in [*board, *(asked.loggers or [])]]  # some write at once
        remove_parts(out / "triplets.tsv")
        if not prepared.exists():
            _prepare(asked, encoder, settings, say)
        else:
            _verify(prepared)
        folder.add_hashes(_input_hashes(prepared, asked.model))
        validator = None if split is None else Validator(prepared, split, settings, first_stage)
        if validator is None:
            say("no dev split: training without validation")
        elif split != "dev":
            say(f"the best model is chosen on {split}: what it reaches there says little; measure it on another split")
        before = None if other is None else _measure(encoder, other, settings.validation_measure)
        fitted = train(encoder, prepared, out, loss, settings, validator, logging, resume, say)
        report: dict[str, Any] = {**asdict(fitted), "model": str(fitted.model)}
        if other is not None and before is not None:
            measure = settings.validation_measure
            after = _measure(BiEncoder.from_pretrained(fitted.model), other, measure)
            report["also"] = {"data": also, "measure": measure, "before": before, "after": after}
            say(f"{also}: {measure} {before:.4f} before, {after:.4f} after")
        write_report(out, report)
    return fitted


def _settings(settings: FitSettings | None, preset: str | None, changes: dict[str, Any]) -> FitSettings:
    """The settings of a training run: those given, or a preset's with changes, of which each must have an effect."""
    if settings is not None and (preset is not None or changes):
        names = ", ".join(sorted({*changes, *(["preset"] if preset else [])}))
        raise InputError(f"settings are given, and {names} beside them", do="give one or the other")
    if preset in ("paper", "released") and "steps" not in changes:
        do = "give --steps; the paper has an epoch of MS MARCO, 310,788 steps of 128"
        raise InputError(f"the preset {preset} needs to know how long to train", do=do)
    loss = {"target": LossSettings.target, "in_batch": False, **changes}
    given = [name for name, value in changes.items() if value is not None]
    for case, idle in idle_settings(loss["target"], bool(loss["in_batch"])).items():
        refuse_idle(case, [name for name in idle if name in given])
    settings = settings or FitSettings.preset(preset or "default", **changes)
    if settings.schedule != "exponential":
        refuse_idle("other schedules than exponential", [name for name in given if name == "gamma"])
    return settings


def _logger(text: str, out: Path) -> Any:
    """A Lightning logger from its class and arguments; it logs into the training run's folder, if it takes a folder.

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


def _data_folder(asked: _Asked) -> Path:
    """What to train on: the collection itself, if `prepare` wrote it with triplets and no others are given."""
    folder = on_disk(asked.data)
    if asked.triplets is None and folder is not None and (folder / "triplets").is_dir():
        return folder
    return asked.out / "data"


def _prepare(asked: _Asked, model: BiEncoder, settings: FitSettings, say: Callable[[str], None]) -> None:
    triplets = asked.triplets
    if triplets is None:
        triplets = asked.out / "triplets.tsv"
        if not triplets.exists():
            train = Collection.load(asked.data, "train", asked.skip_bad)
            mined = mine(train, triplets, seed=settings.seed)
            require_ranked(mined)
            say(f"mined {mined.triplets:,} triplets for {mined.queries:,} queries with BM25")
            if mined.without_ranking:
                say(f"BM25 ranks nothing for {mined.without_ranking:,} of them: their negatives are random")
    texts = model.text_settings
    report = prepare(asked.data, asked.model, asked.out / "data", triplets, **asdict(texts), skip_bad=asked.skip_bad)
    say(f"prepared {report.documents:,} documents, {report.queries:,} queries and {report.triplets or 0:,} triplets")
    if report.rejected:
        say(f"set aside as bad input: {report.rejected:,}; see {asked.out / 'data' / 'rejects.jsonl'}")
    for note, count in report.notes.items():
        if note.startswith("WARNING"):
            say(f"{note}: {count:,}")


def _verify(data: Path) -> None:
    """See that all is as it was written: one damaged score spoils a training run silently."""
    verify_files(data, read_prepared(data)["sha256"], REMEDY)
    for name in ("queries", "documents"):
        TokenStore(data / "tokens" / name).verify()
    Triplets(data / "triplets").verify()


def _validation_split(asked: _Asked, settings: FitSettings) -> str | None:
    """Dev, if there is one. Another split, the one to be reported above all, only if it is asked for by name."""
    source, split = open_source(asked.data, Rejects(skip=asked.skip_bad)), asked.validation_split or "dev"
    if split in source.splits() and (asked.validation_split is not None or has_queries(source, split)):
        return split
    if asked.validation_split is not None:
        have = ", ".join(source.splits()) or "none"
        raise InputError(f"no split {split!r}; it has: {have}", file=asked.data, do="choose one of those")
    if settings.patience is not None:
        do = "name a split to stop on with --validation-split, but not the one that you will report"
        raise InputError("patience needs a dev split, and there is none", file=asked.data, do=do)
    return None


def _measure(model: BiEncoder, collection: Collection, measure: str) -> float:
    return evaluate(search(collection, "exact", model), collection.qrels, [measure]).means[measure]


def _input_hashes(data: Path, model: str) -> dict[str, str]:
    """Hashes of the input of a training run: collection, triplets, and the model's weights if they are in a folder."""
    of_triplets = Triplets(data / "triplets").header["sha256"]
    hashes = {**read_prepared(data)["sha256"], **{f"triplets/{name}": of for name, of in of_triplets.items()}}
    weights = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return hashes | {f"model/{path.name}": sha256(path) for path in weights}
