"""Settings from a YAML file, which flags on the command line override."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from remargin.cli.mistakes import ROOT, meant_option
from remargin.errors import InputError
from remargin.files.unpacking import LARGEST_YAML, read_small


def read_config(
    path: str | Path,
    known: Collection[str],
    lists: Collection[str] = (),
    flags: Collection[str] | None = None,
    verb: str | None = None,
) -> dict[str, Any]:
    """The settings in a YAML file, by flag name: `document-length: 200` or `document_length: 200`.

    Args:
        path: the file.
        known: the settings that there are.
        lists: those of them that may have several values. One value is a list of one.
        flags: those of them that are true or false; without, any may be.
        verb: the command that they are for.

    Raises:
        InputError: for a file that is not there or not a YAML mapping, and for settings that the verb does not have or
            that are there twice.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "config.yaml"
        >>> _ = file.write_text("document-length: 256  # tokens\\nmeasures: RR\\n")
        >>> read_config(file, known=["document_length", "measures", "out"], lists=["measures"])
        {'document_length': 256, 'measures': ['RR']}
    """
    path = Path(path)
    try:
        text = read_small(path, LARGEST_YAML).decode()
        settings = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"cannot be read ({reason})", file=path, do="check the path") from None
    except InputError:
        raise
    except RecursionError:
        raise InputError("nested too deeply", file=path, do="write `name: value` lines") from None
    except ValueError as error:
        raise InputError(
            f"not valid YAML ({error})", file=path, do="correct it, or put the value into quotes"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"not valid YAML ({problem})", file=path, line=line, do="correct it") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise InputError("not a list of `name: value` lines", file=path, do="see configs/ for examples")
    _refuse_twice(text, path)
    named = {str(name).replace("-", "_"): value for name, value in settings.items()}
    if {"command", "asked"} <= named.keys():
        problem, do = "the record of a training run, not a config", f"to repeat it: {named['command']}"
        raise InputError(problem, file=path, do=do)
    unknown = sorted(set(named) - set(known))
    if unknown:
        meant = [meant_option(name, [other.replace("_", "-") for other in known]) for name in unknown]
        likely = ", ".join(option.removeprefix("--") for option in meant if option is not None)
        lists_all = f"{ROOT} {verb or 'COMMAND'} --help lists all"
        do = f"did you mean {likely}? ({lists_all})" if likely else lists_all
        raise InputError(f"unknown setting {', '.join(map(repr, unknown))}", file=path, do=do)
    for name, value in named.items():
        if isinstance(value, dict | list) and name not in lists:
            raise InputError(f"{name} must be one value", file=path, do="write it as `name: value`")
        items = value if isinstance(value, list) else []
        if flags is not None and name not in flags and any(isinstance(item, bool) for item in [value, *items]):
            do = "write another value, in quotes if need be: on, off, yes and no are true and false in YAML"
            raise InputError(f"{name} cannot be true or false", file=path, do=do)
        if isinstance(value, dict) or any(item is None or isinstance(item, dict | list) for item in items):
            raise InputError(f"{name} must be plain values", file=path, do="write it as `name: [value, value]`")
        if name in lists and value is not None:
            named[name] = value if isinstance(value, list) else [value]
    return named


def _refuse_twice(text: str, path: Path) -> None:
    """YAML would take the last of several values for one name without a word."""
    lines: dict[str, int] = {}
    for key, _ in yaml.compose(text, yaml.SafeLoader).value:
        name, line = str(key.value).replace("-", "_"), key.start_mark.line + 1
        if name in lines:
            raise InputError(
                f"{name} is given twice", file=path, line=line, do=f"line {lines[name]} has it too: keep one"
            )
        lines[name] = line
