"""Seeded mutations of files: of the values in them, and of their bytes.

A format knows how to write changed values so that nothing but the change is wrong: checksums are those of the new
content. What is changed at random is chosen without repetition, so that with enough mutations all of them are made.
"""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from remargin.files.headers import checksum, write_header
from remargin.files.journal import journal_line, read_journal
from remargin.files.ledger import CHECKSUM, _chained

DEEP = 100_000
FLIPS = 40  # bits of a file, one at a time
SOME = 12  # of the items of a container that has more
DAMAGES = 0.3  # share of the mutations that are of bytes


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "-1": -1,
    "0": 0,
    "1": 1,
    "0.5": 0.5,
    "1e400": float("inf"),
    "-1e400": float("-inf"),
    "NaN": float("nan"),
    "a large integer": 2**31,
    "an integer beyond 64 bits": 10**30,
    "an empty string": "",
    "a long string": "long " * 2000,
    "control characters": "a\nb\r\x00\x1b[31m\x85\u2028c",
    "half of a surrogate pair": "\ud800",
    "an empty list": [],
    "an empty object": {},
    "nested lists": [[[]], [[1, ["x"]]]],
    "500 nested lists": nested(500),
    "an object": {"a": {"b": [1, None]}},
    "../x": "../x",
    "/etc": "/etc",
    "a/../../b": "a/../../b",
    "5": 5,
}
YAML_TEXTS = {
    "a list that holds itself": "&a [*a]",
    "an alias that is not defined": "*nothing",
    "a date": "2020-01-01",
    "a set": "!!set {a, b}",
    "bytes": "!!binary aGVsbG8=",
    "an object of Python": "!!python/object/apply:os.getcwd []",
    "a list as a key": "{? [a] : b}",
    "billions of laughs": "[&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], "
    "&d [*c,*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e,*e], "
    "&g [*f,*f,*f,*f,*f,*f,*f,*f,*f], &h [*g,*g,*g,*g,*g,*g,*g,*g,*g], &i [*h,*h,*h,*h,*h,*h,*h,*h,*h]]",
}


class Format(NamedTuple):
    """How the values in a file are read, and written after a change; and texts that only mean something there."""

    read: Callable[[Path], Any]
    write: Callable[[Path, Any], None]
    texts: dict[str, str] = {}  # noqa: RUF012


def _with_numbers(text: str, infinity: str, nan: str) -> str:
    """JSON with other names for the numbers that are none, but not inside of its strings."""
    names = {"Infinity": infinity, "NaN": nan}
    return re.sub(r'"(?:[^"\\]|\\.)*"|Infinity|NaN', lambda found: names.get(found[0], found[0]), text)


def _valid(text: str) -> str:
    """JSON with infinity as a number that is too large, which is valid."""
    return _with_numbers(text, "1e400", "NaN")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _write_json(path: Path, value: Any) -> None:
    path.write_text(_valid(json.dumps(value, indent=1)))


def _read_header(path: Path) -> Any:
    return {name: value for name, value in _read_json(path).items() if name != "checksum"}


def _write_header(path: Path, value: Any) -> None:
    write_header(path, value)
    path.write_text(_valid(path.read_text()))


def _read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_bytes())


def _write_yaml(path: Path, value: Any) -> None:
    """As JSON, which is YAML, but for numbers that are none, and for 1e-06, which is text there."""
    text = _with_numbers(json.dumps(value), ".inf", ".nan")
    path.write_text(re.sub(r"(?<=[ \[]\d)e(?=[-+]\d)", ".0e", text))


def _read_config(path: Path) -> Any:
    return {name: value for name, value in _read_yaml(path).items() if name != "checksum"}


def _write_config(path: Path, value: Any) -> None:
    _write_yaml(path, {**value, "checksum": checksum(value)})


def _read_json_lines(path: Path) -> Any:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write_json_lines(path: Path, value: Any) -> None:
    path.write_text("".join(_valid(json.dumps(line)) + "\n" for line in value))


def _write_journal(path: Path, value: Any) -> None:
    path.write_bytes(b"".join(map(journal_line, value)))


def _read_ledger(path: Path) -> Any:
    return [row[:-1] for row in csv.reader(io.StringIO(path.read_text()))]


def _write_ledger(path: Path, value: Any) -> None:
    rows = [row if isinstance(row, list) else [row] for row in value]
    header, *lines = [",".join(str(cell) for cell in row).encode(errors="replace").decode() for row in rows] or [""]
    found, text = _chained("", header), f"{header},{CHECKSUM}\n"
    for line in lines:
        found = _chained(found, line)
        text += f"{line},{found}\n"
    path.write_text(text)


def _read_tensors(path: Path) -> Any:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size])


def _write_tensors(path: Path, value: Any) -> None:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = _valid(json.dumps(value)).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])


JSON = Format(_read_json, _write_json)
HEADER = Format(_read_header, _write_header)
YAML = Format(_read_yaml, _write_yaml, YAML_TEXTS)
CONFIG = Format(_read_config, _write_config, YAML_TEXTS)
JSON_LINES = Format(_read_json_lines, _write_json_lines)
JOURNAL = Format(lambda path: read_journal(path, dict), _write_journal)
LEDGER = Format(_read_ledger, _write_ledger)
TENSORS = Format(_read_tensors, _write_tensors)
BINARY = Format(lambda path: {}, lambda path, value: None)  # of which only the bytes can be changed


class Mutation(NamedTuple):
    """A change to one file of a folder, and its name for people."""

    file: str
    what: str
    apply: Callable[[Path], None]


def mutations(folder: Path, files: dict[str, Format], count: int, seed: str) -> list[Mutation]:
    """So many mutations of the files in a folder, each of another place or kind; fewer, if there are not so many."""
    rng = random.Random(seed)
    of_values = _in_turn([list(_of_values(folder, name, format, rng)) for name, format in files.items()], rng)
    of_bytes = _in_turn([list(_of_bytes(folder, name, format, rng)) for name, format in files.items()], rng)
    some = max(round(count * DAMAGES), count - len(of_values))
    chosen = of_bytes[:some]
    return chosen + of_values[: count - len(chosen)]


def _in_turn(of_files: list[list[Mutation]], rng: random.Random) -> list[Mutation]:
    """One of each file at a time, at random, so that small files are not forgotten over large ones."""
    for of_file in of_files:
        rng.shuffle(of_file)
    return [mutation for each in itertools.zip_longest(*of_files) for mutation in each if mutation is not None]


Place = tuple[str | int, ...]


def _of_values(folder: Path, name: str, format: Format, rng: random.Random) -> Iterator[Mutation]:
    content = format.read(folder / name)

    def mutation(what: str, edit: Callable[[Any], Any]) -> Mutation:
        return Mutation(name, what, lambda path: format.write(path, edit(copy.deepcopy(content))))

    all_places = list(_places(content, rng))
    for place in all_places:
        where = ".".join(map(str, place))
        for label, value in HOSTILE.items():
            yield mutation(f"{where} = {label}", _replacing(place, value))
        for label, change in CHANGES.items():
            yield mutation(f"{where} {label}", _changing(place, change))
        yield mutation(f"{where} deleted", _deleting(place))
        yield mutation(f"{where} renamed", _renaming(place))
        others = [other for other in all_places if other[: len(place)] != place and place[: len(other)] != other]
        if others:
            other = rng.choice(others)
            yield mutation(f"{where} swapped with {'.'.join(map(str, other))}", _swapping(place, other))


def _places(value: Any, rng: random.Random, place: Place = ()) -> Iterator[Place]:
    """Where values are, at any depth; of many items in one container, some."""
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys if len(keys) <= 3 * SOME else rng.sample(keys, SOME):
        yield (*place, key)
        if isinstance(value[key], dict | list):
            yield from _places(value[key], rng, (*place, key))


def _larger(value: Any) -> Any:
    return value + 1 if isinstance(value, int | float) else value


def _twice(value: Any) -> Any:
    """A list with its first item twice, or an object with one more name."""
    return (
        [*value[:1], *value] if isinstance(value, list) else {**value, "unknown": 1} if isinstance(value, dict) else 2
    )


CHANGES: dict[str, Callable[[Any], Any]] = {
    "as text": str,
    "in a list": lambda value: [value],
    "one more": _larger,
    "with something twice or more": _twice,
}


def _inside(root: Any, place: Place) -> Any:
    """The container that has this place."""
    for key in place[:-1]:
        root = root[key]
    return root


def _replacing(place: Place, value: Any) -> Callable[[Any], Any]:
    return _changing(place, lambda _: value)


def _changing(place: Place, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def edit(root: Any) -> Any:
        parent = _inside(root, place)
        parent[place[-1]] = change(parent[place[-1]])
        return root

    return edit


def _deleting(place: Place) -> Callable[[Any], Any]:
    def edit(root: Any) -> Any:
        del _inside(root, place)[place[-1]]
        return root

    return edit


def _renaming(place: Place) -> Callable[[Any], Any]:
    """Another name for the value; a list is turned around instead."""

    def edit(root: Any) -> Any:
        parent = _inside(root, place)
        if isinstance(parent, list):
            parent.reverse()
        else:
            parent[f"{place[-1]}x"] = parent.pop(place[-1])
        return root

    return edit


def _swapping(place: Place, other: Place) -> Callable[[Any], Any]:
    def edit(root: Any) -> Any:
        one, two = _inside(root, place), _inside(root, other)
        one[place[-1]], two[other[-1]] = two[other[-1]], one[place[-1]]
        return root

    return edit


def _of_bytes(folder: Path, name: str, format: Format, rng: random.Random) -> Iterator[Mutation]:
    content = (folder / name).read_bytes()
    for what, damaged in _damages(content, format, rng):
        yield Mutation(name, what, lambda path, damaged=damaged: _put(path, damaged))  # type: ignore[misc]
    yield Mutation(name, "missing", lambda path: path.unlink())
    yield Mutation(name, "a folder instead", lambda path: (path.unlink(), path.mkdir())[1])


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _damages(content: bytes, format: Format, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    start = 0 if format is not TENSORS else 8 + struct.unpack("<Q", content[:8])[0]
    header = start or len(content)  # of weights, only what says where they are
    for end in rng.sample(range(len(content)), min(8, len(content))):
        yield f"cut at {end}", content[:end]
    for bit in rng.sample(range(8 * header), min(10 * FLIPS if format is BINARY else FLIPS, 8 * header)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} flipped", bytes(changed)
    for label, extra in {"a NUL byte": b"\0", "no UTF-8": b"\xff\xfe", "an escape": b"\x1b"}.items():
        place = rng.randrange(header)
        yield f"{label} at {place}", content[:place] + extra + content[place:]
    yield "empty", b""
    yield "blank", b" \n"
    yield "the beginning of a ZIP archive", b"PK\3\4" + content[4:]
    if format in (TENSORS, BINARY):
        return
    yield "with a mark of byte order", b"\xef\xbb\xbf" + content
    yield "in UTF-16", content.decode().encode("utf-16")
    yield "twice", content + content
    yield "nested lists", b"[" * DEEP
    yield "nested lists, closed", b"[" * DEEP + b"]" * DEEP
    yield "nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP
    yield "a number of 5000 digits", b"9" * 5000
    for value in (b"null", b"[]", b"{}", b'"text"', b"3", b"NaN", b"[null]", b"[{}]", b'{"a": 1}'):
        yield f"{value.decode()} alone", value
    if found := re.search(rb'\{\s*"([^"]+)":', content):
        yield "a name twice", content.replace(b"{", b'{"' + found[1] + b'": [],', 1)
    names = re.findall(rb"^(\w+):", content, re.MULTILINE)
    for label, text in format.texts.items():
        yield f"{label} alone", text.encode()
        if names:
            name = rng.choice(names)
            block = re.compile(rb"^" + name + rb":.*\n(?:[ -].*\n)*", re.MULTILINE)
            replaced = block.sub(name + b": " + text.encode() + b"\n", content, count=1)
            yield f"{name.decode()} = {label}", replaced
