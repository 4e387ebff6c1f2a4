"""The paper's claims on the paper's own tables."""

from __future__ import annotations

from typing import Any

from remargin.paper.claims.claim import FAILS, OPEN
from remargin.paper.claims.table import check_claims
from remargin.paper.published import PublishedBaseline, published_baselines, published_variants
from remargin.study.outcome import with_tests
from remargin.study.results import MEASURE, RECALL

from .claimed import baseline, variant


def test_on_the_papers_own_table_3_its_claims_hold_but_one() -> None:
    """For TREC-DL 2019 and 2020. Adaptive rows cost a fourth to an eighth of tuned static ones."""
    tables: dict[str, dict[str, Any]] = {}
    for row in published_variants():
        for year, test in enumerate(("DL19", "DL20")):
            found = variant(row.ndcg[year], row.recall[year], row.seconds, row.triplets * 1e6)
            found |= {
                f"{MEASURE} equivalent": row.ndcg_equivalent[year],
                f"{RECALL} equivalent": row.recall_equivalent[year],
            }
            tables.setdefault(row.model, {}).setdefault(test, {})[row.target] = found
    variants = {model: with_tests(of_model, "DL19") for model, of_model in tables.items()}
    verdicts = {v.claim.name: v for v in check_claims({"variants": variants}) if v.verdict != OPEN}
    assert {name for name, v in verdicts.items() if v.verdict == FAILS} == {"tuned static costs seven times as much"}
    assert len(verdicts) == 11
    assert "MPNet on DL20: static 0.646" in verdicts["tuned static is best"].evidence
    assert verdicts["backbones rank targets alike"].evidence.endswith("RoBERTa and MPNet on DL20: 0.60")


def test_on_the_papers_own_table_4_its_claims_hold_but_one() -> None:
    """In table 5 TAS-B is behind in-domain, as other test sets count there; in table 4 it is ahead."""

    def numbers_of(row: PublishedBaseline, year: int) -> dict[str, Any]:
        return {
            **baseline(row.ndcg[year], row.recall[year], round(1e6 * (row.triplets or 0))),
            "equivalent": row.ndcg_equivalent[year],
            "recall_equivalent": row.recall_equivalent[year],
        }

    def table(year: int) -> dict[str, Any]:
        taught, rows = [], {}
        for row in published_baselines():
            name = row.system.removesuffix(", tuned")
            if row.block.startswith("teacher"):
                taught.append({"name": name, **numbers_of(row, year)})
                rows |= {"reference": taught[-1]} if row.reference else {}
            else:
                in_batch = row.in_batch and name != "distributed"
                rows[f"{name}, in-batch" if in_batch else name] = numbers_of(row, year)
        return {**rows, "best teacher": max(taught, key=lambda row: row[MEASURE])}

    numbers = {"baselines": {"distilBERT": with_tests({"DL19": table(0), "DL20": table(1)}, "DL19")}}
    verdicts = {v.claim.name: v.verdict for v in check_claims(numbers) if v.verdict != OPEN}
    assert [name for name, verdict in verdicts.items() if verdict == FAILS] == ["in domain teachers are behind"]
    assert len(verdicts) == 10
