"""Table 1: the backbones as they are, and as the paper printed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remargin import BiEncoder
from remargin.paper.backbones import backbones_table
from remargin.paper.experiments import EXPERIMENTS
from remargin.reports.tables import MISSING
from remargin.study.results import Results

from ..small_study import silent

PACKED = Path(__file__).parents[2] / "results" / "paper" / "medquad"


def test_a_backbone_is_described_as_it_is(study_folder: Path, tiny_model: Any) -> None:
    results = Results.open(study_folder, say=silent)
    table = backbones_table(results, results.models)
    encoder = BiEncoder.from_pretrained(tiny_model())
    (row,) = table.blocks[0].rows
    weights = encoder.state_dict()
    assert row[0].text == "tiny"
    assert row[1].value == sum(weights[name].numel() for name, _ in encoder.named_parameters()) / 1e6
    assert [row[2].text, row[3].value] == [encoder.pooling, encoder.encode_queries(["a query"]).shape[1]]
    assert [cell.value for cell in row[4:]] == [30, 64]  # the paper's, and all positions that it has
    assert not any("Not recorded" in note for note in table.notes)
    drawn = EXPERIMENTS["variants"].section(results).tables
    assert drawn[-1] == table
    assert "Not recorded" not in drawn[-1].markdown()


def test_the_papers_are_beside_it() -> None:
    packed = Results.open(PACKED, say=silent)
    table = backbones_table(packed, packed.models)
    published = {row[0].text.split()[0]: [cell.text for cell in row[1:4]] for row in table.blocks[1].rows}
    assert published == {
        "RoBERTa": ["124", "cls+linear", "768"],
        "MPNet": ["109", "cls+linear", "768"],
        "distilBERT": ["66", "cls", "768"],
    }


def test_an_older_study_says_what_it_does_not_know() -> None:
    packed = Results.open(PACKED, say=silent)
    table = backbones_table(packed, packed.models)
    known, unknown = table.blocks[0].rows
    assert known[1:4] == unknown[1:4] == [MISSING] * 3
    assert [cell.value for cell in known[4:]] == [30, 200]
    assert table.notes[-1] == "Not recorded when the study began: MiniLM, distilBERT."
