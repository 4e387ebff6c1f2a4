"""The one error type that users see, and how text from elsewhere is made safe to print."""

from __future__ import annotations

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
