"""Triplets from ir_datasets' docpairs, wherever triplets are taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, InputError, Triplets, prepare
from remargin.data.tables import Rejects
from remargin.data.tokens import TokenStore
from remargin.data.triplets import read_id_triplets, triplets_hash

from ..irds import Part, registered_with

DOCUMENTS = {f"d{i}": f"the value of part {i} is a list" for i in range(24)}
QUERIES = {f"q{i}": f"how is part {i} made" for i in range(24)}
PAIRS = [(f"q{i}", f"d{i}", f"d{(i + n) % 24}") for n in (1, 5) for i in range(16)]
TRIPLETS = "irds:pairs-test/train/triples"
DATA = "irds:pairs-test/train"


def judged(rows: range) -> Part:
    return Part({f"q{i}": QUERIES[f"q{i}"] for i in rows}, "".join(f"q{i} 0 d{i} 1\n" for i in rows))


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[Path]:
    parts = {
        "train": judged(range(16)),
        "dev": judged(range(16, 20)),
        "test": judged(range(20, 24)),
        "train/triples": Part(docpairs=PAIRS),
        "train/wrong": Part(docpairs=[*PAIRS[:2], ("q2", "d2", "d2"), ("q3", "d3", "nowhere"), ("q16", "d16", "d1")]),
    }
    with registered_with("pairs-test", tmp_path, DOCUMENTS, parts):
        yield tmp_path


def prepared_rows(folder: Path) -> list[tuple[str, str, str]]:
    triplets = Triplets(folder / "triplets")
    queries, documents = (TokenStore(folder / "tokens" / kind).ids for kind in ("queries", "documents"))
    batch = triplets.take(range(len(triplets)))
    rows = zip(batch.queries, batch.positives, batch.negatives[:, 0], strict=True)
    return [(queries[int(q)], documents[int(p)], documents[int(n)]) for q, p, n in rows]


def test_docpairs_are_the_triplets_of_a_table_with_the_same_ids(registered: Path, tiny_model: Any) -> None:
    (registered / "t.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    prepare(DATA, tiny_model(), registered / "table", registered / "t.tsv")
    report = prepare(DATA, tiny_model(), registered / "pairs", TRIPLETS)
    assert (report.triplets, report.negatives_per_triplet) == (32, 1)
    assert prepared_rows(registered / "pairs") == PAIRS
    name = "triplets/rows.bin"
    assert (registered / "pairs" / name).read_bytes() == (registered / "table" / name).read_bytes()


def test_what_is_wrong_with_docpairs(registered: Path, tiny_model: Any) -> None:
    wrong = "irds:pairs-test/train/wrong"
    with pytest.raises(InputError, match="irds:pairs-test/train/wrong:3: id 'd2': its positive is also its negative"):
        prepare(DATA, tiny_model(), registered / "out", wrong)
    report = prepare(DATA, tiny_model(), registered / "out", wrong, skip_bad=True)
    assert (report.triplets, report.rejected) == (3, 2)
    assert report.notes["WARNING: triplets whose query is also in a held-out split"] == 1
    rejects = (registered / "out" / "rejects.jsonl").read_text().splitlines()
    assert "document is not in the collection" in rejects[1]
    with pytest.raises(InputError, match="irds:pairs-test/train has no docpairs; choose one that has"):
        prepare(DATA, tiny_model(), registered / "other", "irds:pairs-test/train")
    with pytest.raises(InputError, match="ir_datasets knows no data set 'pairs-test/nothing'"):
        prepare(DATA, tiny_model(), registered / "other", "irds:pairs-test/nothing")
    with pytest.raises(InputError, match="these triplets are ids; name the collection they belong to"):
        prepare(None, tiny_model(), registered / "other", TRIPLETS)
    assert not (registered / "other").exists()


def test_docpairs_are_read_one_by_one(registered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ir_datasets

    read = 0

    def endless() -> Iterator[Any]:
        nonlocal read
        pair = ir_datasets.formats.GenericDocPair("q1", "d1", "d2")
        for read in itertools.count(1):  # noqa: B007
            yield pair

    monkeypatch.setattr(ir_datasets.load("pairs-test/train/triples"), "docpairs_iter", endless, raising=False)
    first = list(itertools.islice(read_id_triplets(Path(TRIPLETS), Rejects()), 3))
    assert [triplet[:3] for triplet in first] == [("q1", "d1", ["d2"])] * 3
    assert read == 3


def test_the_hash_of_a_data_set_is_its_name(registered: Path) -> None:
    assert triplets_hash(Path(TRIPLETS)) == TRIPLETS
    with pytest.raises(InputError, match="no such file; check the path"):
        triplets_hash(registered / "nothing.tsv")


def test_fit_teach_and_curve_take_docpairs(registered: Path, remargin: Any, tiny_model: Any) -> None:
    from remargin.study.learning_curve import curve
    from remargin.teacher.scoring import score_triplets

    given = ("--data", DATA, "--triplets", TRIPLETS, "--model", tiny_model())
    done = remargin("fit", *given, "--out", registered / "run", "--steps", "1", "--batch-size", "4")
    assert done.returncode == 0, done.stderr
    assert prepared_rows(registered / "run" / "data") == PAIRS
    assert remargin("fit", "--resume", registered / "run").returncode == 0
    scores = "".join(f"{q}\t{d}\t{len(d)}\n" for q, d in {(q, d) for q, p, n in PAIRS for d in (p, n)})
    (registered / "scores.tsv").write_text(scores)
    assert score_triplets(TRIPLETS, registered / "taught.tsv", registered / "scores.tsv").triplets == 32
    out = registered / "curve"
    found = curve(DATA, tiny_model(), out, [0.5, 1.0], [0], triplets=TRIPLETS, steps=1, batch_size=4, say=str)
    assert [point.pairs for point in found.points] == [8, 16]
    half = {line.split("\t")[0] for line in (out / "runs" / "0.5" / "triplets.tsv").read_text().splitlines()[1:]}
    assert len(half) == 8
    assert half < set(Collection.load(DATA, "train").queries)


def test_a_teacher_is_trained_on_docpairs(registered: Path, tiny_model: Any) -> None:
    from remargin.model.cross_encoder import CrossEncoder
    from remargin.teacher.training import train_cross_encoder

    model, train = CrossEncoder.from_pretrained(tiny_model()), Collection.load(DATA, "train")
    assert train_cross_encoder(model, train, TRIPLETS, registered / "teacher").triplets == 32
    with pytest.raises(InputError, match="no such file; check the path"):
        train_cross_encoder(model, train, registered / "nothing.tsv", registered / "other")
