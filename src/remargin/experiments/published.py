"""Numbers that others published, with their sources, from `published.toml`."""

from __future__ import annotations

import tomllib
from importlib import resources

from remargin.report.zero_shot import PublishedRow, Source


def published_zero_shot() -> list[PublishedRow]:
    """The rows of the paper's table 5, in its order.

    >>> [row.system for row in published_zero_shot() if row.source.label == "BEIR leaderboard"]
    ['DPR', 'ANCE', 'BM25', 'TAS-B', 'ColBERT', 'Contriever', 'SPLADE']
    """
    text = resources.files("remargin.experiments").joinpath("published.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    sources = {name: Source(**source) for name, source in content["sources"].items()}
    return [PublishedRow(**{**row, "source": sources[row["source"]]}) for row in content["zero_shot"]]
