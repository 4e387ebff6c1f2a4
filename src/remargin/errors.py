"""The one error type that users see."""

from __future__ import annotations

from os import PathLike


class InputError(ValueError):
    """Something that the user gave us is wrong: a file, a line, an id, an option. Always one line long.

    Says where it is, what is wrong, and what to do about it. The command line prints it and exits with code 2.

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
        super().__init__(" ".join(message.splitlines()))


def first_line(error: Exception) -> str:
    """What another library's error says, in one line; its kind, if it says nothing.

    >>> first_line(OSError("no such model\\nsee the manual")), first_line(KeyError())
    ('no such model', 'KeyError')
    """
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
