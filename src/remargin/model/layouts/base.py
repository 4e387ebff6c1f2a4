"""What a layout is, and which there are. Read this first.

Most model folders are read by `folder.read_settings`: a backbone of transformers, or modules of sentence-transformers.
A *layout* is any other way in which a system was published. It recognises its folders, and either says how an encoder
is read from one (`encoder`), or loads a model that scores documents by more than one vector of each (`ranker`).

To add a layout, write one module here with a `Layout`, and add a line to `LAYOUTS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from remargin.errors import InputError
from remargin.model.folder import read_settings
from remargin.model.opening import EncoderFolder
from remargin.model.parts import read_part

if TYPE_CHECKING:
    from remargin.model.ranker import Ranker

Side = Literal["queries", "documents"]
LAYOUTS = {
    "ance": "remargin.model.layouts.ance:LAYOUT",
    "dpr questions": "remargin.model.layouts.dpr:QUESTIONS",
    "dpr contexts": "remargin.model.layouts.dpr:CONTEXTS",
    "colbert": "remargin.model.layouts.colbert:LAYOUT",
    "splade": "remargin.model.layouts.splade:LAYOUT",
}


@dataclass(frozen=True)
class Layout:
    """One way in which models were published.

    Attributes:
        name: what such a folder holds, for people.
        recognises: whether a folder has this layout; reads JSON and the names of tensors, no weights.
        encoder: how an encoder is read from such a folder, if it holds one.
        side: the texts that the encoder is for, if it is one of two.
        ranker: loads a model that is no encoder: from the folder, the name to give it, and options.
    """

    name: str
    recognises: Callable[[Path], bool]
    encoder: Callable[[Path], EncoderFolder] | None = None
    side: Side | None = None
    ranker: Callable[..., Ranker] | None = None


@cache
def _layout(name: str) -> Layout:
    module, _, constant = LAYOUTS[name].partition(":")
    return cast(Layout, getattr(importlib.import_module(module), constant))


def layout_of(folder: Path) -> Layout | None:
    """The layout of a model folder; None for a plain one.

    >>> layout_of(model_folder) is None
    True
    """
    return next((layout for layout in map(_layout, LAYOUTS) if layout.recognises(folder)), None)


def open_encoder(folder: Path, side: Side | None = None) -> EncoderFolder:
    """The encoder in a folder, whatever its layout, before it is loaded; `side` says that it is one of two.

    Raises:
        InputError: for a folder that holds something else, or the other one of two encoders.
    """
    layout = layout_of(folder)
    if layout is None:
        return EncoderFolder(read_settings(folder))
    if layout.encoder is None:
        do = "give it to `remargin search`, `rerank` or `benchmark`, or name an encoder"
        raise InputError(f"holds {layout.name}, which has no single vector of a text", file=folder, do=do)
    if layout.side != side and layout.side is not None:
        belongs = "give both as QUERIES+DOCUMENTS, such as question-encoder+context-encoder"
        problem = f"holds {layout.name}, which encodes {layout.side} only"
        if side is not None:
            problem += f", where the encoder of {side} belongs"
        raise InputError(problem, file=folder, do=belongs)
    return layout.encoder(folder)


def architectures(folder: Path) -> list[Any]:
    """The classes of transformers that a folder's config names."""
    named = read_part(folder / "config.json", dict, missing={}).get("architectures")
    return named if isinstance(named, list) else []
