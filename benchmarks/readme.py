"""Puts the tables of results/paper and results/beyond into docs/the-paper.md and README.md, between comments with
their names.

    python benchmarks/readme.py

tests/test_readme.py sees that they are there, as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from remargin.paper.beyond.collections import draw_together
from remargin.paper.beyond.requirements import BLENDED_RIVAL, RECIPE, RIVAL
from remargin.paper.claims.table import CLAIMS
from remargin.paper.deciding import FAILS, HOLDS, OPEN
from remargin.paper.pages import draw_packed
from remargin.paper.regimes import TITLES
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table
from remargin.study.results import Results

ROOT = Path(__file__).parent.parent
PAPER, README = ROOT / "docs" / "the-paper.md", ROOT / "README.md"
NOT_TRAINED = "–"
STUDIES = ("medquad", "squadmix")


@cache
def sections(study: str) -> dict[str, Section]:
    """Every table and figure of a packed study."""
    return draw_packed(Results.open(ROOT / "results" / "paper" / study, say=lambda line: None))


def variants() -> str:
    """Table 3: a column for each backbone of each study that has one, and what the studies say of it."""
    header, notes = ["test nDCG@10"], []
    columns: list[dict[str, list[Cell]]] = []
    for study in STUDIES:
        section = sections(study)["variants"]
        table = section.tables[0]
        notes += [f"On {study}, {line}" for line in section.summary]
        for papers, ours in zip(table.blocks[::2], table.blocks[1::2], strict=True):
            header += [f"{study}, {papers.label}", "time"]
            columns.append({row[0].text: _cells(row) for row in (*papers.rows, *ours.rows)})
    not_trained = [Cell(NOT_TRAINED), Cell("")]
    rows = [
        [Cell(name), *chain.from_iterable(column.get(name, not_trained) for column in columns)]
        for name in dict.fromkeys(chain.from_iterable(columns))
    ]
    notes += table.notes[:2]
    if any(name not in column for column in columns for name in columns[0]):
        notes.append(f"{NOT_TRAINED} not trained.")
    return Table("", header, [Block("", rows)], notes).markdown()


def baselines() -> str:
    """What the studies say of table 4."""
    summaries = {study: sections(study)["baselines"].summary for study in STUDIES}
    return "\n".join(f"On {study}, {line}\n" for study, lines in summaries.items() for line in lines)


def zero_shot() -> str:
    """Some rows of table 5, of the first backbone of each study that has it."""
    tables = {study: sections(study)["zero-shot"].tables[0] for study in STUDIES}
    shown = ("BM25", "no training", "static tuned", "distributed, early stopping", "contrastive")
    columns = next(iter(tables.values())).header[1:]
    blocks = [
        Block(f"trained on {name}", [row for row in table.blocks[-1].rows if row[0].text in shown])
        for name, table in tables.items()
    ]
    notes = ["Some rows of each table. SCF is SciFact.", next(iter(tables.values())).notes[0]]  # the same for all
    return Table("", ["nDCG@10", *columns], blocks, notes).markdown()


def _cells(row: list[Cell]) -> list[Cell]:
    """nDCG@10 with its spread, and the time."""
    _, _, ndcg, spread, _, _, time, *_ = row
    return [Cell(f"{ndcg.text} ± {spread.text}" if spread.text else ndcg.text, ndcg.bold, ndcg.marks, ndcg.value), time]


def claims() -> str:
    """Every claim, with the verdict of each study."""
    rows = [
        [
            Cell(claim.text),
            Cell(claim.where),
            *(Cell(_verdicts(study)[number].replace(OPEN, "–")) for study in STUDIES),
        ]
        for number, claim in enumerate(CLAIMS)
    ]
    table = Table("", ["claim", "section", *STUDIES], [Block("", rows)]).markdown()
    return f"{verdicts()}\n<details><summary>Each claim; – cannot be told</summary>\n\n{table}\n</details>\n"


def verdicts() -> str:
    """How many claims have each verdict, and in which regime."""
    counts = {study: Counter(_verdicts(study)) for study in STUDIES}
    totals = (
        f"on {study} {count[HOLDS]} hold, {count[FAILS]} do not, and {count[OPEN]} cannot be told"
        for study, count in counts.items()
    )
    plans = {study: Results.open(ROOT / "results" / "paper" / study, say=lambda line: None).plan for study in STUDIES}
    (regime,), (triplets,) = {plan.regime for plan in plans.values()}, {plan.triplets for plan in plans.values()}
    return (
        f"Of the paper's {len(CLAIMS)} claims, {'; '.join(totals)}: all in {TITLES[regime]}, with "
        f"{triplets:,} triplets a training run.\n"
    )


def _verdicts(study: str) -> list[str]:
    return [row[2].text for row in sections(study)["claims"].tables[0].blocks[0].rows]


@cache
def beyond_section() -> Section:
    """The study of the defaults of `fit`, over all collections."""
    (section,) = draw_together(ROOT / "results" / "beyond", ["beyond"], lambda line: None)
    return section


def beyond() -> str:
    """The study beyond the paper: all rows, the requirements, and each collection."""
    overview, requirements, by_collection = beyond_section().tables
    compared = requirements.blocks[0].rows
    verdicts = Table("", requirements.header[:4], [Block("", [row[:4] for row in compared])])
    return "\n".join(
        table.markdown() for table in (replace(overview, title=""), verdicts, replace(by_collection, title=""))
    )


def lengths() -> str:
    """Rate and length of the recipe over all collections, and what each would get if the others chose."""
    (section,) = draw_together(ROOT / "results" / "beyond", ["beyond-lengths"], lambda line: None)
    means, left_out = section.tables
    shown = Table("", means.header[:5], [Block("", [row[:5] for row in means.blocks[0].rows])])
    return "\n".join(table.markdown() for table in (shown, replace(left_out, title="")))


def recipe() -> str:
    """The same in short: without training, the recipe, and its rival."""
    rows = [row for block in beyond_section().tables[0].blocks for row in block.rows]
    shown = {
        "no training": "the encoder without training",
        RECIPE.text: "the default of fit: nothing tuned",
        RIVAL.text: "contrastive loss, temperature and rate tuned",
        BLENDED_RIVAL.text: "the same, blended",
    }
    lines = [[Cell(shown[row[0].text]), row[1], row[2], row[6]] for row in rows if row[0].text in shown]
    lines.sort(key=lambda line: list(shown.values()).index(line[0].text))
    header = ["nDCG@10", "home", "away", "compute, six models"]
    return Table("", header, [Block("", lines)]).markdown()


OF_PAPER = (variants, baselines, claims, zero_shot, beyond, lengths)


def updated(text: str, tables: Sequence[Callable[[], str]] = OF_PAPER) -> str:
    """The page with these tables in it."""
    for make in tables:
        marks = f"<!-- {make.__name__} -->", f"<!-- /{make.__name__} -->"
        pattern = re.compile(f"{marks[0]}.*?{marks[1]}", re.DOTALL)
        assert len(pattern.findall(text)) == 1, make.__name__
        whole = f"{marks[0]}\n\n{make()}\n{marks[1]}"
        text = pattern.sub(lambda _, whole=whole: whole, text)
    return text


if __name__ == "__main__":
    PAPER.write_text(updated(PAPER.read_text()))
    README.write_text(updated(README.read_text(), [recipe, verdicts]))
