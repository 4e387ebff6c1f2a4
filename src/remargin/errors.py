"""The one error type that users see, and how text from elsewhere is made safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from os import PathLike

# Control characters, which a terminal obeys, and those that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """Something that the user gave us is wrong: a file, a line, an id, an option. Always one line long.

    It names the place, the problem, and the remedy. The command line prints it and exits with code 2.

    Example:
        >>> print(InputError("empty text", file="faq.csv", line=12, id="q7", do="delete the row, or pass --skip-bad"))
        faq.csv:12: id 'q7': empty text; delete the row, or pass --skip-bad
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        id: str | None = None,
        do: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.line = line
        self.id = id
        self.do = do
        place = [] if self.file is None else [self.file if line is None else f"{self.file}:{line}"]
        subject = [] if id is None else [f"id {id!r}"]
        message = ": ".join([*place, *subject, problem]) + (f"; {do}" if do else "")
        super().__init__(printable(" ".join(message.splitlines())))


def refuse_idle(case: str, options: Iterable[str]) -> None:
    """Refuse options that are given but have no effect in a case: whoever gives one has misunderstood something.

    Raises:
        InputError: for the first of them.

    Example:
        >>> refuse_idle("other schedules than exponential", ["gamma"])
        Traceback (most recent call last):
        remargin.errors.InputError: --gamma does nothing for other schedules than exponential; leave it out
    """
    for name in options:
        raise InputError(f"--{name.replace('_', '-')} does nothing for {case}", do="leave it out")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that somebody who wrote another one probably meant; None if nothing is near.

    Initials, beginnings and endings count before spelling: they are how names are abbreviated and remembered.

    >>> known = ["learning-rate", "batch-size", "epochs", "out", "steps"]
    >>> [nearest(name, known) for name in ("lr", "batch", "epoch", "output", "max_steps", "setps", "colour")]
    ['learning-rate', 'batch-size', 'epochs', 'out', 'steps', 'steps', None]
    """
    plain = {_plain(one): one for one in known}
    name = _plain(name)
    words = [word for word in name.split("-") if word]
    joined = name.replace("-", "")
    ways = (
        [one for one in plain if one.replace("-", "") == joined],
        [one for one in plain if len(name) > 1 and "".join(word[0] for word in one.split("-") if word) == name],
        [one for one in plain if len(name) > 1 and one.startswith(name)],
        difflib.get_close_matches(name, plain, n=1, cutoff=0.75),
        sorted((one for one in plain if len(one) > 2 and name.startswith(one)), key=len, reverse=True),
        sorted((one for one in plain if len(one) > 2 and name.endswith(f"-{one}")), key=len, reverse=True),
        [one for one in plain if len(name) > 2 and name in one.split("-")],
        difflib.get_close_matches(name, plain, n=1, cutoff=0.6),
        [one for one in plain if any(len(word) > 3 and word in words for word in one.split("-"))],
    )
    found = next((way[0] for way in ways if way), None)
    return None if found is None else plain[found]


def _plain(name: str) -> str:
    return name.lower().strip("-_").replace("_", "-")


def printable(text: str) -> str:
    """Text with every control character as an escape sequence of Python, so that no terminal obeys it.

    Line breaks and tabs stay as they are.

    >>> print(printable("a red \\x1b[31mline\\nand another"))
    a red \\x1b[31mline
    and another
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def first_line(error: BaseException) -> str:
    """The first line of another library's error message; the error's class, if the message is empty.

    >>> first_line(OSError("no such model\\nsee the manual")), first_line(KeyError())
    ('no such model', 'KeyError')
    """
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
