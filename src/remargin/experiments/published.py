"""Numbers that others published, with their sources, from `published.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from remargin.report.zero_shot import PublishedRow, Source


@dataclass(frozen=True)
class PublishedBaseline:
    """A row of the paper's table 4: nDCG@10 and R@1000 on TREC-DL 2019 and 2020, and millions of triplets seen."""

    block: str
    system: str
    source: Source
    ndcg: tuple[float, float]
    recall: tuple[float, float]
    in_batch: bool | None = None
    triplets: float | None = None


def published_baselines() -> list[PublishedBaseline]:
    """The rows of the paper's table 4, in its order.

    >>> [row.system for row in published_baselines() if row.block == "self-distillation"]
    ['adaptive', 'adaptive', 'distributed']
    """
    content, sources = _content()
    return [
        PublishedBaseline(
            **{
                **row,
                "source": sources[row["source"]],
                "ndcg": tuple(row["ndcg"]),
                "recall": tuple(row["recall"]),
            }
        )
        for row in content["baselines"]
    ]


def published_zero_shot() -> list[PublishedRow]:
    """The rows of the paper's table 5, in its order.

    >>> [row.system for row in published_zero_shot() if row.source.label == "BEIR leaderboard"]
    ['DPR', 'ANCE', 'BM25', 'TAS-B', 'ColBERT', 'Contriever', 'SPLADE']
    """
    content, sources = _content()
    return [PublishedRow(**{**row, "source": sources[row["source"]]}) for row in content["zero_shot"]]


def _content() -> tuple[dict[str, Any], dict[str, Source]]:
    text = resources.files("remargin.experiments").joinpath("published.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return content, {name: Source(**source) for name, source in content["sources"].items()}
