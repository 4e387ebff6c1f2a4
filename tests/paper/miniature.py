"""The paper's own set-up in small: MS MARCO and TREC-DL 2019 and 2020, made-up passages, by ir_datasets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..irds import Part, registered_with

NAME = "mini-marco"
REAL = Path(__file__).parents[3] / "shared" / "data" / "trec-dl"
YEARS = {"test": "qrels.dl19-passage.txt", "dl20": "qrels.dl20-passage.txt"}
TRAINING = 48
Judged = dict[str, dict[str, int]]


def made_up(queries: int, documents: int) -> dict[str, Judged]:
    """Judgments of both years with TREC-DL's grades: more of the low ones than of the high ones."""
    rng = random.Random(0)
    return {
        year: {
            f"{year}-{query}": {f"p{year}{query}x{i}": rng.choice((0, 0, 0, 1, 2, 3)) for i in range(documents)}
            for query in range(queries)
        }
        for year in YEARS
    }


def real(queries: int, documents: int) -> dict[str, Judged]:
    """TREC's own judgments, of some queries and documents."""
    years: dict[str, Judged] = {}
    for year, file in YEARS.items():
        judged: Judged = {}
        for line in (REAL / file).read_text().splitlines():
            query, _, document, grade = line.split()
            judged.setdefault(query, {})[document] = int(grade)
        first = list(judged)[:queries]
        years[year] = {
            query: dict(random.Random(0).sample(sorted(judged[query].items()), documents)) for query in first
        }
    return years


@contextmanager
def registered(folder: Path, years: Mapping[str, Judged]) -> Iterator[None]:
    """A collection with train, dev and test queries, docpairs, a first-stage run, and a second test.

    Documents have more of a query's words the higher their grade, so that there is something to learn, and a number, so
    that no two are alike.
    """
    rng, numbers = random.Random(1), itertools.count(100)

    def topic(query: str) -> list[str]:
        return [f"{letter}{ord(letter) % 7}" for letter in random.Random(query).sample("abcdefghijklmnop", 6)]

    def passage(query: str, grade: int) -> str:
        words = [*topic(query)[: 2 * grade], *rng.sample(["value", "list", "text", "file", "model", "query"], 4)]
        return " ".join([*rng.sample(words, len(words)), str(next(numbers))])

    train = {f"t{i}": {f"t{i}p": 1} for i in range(TRAINING)}
    dev = {f"v{i}": {f"v{i}p": 1} for i in range(6)}
    judged = {"train": train, "dev": dev, **years}
    documents = {
        document: passage(query, max(grade, 3 if split in ("train", "dev") else 0))
        for split, of_split in judged.items()
        for query, grades in of_split.items()
        for document, grade in grades.items()
    }
    queries = {query: "how is " + " ".join(topic(query)) for of_split in judged.values() for query in of_split}
    pairs = [(query, f"{query}p", f"t{(i + n) % TRAINING}p") for n in (3, 7) for i, query in enumerate(train)]
    run = "".join(f"{query}\t{document}\n" for query in years["test"] for document in rng.sample(sorted(documents), 40))
    parts = {
        split: Part(
            {query: queries[query] for query in of_split},
            "".join(
                f"{query} 0 {document} {g}\n" for query, grades in of_split.items() for document, g in grades.items()
            ),
            run=run if split == "test" else None,
        )
        for split, of_split in judged.items()
    }
    with registered_with(NAME, folder, documents, {**parts, "train/triples": Part(docpairs=pairs)}):
        yield
