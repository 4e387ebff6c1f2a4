"""What all verbs have in common: how they are parsed, helped, silenced, interrupted, and read by machines."""

from __future__ import annotations

import io
import math
import re
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import fields, is_dataclass
from functools import cache
from json import dumps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import remargin
from remargin.cli import interrupts
from remargin.cli.help import LAST, help_text
from remargin.cli.mistakes import no_command
from remargin.cli.options import OPTIONAL_VALUE
from remargin.progress import silenced, tell


def _shared(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress messages and no bars.", rich_help_panel=LAST)
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the result as one JSON object, and everything else on standard error.",
            rich_help_panel=LAST,
        ),
    ] = False,
) -> None:
    """Options that every verb has."""


@cache
def _shared_params() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_shared)
    return [param for param in typer.main.get_command(app).params if param.name in ("quiet", "json")]


class Verb(TyperCommand):
    """A verb. Its function returns what it did, which `--json` prints.

    List options take several values after one flag: `--runs a b` is `--runs a --runs b`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += _shared_params()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before each further value, give a value to options that may lack one, and parse that."""
        lists = {flag for param in self.params if getattr(param, "multiple", False) for flag in param.opts}
        bare = {flag for param in self.params if param.name in OPTIONAL_VALUE for flag in param.opts}
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, repeat_flags(fill_in(args, bare), lists))

    def invoke(self, ctx: Any) -> Any:
        """Load what the verb needs, run it, and print its result if a machine reads it."""
        quiet, json = ctx.params.pop("quiet"), ctx.params.pop("json")
        getattr(remargin, str(self.name), None)  # loads torch, if need be, while Ctrl-C still ends it at once
        interrupts.interruptible()
        try:
            people = io.StringIO() if quiet else sys.stderr  # where lines go that a machine does not read
            with silenced(quiet), redirect_stdout(people) if json else nullcontext():
                result = super().invoke(ctx)
        except KeyboardInterrupt:
            interrupts.ends()
            tell(f"\n{interrupts.how_to_continue(str(self.name), ctx.params)}", error=True)
            raise typer.Exit(interrupts.INTERRUPTED) from None
        if json:
            print(dumps(plain(result), ensure_ascii=False))
        return result

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text, of the width of the screen."""
        formatter.write(help_text(self, ctx))


class Verbs(TyperGroup):
    """All verbs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is asked for, or one line about the one that was meant."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise no_command(args[0], list(self.commands))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text, of the width of the screen."""
        formatter.write(help_text(self, ctx))


def plain(value: Any) -> Any:
    """A value as JSON has it: paths are text, dataclasses objects, and what is not a number is null.

    >>> from pathlib import Path
    >>> plain({"out": Path("run.trec"), "scores": (0.5, float("nan"))})
    {'out': 'run.trec', 'scores': [0.5, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return plain(value.item()) if hasattr(value, "item") else str(value)  # a number of NumPy's; a path


def fill_in(arguments: list[str], flags: set[str]) -> list[str]:
    """The arguments with an empty value for each of these flags that has no value after it.

    >>> fill_in(["--resume", "--steps", "3"], {"--resume"}), fill_in(["--resume", "runs/faq"], {"--resume"})
    (['--resume=', '--steps', '3'], ['--resume', 'runs/faq'])
    """
    following = [*arguments, "-"][1:]
    pairs = zip(arguments, following, strict=True)
    return [f"{word}=" if word in flags and after.startswith("-") else word for word, after in pairs]


def repeat_flags(arguments: list[str], flags: set[str]) -> list[str]:
    """The arguments with the flag repeated before each of its values, for those flags that take several.

    >>> repeat_flags(["--runs", "a", "b", "--bound", "0.1", "--runs=c", "d"], {"--runs"})
    ['--runs', 'a', '--runs', 'b', '--bound', '0.1', '--runs=c', '--runs', 'd']
    >>> repeat_flags(["--values", "-0.5", "-1e-1"], {"--values"})
    ['--values', '-0.5', '--values', '-1e-1']
    """
    repeated: list[str] = []
    flag: str | None = None  # whose values these are
    has_value = False
    for argument in arguments:
        if argument.startswith("-") and not re.match(r"-\.?\d", argument):  # a number is a value
            name, equals, _ = argument.partition("=")
            flag, has_value = name if name in flags else None, bool(equals)
        elif flag is not None:
            repeated += [flag] if has_value else []
            has_value = True
        repeated.append(argument)
    return repeated
