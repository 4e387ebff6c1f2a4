"""Refuses model folders that would have somebody else's code run, or files read that are not theirs.

Checked before any library sees the folder: transformers runs no code of a folder either, unless it is told to, but it
follows paths and names of repositories wherever a folder's JSON leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.headers import read_json
from remargin.files.shapes import stays_inside

LOOKED_AT = ("*.json", "*.safetensors", "*.txt", "*.model")
# Large, and no place for names of files or code: what is in them is tokens.
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json")
OWN = "fusion.json"  # ours, with a checksum and a reader that says what to do
OTHER = "use another model"


def refuse_untrusted(folder: Path) -> None:
    """Refuse a model folder with code of its own, and with links or names of files that lead out of it.

    Raises:
        InputError: that names the file and what is wrong with it.
    """
    if not any((folder / name).is_file() for name in ("config.json", "modules.json", "adapter_config.json")):
        return  # whoever reads it says that it is no model
    if (folder / "adapter_config.json").is_file():
        do = "merge the adapter into its model, and save that"
        raise InputError("is an adapter to a model that it names", file=folder / "adapter_config.json", do=do)
    for path in _files(folder):
        _refuse_link(path, folder)
        if path.suffix == ".json" and path.name not in (*VOCABULARIES, OWN):
            _refuse_json(path)


def _files(folder: Path) -> Iterator[Path]:
    """The files of the model and of its modules, which have folders of their own."""
    for pattern in LOOKED_AT:
        yield from sorted(path for path in folder.glob(pattern) if not path.is_dir())
        yield from sorted(path for path in folder.glob(f"*/{pattern}") if not path.is_dir())


def _refuse_link(path: Path, folder: Path) -> None:
    """Links of the hub's cache lead from a snapshot to the blobs beside it; no other link leads out of a model."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # to nowhere, or round in a circle
        raise InputError("is a link that leads nowhere", file=path, do="use an intact model folder") from None
    roots = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":
        roots.append(folder.resolve().parents[1] / "blobs")
    if not any(target.is_relative_to(root) for root in roots):
        do = "copy the file into the folder, if you trust it"
        raise InputError("is a link that leads out of the model's folder", file=path, do=do)


def _refuse_json(path: Path) -> None:
    content = read_json(path, "use an intact model folder")
    if path.name.endswith(".index.json"):
        _refuse_paths(path, content)
    values = [content]
    while values:  # not recursive: it may be nested as deep as it likes
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            if value.get("auto_map"):
                do = "use another model; or, if transformers knows this one, delete auto_map from the file"
                raise InputError("asks for code of its own (auto_map), which is never run", file=path, do=do)
            for name in ("attn_implementation", "_attn_implementation"):
                if "/" in str(value.get(name, "")):
                    problem = f"asks for code from {value[name]!r:.80} ({name}), which is never run"
                    raise InputError(problem, file=path, do=OTHER)
            values += value.values()


def _refuse_paths(path: Path, content: Any) -> None:
    """Weights in several files are in the folder itself."""
    files = content.get("weight_map") if isinstance(content, dict) else None
    for name in set(map(str, files.values())) if isinstance(files, dict) else ():
        if not stays_inside(name) or "/" in name:
            raise InputError(f"weights in {name!r:.80}, which is no file in the folder", file=path, do=OTHER)
