"""remargin encode, index, update, search and fuse: from texts to run files, and what they say to bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Run
from remargin.retrieval.hybrid import Fusion, save_fusion


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": f"d{i}", "title": "", "text": f"number {i} of {'cats' if i % 2 else 'dogs'}"} for i in range(30)
    ]
    write(folder, documents)
    queries = [{"_id": "q1", "text": "cats"}, {"_id": "q2", "text": "dogs number 2"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    for split in ("dev", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    return folder


def write(folder: Path, documents: list[dict[str, Any]]) -> None:
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))


def test_from_texts_to_a_run(remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    model = tiny_encoder("bert")
    short = ("--document-length", 5, "--passage-length", "off")
    found = remargin("encode", "--data", data, "--model", model, "--out", tmp_path / "vectors", *short)
    assert found.returncode == 0, found.stderr
    assert "30 documents, 30 vectors of 32 numbers (float32)" in found.stdout
    assert "longer than 5 tokens and truncated: 30 (100.0%); --passage-length auto reads them whole" in found.stdout
    found = remargin("index", "--vectors", tmp_path / "vectors", "--out", tmp_path / "index")
    assert re.search(r"exact index of 30 documents, built in [\d.]+ s\n", found.stdout)
    assert "bytes of each document: 128 of vectors" in found.stdout
    run = tmp_path / "run.trec"
    found = remargin("search", "--data", data, "--index", tmp_path / "index", "--out", run, "--k", 5)
    assert found.returncode == 0, found.stderr
    assert {len(ranking) for ranking in Run.load(run).rankings.values()} == {5}
    found = remargin("index", "--data", data, "--model", model, "--out", tmp_path / "passages", "--passage-length", 3)
    assert found.returncode == 0, found.stderr
    assert re.search(r"index of 30 documents, built in [\d.]+ s after encoding\n", found.stdout)
    assert not list(tmp_path.glob(".passages*"))


def test_an_index_that_follows_its_collection(
    remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    assert remargin("index", "--data", data, "--model", tiny_encoder("bert"), "--out", index).returncode == 0
    documents = [{"_id": f"d{i}", "text": f"number {i} of {'cats' if i % 2 else 'dogs'}"} for i in range(2, 30)]
    documents[0]["text"] = "something new"
    write(data, [*documents, {"_id": "d99", "text": "more"}])
    found = remargin("update", "--index", index, "--data", data)
    assert found.stdout.strip() == f"{index}: 1 added, 1 replaced, 2 deleted"
    (tmp_path / "ids.txt").write_text("d3\n\nd4\n")
    assert remargin("update", "--index", index, "--delete", tmp_path / "ids.txt").stdout.endswith("2 deleted\n")
    found = remargin("update", "--index", index, "--delete", tmp_path / "ids.txt")
    assert found.returncode == 2
    assert found.stderr == f"error: {index}: id 'd3': document is not in the index; leave it out\n"


@pytest.mark.parametrize("kind", ["exact", "bm25"])
def test_what_was_skipped_is_counted_in_the_same_words_everywhere(
    kind: str, remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    with open(data / "corpus.jsonl", "a") as file:
        file.write('{"_id": "d 99", "text": "x"}\n')
    model = ("--model", tiny_encoder("bert")) if kind == "exact" else ()
    index = ("index", "--data", data, "--index", kind, *model, "--out", tmp_path / "index")
    refused = remargin(*index)
    assert refused.returncode == 2
    assert "'d 99': document id is empty or has white space" in refused.stderr
    told = [remargin(*index, "--skip-bad")]
    if kind == "exact":
        told.append(remargin("encode", "--data", data, *model, "--out", tmp_path / "vectors", "--skip-bad"))
        told.append(remargin("update", "--data", data, "--index", tmp_path / "index", "--skip-bad", "--keep-others"))
    search = ("search", "--data", data, "--index", tmp_path / "index", "--out", tmp_path / "run")
    told.append(remargin(*search, "--skip-bad"))
    assert {answer.returncode for answer in told} == {0}
    [line] = {answer.stderr for answer in told}
    assert line.startswith(f"skipped bad input: 1, the first is {data / 'corpus.jsonl'}:31: id 'd 99': document id is")


def test_bm25_and_fusion(remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    found = remargin("index", "--data", data, "--index", "bm25", "--k1", 1.2, "--b", 0.75, "--out", tmp_path / "bm25")
    assert found.returncode == 0, found.stderr
    first, second = tmp_path / "bm25.trec", tmp_path / "dense.trec"
    assert remargin("search", "--data", data, "--index", tmp_path / "bm25", "--out", first).returncode == 0
    dense = ("--index", "exact", "--model", tiny_encoder("bert"))
    assert remargin("search", "--data", data, *dense, "--out", second).returncode == 0
    found = remargin("fuse", "--runs", first, second, "--out", tmp_path / "rrf.trec")
    assert found.stdout == f"wrote {tmp_path / 'rrf.trec'}: 2 queries\n"
    tuned = ("--tune", first, second, "--data", data, "--split", "dev", "--measure", "RR")
    found = remargin("fuse", "--runs", first, second, *tuned, "--out", tmp_path / "sum.trec")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("weight 0.")
    assert "RR" in found.stdout


def test_a_weight_is_chosen_without_documents_that_are_the_query_itself(
    remargin: Callable[..., Any], data: Path, tmp_path: Path
) -> None:
    """The first run finds the relevant documents, and before them the queries themselves, as other programs do."""
    with open(data / "corpus.jsonl", "a") as file:
        file.write('{"_id": "q1", "text": "cats"}\n{"_id": "q2", "text": "dogs number 2"}\n')
    right, wrong = ({"q1": "d1", "q2": "d2"}, {"q1": "d3", "q2": "d4"})
    for name, rankings in {
        "itself": {query: {query: 9, right[query]: 8, "d9": 1} for query in right},
        "clean": {query: {right[query]: 8, "d9": 1} for query in right},
        "wrong": {query: {wrong[query]: 5, right[query]: 4} for query in right},
    }.items():
        Run.of(rankings).save(tmp_path / name)
    told = {}
    for name in ("itself", "clean"):
        runs = (tmp_path / name, tmp_path / "wrong")
        tuned = ("--tune", *runs, "--data", data, "--measure", "RR")
        found = remargin("fuse", "--runs", *runs, *tuned, "--out", tmp_path / f"{name}.fused")
        assert found.returncode == 0, found.stderr
        told[name] = found.stdout.splitlines()
    assert told["itself"][0] == f"{tmp_path / 'itself'}: documents that are the query itself, left out: 2"
    assert told["itself"][1] == told["clean"][0]
    assert told["clean"][0].endswith(f"of {tmp_path / 'wrong'}: RR 1.0000 on dev")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("encode", "--kind", "answers"), "nothing called 'answers' to encode"),
        (("encode", "--passage-length", "5000"), "passages of 5000 tokens"),
        (("index", "--index", "bm25"), "a BM25 index is made of texts"),
        (("index",), "an index is made of vectors, or of texts and a model"),
        (("index", "--vectors", "{here}/nothing"), "nothing/remargin_vectors.json: not found"),
        (("index", "--vectors", "{here}/nothing", "--index", "lucene"), "unknown index 'lucene'"),
        (
            ("index", "--vectors", "{here}", "--passage-length", "9"),
            "--passage-length does nothing for vectors that are encoded already",
        ),
        (("index", "--index", "bm25", "--links", "9"), "--links does nothing for a BM25 index"),
        (("index", "--vectors", "{here}", "--over-fetch", "4"), "--over-fetch does nothing for exact search without"),
        (("index", "--vectors", "{here}", "--k1", "1.2"), "--k1 does nothing for index exact"),
        (("search", "--index", "{here}"), "remargin_index.json: not found"),
        (("search", "--index", "lucene"), "unknown index 'lucene'"),
        (("search", "--index", "faiss"), "index 'faiss' needs a model"),
        (("fuse", "--runs", "{here}/a", "--weight", "0.5"), "a weighted sum needs two run files, not 1"),
        (("fuse", "--runs", "{here}/a", "{here}/b"), "a: no such file"),
        (
            ("fuse", "--runs", "{here}/a", "{here}/b", "--split", "dev"),
            "--split does nothing for a fusion without --tune",
        ),
        (
            ("update", "--index", "{here}", "--data", "x", "--skip-bad"),
            "documents that cannot be read would be deleted",
        ),
        (("update", "--index", "{here}", "--delete", "x", "--replace"), "--replace does nothing for --delete"),
        (("update", "--index", "{here}"), "nothing to do, or too much at once"),
        (("update", "--index", "{here}/no", "--delete", "{here}/ids"), "ids: no such file"),
    ],
)
def test_bad_input_is_one_line(
    remargin: Callable[..., Any],
    data: Path,
    tiny_encoder: Any,
    tmp_path: Path,
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    verb, *rest = [argument.replace("{here}", str(tmp_path)) for argument in arguments]
    more: list[Any] = [] if verb == "update" else ["--out", tmp_path / "out"]
    if verb in ("encode", "search"):
        more += ["--data", data]
    if verb == "encode":
        more += ["--model", tiny_encoder("bert")]
    before = sorted(path.name for path in tmp_path.iterdir())
    found = remargin(verb, *rest, *more)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert problem in found.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_called_like_a_kind_of_index_is_not_overlooked(
    remargin: Callable[..., Any], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert remargin("index", "--data", data, "--index", "bm25", "--k1", 3, "--out", "bm25").returncode == 0
    found = remargin("search", "--data", data, "--index", "bm25", "--out", "run.trec")
    assert found.returncode == 2
    assert "'bm25' is both a kind of index and a folder here; write ./bm25" in found.stderr
    (tmp_path / "my index").mkdir()
    (tmp_path / "bm25").rename(tmp_path / "my index" / "a b")
    assert remargin("search", "--data", data, "--index", "my index/a b", "--out", "run.trec").returncode == 0
    assert len(Run.load(tmp_path / "run.trec")) == 2


def test_vectors_beside_the_index_are_neither_overwritten_nor_deleted(
    remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    model, place = tiny_encoder("bert"), tmp_path / "x.vectors"
    assert remargin("encode", "--data", data, "--model", model, "--out", place).returncode == 0
    found = remargin("index", "--data", data, "--model", model, "--out", tmp_path / "x")
    assert found.returncode == 2
    assert f"{place}: is there already" in found.stderr
    assert remargin("index", "--vectors", place, "--out", tmp_path / "x").returncode == 0
    assert place.is_dir()


def test_an_index_of_another_model_is_refused(
    remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    assert remargin("index", "--data", data, "--model", tiny_encoder("bert"), "--out", index).returncode == 0
    other = ("--model", tiny_encoder("distilbert"), "--out", tmp_path / "run")
    found = remargin("search", "--data", data, "--index", index, *other)
    assert found.returncode == 2
    assert f"{index}: the vectors were made by another model than" in found.stderr
    assert not (tmp_path / "run").exists()


def test_a_question_and_what_answers_it(
    remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    for kind, given in (("bm25", ()), ("exact", ("--model", tiny_encoder("bert")))):
        index = tmp_path / kind
        assert remargin("index", "--data", data, "--out", index, "--index", kind, *given).returncode == 0
        told = remargin("ask", "dogs number 2", "--index", index, "--k", 2)
        assert (told.returncode, told.stderr) == (0, "")
        first, text, second, _ = told.stdout.splitlines()
        assert (first[:2], second[:2]) == ("1.", "2.")
        number = first.split()[1].removeprefix("d")
        assert text == f"   number {number} of {'cats' if int(number) % 2 else 'dogs'}"
        if kind == "bm25":
            assert number == "2"
        bare = remargin(
            "index", "--data", data, "--out", tmp_path / f"bare-{kind}", "--index", kind, "--no-texts", *given
        )
        assert bare.returncode == 0
    before = {kind: remargin("ask", "dogs number 2", "--index", tmp_path / kind).stdout for kind in ("bm25", "exact")}
    data.rename(tmp_path / "moved")
    for kind, shown in before.items():  # an index has its texts, wherever the collection is
        told = remargin("ask", "dogs number 2", "--index", tmp_path / kind)
        assert (told.stdout, told.stderr) == (shown, "")
        ask = ("ask", "dogs number 2", "--index", tmp_path / f"bare-{kind}")
        told = remargin(*ask)
        assert [line for line in shown.splitlines() if not line.startswith(" ")] == told.stdout.splitlines()
        assert "documents are without their text, such as 'd" in told.stderr
        assert told.stderr.endswith("); say where the texts are (--data)\n")
        told = remargin(*ask, "--data", tmp_path / "moved")
        assert (told.stdout, told.stderr) == (shown, "")
    assert remargin("ask", "zzz", "--index", tmp_path / "bm25").stdout == "nothing found\n"
    assert remargin("ask", " ", "--index", tmp_path / "bm25").returncode == 2
    assert "the question is not UTF-8" in remargin("ask", "caf\udce9", "--index", tmp_path / "bm25").stderr


@pytest.fixture
def fused_model(tiny_encoder: Any, tmp_path: Path) -> Path:
    """A model whose dev split says that it is better with BM25."""
    folder = tmp_path / "model"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(folder)
    save_fusion(folder, Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65))
    return folder


def test_bm25_and_the_encoder_are_fused_as_dev_says(
    remargin: Callable[..., Any], data: Path, fused_model: Path, tmp_path: Path
) -> None:
    index, line = tmp_path / "index", "BM25 and the encoder fused, weight 0.4 from dev\n"
    built = remargin("index", "--data", data, "--model", fused_model, "--out", index)
    assert (built.returncode, built.stderr) == (0, "")
    assert line in built.stdout
    search = ("search", "--data", data, "--index", index, "--out")
    told = remargin(*search, tmp_path / "fused.trec")
    assert told.stdout == f"{line}wrote {tmp_path / 'fused.trec'}: 2 queries\n"
    told = remargin(*search, tmp_path / "dense.trec", "--hybrid", "off")
    assert told.stdout == f"wrote {tmp_path / 'dense.trec'}: 2 queries\n"
    assert remargin("search", "--data", data, "--index", "bm25", "--out", tmp_path / "bm25.trec").returncode == 0
    runs = ("--runs", tmp_path / "bm25.trec", tmp_path / "dense.trec")
    assert remargin("fuse", *runs, "--weight", 0.4, "--out", tmp_path / "same.trec").returncode == 0
    ours, theirs = (Run.load(tmp_path / f"{name}.trec").rankings for name in ("fused", "same"))
    for query, ranking in ours.items():
        assert ranking == pytest.approx(theirs[query], abs=1e-4)
    told = remargin("ask", "dogs number 2", "--index", index, "--k", 2)
    assert told.stderr == ""
    first, answer, *_ = told.stdout.splitlines(keepends=True)
    assert first == line
    assert answer.startswith("1. d2  ")
    told = remargin("ask", "dogs number 2", "--index", index, "--k", 2, "--hybrid", "0.3")
    assert told.stdout.startswith("BM25 and the encoder fused, weight 0.3\n1. d2  ")
    assert remargin("ask", "dogs number 2", "--index", index, "--hybrid", "off").stdout.startswith("1. ")
    write(data, [{"_id": f"d{i}", "text": f"number {i} of cats"} for i in range(1, 31)])
    told = remargin("update", "--index", index, "--data", data)
    assert told.stdout == f"{index}: 1 added, 14 replaced, 1 deleted\n"
    anew = remargin("index", "--data", data, "--model", fused_model, "--out", tmp_path / "anew")
    assert line in anew.stdout
    asked = [remargin("ask", "cats number 30", "--index", folder).stdout for folder in (index, tmp_path / "anew")]
    assert asked[0] == asked[1]


def test_what_hybrid_cannot_be_is_one_line(
    remargin: Callable[..., Any], data: Path, fused_model: Path, tmp_path: Path
) -> None:
    given = ("index", "--data", data, "--model", fused_model, "--out", tmp_path / "index")
    refused = remargin(*given, "--hybrid", "maybe")
    assert refused.stderr == (
        "error: --hybrid maybe; use auto, on, off, or the encoder's weight: 0 (only BM25) to 1 (only the encoder)\n"
    )
    assert remargin(*given).returncode == 0
    vectors = tmp_path / "vectors"
    assert remargin("encode", "--data", data, "--model", fused_model, "--out", vectors).returncode == 0
    refused = remargin("update", "--index", tmp_path / "index", "--vectors", vectors, "--replace")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {tmp_path / 'index'}: has BM25, too, which takes the texts")
    (fused_model / "fusion.json").write_text("{}")
    refused = remargin(*given, "--overwrite")
    assert refused.stderr.startswith(f"error: {fused_model / 'fusion.json'}: not a header that remargin wrote; delete")
