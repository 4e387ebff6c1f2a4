"""The JSON files of a model folder, checked as they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.headers import read_json
from remargin.files.shapes import mismatch

INTACT = "use an intact model folder"
OURS = "remargin_model.json"  # in every folder that we wrote


def read_part(path: Path, kind: type, missing: Any = None) -> Any:
    """The JSON in a file, which must be of a kind; or what stands for it if there is no such file.

    >>> read_part(model_folder / "config.json", dict)["model_type"], read_part(model_folder / "none.json", dict, {})
    ('bert', {})
    """
    if missing is not None and not path.is_file():
        return missing
    content = read_json(path, INTACT)
    if not isinstance(content, kind):
        raise InputError(f"not a JSON {kind.__name__}", file=path, do=INTACT)
    return content


def field_of(content: dict[str, Any], name: str, hint: Any, file: Path, missing: Any = None) -> Any:
    """A field of what a file holds, which must fit a type hint; or what stands for it if it is missing or null.

    >>> field_of({"bias": None}, "bias", bool, Path("config.json"), True)
    True
    """
    value = content.get(name)
    if value is None:
        return missing
    if problem := mismatch(value, hint, name):
        raise InputError(problem, file=file, do=INTACT)
    return value


def first_prompt(prompts: dict[str, str | None], *names: str) -> str:
    """The first of these prompts that there is, be it empty; null stands for none.

    >>> first_prompt({"document": None, "passage": "passage: "}, "document", "passage")
    'passage: '
    """
    given = (prompts.get(name) for name in names)
    return next((prompt for prompt in given if prompt is not None), "")
