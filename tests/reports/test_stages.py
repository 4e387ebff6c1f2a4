"""Stages of training, side by side."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from remargin.paper.loss_geometry import overview
from remargin.reports.figures import figure_from_json, figure_json
from remargin.reports.stages import Stage, StagePanel, Stages

from .drawing import having, panels


def test_every_stage_has_its_box_and_an_arrow_from_the_one_before() -> None:
    figure = overview()
    for drawn, panel in zip(panels(figure), figure.panels, strict=True):
        assert len(having(drawn, "stage")) == len(panel.stages)
        assert len(having(drawn, "line")) == len(panel.stages) - 1
        back = sum(stage.returns for stage in panel.stages)
        assert len(list(drawn.iter("polygon"))) == len(panel.stages) - 1 + back
        words = " ".join(text.text or "" for text in drawn.iter("text"))
        assert all(stage.label in words for stage in panel.stages)


@pytest.mark.parametrize("width", [760, 360])
def test_boxes_are_inside_and_texts_inside_boxes(width: float) -> None:
    root = ElementTree.fromstring(overview().svg(width=width))
    assert float(root.get("width", "")) <= width
    assert not [text.text for text in root.iter("text") if "…" in (text.text or "")]  # nothing is cut off


def test_it_survives_json_and_refuses_what_makes_no_sense() -> None:
    figure = overview()
    assert figure_from_json(json.loads(json.dumps(figure_json(figure)))) == figure
    with pytest.raises(ValueError, match="oracle: a stage is data, bi-encoder, cross-encoder, not 'magic'"):
        Stage("oracle", "magic")
    with pytest.raises(ValueError, match="a panel without stages"):
        Stages("s", "", "", [StagePanel("", [])])
