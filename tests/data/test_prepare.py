"""`prepare`: from any source to a folder, whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, InputError, Triplets
from remargin.data.preparation import prepare
from remargin.data.tokens import TokenStore
from remargin.files.atomic import locked
from remargin.model.tokenizer import TextSettings, Tokenizer


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "title": f"title {i}", "text": f"text {i}"}) + "\n" for i in range(20))
    )
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": f"query {i}"}) + "\n" for i in range(10))
    )
    for split, rows in {"train": range(6), "dev": range(6, 8), "test": range(8, 10)}.items():
        lines = "".join(f"q{i}\td{i}\t1\n" for i in rows)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_prepared_folder_is_the_same_collection_and_its_tokens(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    settings = TextSettings(query_length=10, document_length=20, document_prefix="document ")
    report = prepare(beir, tiny_model("bert"), tmp_path / "out", **asdict(settings))
    assert (report.documents, report.queries) == (20, 10)
    assert report.judgments == {"train": 6, "dev": 2, "test": 2}
    for split in ("train", "dev", "test"):
        before, after = Collection.load(beir, split), Collection.load(tmp_path / "out", split)
        assert (before.documents, before.queries, before.qrels) == (after.documents, after.queries, after.qrels)
    tokenizer = Tokenizer.from_pretrained(tiny_model("bert"))
    documents = TokenStore(tmp_path / "out" / "tokens" / "documents")
    documents.require(tokenizer, 20, "document ")
    documents.verify()
    [row] = documents.ids.rows(["d7"])
    assert documents.take([row]).ids.tolist() == tokenizer(["document title 7 text 7"], 20)[0].ids.tolist()
    assert len(TokenStore(tmp_path / "out" / "tokens" / "queries")) == 10
    header = json.loads((tmp_path / "out" / "remargin.json").read_text())
    assert header["documents"] == 20
    assert header["data"] == str(beir)


def test_the_same_input_gives_the_same_bytes(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        prepare(beir, tiny_model("bert"), tmp_path / name)
    names = files_below(tmp_path / "one")
    assert names == files_below(tmp_path / "two")
    for name in names:
        if name != "remargin.json":  # says how long it took
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_triplets_of_ids_become_rows(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    table.write_text("q1\td1\td5\nq3\td3\td19\n")
    report = prepare(beir, tiny_model("bert"), tmp_path / "out", triplets=table)
    assert (report.triplets, report.negatives_per_triplet) == (2, 1)
    batch = Triplets(tmp_path / "out" / "triplets").take([1])
    documents, queries = (TokenStore(tmp_path / "out" / "tokens" / kind).ids for kind in ("documents", "queries"))
    assert (queries[int(batch.queries[0])], documents[int(batch.positives[0])]) == ("q3", "d3")
    assert documents[int(batch.negatives[0, 0])] == "d19"


def test_triplets_of_texts_become_a_collection(tiny_model: Any, tmp_path: Path) -> None:
    rows = [
        {"query": "how", "positive": "so", "negatives": ["not so", "never"], "scores": [3, 1, 0]},
        {"query": "how", "positive": "thus", "negatives": ["never", "so so"], "scores": [4, 2, 1]},
        {"query": "why", "positive": "so", "negatives": ["never", "not so"], "scores": [5, 0.5, 0]},
    ]
    table = tmp_path / "t.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = prepare(None, tiny_model("bert"), tmp_path / "out", triplets=table)
    assert (report.documents, report.queries, report.triplets) == (5, 2, 3)
    assert report.judgments == {"train": 3}
    collection = Collection.load(tmp_path / "out", split="train")
    assert {collection.queries[q]: {collection.documents[d] for d in docs} for q, docs in collection.qrels.items()} == {
        "how": {"so", "thus"},
        "why": {"so"},
    }
    batch = Triplets(tmp_path / "out" / "triplets").take([2])
    texts = list(collection.documents.values())
    assert [texts[row] for row in (batch.positives[0], *batch.negatives[0])] == ["so", "never", "not so"]
    assert batch.scores is not None
    assert batch.scores.tolist() == [[5.0, 0.5, 0.0]]


def test_triplets_that_do_not_fit_the_collection(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    model, out = tiny_model("bert"), tmp_path / "out"
    table.write_text("query_id,positive_id,negative_id\nq1,d1,d2\nq1,d1,d99\nq77,d1,d2\n")
    with pytest.raises(InputError, match=r"t\.csv:3: id 'd99': document is not in the collection"):
        prepare(beir, model, out, triplets=table)
    report = prepare(beir, model, out, triplets=table, skip_bad=True)
    assert (report.triplets, report.rejected) == (1, 2)
    rejects = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    assert [(r["line"], r["id"]) for r in rejects] == [(3, "d99"), (4, "q77")]
    with pytest.raises(InputError, match="these triplets are ids; name the collection"):
        prepare(None, model, tmp_path / "other", triplets=table)
    table.write_text("query,positive,negative\na,b,c\n")
    with pytest.raises(InputError, match="these triplets are texts, but there is a collection"):
        prepare(beir, model, tmp_path / "other", triplets=table)
    table.write_text("query_id,positive_id,negative_id\nq1,d1,d99\n")
    with pytest.raises(InputError, match=r"no usable triplets in it; the first of 1 rejects: .*t\.csv:2"):
        prepare(beir, model, tmp_path / "other", triplets=table, skip_bad=True)
    with pytest.raises(InputError, match="nothing to prepare"):
        prepare(None, model, tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["beir", "out", "t.csv"]


def test_inputs_and_strangers_are_never_overwritten(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    stranger = tmp_path / "thesis"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not ours to overwrite"):
        prepare(beir, tiny_model("bert"), stranger, overwrite=True)
    assert (stranger / "thesis.tex").read_text() == "precious"
    prepare(beir, tiny_model("bert"), tmp_path / "out")
    (tmp_path / "out" / "t.tsv").write_text("q1\td1\td5\n")
    (tmp_path / "faq.csv").write_text("query,document\nwhy?,because\n")
    (tmp_path / "out" / "docs.jsonl").write_text('{"_id": "1", "text": "because"}\n')
    (tmp_path / "out" / "docs").mkdir()
    sources = (
        f"pairs:{tmp_path / 'faq.csv'}?corpus={tmp_path / 'out' / 'docs.jsonl'}",
        f"files:{tmp_path / 'out/docs'}",
    )
    for data, triplets in (
        (beir, tmp_path / "out" / "t.tsv"),
        *((data, None) for data in (tmp_path / "out", *sources)),
    ):
        with pytest.raises(InputError, match="lies in the folder to be written"):
            prepare(data, tiny_model("bert"), tmp_path / "out", triplets=triplets, overwrite=True)
    assert (tmp_path / "out" / "t.tsv").exists()


def test_triplets_with_held_out_queries_are_counted(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("q1\td1\td5\nq8\td8\td5\nq6\td6\td5\n")
    report = prepare(beir, tiny_model("bert"), tmp_path / "out", triplets=tmp_path / "t.tsv")
    assert report.notes == {"WARNING: triplets whose query is also in a held-out split": 2}


def test_a_collection_without_judgments_or_documents(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    for file in (beir / "qrels").iterdir():
        file.unlink()
    assert prepare(beir, tiny_model("bert"), tmp_path / "out").judgments == {}
    (beir / "corpus.jsonl").write_text("")
    with pytest.raises(InputError, match="there are no documents in it"):
        prepare(beir, tiny_model("bert"), tmp_path / "other")


def test_bad_input_leaves_the_old_output_as_it_was(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(beir, tiny_model("bert"), out)
    before = {name: (out / name).read_bytes() for name in files_below(out)}
    with pytest.raises(InputError, match="already exists"):
        prepare(beir, tiny_model("bert"), out)
    with open(beir / "corpus.jsonl", "a") as file:
        file.write("not JSON\n")
    with pytest.raises(InputError, match=r"corpus\.jsonl:21"):
        prepare(beir, tiny_model("bert"), out, overwrite=True)
    assert {name: (out / name).read_bytes() for name in files_below(out)} == before
    report = prepare(beir, tiny_model("bert"), out, overwrite=True, skip_bad=True)
    assert report.rejected == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["beir", "out"]


SHARED = Path(__file__).parents[3] / "shared" / "data" / "medquad"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection is not here")
def test_a_real_collection(minilm: Path, tmp_path: Path) -> None:
    report = prepare(SHARED, minilm, tmp_path / "out")
    assert (report.documents, report.queries) == (15_774, 14_978)
    assert report.judgments == {"train": 13_153, "dev": 1_615, "test": 1_590}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_forty_million_triplets_over_nine_million_documents_stay_below_two_gigabytes(tmp_path: Path) -> None:
    """A store and triplets of MS MARCO's size, with made-up ids and tokens, read in shuffled batches."""
    program = """
        import json, sys
        from pathlib import Path
        import numpy as np
        from remargin.data.ids import Ids, IdWriter
        from remargin.data.shuffle import Shuffle
        from remargin.data.tokens import TokenStore
        from remargin.data.triplets import Triplets, TripletWriter
        from remargin.files.headers import write_header

        def megabytes(key):
            return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) // 1024

        root = Path(sys.argv[1])
        rng = np.random.default_rng(0)

        def make_store(folder, count, mean):
            folder.mkdir()
            lengths = np.minimum(rng.poisson(mean, count) + 2, 200)
            np.cumsum(lengths, dtype=np.uint64).tofile(folder / "ends.bin")
            with open(folder / "tokens.bin", "wb") as tokens:
                for part in np.array_split(lengths, 50):
                    rng.integers(0, 30_000, part.sum(), np.uint16).tofile(tokens)
            ids = IdWriter(folder)
            for start in range(0, count, 100_000):
                ids.add([f"d{i}" for i in range(start, min(start + 100_000, count))])
            header = {"format": TokenStore.FORMAT, "ids": ids.close(), "tokens": int(lengths.sum()), "truncated": 0,
                      "dtype": "uint16", "tokenizer": "", "length": 200, "prefix": "", "sha256": {}}
            write_header(folder / "header.json", header)
            return TokenStore(folder)

        documents, queries = make_store(root / "d", 9_000_000, 75), make_store(root / "q", 500_000, 8)
        writer = TripletWriter(root / "t")
        for _ in range(40):
            rows = np.stack([rng.integers(0, n, 1_000_000, np.uint32) for n in (500_000, 9_000_000, 9_000_000)], 1)
            writer.add(rows, None)
        writer.close()
        triplets = Triplets(root / "t")
        made = megabytes("VmHWM")
        open("/proc/self/clear_refs", "w").write("5")
        shuffle, seen, resident = Shuffle(len(triplets), seed=1), 0, []
        for step in range(10_000):
            batch = triplets.take(shuffle(np.arange(step * 128, (step + 1) * 128)))
            seen += len(queries.take(batch.queries).ids)
            for rows in (batch.positives, batch.negatives[:, 0]):
                seen += len(documents.take(rows).ids)
            if step % 1000 == 999:
                resident.append(megabytes("VmRSS"))
        print(json.dumps({"made": made, "peak": megabytes("VmHWM"), "resident": resident, "tokens": seen}))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    print(found)
    assert found["tokens"] > 10_000 * 128 * 150
    assert max(found["made"], found["peak"]) < 2000
    assert max(found["resident"]) < min(found["resident"]) + 400


def cut_off_after(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on, tokenising fails as if the machine had."""
    real, left = Tokenizer.__call__, [blocks]

    def failing(self: Tokenizer, texts: Any, length: int) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(self, texts, length)

    monkeypatch.setattr(Tokenizer, "__call__", failing)


@pytest.mark.parametrize("damage", ["none", "journal", "byte", "zeros", "number", "tokens", "text"])
def test_a_cut_off_preparation_goes_on_where_it_was(
    damage: str, beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remargin.data.preparation.BATCH", 4)
    model = tiny_model("bert")
    with monkeypatch.context() as broken:
        cut_off_after(3, broken)
        with pytest.raises(KeyboardInterrupt):
            prepare(beir, model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unfinished = tmp_path / ".out.unfinished" / "documents"
    journal = (unfinished / "journal.jsonl").read_bytes()
    first, last = journal.index(b"\n") + 1, journal[:-1].rindex(b"\n") + 1
    damaged = {
        "journal": journal[:-9],  # cut off in the middle of its last line
        "byte": journal[: first + 40] + b"\xff" + journal[first + 41 :],
        "zeros": journal[:last] + bytes(50) + b"\n",
        "number": journal[:last] + b"5\n",
    }
    (unfinished / "journal.jsonl").write_bytes(damaged.get(damage, journal))
    if damage == "tokens":
        content = (unfinished / "tokens.bin").read_bytes()
        (unfinished / "tokens.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    if damage == "text":
        corpus = (beir / "corpus.jsonl").read_text()
        (beir / "corpus.jsonl").write_text(corpus.replace("text 5", "text the"))  # in the second block
    report = prepare(beir, model, tmp_path / "out")
    assert report.blocks_reused == {"none": 3, "byte": 1, "text": 1}.get(damage, 2)
    assert not (tmp_path / ".out.unfinished").exists()
    whole = prepare(beir, model, tmp_path / "whole")
    assert whole.blocks_reused == 0
    for name in files_below(tmp_path / "whole"):
        if name != "remargin.json":  # which has the seconds in it
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_two_preparations_of_one_folder_do_not_mix(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / ".out.unfinished").mkdir()
    with locked(tmp_path / ".out.unfinished"), pytest.raises(InputError, match="another process"):
        prepare(beir, tiny_model("bert"), tmp_path / "out")
