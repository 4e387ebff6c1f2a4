"""The table of benchmarks against ir_datasets' registry. Nothing is downloaded."""

from __future__ import annotations

from typing import Any

import ir_datasets
import pytest

from remargin.data.benchmarks import BEIR, MS_MARCO, TREC_DL, Benchmark
from remargin.data.collection import open_source

ALL = [*BEIR, MS_MARCO, *TREC_DL]
PARTS = [pytest.param(benchmark, name, id=name) for benchmark in ALL for name in benchmark.irds]


def test_the_table_is_that_of_the_paper() -> None:
    short = "TCV NFC NQ HQA FQA AgA T20 CDS QUO DBP SCD FEV CFE SCF"
    assert [benchmark.short for benchmark in BEIR] == short.split()
    assert [len(benchmark.irds) for benchmark in BEIR] == [12 if b.short == "CDS" else 1 for b in BEIR]
    names = [name for benchmark in ALL for name in benchmark.irds]
    assert len({benchmark.short for benchmark in ALL}) == len(ALL)
    assert len(set(names)) == len(names)


def test_every_forum_of_cqadupstack_is_in_the_table() -> None:
    known = {name for name in ir_datasets.registry if name.startswith("beir/cqadupstack/")}
    assert known == {name for benchmark in BEIR for name in benchmark.irds if "cqadupstack" in name}


@pytest.mark.parametrize(("benchmark", "name"), PARTS)
def test_a_part_has_documents_queries_and_judgments(benchmark: Benchmark, name: str) -> None:
    assert name in set(ir_datasets.registry)
    dataset = ir_datasets.load(name)
    assert dataset.has_docs()
    assert dataset.has_queries()
    assert dataset.has_qrels()
    splits = open_source(f"irds:{name}").splits()
    assert benchmark.split in splits
    assert "test" in splits


def filled(cls: Any) -> Any:
    """A record whose every field holds its own name."""
    return cls(**{field: field for field in cls._fields})


@pytest.mark.parametrize(("benchmark", "name"), PARTS)
def test_a_document_is_title_and_text_and_a_query_its_text(benchmark: Benchmark, name: str) -> None:
    dataset = ir_datasets.load(name)
    document, query = filled(dataset.docs_cls()), filled(dataset.queries_cls())
    assert document.default_text() == ("title text" if "title" in document._fields else "text")
    assert query.default_text() == "text"
    untitled = {"beir/fiqa/test", "beir/quora/test", "beir/msmarco/dev"} | {n for b in TREC_DL for n in b.irds}
    assert ("title" in document._fields) == (name not in untitled)


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("beir/nq", ["test"]),
        ("beir/scifact", ["train", "test"]),
        ("beir/scifact/train", ["train", "test"]),
        ("beir/msmarco", ["train", "dev", "test"]),
        ("beir/quora", ["dev", "test"]),
        ("beir/webis-touche2020", ["test"]),
        ("msmarco-passage", ["train", "dev"]),
        ("msmarco-passage/trec-dl-2020", ["test"]),
        ("msmarco-passage/dev/small", ["test"]),
    ],
)
def test_the_splits_of_a_name(name: str, splits: list[str]) -> None:
    assert open_source(f"irds:{name}").splits() == splits
