"""The help of a command, as plain text: names are never cut, whatever the width of the screen."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

EXAMPLES = "Examples:"
WIDEST = 100  # longer lines are hard to read
NARROW = 70  # below it, there is no room for two columns
COLUMN = 30  # where texts begin beside names
TIED = "\u00a0"  # a space that no line ends at
LAST = "For every command"  # the heading of options that all verbs have


def help_text(command: Any, context: Any) -> str:
    """What `--help` prints: usage, what the command does, its options by their headings, and examples."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    about, examples = split_examples(command.help or "")
    path = context.command_path
    verbs = getattr(command, "commands", {})
    pieces = " ".join(command.collect_usage_pieces(context))
    parts = [_filled(f"Usage: {path} {pieces}", width), *(_filled(each, width) for each in _paragraphs(about))]
    listed = [(name, _first_sentence(verb.help or "")) for name, verb in verbs.items()]
    parts += [_section("Commands", listed, width, column=14)] if listed else []
    for heading, records in _by_heading(command, context).items():
        parts.append(_section(heading, records, width))
    if examples:
        parts.append(EXAMPLES + "\n" + textwrap.indent("\n".join(examples), "  "))
    if verbs:
        parts.append(_filled(f"`{path} COMMAND --help` has the options of a command, and examples.", width))
    return "\n\n".join(parts)


def split_examples(text: str) -> tuple[str, list[str]]:
    """What a docstring says, and its examples.

    >>> split_examples("Train.\\n\\nExamples:\\n    remargin fit\\n    remargin fit --steps 3")
    ('Train.', ['remargin fit', 'remargin fit --steps 3'])
    """
    about, _, examples = inspect.cleandoc(text).partition(EXAMPLES)
    return about.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def _by_heading(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Names and texts of arguments and options, by heading, in the order of the parameters."""
    headings: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    last: list[tuple[str, str]] = []
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is None:
            continue
        names, text = record
        if param.param_type_name == "argument":
            metavar = getattr(param, "metavar", None) or str(param.name).upper()
            headings["Arguments"].append((metavar, _defaults(text)))
            continue
        panel = getattr(param, "rich_help_panel", None) or "Options"
        if panel == LAST or (param.name == "help" and not hasattr(command, "commands")):
            last.append((names, _defaults(text)))
        else:
            headings.setdefault(panel, []).append((re.sub(r"<list\[(\w+)\]>", r"<\1>...", names), _defaults(text)))
    return {heading: records for heading, records in [*headings.items(), (LAST, last)] if records}


def _defaults(text: str) -> str:
    """A help text whose default, if it is described in words, stands without the parentheses that typer adds.

    >>> _defaults("Number of steps.  [default: (by the pairs)]"), _defaults("Seed.  [default: 0; x>=0]")
    ('Number of steps. [default: by the pairs]', 'Seed. [default: 0; at least 0]')
    """
    text = re.sub(r"\[default: \((.*)\)((?:; [^()]*)?)\]$", r"[default: \1\2]", text)
    text = re.sub(r"\bx>=(\d+)\]$", r"at least \1]", text)
    return " ".join(text.split()).replace("[default: required", "[required")


def _section(heading: str, records: Iterable[tuple[str, str]], width: int, column: int = COLUMN) -> str:
    column = column if width >= NARROW else 6
    return f"{heading}:\n" + "\n".join(_entry(names, text, width, column) for names, text in records)


def _entry(names: str, text: str, width: int, column: int) -> str:
    """An option: its text stands beside its names if there is room, else below them."""
    joined = text.replace("[default: ", f"[default:{TIED}")
    lines = textwrap.wrap(joined, max(width - column, 20), break_long_words=False, break_on_hyphens=False)
    lines = [line.replace(TIED, " ") for line in lines]
    begin = f"  {names}"
    if lines and len(begin) + 2 <= column:
        begin = begin.ljust(column) + lines.pop(0)
    return "\n".join([begin, *(" " * column + line for line in lines)])


def _paragraphs(text: str) -> list[str]:
    return [paragraph for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]


def _filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), max(width, 20), break_long_words=False, break_on_hyphens=False)


def _first_sentence(text: str) -> str:
    """What a verb does, for the list of verbs.

    >>> _first_sentence("Build an index, for `remargin ask`. If interrupted, ...")
    'Build an index, for `remargin ask`.'
    """
    first = " ".join((_paragraphs(inspect.cleandoc(text)) or [""])[0].split())
    return re.split(r"(?<=\.) ", first, maxsplit=1)[0]
