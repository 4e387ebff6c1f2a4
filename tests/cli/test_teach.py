"""`remargin teach` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, Run
from remargin.model.cross_encoder import CrossEncoder

WORDS = ["value", "list", "text", "model"]


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {f"{kind}{i}": f"{WORDS[i % 4]} {'margins' if kind == 'a' else 'file'}" for i in range(12) for kind in "ab"}
    lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items()]
    (folder / "corpus.jsonl").write_text("".join(lines))
    queries = [json.dumps({"_id": f"q{i}", "text": f"how {WORDS[i % 4]}"}) + "\n" for i in range(12)]
    (folder / "queries.jsonl").write_text("".join(queries))
    for split, rows in {"train": range(8), "dev": range(8, 12)}.items():
        judged = "".join(f"q{i}\ta{i}\t1\n" for i in rows)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (tmp_path / "t.tsv").write_text("".join(f"q{i}\ta{i}\tb{(i + 4) % 12}\n" for i in range(8)))
    return folder


def test_a_cross_encoder_trained_and_used(
    remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    common = ("teach", "--data", beir, "--triplets", tmp_path / "t.tsv")
    training = ("--train-from", tiny_model("bert"), "--save-model", tmp_path / "teacher", "--epochs", 2)
    options = ("--batch-size", 4, "--learning-rate", "1e-3", "--length", 40)
    result = remargin(*common, *training, *options, "--out", tmp_path / "s.tsv")
    assert result.returncode == 0, result.stderr
    assert "nDCG@10 on dev: " in result.stdout
    assert f"wrote {tmp_path / 'teacher'}: 4 steps on 8 triplets" in result.stdout
    assert f"wrote {tmp_path / 's.tsv'}: 8 triplets, 16 distinct pairs in " in result.stdout
    assert f"wrote {tmp_path / 's.tsv.json'}" in result.stdout
    assert "has no head for scores: a new one" in caplog.text
    assert (tmp_path / "s.tsv").read_text().startswith("query_id\tpositive_id\tnegative_id\tpositive_score\tneg")
    report = json.loads((tmp_path / "s.tsv.json").read_text())
    assert report["teacher"] == str(tmp_path / "teacher")
    assert report["teacher_seconds"] > 0
    assert CrossEncoder.from_pretrained(tmp_path / "teacher").length == 40
    again = remargin(*common, *training, *options, "--out", tmp_path / "again.tsv")  # as after a kill
    assert again.returncode == 0, again.stderr
    assert "used as it is" in again.stdout
    result = remargin(*common, "--model", tmp_path / "teacher", "--out", tmp_path / "other.tsv")
    assert result.returncode == 0, result.stderr
    assert len({(tmp_path / f"{name}.tsv").read_bytes() for name in ("s", "again", "other")}) == 1
    dev = ("--data", beir, "--split", "dev")
    assert remargin("search", *dev, "--index", "bm25", "--out", tmp_path / "bm25.trec").returncode == 0
    model = ("--model", tmp_path / "teacher")
    result = remargin("rerank", *dev, *model, "--run", tmp_path / "bm25.trec", "--out", tmp_path / "new.trec")
    assert result.returncode == 0, result.stderr
    found = Run.load(tmp_path / "new.trec").rankings["q8"]
    teacher, texts = CrossEncoder.from_pretrained(tmp_path / "teacher"), Collection.load(beir, "dev")
    pairs = [(texts.queries["q8"], texts.documents[document]) for document in found]
    assert list(found.values()) == pytest.approx(teacher.score(pairs).tolist(), abs=1e-5)


def test_scores_from_a_file_and_a_config(remargin: Any, beir: Path, tmp_path: Path) -> None:
    rows = "".join(f"q{i} Q0 {kind}{(i + 4 * (kind == 'b')) % 12} 1 {i}.5 t\n" for i in range(7) for kind in "ab")
    (tmp_path / "run.trec").write_text(rows)
    config = tmp_path / "c.yaml"
    config.write_text(f"triplets: {tmp_path / 't.tsv'}\nscores: {tmp_path / 'run.trec'}\nout: {tmp_path / 's.tsv'}\n")
    result = remargin("teach", "--config", config)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert "t.tsv:8: id 'q7': no score for its document 'a7'" in line
    assert not (tmp_path / "s.tsv").exists()
    result = remargin("teach", "--config", config, "--skip-bad")
    assert result.returncode == 0
    assert "skipped bad input: 1, the first is " in result.stderr
    assert "--skip-bad" not in result.stderr
    assert "7 triplets, 14 distinct pairs" in result.stdout
    again = remargin("teach", "--config", config, "--skip-bad")
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert remargin("teach", "--config", config, "--skip-bad", "--overwrite").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "scores come from one teacher; give one of --model, --train-from and --scores"),
        (["--model", "x", "--scores", "y"], "scores come from one teacher"),
        (["--model", "x"], "a cross-encoder reads texts; name the collection that has them with --data"),
        (["--train-from", "x", "--data", "y"], "name a folder with --save-model"),
        (["--model", "x", "--data", "y", "--epochs", "3"], "--epochs does nothing for a teacher that is not trained"),
        (["--scores", "x", "--data", "y"], "--data does nothing for scores from a file"),
        (["--scores", "x", "--length", "64"], "--length does nothing for scores from a file"),
        (["--scores", "nowhere.tsv"], "nowhere.tsv: no such file"),
        (["--model", "nobody/nothing", "--data", "y"], "no model 'nobody/nothing'"),
        (["--model", "BERT", "--data", "BEIR"], "has no trained head for scores"),
        (["--model", "BERT", "--data", "BEIR", "--length", "65"], "length 65: the model has 64 positions"),
        (["--model", "BERT", "--data", "BEIR", "--split", "test"], "no split 'test'; it has: train, dev"),
        (["--train-from", "BERT", "--save-model", "m", "--data", "BEIR", "--epochs", "0"], "epochs is 0"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], words: str, remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    known = {"BERT": tiny_model("bert"), "BEIR": beir}
    given = [known.get(argument, argument) for argument in arguments]
    result = remargin("teach", "--triplets", tmp_path / "t.tsv", "--out", tmp_path / "s.tsv", *given)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "s.tsv").exists()


@pytest.mark.parametrize("empty", [False, True])
def test_without_dev_there_is_no_validation(
    empty: bool, remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    (beir / "qrels" / "dev.tsv").unlink()
    if empty:
        (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n")
    training = ("--train-from", tiny_model("bert"), "--save-model", tmp_path / "teacher", "--epochs", 1)
    out = ("--out", tmp_path / "s.tsv")
    result = remargin("teach", "--data", beir, "--triplets", tmp_path / "t.tsv", *training, *out)
    assert result.returncode == 0, result.stderr
    assert "no dev split: training without validation" in result.stdout
    assert "nDCG@10" not in result.stdout
