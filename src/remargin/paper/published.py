"""Numbers that others published, with their sources, from `published.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Citation:
    """Where a number was published.

    >>> Citation("paper", "Gienapp et al., ICTIR 2025", "10.1145/3731120.3744594").label
    'paper'
    """

    label: str
    citation: str
    doi: str


@dataclass(frozen=True)
class PublishedRow:
    """A row of the paper's zero-shot table.

    Attributes:
        system: as the paper calls it.
        source: where the values are from.
        cells: nDCG@10 by the short name of the data set.
        in_domain: nDCG@10 on MS MARCO, on one test set or another.
        average: over the cells, as printed, which is not always their mean.

    Example:
        >>> paper = Citation("paper", "Gienapp et al., ICTIR 2025", "10.1145/3731120.3744594")
        >>> PublishedRow("Adaptive (w. IB)", paper, {"SCF": 0.475}, in_domain=0.527, average=0.262).cells["SCF"]
        0.475
    """

    system: str
    source: Citation
    cells: dict[str, float] = field(repr=False)
    in_domain: float
    average: float


@dataclass(frozen=True)
class PublishedBaseline:
    """A row of the paper's table 4: nDCG@10 and R@1000 on TREC-DL 2019 and 2020, which of these are equivalent to the
    reference, and millions of triplets seen, which may be an estimate (`about`).
    """

    block: str
    system: str
    source: Citation
    ndcg: tuple[float, float]
    recall: tuple[float, float]
    ndcg_equivalent: tuple[bool, bool] = (False, False)
    recall_equivalent: tuple[bool, bool] = (False, False)
    in_batch: bool | None = None
    triplets: float | None = None
    about: bool = False
    reference: bool = False


@dataclass(frozen=True)
class PublishedModel:
    """A row of the paper's table 1: a backbone, its name on the Hugging Face hub, and millions of parameters."""

    model: str
    name: str
    parameters: int
    pooling: str
    dimension: int


@dataclass(frozen=True)
class PublishedVariant:
    """A row of the paper's table 3: each measure on TREC-DL 2019 and 2020, what is equivalent, hours, millions of
    triplets.
    """

    model: str
    target: str
    ndcg: tuple[float, float]
    recall: tuple[float, float]
    ndcg_equivalent: tuple[bool, bool]
    recall_equivalent: tuple[bool, bool]
    time: str
    triplets: float

    @property
    def seconds(self) -> float:
        """The time that it took.

        >>> published_variants()[0].seconds / 3600
        15.116666666666667
        """
        hours, minutes = self.time.split(":")
        return 3600.0 * int(hours) + 60 * int(minutes)


def published_models() -> tuple[list[PublishedModel], Citation]:
    """The rows of the paper's table 1, in its order, and where they are from.

    >>> [row.parameters for row in published_models()[0]]
    [124, 109, 66]
    """
    content, sources = _content()
    return [PublishedModel(**row) for row in content["models"]], sources["table1"]


def published_variants() -> list[PublishedVariant]:
    """The rows of the paper's table 3, in its order.

    >>> {row.model for row in published_variants()} == {"distilBERT", "RoBERTa", "MPNet"}
    True
    """
    content, _ = _content()
    return [PublishedVariant(**_paired(row)) for row in content["variants"]]


def variants_source() -> Citation:
    """Where they are from."""
    return _content()[1]["table3"]


def published_baselines() -> list[PublishedBaseline]:
    """The rows of the paper's table 4, in its order.

    >>> [row.system for row in published_baselines() if row.block == "self-distillation"]
    ['adaptive', 'adaptive', 'distributed']
    """
    content, sources = _content()
    return [PublishedBaseline(**{**_paired(row), "source": sources[row["source"]]}) for row in content["baselines"]]


def published_zero_shot() -> list[PublishedRow]:
    """The rows of the paper's table 5, in its order.

    >>> [row.system for row in published_zero_shot() if row.source.label == "BEIR leaderboard"]
    ['DPR', 'ANCE', 'BM25', 'TAS-B', 'ColBERT', 'Contriever', 'SPLADE']
    """
    content, sources = _content()
    return [PublishedRow(**{**row, "source": sources[row["source"]]}) for row in content["zero_shot"]]


def _paired(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the values of the two years as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _content() -> tuple[dict[str, Any], dict[str, Citation]]:
    text = resources.files("remargin.paper").joinpath("published.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return content, {name: Citation(**source) for name, source in content["sources"].items()}
