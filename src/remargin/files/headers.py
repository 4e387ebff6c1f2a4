"""JSON files: anybody's, and headers of our own with a checksum, a format and fields that are known."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.files.shapes import mismatch
from remargin.files.unpacking import LARGEST_JSON, read_small

T = TypeVar("T")
CHECKSUM = "checksum"  # the field of a header that has its own


def read_json(path: Path, remedy: str) -> Any:
    """The content of a JSON file.

    Raises:
        InputError: if the file cannot be read, or is not JSON, or nests deeper than Python can read.
    """
    try:
        return json.loads(read_small(path, LARGEST_JSON).decode())
    except FileNotFoundError:
        raise InputError("not found", file=path, do=remedy) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=path, do=remedy) from None
    except RecursionError:
        raise InputError("not valid JSON (nested too deeply)", file=path, do=remedy) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"not valid JSON ({error})", file=path, do=remedy) from None


def write_header(path: Path, header: Mapping[str, Any]) -> None:
    """A JSON header with its own checksum, so that `read_header` notices any change. Replaces an older one at once."""
    content = json.dumps({**header, CHECKSUM: checksum(header)}, indent=1)
    with new_file(path, overwrite=True) as file:
        file.write(content.encode() + b"\n")


def format_of(path: Path) -> str | None:
    """The format that a header names, to choose what to read it as; None if it names none. Nothing else is checked."""
    content: Any = None
    with contextlib.suppress(InputError):  # said when it is read, in the words of headers
        content = read_json(path, "")
    return content.get("format") if isinstance(content, dict) else None


def read_header(path: Path, shape: type[T], format: str, remedy: str) -> T:
    """A header written by `write_header`, checked: intact, of the right format, and with the fields of that format.

    Args:
        path: the file.
        shape: a TypedDict with the fields of the format and their types; see `mismatch`.
        format: its name and version, as in "remargin-tokens-1", which a field of that name must have.
        remedy: what to do about a header that cannot be used.

    Raises:
        InputError: if the header is missing, damaged, of another format, or lacks a field or has one too many.
    """
    try:
        header = read_json(path, remedy)
    except InputError as error:
        if error.problem.startswith("not valid JSON"):
            raise InputError("not a header that remargin wrote", file=path, do=remedy) from None
        raise
    return check_header(header, path, shape, format, remedy)


def check_header(header: Any, path: Path, shape: type[T], format: str, remedy: str) -> T:
    """The content of a header without its checksum, checked as `read_header` does; the path is for messages."""
    try:
        expected = header.pop(CHECKSUM)
    except (AttributeError, KeyError, TypeError):
        raise InputError("not a header that remargin wrote", file=path, do=remedy) from None
    if expected != checksum(header):
        raise InputError("header damaged: its checksum does not match", file=path, do=remedy)
    if header.get("format") != format:
        raise InputError(f"format {header.get('format')!r}, expected {format!r}", file=path, do=remedy)
    require_shape(header, shape, format, path, remedy)
    return cast(T, header)


def read_record(path: Path, kind: type[T], format: str, remedy: str) -> T:
    """A dataclass from a header that has its fields beside the format; see `read_header`."""
    header = read_header(path, dict[str, Any], format, remedy)
    del header["format"]
    require_shape(header, kind, format, path, remedy)
    return kind(**header)


def require_shape(content: Any, shape: Any, format: str, path: Path, remedy: str) -> None:
    """See that what a header holds has the shape that its format asks for; see `mismatch`.

    Raises:
        InputError: that names what is wrong, and the file.
    """
    try:
        problem = mismatch(content, shape)
    except RecursionError:
        problem = "nested too deeply"
    if problem:
        raise InputError(f"not a header of format {format}: {problem}", file=path, do=remedy)


def checksum(content: Mapping[str, Any]) -> str:
    """The SHA-256 of plain values, whatever the order of their names.

    >>> checksum({"a": 1, "b": [2.5, None]}) == checksum({"b": [2.5, None], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
