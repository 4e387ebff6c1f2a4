"""Any number of seeded mutations: several changes at once, of values, of bytes, and of lines.

`mutations` makes each change that there is alone, and ends when all are made. Here each number is another input, made
of that number when it is read, so that a hundred thousand take no memory and any of them can be made again.
"""

from __future__ import annotations

import copy
import gzip
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .mutations import BINARY, HOSTILE, TENSORS, Format, Mutation, _places, _replacing, _swapping

MOST_CHANGES = 4
VALUES = [value for name, value in HOSTILE.items() if name != "500 nested lists"]  # which cannot be copied
LONGEST_SPAN = 64  # bytes that are copied or deleted at once
# What parsers treat in their own way, and what terminals, shells and spreadsheets do.
TOKENS = (
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\x1b[2J", b"\r", b"\r\n", b"\n\n",
    b"\t", b"\t\t", b'"', b'""', b"'", b",", b";", b"\\", b"\\u0000", b"\\ud800", b"{", b"}", b"[", b"]", b"<", b">",
    b"<!--", b"-->", b"<![CDATA[", b"<h1>", b"</h1>", b"<pre>", b"&#0;", b"&#xFFFFFFFFFF;", b"# ", b"```", b"---\n",
    b"===\n", b".. note::", b"=1+1", b"%s", b"{0}", b"../", b"/etc/passwd", b"NaN", b"Infinity", b"-1", b"1e999",
    b"1e-999", b"9" * 400, b"0x10", b"1_0", b"\xd9\xa1", b"null", b"true", b"[" * 50, b"(" * 50, b"a" * 5000, b": ",
    b"- ", b"[" * 100_000, b"(" * 3_000, b"<" * 3_000, b"\xf0\x9f\x98\x80", b"*x", b"&x ", b"? ", b"|\n", b"~", b"yes",
    b"!!python/object/apply:os.getcwd []", b"2020-01-01",
)  # fmt: skip


def havoc(folder: Path, files: dict[str, Format], count: int, seed: str, first: int = 0) -> list[Mutation]:
    """As many mutations as asked for, from number `first`; the same numbers are the same inputs."""
    contents = {name: (folder / name).read_bytes() for name in files}
    values = {name: None if format is BINARY else format.read(folder / name) for name, format in files.items()}
    names = list(files)

    def mutation(number: int) -> Mutation:
        rng = random.Random(f"{seed} {number}")
        name = rng.choice(names)
        return Mutation(name, f"input {number}", partial(_apply, rng, contents[name], values[name], files[name]))

    return [mutation(number) for number in range(first, first + count)]


def _apply(rng: random.Random, content: bytes, value: Any, format: Format, path: Path) -> None:
    state = rng.getstate()  # a second reader of the same mutation reads the same input
    of_values = bool(value) and rng.random() < 0.5
    if of_values:
        format.write(path, _changed(copy.deepcopy(value), rng))
        content = path.read_bytes()
    if not of_values or rng.random() < 0.3:
        packed = content[:2] == b"\x1f\x8b" and rng.random() < 0.8
        content = gzip.decompress(content) if packed else content
        end = 8 + int.from_bytes(content[:8], "little") if format is TENSORS else len(content)
        content, rest = content[:end], content[end:]  # of weights, only what says where they are
        for _ in range(rng.randint(1, MOST_CHANGES)):
            content = rng.choice(CHANGES)(content, rng)
        content += rest
        path.write_bytes(gzip.compress(content, compresslevel=1) if packed else content)
    rng.setstate(state)


def _changed(value: Any, rng: random.Random) -> Any:
    """A value with some of those in it replaced, swapped or deleted."""
    for _ in range(rng.randint(1, 3)):
        places = list(_places(value, rng)) if isinstance(value, dict | list) else []
        if not places:
            break
        place, other = rng.choice(places), rng.choice(places)
        apart = place[: len(other)] != other and other[: len(place)] != place
        if apart and rng.random() < 0.2:
            value = _swapping(place, other)(value)
        else:
            value = _replacing(place, copy.deepcopy(rng.choice(VALUES)))(value)
    return value


def _span(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(1, LONGEST_SPAN))


def _flip(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return b"\0"
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set(content: bytes, rng: random.Random) -> bytes:
    start, _ = _span(content, rng)
    return content[:start] + bytes([rng.randrange(256)]) + content[start + 1 :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    start, _ = _span(content, rng)
    return content[:start] + rng.choice(TOKENS) + content[start:]


def _replace(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + rng.choice(TOKENS) + content[end:]


def _delete(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + content[end:]


def _copy(content: bytes, rng: random.Random) -> bytes:
    """A span once more, somewhere else."""
    start, end = _span(content, rng)
    place, _ = _span(content, rng)
    return content[:place] + content[start:end] * rng.choice((1, 1, 2, 20)) + content[place:]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _lines(content: bytes, rng: random.Random) -> bytes:
    """Lines in another order, twice, or not at all."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return b"\n"
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(3)
    if change == 0:
        lines[one], lines[two] = lines[two], lines[one]
    elif change == 1:
        lines.insert(two, lines[one])
    else:
        del lines[one]
    return b"".join(lines)


def _number(content: bytes, rng: random.Random) -> bytes:
    """Another digit in a number, or another word for it."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not digits:
        return _set(content, rng)
    place = rng.choice(digits)
    new = rng.choice((b"9", b"-1", b"1e999", b"nan", b"", b"18446744073709551616", b"\xd9\xa1", b"0.5"))
    return content[:place] + new + content[place + 1 :]


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _flip, _set, _insert, _insert, _replace, _delete, _copy, _cut, _lines, _lines, _number, _number,
)  # fmt: skip
