"""mine, search, rerank and evaluate as a user runs them, one after the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remargin.files import atomic
from remargin.model.cross_encoder import CrossEncoder


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    words = ["margin", "query", "value", "token"]
    documents = [{"_id": f"d{i}", "text": f"{words[i % 4]} text number{i}"} for i in range(12)]
    queries = [{"_id": f"q{i}", "text": f"{words[i % 4]} number{i}"} for i in range(6)]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for split, rows in {"train": range(4), "test": range(4, 6)}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in rows))
    return folder


def test_from_judgments_to_measures(remargin: Any, beir: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    mined = remargin("mine", "--data", beir, "--out", tmp_path / "t.tsv")
    assert (mined.returncode, mined.stderr) == (0, "")
    assert "4 triplets for 4 queries" in mined.stdout
    first, second = tmp_path / "bm25.trec", tmp_path / "reranked.trec.gz"
    assert "2 queries" in remargin("search", "--data", beir, "--index", "bm25", "--out", first).stdout
    arguments = ("--data", beir, "--model", tiny_encoder("bert"))
    assert remargin("rerank", *arguments, "--run", first, "--out", second).returncode == 0
    assert remargin("search", *arguments, "--k", 5, "--out", tmp_path / "exact.trec").returncode == 0
    measured = remargin(
        *("evaluate", "--data", beir, "--run", first, "--measures", "RR", "nDCG@10"),
        *("--per-query", tmp_path / "scores.csv"),
    )
    assert [line.split("\t")[:2] for line in measured.stdout.splitlines()[:2]] == [
        ["RR", "1.0000"],
        ["nDCG@10", "1.0000"],
    ]
    assert (tmp_path / "scores.csv").read_text().splitlines()[:2] == ["query,RR,nDCG@10", "q4,1.000000,1.000000"]
    assert remargin("evaluate", "--data", beir, "--run", second).returncode == 0


def test_missing_queries_are_counted_as_zero_and_reported(remargin: Any, beir: Path, tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q4 Q0 d4 1 1.0 tag\n")
    measured = remargin("evaluate", "--data", beir, "--run", tmp_path / "run.trec", "--measures", "RR")
    line = "RR\t0.5000\tJudged@10\t1.0000\n"
    assert measured.stdout == line + "judged queries that the run lacks, counted as 0: 1\n"


def test_the_share_of_judged_documents_stands_beside_each_measure(remargin: Any, beir: Path, tmp_path: Path) -> None:
    lines = [f"{query} Q0 d{i} 1 {score} tag\n" for query in ("q4", "q5") for i, score in enumerate(range(8, 0, -1))]
    (tmp_path / "run.trec").write_text("".join(lines))
    measured = remargin("evaluate", "--data", beir, "--run", tmp_path / "run.trec", "--measures", "R@5", "RR", "R@100")
    assert measured.stdout.splitlines() == [
        "R@5\t0.5000\tJudged@5\t0.1000",  # d4 is the fifth, d5 the sixth
        "RR\t0.1833\tJudged@10\t0.1250",
        "R@100\t1.0000\tJudged@100\t0.1250",
    ]


def test_documents_that_are_the_query_itself_are_left_out_and_counted(
    remargin: Any, beir: Path, tmp_path: Path
) -> None:
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": "q4", "text": "margin  number4"}\n{"_id": "q5", "text": "something else"}\n')
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{query} Q0 {query} 1 9 tag\n{query} Q0 d{query[1]} 2 8 tag\n" for query in ("q4", "q5")))
    measured = remargin("evaluate", "--data", beir, "--run", run, "--measures", "RR")
    assert measured.stdout == "RR\t0.7500\tJudged@10\t0.7500\ndocuments that are the query itself, left out: 1\n"


def test_bad_documents_are_skipped_only_when_asked_for(remargin: Any, beir: Path, tmp_path: Path) -> None:
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": "d 99", "text": "x"}\n')
    arguments = ("search", "--data", beir, "--index", "bm25", "--out", tmp_path / "run.trec")
    refused = remargin(*arguments)
    assert refused.returncode == 2
    assert "'d 99': document id is empty or has white space" in refused.stderr
    skipped = remargin(*arguments, "--skip-bad")
    assert skipped.returncode == 0
    assert "skipped bad input: 1" in skipped.stderr


def test_a_run_of_other_queries_is_not_measured(remargin: Any, beir: Path, tmp_path: Path) -> None:
    (tmp_path / "other.trec").write_text("nobody Q0 d1 1 1.0 x\n")
    result = remargin("evaluate", "--data", beir, "--run", tmp_path / "other.trec")
    assert result.returncode == 2
    assert "none of its queries is judged in split 'test'" in result.stderr


def test_a_cross_encoder_is_no_encoder(remargin: Any, beir: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    CrossEncoder.from_pretrained(tiny_encoder("bert")).save(tmp_path / "cross")
    given = ("--data", beir, "--model", tmp_path / "cross", "--out", tmp_path / "out")
    for verb in ("search", "encode", "index", "mine"):
        failed = remargin(verb, *given, *(("--negatives", "model") if verb == "mine" else ()))
        assert failed.returncode == 2
        assert failed.stderr.endswith(
            "cross is a cross-encoder; re-rank with it (`remargin rerank`), or give an encoder\n"
        )


def test_where_nothing_can_be_written_is_said_before_the_work(
    remargin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    given = ("search", "--data", "nowhere", "--index", "bm25", "--out")
    failed = remargin(*given, tmp_path / "file" / "x.trec")
    assert failed.stderr.endswith("file is not a folder; choose another place\n")
    monkeypatch.setattr(atomic.os, "access", lambda *_: False)
    failed = remargin(*given, tmp_path / "new" / "x.trec")
    assert failed.stderr.endswith(f"cannot be written: {tmp_path} is read-only; choose another place\n")


def test_documents_without_judgments(remargin: Any, beir: Path, tmp_path: Path) -> None:
    shutil.rmtree(beir / "qrels")
    failed = remargin("search", "--data", beir, "--index", "bm25", "--out", tmp_path / "x.trec")
    assert "no split 'test'; it has: none; judgments belong into its qrels folder: SPLIT.tsv" in failed.stderr


def test_the_record_of_a_run_is_no_config(remargin: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("command: remargin fit --data x\nasked: {data: x}\n")
    failed = remargin("fit", "--config", tmp_path / "config.yaml")
    assert failed.stderr.endswith("the record of a training run, not a config; to repeat it: remargin fit --data x\n")


def test_what_a_terminal_cannot_show_is_written_otherwise() -> None:
    code = "import remargin.cli as c; c.app = lambda **_: print('caf\\u00e9'); c.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert ended.stdout == rb"caf\xe9" + b"\n"


CHINESE = [
    "今天天气很好我们去公园散步",
    "请问图书馆几点开门",
    "这本书讲的是机器学习的基础",
    "火车站在城市的东边",
]


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    """A collection in a language without spaces: a query is a part of its document, but shares no word with it."""
    folder = tmp_path / "chinese"
    (folder / "qrels").mkdir(parents=True)
    texts = [f"{text}{i}" for i in range(4) for text in CHINESE]
    for name, cut in {"corpus": slice(None), "queries": slice(2, 7)}.items():
        records = [{"_id": f"{name[0]}{i}", "text": text[cut]} for i, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split, rows in {"train": range(8), "dev": range(8, 12), "test": range(12, 16)}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\tc{i}\t1\n" for i in rows))
    return folder


NGRAMS = "BM25's language: ngrams, of characters in scripts without spaces (--language)\n"


def test_chinese_without_an_option_from_mining_to_an_answer(
    remargin: Any, chinese: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    found = remargin("search", "--data", chinese, "--index", "bm25", "--out", tmp_path / "run.trec")
    assert found.stderr == NGRAMS
    best = {line.split()[0]: line.split()[2] for line in (tmp_path / "run.trec").read_text().splitlines()[::-1]}
    kinds = {query: int(document[1:]) % 4 for query, document in best.items()}
    assert kinds == {"q12": 0, "q13": 1, "q14": 2, "q15": 3}  # each finds its own sentence
    mined = remargin("mine", "--data", chinese, "--out", tmp_path / "t.tsv")
    assert mined.stdout.startswith(NGRAMS)
    assert mined.stderr == ""
    arguments = ("fit", "--data", chinese, "--model", tiny_encoder("bert"), "--out", tmp_path / "run", "--steps", 2)
    fitted = remargin(*arguments)
    assert fitted.returncode == 0, fitted.stderr
    assert NGRAMS in fitted.stdout
    assert (tmp_path / "run" / "test" / "bm25.trec.gz").exists()
    assert "share no word" not in fitted.stdout
    model = tmp_path / "run" / "model"
    built = remargin("index", "--data", chinese, "--model", model, "--hybrid", 0.5, "--out", tmp_path / "index")
    assert built.returncode == 0, built.stderr
    assert NGRAMS in built.stdout
    (chinese / "corpus.jsonl").unlink()
    asked = remargin("ask", "图书馆几点开门？", "--index", tmp_path / "index", "--hybrid", 0, "--k", 1)
    assert asked.stderr == ""
    assert "请问图书馆几点开门" in asked.stdout


def test_a_search_that_finds_nothing_says_so(remargin: Any, chinese: Path, beir: Path, tmp_path: Path) -> None:
    words = ("--data", chinese, "--language", "english", "--out")
    found = remargin("search", "--index", "bm25", *words, tmp_path / "run.trec")
    assert found.returncode == 0
    nothing = "nothing was found for 4 of 4 queries, such as 'q12'; no word of theirs is in a document"
    assert found.stderr == f"{nothing}: name their language (--language), or use a model instead of BM25\n"
    mined = remargin("mine", *words, tmp_path / "t.tsv")
    nothing = "queries for which nothing was found, with negatives at random: 8, all of them"
    assert mined.stderr == f"{nothing}; name their language (--language), or use a model instead of BM25\n"
    with (beir / "queries.jsonl").open("a") as queries:
        queries.write('{"_id": "q6", "text": "nobody knows"}\n')
    with (beir / "qrels" / "test.tsv").open("a") as judgments:
        judgments.write("q6\td6\t1\n")
    found = remargin("search", "--data", beir, "--index", "bm25", "--out", tmp_path / "some.trec")
    assert found.stderr == ("nothing was found for 1 of 3 queries, such as 'q6'; no word of theirs is in a document\n")


def test_fit_stops_before_training_where_bm25_finds_nothing(
    remargin: Any, chinese: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    arguments = ("fit", "--data", chinese, "--model", tiny_encoder("bert"), "--out", tmp_path / "run", "--steps", 2)
    arguments += ("--language", "english")
    stopped = remargin(*arguments)
    assert stopped.returncode == 2
    assert stopped.stderr.startswith("error: BM25 finds nothing for any of the 8 training queries; name the")
    assert "`remargin mine --negatives model`" in stopped.stderr
    assert "mined" not in stopped.stdout
    assert not (tmp_path / "run").exists()
    remargin("mine", "--data", chinese, "--negatives", "random", "--out", tmp_path / "t.tsv")
    stopped = remargin(*arguments, "--triplets", tmp_path / "t.tsv", "--validation-depth", 10)
    assert stopped.returncode == 2
    assert "error: BM25 finds nothing for any of the 4 validation queries" in stopped.stderr
    exact = ("search", "--data", chinese, "--model", tiny_encoder("bert"), "--split", "dev")
    assert remargin(*exact, "--out", tmp_path / "dev.trec").returncode == 0
    fitted = remargin(*arguments, "--triplets", tmp_path / "t.tsv", "--validation-run", tmp_path / "dev.trec")
    assert fitted.returncode == 0, fitted.stderr
    shutil.rmtree(tmp_path / "run")
    fitted = remargin(*arguments, "--triplets", tmp_path / "t.tsv")  # ranks in full, and takes no BM25 for that
    assert fitted.returncode == 0, fitted.stderr
    assert not (tmp_path / "run" / "model" / "fusion.json").exists()
    assert "Hybrid" not in fitted.stdout
