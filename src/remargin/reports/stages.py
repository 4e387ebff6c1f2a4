"""Stages of training side by side, as plain data: the paper's figure 1."""

from __future__ import annotations

from dataclasses import dataclass

from remargin.reports.svg.elements import WIDTH
from remargin.reports.svg.stages import KINDS, draw_stages
from remargin.reports.tables import csv_text


@dataclass(frozen=True)
class Stage:
    """A box: data, a bi-encoder or a cross-encoder. What it makes goes to the next one, and back if it `returns`.

    >>> Stage("triplets", "data").returns
    False
    """

    label: str
    kind: str
    returns: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.label}: a stage is {', '.join(KINDS)}, not {self.kind!r}")


@dataclass
class StagePanel:
    """Stages, one after another.

    >>> StagePanel("self-distillation", [Stage("triplets", "data"), Stage("bi-encoder", "bi-encoder")]).title
    'self-distillation'
    """

    title: str
    stages: list[Stage]


@dataclass
class Stages:
    """Ways to train, side by side.

    >>> panel = StagePanel("self-distillation", [Stage("triplets", "data"), Stage("bi-encoder", "bi-encoder")])
    >>> print(Stages("overview", "Two ways to train", "", [panel]).csv())
    panel,stage,kind,returns
    self-distillation,triplets,data,False
    self-distillation,bi-encoder,bi-encoder,False
    <BLANKLINE>
    """

    name: str
    title: str
    caption: str
    panels: list[StagePanel]

    def __post_init__(self) -> None:
        if not self.panels or not all(panel.stages for panel in self.panels):
            raise ValueError(f"{self.name}: a panel without stages, or none")

    def svg(self, standalone: bool = False, width: float = WIDTH) -> str:
        """To stand inside a page, or alone as a file of its own with its style; so many pixels wide."""
        return draw_stages(self, standalone, width)

    def csv(self) -> str:
        """A line for each stage."""
        rows = [
            [panel.title, stage.label, stage.kind, stage.returns] for panel in self.panels for stage in panel.stages
        ]
        return csv_text(["panel", "stage", "kind", "returns"], rows)
