"""What `fit` is asked for: the collection, the model, the folder, and the settings that follow from it."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from remargin.data.collection import has_queries, open_source
from remargin.data.preparation import read_prepared
from remargin.data.tables import Rejects
from remargin.errors import InputError, first_line, refuse_idle
from remargin.files.atomic import on_disk
from remargin.losses.inputs import Similarity
from remargin.model.folder import LONGEST_DEFAULT, local_folder
from remargin.model.layouts.base import open_encoder
from remargin.model.names import what_works
from remargin.model.tokenizer import TextSettings
from remargin.retrieval.languages import AUTO, check_language
from remargin.training.optimiser import require_eight_bit, states_here
from remargin.training.settings import PRESETS, FitSettings, LossSettings, idle_settings

# Presets of the paper: nothing of the recipe is added to them.
OF_THE_PAPER = ("paper", "released")
# What every Lightning logger inherits from; the package lightning has its own copy.
LOGGERS = {(f"{package}.loggers.logger", "Logger") for package in ("lightning_fabric", "lightning.fabric")}


@dataclass
class Request:
    """The arguments of `fit` beside the settings: data, model, the folder of the training run, and the recipe.

    Attributes are described at `remargin.training.fitting.fit`; `watched` says that the model is validated while it
    trains, and not only afterwards.
    """

    data: str
    model: str
    out: Path
    preset: str
    triplets: Path | None
    pooling: str
    query_length: int | None
    document_length: int | None
    training_length: int | None
    query_prefix: str | None
    document_prefix: str | None
    epochs: float | None
    minutes: float | None
    blend: str
    rounds: int
    watched: bool
    validation_split: str | None
    validation_run: Path | None
    also: str | None
    tensorboard: bool
    loggers: list[str] | None
    skip_bad: bool
    language: str = AUTO
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        _ = self.weight  # an InputError if it makes no sense
        if self.language != AUTO:
            check_language(self.language)
        if self.rounds < 1:
            raise InputError(f"rounds is {self.rounds}", do="it must be at least 1")
        if self.rounds > 1 and self.of_the_paper:
            raise InputError(f"the preset {self.preset} has one round", do="leave out --rounds")
        if self.rounds > 1 and self.triplets is not None:
            raise InputError("several rounds mine triplets themselves", do="leave out --triplets or --rounds")
        if self.rounds > 1 and self.prepared != self.out / "data":
            do = "leave out --rounds, or give the collection that it was prepared from"
            raise InputError("has triplets already, but several rounds mine their own", file=self.data, do=do)
        for name in ("epochs", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} is {value}", do="it must be a number above 0")

    @property
    def of_the_paper(self) -> bool:
        """Whether a preset of the paper was asked for, to which nothing is added."""
        return self.preset in OF_THE_PAPER

    @property
    def weight(self) -> float | None:
        """The weight of the trained model: 1 without blending; None if dev chooses it."""
        return parse_weight(self.blend)

    def plain(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    def guesses(self, pooling: str, similarity: str) -> list[str]:
        """A line about how a raw backbone is used, as far as neither its folder nor the options say it."""
        said = open_encoder(local_folder(self.model)).settings
        guessed = [] if said.pooling or self.pooling != "auto" else [f"pooling {pooling}"]
        guessed += [] if said.similarity or self.similarity else [f"similarity {similarity}"]
        options = " and ".join(f"--{guess.split()[0]}" for guess in guessed)
        return [f"{self.model} does not say how it is used: {', '.join(guessed)} ({options})"] if guessed else []

    @property
    def prepared(self) -> Path:
        """What to train on: the collection itself, if `prepare` wrote it with triplets and no others are given."""
        folder = on_disk(self.data)
        if self.triplets is None and folder is not None and (folder / "triplets").is_dir():
            return folder
        return self.out / "data"

    def training_texts(self, own: TextSettings, data: Path) -> TextSettings:
        """Lengths and prefixes of texts in training, for an encoder that has its own.

        They are those of prepared data, if these are there already and nothing else is asked for. Else both lengths are
        512 tokens at most, unless longer texts are asked for: a step with an encoder of 8,192 would take minutes.
        """
        most = None if self.of_the_paper else LONGEST_DEFAULT
        ready = read_prepared(data)["settings"] if data.exists() else {}
        query = self.query_length or ready.get("query_length") or min(own.query_length, most or own.query_length)
        asked = self.training_length or self.document_length
        document = asked or ready.get("document_length") or min(own.document_length, most or own.document_length)
        return replace(own, query_length=int(query), document_length=int(document))

    def dev_split(self, settings: FitSettings) -> str | None:
        """Dev, if there is one. Another split, the one to be reported above all, only if it is asked for by name."""
        source, split = open_source(self.data, Rejects(skip=self.skip_bad)), self.validation_split or "dev"
        if split in source.splits() and (self.validation_split is not None or has_queries(source, split)):
            return split
        if self.validation_split is not None:
            have = ", ".join(source.splits()) or "none"
            raise InputError(f"no split {split!r}; it has: {have}", file=self.data, do="choose one of those")
        if settings.patience is not None:
            do = "name a split to stop on with --validation-split, but not the one that you will report"
            raise InputError("patience needs a dev split, and there is none", file=self.data, do=do)
        return None


def parse_weight(blend: str) -> float | None:
    """The weight of the trained model that `blend` asks for: 1 without blending; None if dev chooses it.

    >>> parse_weight("off"), parse_weight("0.3"), parse_weight("auto")
    (1.0, 0.3, None)
    """
    if blend == "auto":
        return None
    if blend == "off":
        return 1.0
    try:
        weight = float(blend)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= 1:
        do = "use off, auto, or a weight from 0 (the start) to 1 (the trained model)"
        raise InputError(f"blend is {blend!r}", do=do)
    return weight


def require_given(**arguments: Any) -> str | Path:
    """Refuse a request that lacks something, and return the first of its arguments.

    >>> require_given(data="faq", model=None, out=None)
    Traceback (most recent call last):
    remargin.errors.InputError: fit needs --model and --out; `remargin fit --help` has an example
    """
    names = [f"--{name}" for name, value in arguments.items() if value is None]
    if names:
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        do = what_works() if names == ["--model"] else "`remargin fit --help` has an example"
        raise InputError(f"fit needs {listed}", do=do)
    first: str | Path = next(iter(arguments.values()))
    return first


def asks_for_validation(settings: FitSettings | None, changes: dict[str, Any]) -> bool:
    """Whether validation while training is asked for: by how often to validate, or by patience.

    >>> asks_for_validation(None, {"validate_every": 100}), asks_for_validation(FitSettings(validate_every=10), {})
    (True, True)
    >>> asks_for_validation(None, {"steps": 10}), asks_for_validation(FitSettings(), {})
    (False, False)
    """
    if settings is None:
        return any(changes.get(name) is not None for name in ("validate_every", "patience"))
    return settings.patience is not None or settings.validate_every != FitSettings.validate_every


def resolve_settings(settings: FitSettings | None, preset: str | None, changes: dict[str, Any]) -> FitSettings:
    """The settings of a training run: those given, or a preset's with changes, of which each must have an effect."""
    if settings is not None and (preset is not None or changes):
        names = ", ".join(sorted({*changes, *(["preset"] if preset else [])}))
        raise InputError(f"settings are given, and {names} beside them", do="give one or the other")
    if preset in OF_THE_PAPER and "steps" not in changes:
        do = "give --steps; the paper has an epoch of MS MARCO, 310,788 steps of 128"
        raise InputError(f"the preset {preset} needs to know how long to train", do=do)
    loss = {"target": LossSettings.target, "in_batch": False, **PRESETS.get(preset or "default", {}), **changes}
    given = [name for name, value in changes.items() if value is not None]
    for case, idle in idle_settings(loss["target"], bool(loss["in_batch"])).items():
        refuse_idle(case, [name for name in idle if name in given])
    settings = settings or FitSettings.preset(preset or "default", **changes)
    if settings.schedule != "exponential":
        refuse_idle("other schedules than exponential", [name for name in given if name == "gamma"])
    return settings


def loss_for(
    model: str,
    settings: FitSettings,
    is_given: bool,
    say: Callable[[str], None],
    similarity: Similarity | None = None,
) -> FitSettings:
    """The settings with a loss that fits the encoder, as its folder describes it: the default one needs cosines."""
    if is_given or settings.loss.target != "softmax":
        return settings
    if (similarity or open_encoder(local_folder(model)).settings.similarity or "cosine") == "cosine":
        return settings
    say("the encoder compares by dot products, which the softmax target does not take: target distributed instead")
    return replace(settings, loss=replace(settings.loss, target="distributed", stop_gradient=None))


def settings_here(
    asked: Request, settings: FitSettings, changes: dict[str, Any], say: Callable[[str], None]
) -> FitSettings:
    """The settings with what follows from encoder and machine, as far as nothing else was asked for by name."""
    settings = loss_for(asked.model, settings, "target" in changes, say, asked.similarity)
    if asked.of_the_paper and "eight_bit" not in changes:
        return states_here(settings, say)
    if settings.eight_bit:
        require_eight_bit()  # at once, not after mining
    return settings


def make_logger(text: str, out: Path) -> Any:
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
