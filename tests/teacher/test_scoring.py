"""A teacher's scores on triplets: each pair once, the right score in the right place, restartable, joined or scored."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import Collection, InputError, Triplets
from remargin.data.preparation import prepare
from remargin.data.tables import Rejects
from remargin.data.triplets import read_triplets
from remargin.files.atomic import locked
from remargin.files.headers import read_header, write_header
from remargin.model.cross_encoder import CrossEncoder
from remargin.teacher import scored_pairs, scoring
from remargin.teacher.scoring import report_of, score_triplets, taught_before

WORDS = ["margins", "query", "document", "value", "list", "text", "model"]


def made_up(queries: int = 30) -> Collection:
    texts = {f"d{i}": f"{WORDS[i % 7]} {WORDS[i % 5]} the " * (1 + i % 4) for i in range(60)}
    asked = {f"q{i}": f"how {WORDS[i % 7]} is {WORDS[i % 3]}" for i in range(queries)}
    return Collection("made", "train", texts, asked, {query: {"d0": 1} for query in asked})


def mined(path: Path, negatives: int = 1, queries: int = 30) -> Path:
    """Triplets in which pairs come again and again."""
    names = ["negative_id"] if negatives == 1 else [f"negative_id_{i + 1}" for i in range(negatives)]
    rows = [["query_id", "positive_id", *names]]
    for i in range(4 * queries):
        rows.append([f"q{i % queries}", f"d{i % 10}", *(f"d{10 + (7 * i + 11 * k) % 50}" for k in range(negatives))])
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def teacher_folder(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder whose scores differ."""
    model = CrossEncoder.from_pretrained(tiny_model("bert"))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3, generator=generator)
    folder = tmp_path_factory.mktemp("teacher") / "cross-encoder"
    model.save(folder)
    return folder


@pytest.fixture
def teacher(teacher_folder: Path) -> CrossEncoder:
    return CrossEncoder.from_pretrained(teacher_folder)


def read(path: Path) -> list[tuple[Any, ...]]:
    are_ids, triplets = read_triplets(path, Rejects(), ids=False)
    assert are_ids
    return [triplet[:4] for triplet in triplets]


@pytest.mark.parametrize("name", ["scored.tsv", "scored.tsv.gz"])
@pytest.mark.parametrize("negatives", [1, 3])
def test_every_triplet_gets_its_own_scores(negatives: int, name: str, teacher: CrossEncoder, tmp_path: Path) -> None:
    collection = made_up()
    triplets = mined(tmp_path / "t.tsv", negatives)
    taught = score_triplets(triplets, tmp_path / name, teacher, collection)
    before, after = read(triplets), read(tmp_path / name)
    assert [row[:3] for row in before] == [row[:3] for row in after]
    assert taught.triplets == len(before) == 120
    assert taught.negatives == negatives
    pairs = {(row[0], document) for row in before for document in (row[1], *row[2])}
    assert taught.pairs == len(pairs) < 120 * (1 + negatives)
    listed = sorted(pairs, reverse=True)
    values = teacher.score([(collection.queries[q], collection.documents[d]) for q, d in listed], batch_size=7)
    assert np.ptp(values) > 0.5
    expected = dict(zip(listed, values.tolist(), strict=True))
    for query, positive, chosen, scores in after:
        assert scores == pytest.approx([expected[query, document] for document in (positive, *chosen)], abs=1e-5)
    columns = [""] if negatives == 1 else ["_1", "_2", "_3"]
    opened = gzip.open if name.endswith("gz") else open
    with opened(tmp_path / name, "rt") as file:
        header = next(iter(file)).rstrip("\n").split("\t")
    assert header[2:] == [
        *(f"negative_id{n}" for n in columns), "positive_score", *(f"negative_score{n}" for n in columns)
    ]  # fmt: skip
    report = json.loads(report_of(tmp_path / name).read_text())
    assert report["pairs"] == taught.pairs
    assert report["seconds"] == taught.seconds > 0
    assert report["pairs_per_second"] == pytest.approx(taught.pairs / taught.seconds, rel=0.05)
    assert report["teacher_seconds"] is None
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, f"{name}.json", "t.tsv"]


def test_each_pair_is_scored_once(teacher: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_pairs, "PAIRS_AT_ONCE", 50)
    seen: list[Any] = []
    original = teacher.tokenizer.pairs
    monkeypatch.setattr(teacher.tokenizer, "pairs", lambda pairs, *rest: seen.extend(pairs) or original(pairs, *rest))
    collection = made_up()
    collection.queries = {id: f"{text} {id}" for id, text in collection.queries.items()}
    collection.documents = {id: f"{text} {id}" for id, text in collection.documents.items()}
    taught = score_triplets(mined(tmp_path / "t.tsv"), tmp_path / "s.tsv", teacher, collection)
    assert len(seen) == len(set(seen)) == taught.pairs == 150


def test_the_order_of_triplets_does_not_matter(teacher: CrossEncoder, tmp_path: Path) -> None:
    triplets = mined(tmp_path / "t.tsv")
    header, *rows = triplets.read_text().splitlines(keepends=True)
    (tmp_path / "back.tsv").write_text("".join([header, *reversed(rows)]))
    for name in ("t", "back"):
        score_triplets(tmp_path / f"{name}.tsv", tmp_path / f"{name}.scored.tsv", teacher, made_up())
    one, other = read(tmp_path / "t.scored.tsv"), read(tmp_path / "back.scored.tsv")[::-1]
    assert [row[:3] for row in one] == [row[:3] for row in other]
    np.testing.assert_allclose([row[3] for row in one], [row[3] for row in other], atol=1e-5)


KILLED = """
import sys, time
from remargin.teacher import scored_pairs, scoring
from remargin.model.cross_encoder import CrossEncoder
from tests.teacher.test_scoring import made_up
scored_pairs.PAIRS_AT_ONCE = 16
teacher = CrossEncoder.from_pretrained(sys.argv[1])
original = teacher.score_blocks
def slowly(blocks):
    for block in original(blocks):
        time.sleep(0.05)
        yield block
teacher.score_blocks = slowly
scoring.score_triplets(sys.argv[2], sys.argv[3], teacher, made_up())
"""


def test_killed_in_the_middle_it_ends_in_the_same_bytes(
    teacher_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triplets, out = mined(tmp_path / "t.tsv"), tmp_path / "s.tsv"
    command = [sys.executable, "-c", KILLED, str(teacher_folder), str(triplets), str(out)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    while process.poll() is None:
        if len(list(tmp_path.glob(".s.tsv.*/*.json"))) >= 3:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    done = len(list(tmp_path.glob(".s.tsv.*/?*.json")))
    monkeypatch.setattr(scored_pairs, "PAIRS_AT_ONCE", 16)
    teacher = CrossEncoder.from_pretrained(teacher_folder)
    scored: list[int] = []
    original = teacher.score_blocks
    monkeypatch.setattr(
        teacher,
        "score_blocks",
        lambda blocks: (scored.append(len(found.scores)) or found for found in original(blocks)),
    )
    taught = score_triplets(triplets, out, teacher, made_up())
    assert done >= 3
    assert len(scored) == -(-taught.pairs // 16) - done
    assert taught.seconds > 0.05 * (done - 1)  # what the killed run spent counts
    score_triplets(triplets, tmp_path / "whole.tsv", teacher, made_up())
    assert out.read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert not list(tmp_path.glob(".*"))


def stop_after(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original = CrossEncoder.score_blocks

    def stopping(self: CrossEncoder, blocks: Any) -> Any:
        for number, block in enumerate(original(self, blocks)):
            if number == parts:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(CrossEncoder, "score_blocks", stopping)


def cut_off(teacher: CrossEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Collection, Path]:
    """Triplets, their collection, and what `teach` leaves when it is stopped after two parts."""
    monkeypatch.setattr(scored_pairs, "PAIRS_AT_ONCE", 40)
    triplets, collection = mined(folder / "t.tsv"), made_up()
    with monkeypatch.context() as stopped:
        stop_after(2, stopped)
        with pytest.raises(KeyboardInterrupt):
            score_triplets(triplets, folder / "s.tsv", teacher, collection)
    [parts] = folder.glob(".s.tsv.*")
    return triplets, collection, parts


@pytest.mark.parametrize("change", ["nothing", "a text", "the triplets", "the weights", "the length"])
def test_parts_are_used_only_for_the_same_work(
    change: str, teacher: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triplets, collection, parts = cut_off(teacher, tmp_path, monkeypatch)
    assert len(list(parts.iterdir())) == 2
    if change == "a text":
        collection.documents["d3"] = "another text"
    if change == "the triplets":
        triplets.write_text(triplets.read_text() + "q1\td59\td58\n")
    if change == "the weights":
        with torch.no_grad():
            next(teacher.model.parameters()).mul_(1.5)
    if change == "the length":
        teacher.length = 9
    score_triplets(triplets, tmp_path / "s.tsv", teacher, collection)
    assert parts.exists() == (change != "nothing")
    score_triplets(triplets, tmp_path / "whole.tsv", teacher, collection)
    assert (tmp_path / "s.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


@pytest.mark.parametrize("damage", ["a digit", "too few", "cut off"])
def test_damaged_parts_are_scored_again(
    damage: str, teacher: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triplets, collection, parts = cut_off(teacher, tmp_path, monkeypatch)
    content = (parts / "1.json").read_text()
    if damage == "a digit":
        (parts / "1.json").write_text(re.sub(r"\d\.\d", "7.5", content, count=1))
    if damage == "too few":
        part = read_header(parts / "1.json", dict, scoring.FORMAT, "")
        write_header(parts / "1.json", {**part, "part": {**part["part"], "scores": part["part"]["scores"][1:]}})
    if damage == "cut off":
        (parts / "1.json").write_text(content[:-9])
    score_triplets(triplets, tmp_path / "s.tsv", teacher, collection)
    score_triplets(triplets, tmp_path / "whole.tsv", teacher, collection)
    assert (tmp_path / "s.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


@pytest.mark.parametrize("change", ["nothing", "a text", "the triplets", "the weights", "the table", "the report"])
@pytest.mark.parametrize("name", ["s.tsv", "s.tsv.gz"])
def test_what_was_taught_before_counts_only_for_the_same_inputs(
    name: str, change: str, teacher: CrossEncoder, tmp_path: Path
) -> None:
    triplets, collection, out = mined(tmp_path / "t.tsv"), made_up(), tmp_path / name
    assert taught_before(triplets, out, teacher, collection) is None
    taught = score_triplets(triplets, out, teacher, collection)
    if change == "a text":
        collection.documents["d3"] = "another text"
    if change == "the triplets":
        triplets.write_text(triplets.read_text() + "q1\td59\td58\n")
    if change == "the weights":
        with torch.no_grad():
            next(teacher.model.parameters()).mul_(1.5)
    if change == "the table":
        out.write_bytes(out.read_bytes()[:-10])
    if change == "the report":
        report_of(out).write_text("{}")
    assert taught_before(triplets, out, teacher, collection) == (taught if change == "nothing" else None)


def test_two_processes_do_not_mix(teacher: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triplets, collection, parts = cut_off(teacher, tmp_path, monkeypatch)
    with locked(parts), pytest.raises(InputError, match="another process is writing it"):
        score_triplets(triplets, tmp_path / "s.tsv", teacher, collection)
    assert len(list(parts.iterdir())) == 2


def test_stopped_before_the_first_part_nothing_is_left(
    teacher: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triplets = mined(tmp_path / "t.tsv")
    stop_after(0, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        score_triplets(triplets, tmp_path / "s.tsv", teacher, made_up())
    assert list(tmp_path.iterdir()) == [triplets]


def scores_of(triplets: Path, path: Path) -> dict[tuple[str, str], float]:
    """A table of scores for all pairs of the triplets, and for some others."""
    pairs = {(row[0], document) for row in read(triplets) for document in (row[1], *row[2])}
    scores = {pair: i / 4 - 7 for i, pair in enumerate(sorted(pairs | {("q77", "d1"), ("q1", "d77")}))}
    if path.suffix == ".trec":
        path.write_text("".join(f"{q} Q0 {d} 1 {score} t\n" for (q, d), score in scores.items()))
    else:
        rows = "".join(f"{q}\t{d}\t{score}\n" for (q, d), score in scores.items())
        path.write_text(f"query_id\tdocument_id\tscore\n{rows}")
    return scores


@pytest.mark.parametrize("name", ["scores.tsv", "run.trec"])
@pytest.mark.parametrize("negatives", [1, 2])
def test_scores_kept_apart_are_joined(negatives: int, name: str, tmp_path: Path) -> None:
    triplets = mined(tmp_path / "t.tsv", negatives)
    scores = scores_of(triplets, tmp_path / name)
    taught = score_triplets(triplets, tmp_path / "s.tsv", tmp_path / name)
    assert (taught.triplets, taught.pairs) == (120, len(scores) - 2)
    assert taught.teacher == str(tmp_path / name)
    for query, positive, chosen, found in read(tmp_path / "s.tsv"):
        assert found == [scores[query, document] for document in (positive, *chosen)]


def test_a_pair_without_a_score_is_named_or_counted(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td2\nq1\td1\td3\nq2\td1\td2\nq1\td2\td3\n")
    (tmp_path / "s.csv").write_text("query_id,document_id,score\nq1,d1,3\nq1,d2,2\nq2,d1,4\n")
    message = rf"t\.tsv:2: id 'q1': no score for its document 'd3' in {tmp_path}/s\.csv; correct it, or skip"
    with pytest.raises(InputError, match=message):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", tmp_path / "s.csv")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.csv", "t.tsv"]
    taught = score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", tmp_path / "s.csv", skip_bad=True)
    assert (taught.triplets, taught.rejected) == (1, 3)
    assert "t.tsv:2" in str(taught.first_reject)
    assert read(tmp_path / "o.tsv") == [("q1", "d1", ["d2"], [3.0, 2.0])]
    (tmp_path / "s.csv").write_text("query_id,document_id,score\nq7,d7,3\n")
    with pytest.raises(InputError, match=r"t\.tsv: no usable triplets in it; the first of 4 rejects"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o2.tsv", tmp_path / "s.csv", skip_bad=True)


def test_a_pair_with_two_scores_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td2\n")
    (tmp_path / "s.tsv").write_text("q1\td1\t3\nq1\td2\t2\nq9\td9\t1\nq9\td9\t1\nq1\td1\t4\n")
    with pytest.raises(InputError, match=r"s\.tsv:5: id 'q1': its document 'd1' has a score already"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", tmp_path / "s.tsv")
    score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", tmp_path / "s.tsv", skip_bad=True)
    assert read(tmp_path / "o.tsv")[0][3] == [3.0, 2.0]


def test_what_a_cross_encoder_cannot_score_is_named_or_counted(teacher: CrossEncoder, tmp_path: Path) -> None:
    collection = made_up()
    collection.queries["q3"] = "how " * 70
    (tmp_path / "t.tsv").write_text("q1\td1\td2\nq3\td1\td2\nq99\td1\td2\nq1\td1\td99\n")
    with pytest.raises(InputError, match=r"t\.tsv:3: id 'q99': query is not in the collection's train split"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, collection)
    taught = score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, collection, skip_bad=True)
    assert (taught.triplets, taught.pairs, taught.rejected) == (1, 2, 3)
    (tmp_path / "t.tsv").write_text("q1\td1\td2\nq3\td1\td2\n")
    with pytest.raises(InputError, match=r"t\.tsv:2: id 'q3': query leaves no room for a document in 64 tokens"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o2.tsv", teacher, collection)
    (tmp_path / "t.tsv").write_text("q3\td1\td2\n")
    with pytest.raises(InputError, match=r"t\.tsv: no usable triplets in it; the first of 1 rejects"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o2.tsv", teacher, collection, skip_bad=True)
    assert not list(tmp_path.glob(".*"))


def test_cut_documents_are_counted(teacher: CrossEncoder, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td2\nq2\td1\td2\n")
    collection = made_up()
    collection.documents |= {"d1": "text " * 100, "d2": "text"}
    assert score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, collection).truncated == 2


def test_a_place_that_is_taken_or_unreadable_is_refused_at_once(teacher: CrossEncoder, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td2\n")
    with pytest.raises(InputError, match=r"o\.csv: the name of the table does not end in \.tsv or \.tsv\.gz"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.csv", teacher, made_up())
    score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, made_up())
    with pytest.raises(InputError, match=r"o\.tsv: already exists"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, made_up())
    score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, made_up(), overwrite=True)
    (tmp_path / "o.tsv").unlink()  # as if killed between the two files
    score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher, made_up())
    report_of(tmp_path / "p.tsv").write_text("[1]")
    with pytest.raises(InputError, match=r"p\.tsv\.json: exists and is not ours to overwrite"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "p.tsv", teacher, made_up(), overwrite=True)


def test_wrong_teachers_are_one_clear_line(teacher: CrossEncoder, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td2\n")
    with pytest.raises(InputError, match="a cross-encoder reads texts; name the collection"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", teacher)
    plain = CrossEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match="has no trained head for scores; name a cross-encoder, or train one"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", plain, made_up())
    with pytest.raises(InputError, match=r"nowhere\.tsv: no such file"):
        score_triplets(tmp_path / "t.tsv", tmp_path / "o.tsv", tmp_path / "nowhere.tsv")


def test_scored_triplets_go_through_prepare(tiny_model: Any, tmp_path: Path) -> None:
    """The published layout in, teach's own layout in: the same rows and scores in the folder that training reads."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "{i}", "text": "text {i}"}}\n' for i in range(9)))
    (folder / "queries.jsonl").write_text('{"_id": "70", "text": "which?"}\n{"_id": "71", "text": "how?"}\n')
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n70\t1\t1\n71\t2\t1\n")
    (tmp_path / "published.tsv").write_text("8.5\t-1.25\t71\t2\t5\n7.75\t0.5\t70\t1\t8\n")
    (tmp_path / "s.tsv").write_text("71\t2\t8.5\n71\t5\t-1.25\n70\t1\t7.75\n70\t8\t0.5\n")
    score_triplets(tmp_path / "published.tsv", tmp_path / "taught.tsv", tmp_path / "s.tsv")
    batches = []
    for name in ("published", "taught"):
        report = prepare(folder, tiny_model("bert"), tmp_path / name, triplets=tmp_path / f"{name}.tsv")
        assert (report.triplets, report.negatives_per_triplet) == (2, 1)
        batches.append(Triplets(tmp_path / name / "triplets").take([0, 1]))
    for one, other in zip(*batches, strict=True):
        assert one is not None
        np.testing.assert_array_equal(one, other)
    assert batches[0].scores is not None
    assert batches[0].scores.tolist() == [[8.5, -1.25], [7.75, 0.5]]
    with pytest.raises(InputError, match="these triplets are ids; name the collection"):
        prepare(None, tiny_model("bert"), tmp_path / "other", triplets=tmp_path / "published.tsv")
