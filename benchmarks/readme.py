"""Puts the tables of results/paper into docs/the-paper.md, between the comments that are named like them.

    python benchmarks/readme.py

tests/test_readme.py sees that they are there, as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

from remargin.paper.claims.claim import FAILS, HOLDS, OPEN
from remargin.paper.claims.table import CLAIMS
from remargin.paper.pages import draw_packed
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table
from remargin.study.results import Results

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "the-paper.md"
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
    _, _, ndcg, spread, _, _, time, _ = row
    return [Cell(f"{ndcg.text} ± {spread.text}" if spread.text else ndcg.text, ndcg.bold, ndcg.marks, ndcg.value), time]


def claims() -> str:
    """Every claim, with the verdict of each study."""
    verdicts = {study: [row[2].text for row in sections(study)["claims"].tables[0].blocks[0].rows] for study in STUDIES}
    counts = {study: Counter(column) for study, column in verdicts.items()}
    totals = "; ".join(f"on {study} {count[HOLDS]} hold, {count[FAILS]} do not" for study, count in counts.items())
    rows = [
        [
            Cell(claim.text),
            Cell(claim.where),
            *(Cell(column[number].replace(OPEN, "–")) for column in verdicts.values()),
        ]
        for number, claim in enumerate(CLAIMS)
    ]
    table = Table("", ["claim", "section", *verdicts], [Block("", rows)]).markdown()
    summary = f"The paper's {len(CLAIMS)} claims: {totals}; – could not be checked"
    return f"<details><summary>{summary}</summary>\n\n{table}\n</details>\n"


def updated(text: str) -> str:
    """The page with these tables in it."""
    for make in (variants, baselines, claims, zero_shot):
        marks = f"<!-- {make.__name__} -->", f"<!-- /{make.__name__} -->"
        pattern = re.compile(f"{marks[0]}.*?{marks[1]}", re.DOTALL)
        assert len(pattern.findall(text)) == 1, make.__name__
        whole = f"{marks[0]}\n\n{make()}\n{marks[1]}"
        text = pattern.sub(lambda _, whole=whole: whole, text)
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
