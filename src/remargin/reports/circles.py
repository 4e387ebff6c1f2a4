"""Points on the unit circle as plain data: the paper's figure 2."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from remargin.reports.svg.circle import draw_circle
from remargin.reports.svg.elements import WIDTH
from remargin.reports.tables import csv_text


@dataclass(frozen=True)
class Arrow:
    """A point of the circle that moves to the angle `end`.

    Angles are in degrees, anticlockwise from the right.

    >>> Arrow("d-1", -15, end=-45).turn
    -30
    """

    label: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(angle) for angle in (self.start, self.end)):
            raise ValueError(f"{self.label}: an arrow with a number that is none")
        if abs(self.turn) >= 360:
            raise ValueError(f"{self.label}: an arrow around the whole circle")

    @property
    def turn(self) -> float:
        """How many degrees it covers, anticlockwise."""
        return self.end - self.start


@dataclass(frozen=True)
class Sector:
    """A part of the circle, anticlockwise from `start` to `end`, such as all places that meet a target.

    >>> Sector("target of d-1", 198, 342).end
    342
    """

    label: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not 0 < self.end - self.start < 360:  # nor if an angle is no number
            raise ValueError(f"{self.label}: a sector from {self.start}° to {self.end}°")


@dataclass
class CirclePanel:
    """A circle: points and resting places by their angles, arrows, and sectors, which may cover each other.

    Labels such as d+ and d-1 are set as in the paper.

    >>> CirclePanel("static", {"q": 90, "d+": 45, "d-1": -15}, [Arrow("d-1", -15, end=-45)]).points["d+"]
    45
    """

    title: str
    points: dict[str, float]
    arrows: list[Arrow] = field(default_factory=list)
    rests: dict[str, float] = field(default_factory=dict)
    sectors: list[Sector] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not all(math.isfinite(angle) for angle in (*self.points.values(), *self.rests.values())):
            raise ValueError(f"{self.title}: an angle that is no number")


@dataclass
class Circle:
    """Points on the unit circle, the targets of a loss, and where it moves the points: the paper's figure 2.

    >>> arrows, sectors = [Arrow("d-1", -15, end=-45)], [Sector("target of d-1", 225, 315)]
    >>> panel = CirclePanel("static", {"q": 90, "d-1": -15}, arrows, {"d-1": -45}, sectors)
    >>> print(Circle("targets", "Where negatives go", "", [panel]).csv())
    panel,kind,label,angle,end
    static,point,q,90,
    static,point,d-1,-15,
    static,rest,d-1,-45,
    static,sector,target of d-1,225,315
    static,arrow,d-1,-15,-45
    <BLANKLINE>
    """

    name: str
    title: str
    caption: str
    panels: list[CirclePanel]

    def __post_init__(self) -> None:
        if not self.panels:
            raise ValueError(f"{self.name}: no panels")

    def svg(self, standalone: bool = False, width: float = WIDTH) -> str:
        """To stand inside a page, or alone as a file of its own with its style; so many pixels wide."""
        return draw_circle(self, standalone, width)

    def csv(self) -> str:
        """A line for each point, resting place, sector and arrow."""
        rows: list[list[object]] = []
        for panel in self.panels:
            for kind, angles in (("point", panel.points), ("rest", panel.rests)):
                rows += [[panel.title, kind, label, angle, None] for label, angle in angles.items()]
            rows += [[panel.title, "sector", sector.label, sector.start, sector.end] for sector in panel.sectors]
            rows += [[panel.title, "arrow", arrow.label, arrow.start, arrow.end] for arrow in panel.arrows]
        return csv_text(["panel", "kind", "label", "angle", "end"], rows)
