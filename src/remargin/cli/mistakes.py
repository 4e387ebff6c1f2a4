"""What is wrong with a command line, in one line, and what was probably meant."""

from __future__ import annotations

import re
from typing import Any

import typer

from remargin.errors import InputError, nearest

# What typer raises for a command line that it cannot parse; typer has its own copy of click or not, by its version.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# What an option is called elsewhere, for those names that are not alike.
ELSEWHERE = {
    "dataset": "data", "corpus": "data", "input": "data", "pairs": "data", "encoder": "model", "backbone": "model",
    "path": "out", "save": "out", "dir": "out", "force": "overwrite", "checkpoint": "resume", "continue": "resume",
    "loss": "target", "time": "minutes", "max-time": "minutes", "iterations": "steps", "iters": "steps",
    "num-train-epochs": "epochs", "eval-steps": "validate-every", "save-steps": "save-every",
    "logging-steps": "log-every", "max-grad-norm": "clip", "gradient-accumulation-steps": "accumulate",
    "bf16": "precision", "fp16": "precision", "early-stopping": "patience", "max-length": "document-length",
    "max-seq-length": "document-length", "hard-negatives": "negatives", "top-k": "k", "n": "k", "metric": "measure",
    "metrics": "measures", "qrels": "data", "workers": "threads", "num-workers": "threads", "silent": "quiet",
    "lang": "language", "chunk": "passage-length", "chunk-size": "passage-length", "stride": "passage-overlap",
    "backend": "index", "alpha": "weight",
}  # fmt: skip
ROOT = "remargin"


def mistake(error: Any) -> str:
    """One line for an error of typer's parser: what is wrong, and what to do."""
    context = error.ctx
    message = " ".join(str(error.message).split()).rstrip(".")
    kind = type(error).__name__
    if context is None:  # the parser does not know the command
        name = getattr(error, "option_name", None)
        lacks = name is not None and "requires" in message
        return f"{name} needs a value" if lacks else message[:1].lower() + message[1:]
    verb, lists = context.info_name, f"{_path(context)} --help"
    if kind == "NoSuchOption":
        return no_option(context, error.option_name)
    if kind == "MissingParameter":
        return f"{verb} needs {_listed(_missing(context))}; {lists} has an example"
    if isinstance(error, typer.BadParameter) and error.param is not None:
        return _bad_value(context, error.param, message)
    if extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)$", message):
        return f"{verb} takes no argument {extra[1]!r}; quote what has spaces ({lists} has examples)"
    return f"{message[:1].lower()}{message[1:]} ({lists} lists all)"


def no_option(context: Any, name: str) -> str:
    """That a command has no such option, and which one it has."""
    command, lists = context.command, f"{_path(context)} --help lists all"
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        if any(name in option.opts for verb in verbs.values() for option in verb.params):
            return f"no option {name} before the command; write {ROOT} COMMAND {name}"
        return f"no option {name}; {lists}"
    params = [*command.params, *getattr(context.parent, "command", command).params]  # `curve` also takes those of `fit`
    meant = meant_option(name, [opt for option in params for opt in option.opts if opt.startswith("--")])
    if meant is None:
        return f"no option {name} for {context.info_name}; {lists}"
    return f"no option {name} for {context.info_name}; did you mean {meant}? ({lists})"


def no_command(name: str, known: list[str]) -> InputError:
    """That there is no such command, and which one was probably meant."""
    meant = nearest(name, known)
    lists = f"{ROOT} --help lists all"
    return InputError(f"no command {name}", do=lists if meant is None else f"did you mean {meant}? ({lists})")


def meant_option(name: str, known: list[str]) -> str | None:
    """The option that was meant.

    >>> options = ["--learning-rate", "--out", "--overwrite", "--document-length"]
    >>> [meant_option(name, options) for name in ("--lr", "--output-dir", "--force", "--max-seq-length", "--xyzzy")]
    ['--learning-rate', '--out', '--overwrite', '--document-length', None]
    """
    plain = [option.lstrip("-") for option in known]
    other = ELSEWHERE.get(name.strip("-").replace("_", "-").lower())
    meant = other if other in plain else nearest(name, plain)
    return None if meant is None else f"--{meant}"


def _path(context: Any) -> str:
    """The command as it is typed: remargin fit."""
    return ROOT if context.parent is None and context.info_name == ROOT else f"{ROOT} {context.info_name}"


def _missing(context: Any) -> list[str]:
    """All that is required and not given; what is given was read before the first of them was missed."""
    lacking = [
        param
        for param in context.command.params
        if param.required and context.params.get(param.name) is None and context.lookup_default(param.name) is None
    ]
    return [param.opts[0] if param.param_type_name == "option" else str(param.name).upper() for param in lacking]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _bad_value(context: Any, param: Any, message: str) -> str:
    """What an option was given, and what it takes."""
    option = max(param.opts, key=len) if param.param_type_name == "option" else str(param.name).upper()
    given = _given(context, param)
    least = re.search(r"(?:greater than or equal to|>=) ?(\S+)", message)
    most = re.search(r"(?:less than or equal to|<=) ?(\S+)", message)
    if "integer" in message:
        takes = "it must be a whole number"
    elif least:
        takes = f"it must be at least {least[1]}"
    elif most:
        takes = f"it must be at most {most[1]}"
    elif "number" in message or "float" in message:
        takes = "it must be a number"
    else:
        takes = message[:1].lower() + message[1:]
    return f"{option}: {takes}" if given is None else f"{option} is {given!r}; {takes}"


def _given(context: Any, param: Any) -> str | None:
    """The value of an option, as it was typed or as a configuration has it; None for an argument."""
    words = context.meta.get("words", [])
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in param.opts:
            return value if equals else next(iter(words[place + 1 :]), None)
    default = context.lookup_default(param.name)
    return None if default is None else str(default)
