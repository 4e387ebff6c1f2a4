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
    sweep,
    teach,
    update,
)
from remargin.cli.options import ManyValues
from remargin.data.tables import OR_SKIP
from remargin.errors import InputError
from remargin.progress import tell

app = typer.Typer(
    name="remargin",
    help="Fine-tune dense retrievers by self-distillation with adaptive relevance margins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("prepare")(prepare.prepare)
app.command("mine")(mine.mine)
app.command("teach")(teach.teach)
app.command("fit")(fit.fit)
app.command("blend")(blend.blend)
app.command("encode")(encode.encode)
app.command("index")(index.index)
app.command("update")(update.update)
app.command("search")(search.search)
app.command("ask")(ask.ask)
app.command("rerank")(rerank.rerank)
app.command("fuse", cls=ManyValues)(fuse.fuse)
app.command("evaluate", cls=ManyValues)(evaluate.evaluate)
app.command("compare", cls=ManyValues)(compare.compare)
app.command("reproduce", cls=ManyValues)(reproduce.reproduce)
app.command("benchmark", cls=ManyValues)(benchmark.benchmark)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("inspect")(inspect.inspect)
app.command("sweep", cls=ManyValues)(sweep.sweep)
app.command("curve", cls=ManyValues, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    curve.curve
)
app.command("info")(info.info)


def _version(wanted: bool) -> None:
    if wanted:
        tell(f"remargin {__version__}")
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
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
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


def _interrupt(number: int, frame: Any) -> None:
    tell("\ninterrupted; the same command continues where it can, `fit` with --resume", error=True)
    signal.default_int_handler(number, frame)


def _stop(number: int, frame: Any) -> None:
    sys.exit(128 + number)
