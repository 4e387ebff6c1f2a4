"""Collections from a data set of Hugging Face's `datasets` package that has a row for each pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from remargin.data.pair_columns import KNOWN_COLUMNS
from remargin.data.pairs import Pairs
from remargin.data.tables import Rejects, Row
from remargin.errors import InputError, first_line
from remargin.files.shapes import stays_inside
from remargin.files.unpacking import read_small

HOW = "datasets:{name}?query=COLUMN&document=COLUMN&split=SPLIT"
LARGEST_CARD = 1 << 20  # bytes of a README
SAVED = ("dataset_info.json", "dataset_dict.json")  # what `save_to_disk` writes
ROWS_AT_ONCE = 1000


def open_dataset(spec: str, rejects: Rejects) -> Pairs:
    """The data set that `datasets:FOLDER_OR_NAME?query=COL&document=COL&split=SPLIT&config=NAME` names, as pairs.

    It is a folder that `save_to_disk` wrote, a folder of data files that `load_dataset` reads, or a name on the hub. As
    with `pairs:`, columns are found by their names, and documents are split into train, dev and test by their texts.
    Other columns, such as negatives, are not read: `mine` finds negatives.

    Args:
        spec: what comes after `datasets:`. `split` is the data set's own, or several of them: `train+test`. It can be
            left out if there is just one.
        rejects: takes bad rows.

    Raises:
        InputError: for a data set that cannot be reached or read, and for a split or column that it does not have.
    """
    name, _, options = spec.partition("?")
    parts = [part.partition("=") for part in options.split("&") if part]
    given = {option: unquote(value) for option, _, value in parts}  # where a + is a +
    columns = "&".join("".join(part) for part in parts if part[0] not in ("split", "config"))
    split, config = given.get("split"), given.get("config")
    dataset = _one_split(_load(name, config), name, split)
    _check_columns(dataset, name, given)

    def rows() -> Iterator[Row]:
        number = 0
        try:
            dataset.data.validate(full=True)  # Arrow trusts its files, and may crash on a damaged one
            for batch in dataset.iter(ROWS_AT_ONCE):
                for values in zip(*batch.values(), strict=True):
                    number += 1
                    yield Row(number, dict(zip(batch, values, strict=True)))
        except Exception as error:  # datasets raises whatever its parts raise
            problem = f"cannot be read ({first_line(error)})"
            raise InputError(problem, file=name, line=number + 1, do="write the data set again") from None

    return Pairs(f"{name}?{columns}" if columns else name, rejects, rows)


def _load(name: str, config: str | None) -> Any:
    """A `Dataset`, or a `DatasetDict` of splits."""
    try:
        import datasets
    except ImportError:
        raise InputError("datasets: needs datasets", do="pip install 'remargin[sentence-transformers]'") from None
    folder = Path(name)
    if not folder.is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1 or folder.is_file()):
        raise InputError("no such folder", file=name, do="name a folder of save_to_disk, or a data set of the hub")
    if folder.is_dir():
        _refuse_elsewhere(folder)
    try:
        if any((folder / file).is_file() for file in SAVED):
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, config)
    except Exception as error:  # datasets raises whatever its parts raise
        problem = "cannot be read" if folder.is_dir() else "there is no such folder, and the hub did not help"
        do = "check the folder" if folder.is_dir() else "check the name, or your connection to the Hugging Face hub"
        raise InputError(f"{problem} ({first_line(error)})", file=name, do=do) from None


def _refuse_elsewhere(folder: Path) -> None:
    """Refuse a folder that names files elsewhere or addresses of the network: `datasets` would follow them."""
    for path in (folder / "README.md", *sorted(folder.glob("state.json")), *sorted(folder.glob("*/state.json"))):
        if not path.is_file():
            continue
        content = read_small(path, LARGEST_CARD).decode(errors="replace")
        try:
            if path.suffix == ".json":
                files = json.loads(content)
            else:
                front = content.split("---")[1] if content.startswith("---") else ""
                loaded = yaml.safe_load(front)
                files = loaded.get("configs") if isinstance(loaded, dict) else None
            names = list(_file_names(files))
        except (RecursionError, ValueError, yaml.YAMLError):
            raise InputError("is damaged", file=path, do="check the folder") from None
        for name in names:
            if "://" in name or not stays_inside(name):
                problem = f"names {name!r:.80}, which is no file in the folder"
                raise InputError(problem, file=path, do="put the file into the folder, if you trust it")


def _file_names(value: Any, of_files: bool = False) -> Iterator[str]:
    """The strings under data_files, data_dir and filename, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _file_names(item, of_files or name in ("data_files", "_data_files", "data_dir"))
    elif isinstance(value, list):
        for item in value:
            yield from _file_names(item, of_files)
    elif isinstance(value, str) and of_files:
        yield value


def _one_split(loaded: Any, name: str, split: str | None) -> Any:
    import datasets

    if isinstance(loaded, datasets.Dataset):
        own = str(loaded.split) if loaded.split is not None else None
        if split is not None and split != own:
            problem = f"no split {split!r}: " + (f"it is {own!r}" if own else "it has none")
            raise InputError(problem, file=name, do="leave split= out")
        return loaded
    wanted = split.split("+") if split else list(loaded)
    missing = [part for part in wanted if part not in loaded]
    if missing or (split is None and len(loaded) != 1):
        problem = f"no split {missing[0]!r}" if missing else "several splits"
        do = f"add '?split=NAME' ('&split=NAME' after other options), or several: 'split={'+'.join(loaded)}'"
        raise InputError(f"{problem}; it has {', '.join(loaded)}", file=name, do=do)
    return datasets.concatenate_datasets([loaded[part] for part in wanted])


def _check_columns(dataset: Any, name: str, given: dict[str, str]) -> None:
    """Refuse columns that are not there, and a data set whose columns say nothing, before `Pairs` reads it."""
    columns, how = dataset.column_names, f"write it as '{HOW.format(name=name)}', with the quotes"
    known = {column.lower() for column in columns}
    absent = [column for column in (given.get("query"), given.get("document")) if column and column not in columns]
    told = len(columns) == 2 or {"query", "document"} <= set(given) or any(set(p) <= known for p in KNOWN_COLUMNS)
    if absent or not told:
        problem = f"no column {absent[0]!r}" if absent else "cannot tell the query and document columns"
        raise InputError(f"{problem} among {', '.join(map(repr, columns))}", file=name, do=how)
