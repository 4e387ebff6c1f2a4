"""The command line: one small file per verb. Each parses, calls one function, and prints."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer
from safetensors import SafetensorError

from remargin import __version__
from remargin.cli import (
    ask,
    benchmark,
    blend,
    compare,
    curve,
    demo,
    encode,
    evaluate,
    export,
    fit,
    fuse,
    index,
    info,
    inspect,
    mine,
    prepare,
    report,
    reproduce,
    rerank,
    search,
    serve,
    sweep,
    teach,
    update,
)
from remargin.cli.interrupts import leaving_at_once
from remargin.cli.mistakes import ROOT, UsageError, mistake
from remargin.cli.verb import Verb, Verbs
from remargin.data.tables import OR_SKIP
from remargin.errors import InputError
from remargin.progress import show, tell

app = typer.Typer(
    name=ROOT,
    cls=Verbs,
    help="Fine-tune dense retrievers by self-distillation with adaptive relevance margins.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    *(demo.demo, prepare.prepare, mine.mine, teach.teach, fit.fit, blend.blend, encode.encode, index.index),
    *(update.update, search.search, ask.ask, serve.serve, rerank.rerank, fuse.fuse, evaluate.evaluate),
    *(compare.compare, reproduce.reproduce, benchmark.benchmark, report.report, inspect.inspect, sweep.sweep),
    *(curve.curve, export.export, info.info),
)
# What `curve` does not know are options of `fit`, which it reads itself.
OTHERS = {"curve": {"allow_extra_args": True, "ignore_unknown_options": True}}
for _verb in VERBS:
    app.command(_verb.__name__, cls=Verb, context_settings=OTHERS.get(_verb.__name__))(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"remargin {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. Bad input is one line and exit code 2; a bug is a traceback and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for what a terminal cannot show
    logging.getLogger("remargin").handlers = [_Warnings()]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded: threads that wait do not spin
    signal.signal(signal.SIGTERM, _stop)  # so that half-written folders are cleaned up
    try:
        with leaving_at_once():
            code = app(prog_name=ROOT, standalone_mode=False)
        if isinstance(code, int):  # of an exit; the result of a verb is no number
            sys.exit(code)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        fail(mistake(error))
    except InputError as error:
        fail(_possible(str(error)))
    except OSError as error:
        if error.strerror is None:  # not the system's
            raise
        fail(f"{error.filename or 'system'}: {error.strerror}")
    except SafetensorError as error:
        fail(f"weights could not be read or written ({error}); is the disk full?")


def _possible(message: str) -> str:
    """Advice without an option that the verb does not have."""
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    can_skip = any("--skip-bad" in option.opts for option in command.params)
    return message if can_skip else message.replace(OR_SKIP, "")


class _Warnings(logging.Handler):
    """Shows warnings on standard error, as every other line for people."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            tell(record.getMessage(), error=True)


def fail(message: str) -> None:
    """One line on standard error, and exit code 2."""
    tell(f"error: {message}", error=True)
    sys.exit(2)


def _stop(number: int, frame: Any) -> None:
    sys.exit(128 + number)
