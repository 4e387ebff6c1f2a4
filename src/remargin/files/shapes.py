"""Whether plain values, as JSON and YAML give them, have the shape that type hints describe."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


class Check(NamedTuple):
    """What a value must fulfil beside its type: in words, and as a test. It stands in an `Annotated` hint."""

    words: str
    holds: Callable[[Any], bool]


class FieldsOf(NamedTuple):
    """In an `Annotated` hint for a dict: it holds the fields of a dataclass, which can be made of it."""

    kind: type


def encodable(text: str) -> bool:
    """Whether a string is text that UTF-8 can hold.

    >>> encodable("ü"), encodable("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def stays_inside(name: str) -> bool:
    """Whether a relative path leads to something in its folder.

    >>> stays_inside("1_Pooling"), stays_inside("../elsewhere"), stays_inside("/etc")
    (True, False, False)
    """
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


Count = Annotated[int, Check("0 or more", lambda value: value >= 0)]
Size = Annotated[int, Check("1 or more", lambda value: value >= 1)]
Finite = Annotated[float, Check("a finite number", math.isfinite)]
FileName = Annotated[str, Check("a path inside the folder", lambda name: 0 < len(name) < 256 and stays_inside(name))]
Checksums = dict[FileName, str]  # SHA-256 by file
BlockSums = dict[FileName, tuple[Count, list[str]]]  # size, and the SHA-256 of each block, by file


def mismatch(value: Any, hint: Any, place: str = "") -> str | None:
    """What is wrong with a value, in words that name the place; None if it has the shape of the hint.

    A hint is a TypedDict, a dataclass (a mapping of its fields; those with a default may be missing), a list, tuple or
    dict of hints, a union, a Literal, Annotated with a `Check` or `FieldsOf`, or a plain type. One
    field too many is wrong, too.

    >>> mismatch({"a": [1, 2]}, dict[str, list[int]])
    >>> mismatch({"a": [1, "2"]}, dict[str, list[int]])
    "a[1] is '2', not int"
    >>> mismatch(-1, Count)
    '-1 is not 0 or more'
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin is Annotated:
        plain, *checks = arguments
        return mismatch(value, plain, place) or _first(_unfulfilled(value, check, place) for check in checks)
    if origin in (Union, types.UnionType):
        fits = any(mismatch(value, option, place) is None for option in arguments)
        return None if fits else _not(place, value, hint)
    if origin is Literal:
        return None if value in arguments and type(value) in map(type, arguments) else _not(place, value, hint)
    if origin in (list, Sequence) and isinstance(value, list):
        return _first(mismatch(item, arguments[0], f"{place}[{i}]") for i, item in enumerate(value))
    if origin is tuple and isinstance(value, list | tuple):
        return _tuple(value, arguments, place)
    if origin is dict and isinstance(value, dict):
        keys = (mismatch(key, arguments[0], place) for key in value)
        values = (mismatch(item, arguments[1], _inside(place, key)) for key, item in value.items())
        return _first(keys) or _first(values)
    if is_typeddict(hint) or dataclasses.is_dataclass(hint):
        return _fields(value, hint, place)
    if hint is str and isinstance(value, str) and not encodable(value):
        return f"{place or 'it'} is half of a surrogate pair, which is no text"
    plain = (int, float) if hint is float else hint if isinstance(hint, type) and origin is None else ()
    fits = isinstance(value, plain) and isinstance(value, bool) == (hint is bool)
    return None if fits or (value is None and hint in (None, type(None))) else _not(place, value, hint)


def _unfulfilled(value: Any, check: Check | FieldsOf, place: str) -> str | None:
    if isinstance(check, FieldsOf):
        return mismatch(value, check.kind, place)
    return None if check.holds(value) else f"{_at(place, value)} not {check.words}"


def _tuple(value: list[Any] | tuple[Any, ...], hints: tuple[Any, ...], place: str) -> str | None:
    hints = hints[:1] * len(value) if hints[-1:] == (...,) else hints
    if len(value) != len(hints):
        return f"{place or 'it'} has {len(value)} items, not {len(hints)}"
    pairs = zip(value, hints, strict=True)
    return _first(mismatch(item, hint, f"{place}[{i}]") for i, (item, hint) in enumerate(pairs))


def _fields(value: Any, hint: Any, place: str) -> str | None:
    if not isinstance(value, dict):
        return _not(place, value, dict)
    hints, optional = _known_fields(hint)
    if missing := [name for name in hints if name not in value and name not in optional]:
        return f"{_inside(place, missing[0])} is missing"
    if unknown := [name for name in value if name not in hints]:
        return f"{_inside(place, unknown[0])} is unknown"
    return _first(mismatch(item, hints[name], _inside(place, name)) for name, item in value.items())


@cache
def _known_fields(hint: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The hints of all fields, and the names of those that may be missing."""
    hints = get_type_hints(hint, include_extras=True)
    if is_typeddict(hint):  # what it says of optional keys itself is wrong where hints are strings
        optional = frozenset(name for name, of in hints.items() if get_origin(of) is NotRequired)
        return {name: get_args(of)[0] if name in optional else of for name, of in hints.items()}, optional
    fields = [field for field in dataclasses.fields(hint) if field.init]
    defaults = (dataclasses.MISSING, dataclasses.MISSING)
    optional = frozenset(field.name for field in fields if (field.default, field.default_factory) != defaults)
    return {field.name: hints[field.name] for field in fields}, optional


def _first(problems: Any) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _at(place: str, value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"{place} is {shown}," if place else f"{shown} is"


def _not(place: str, value: Any, hint: Any) -> str:
    kind = hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint).replace("typing.", "")
    return f"{_at(place, value)} not {kind}"
