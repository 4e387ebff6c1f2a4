"""The paper's table 1: the backbones, those of a study beside those of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from remargin.paper.published import published_models
from remargin.reports.tables import MISSING, Block, Cell, Table, number
from remargin.study.results import Results


def backbones_table(results: Results, shown: Sequence[str]) -> Table:
    """Parameters, pooling and dimensions of the backbones of table 3, and where texts are truncated."""
    models, source = published_models()
    ours = [_row(results, model) for model in shown]
    papers = [
        [Cell(f"{row.model} ({row.name})"), number(row.parameters, 0), *_embedding(row.pooling, row.dimension)]
        for row in models
    ]
    older = [model for model in shown if model not in results.header.get("backbones", {})]
    notes = [f"{source.label}: {source.citation}. It truncates queries at 30 tokens and passages at 200."]
    if older:
        notes.append(f"Not recorded when the study began: {', '.join(older)}.")
    return Table(
        "Backbones",
        ["model", "parameters (M)", "pooling", "dimensions", "query tokens", "document tokens"],
        [Block("here", ours), Block("published", [[*cells, number(30, 0), number(200, 0)] for cells in papers])],
        notes,
    )


def _row(results: Results, model: str) -> list[Cell]:
    """A backbone as study.json describes it; older studies know less."""
    backbone = results.header.get("backbones", {}).get(model)
    lengths = results.header.get("lengths", {}).get(model, {})
    described = [MISSING] * 3
    if backbone is not None:
        embedding = _embedding(backbone["pooling"], backbone["dimension"])
        described = [number(backbone["parameters"] / 1e6, 1), *embedding]
    truncated = [number(lengths.get(f"{side}_length"), 0) for side in ("query", "document")]
    return [Cell(model), *described, *truncated]


def _embedding(pooling: str, dimension: int) -> list[Cell]:
    return [Cell(pooling), number(dimension, 0)]
