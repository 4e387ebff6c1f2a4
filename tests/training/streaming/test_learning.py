"""A stream from top to bottom: what is trained on, what a resume comes to, what is accepted, what is refused."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remargin import BiEncoder, InputError, fit, stream
from remargin.serving.loading import files_state
from remargin.training.streaming import learning, loop
from remargin.training.streaming.batches import Miner, StreamBatches
from remargin.training.streaming.examples import Example
from remargin.training.streaming.journal import Taken
from remargin.training.streaming.loop import StreamTraining
from remargin.training.streaming.request import recorded_stream
from remargin.training.streaming.sources import StandardInput

Run = Callable[..., Any]
WORDS = [a + b for a, b in itertools.product("abcde", "klmno")]


def pair(number: int) -> str:
    return json.dumps({"query": f"how is {WORDS[number % 25]}", "document_id": f"d{number % 25}"})


def triplet(number: int) -> str:
    word = WORDS[number % 25]
    return json.dumps({"query": f"how is {word}", "positive": f"the value of {word}", "negative": "something else"})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "qrels").mkdir()
    texts = [{"_id": f"d{n}", "text": f"the value of {word}"} for n, word in enumerate(WORDS)]
    queries = [{"_id": f"q{n}", "text": f"how is {word}"} for n, word in enumerate(WORDS)]
    for name, rows in {"corpus": texts, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "dev.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(5)))
    return folder


@pytest.fixture
def run(tiny_model: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(learning.Away, "choose", lambda *_, **__: None)
    (tmp_path / "in.jsonl").write_text("".join(pair(n) + "\n" for n in range(14)))

    def start(out: str = "run", **options: Any) -> Any:
        given: dict[str, Any] = {"stream": tmp_path / "in.jsonl", "data": data, "model": tiny_model("bert"), "wait": 0}
        given |= {"batch_size": 4, "precision": "32", "save_every": 2, "validate_every": 3, "log_every": 1}
        given |= {"learning_rate": 1e-3, "out": tmp_path / out, "say": lambda line: None}
        return stream(**given | options)

    return start


def trained(out: Path) -> list[list[list[int]]]:
    """Of each step the ranges of lines, and those that were replayed."""
    rows = [json.loads(line.split(" ", 1)[1]) for line in (out / "trained.jsonl").read_text().splitlines()]
    return [[row["step"], row["lines"], row["replayed"]] for row in rows]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(out / "checkpoint" / "state.safetensors")


def assert_same_weights(one: Path, other: Path, same_names: bool = True) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    different = {name for name in first if not torch.equal(first[name], second[name])}
    assert different <= (set() if same_names else {"window.counts"})  # as the journal has other names in it
    both = [BiEncoder.from_pretrained(out / "model").fingerprint() for out in (one, other)]
    assert both[0] == both[1]


def test_each_line_is_trained_on_once_and_the_model_is_published(run: Run, tmp_path: Path) -> None:
    said: list[str] = []
    done = run(say=said.append)
    assert trained(tmp_path / "run") == [[1, [[1, 4]], []], [2, [[5, 8]], []], [3, [[9, 12]], []], [4, [[13, 14]], []]]
    assert (done.steps, done.examples, done.lines, done.waiting, done.model) == (4, 14, 14, 0, tmp_path / "run/model")
    assert [step for step, _ in done.validations] == [0, 3, 4]
    assert (
        BiEncoder.from_pretrained(done.model).fingerprint()
        != BiEncoder.from_pretrained(recorded_stream(tmp_path / "run", {})[0].model).fingerprint()
    )
    assert any("5 dev queries are too few to choose by" in line for line in said)


class KilledError(Exception):
    pass


@pytest.mark.parametrize(("step", "negatives", "shuffle"), [(1, "bm25", 1), (3, "model", 5), (4, "bm25", 5)])
def test_resumed_comes_to_what_it_would_have_come_to(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, negatives: str, shuffle: int
) -> None:
    options = {"negatives": negatives, "shuffle": shuffle}
    run("whole", **options)
    with monkeypatch.context() as patch:
        log = StreamTraining._log

        def killed(self: StreamTraining, *given: Any) -> None:
            log(self, *given)
            if self._progress.step == step:
                raise KilledError

        patch.setattr(StreamTraining, "_log", killed)
        with pytest.raises(KilledError):
            run("killed", **options)
    said: list[str] = []
    stream(resume=tmp_path / "killed", wait=0, say=said.append)
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    whole, killed_steps = trained(tmp_path / "whole"), trained(tmp_path / "killed")
    again = [row for row in killed_steps if row[2]]
    assert [row[:2] for row in killed_steps if not row[2]] == [row[:2] for row in whole]
    assert all(row[1] == row[2] for row in again)
    assert [row[0] for row in again] == [step], "the only step after a checkpoint"
    assert any("are replayed" in line for line in said)


def test_killed_before_the_first_checkpoint_it_begins_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", killed)
        with pytest.raises(KilledError):
            run()
    stream(resume=tmp_path / "run", wait=0, say=lambda line: None)
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "0", "1", "2", "3", "3", "4", "4"]


def test_ctrl_c_keeps_the_step_that_was_being_made(run: Run, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(line: str) -> None:
        if line.startswith("step 1 "):
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            run(say=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    stream(resume=tmp_path / "run", wait=0, say=lambda line: None)
    assert [row[0] for row in trained(tmp_path / "run")] == [1, 2, 3, 4]
    assert not any(row[2] for row in trained(tmp_path / "run"))


def test_standard_input_and_a_folder_give_the_same_as_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("file")
    folder = tmp_path / "folder"
    folder.mkdir()
    lines = (tmp_path / "in.jsonl").read_text().splitlines(keepends=True)
    (folder / "1.jsonl").write_text("".join(lines[:5]))
    (folder / "2.jsonl").write_text("".join(lines[5:]))
    run("of-folder", stream=folder)
    reading, writing = os.pipe()
    os.write(writing, "".join(lines).encode())
    os.close(writing)
    source = learning.open_stream

    def of_pipe(name: str, positions: Any, taken: Any, say: Any, from_start: bool) -> Any:
        assert name == "-"
        return StandardInput(reading, positions.get("-"), taken, say, from_start)

    monkeypatch.setattr(learning, "open_stream", of_pipe)
    run("of-input", stream="-", wait=None)
    monkeypatch.setattr(learning, "open_stream", source)
    assert_same_weights(tmp_path / "file", tmp_path / "of-folder", same_names=False)
    assert_same_weights(tmp_path / "file", tmp_path / "of-input", same_names=False)


def test_a_stream_that_grows_later_goes_on(run: Run, tmp_path: Path) -> None:
    run()
    before = files_state(tmp_path / "run" / "model")
    with open(tmp_path / "in.jsonl", "a") as file:
        file.writelines(pair(n) + "\n" for n in range(14, 20))
    done = stream(resume=tmp_path / "run", wait=0, say=lambda line: None)
    assert [row[1] for row in trained(tmp_path / "run")][4:] == [[[15, 18]], [[19, 20]]]
    assert (done.examples, done.lines) == (20, 20)
    assert files_state(tmp_path / "run" / "model") != before


def test_a_model_that_dev_does_not_gain_by_is_not_accepted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "FEWEST_QUERIES", 1)
    bad = [json.dumps({"query": f"how is {w}", "positive": "no", "negative": f"the value of {w}"}) for w in WORDS]
    (tmp_path / "in.jsonl").write_text("\n".join(bad))
    said: list[str] = []
    done = run(say=said.append, learning_rate=3e-3)
    decided = [line for line in said if "accepted" in line]
    values = [values["nDCG@10"] for _, values in done.validations]
    assert done.best == max(values)
    assert values == sorted(values), "the accepted model never becomes worse on dev"
    assert any("not accepted" in line for line in decided)


def test_without_a_collection_triplets_are_learnt_and_pairs_are_malformed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join([triplet(1), pair(1), *map(triplet, range(2, 5))]))
    done = run(data=None)
    assert (done.examples, done.rejected, done.before) == (4, 1, None)
    assert json.loads((tmp_path / "run" / "rejects.jsonl").read_text())["line"] == 2


def test_too_many_malformed_lines_end_it_and_more_may_be_allowed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join([*map(pair, range(4)), *["bad"] * 14, *map(pair, range(4, 8))]))
    with pytest.raises(InputError, match=r"in.jsonl:\d+: 1\d of \d+ lines are malformed.*--most-rejects"):
        run()
    done = stream(resume=tmp_path / "run", wait=0, most_rejects=0.9, say=lambda line: None)
    assert (done.examples, done.rejected, done.lines) == (8, 14, 22)


def test_negatives_are_of_the_index_and_never_known_to_be_relevant() -> None:
    documents = {"d1": "apple pie", "d2": "Apple  pie", "d3": "apple cake", "d4": "apple juice", "d5": "a stone"}
    miner = Miner(documents, {"apple": {"d4"}}, "bm25")
    drawn = set()
    for number in range(50):
        miner.rank({number: " Apple"})
        drawn.update(miner.draw(number, 1, known={"apple pie"}, positive_id="d1"))
    assert drawn == {"apple cake"}
    miner.rank({1: "Apple"})
    assert set(miner.draw(1, 2, known={"apple pie"})) >= {"apple cake"}  # what is lacking comes from all documents
    first = miner.draw(1, 2, known={"apple pie"})
    assert miner.draw(1, 2, known={"apple pie"}) == first, "the same line gets the same negatives"
    with pytest.raises(InputError, match="too few documents"):
        miner.draw(1, 5, known={"apple pie"})


@pytest.mark.parametrize("per_triplet", [1, 3])
def test_a_batch_has_the_lines_negatives_and_sees_which_texts_are_the_same(tiny_model: Any, per_triplet: int) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    documents = {f"d{n}": f"the {word} value" for n, word in enumerate("abcdefgh")}
    batches = StreamBatches(model, Miner(documents, {}, "bm25"), per_triplet, longest=32)
    lines = [
        Taken(0, 1, Example("the value", "one text", None, ("x", "y"))),
        Taken(0, 2, Example("The  value", "x", None)),
    ]
    batch = batches.batch(lines)
    vectors = torch.arange(float(len(batch.texts.lengths)))[:, None]
    queries, positives, negatives = batch.split(vectors)
    assert [len(queries), len(positives), negatives.shape[:-1].numel()] == [2, 2, 2 * per_triplet]
    assert batch.queries.tolist() == [0, 0]
    own, mined = batch.negatives.reshape(2, -1).tolist()
    x, y = batch.positives[1], own[-2] if per_triplet > 1 else None
    assert own == ([x] if per_triplet == 1 else [x, y, x])
    assert not {*mined} & {*own, *batch.positives.tolist()}


def test_what_has_no_effect_on_a_stream_is_refused(run: Run, tmp_path: Path) -> None:
    for name, value in {"steps": 3, "sampler": "tas", "patience": 2, "schedule": "linear"}.items():
        with pytest.raises(InputError, match=f"--{name} does nothing for a stream"):
            run(**{name: value})
    for options, message in (
        ({"target": "teacher"}, "need scores"),
        ({"precision": "16"}, "precision 16"),
        ({"shuffle": 0}, "shuffle is 0"),
        ({"most_rejects": 2}, "most_rejects is 2"),
        ({"wait": -1}, "wait is -1"),
        ({"blend": "much"}, "blend is 'much'"),
        ({"negatives": "random"}, "unknown negatives"),
        ({"data": None, "negatives": "model"}, "--negatives does nothing for a stream without a collection"),
        ({"validation_split": "test"}, "no split 'test'"),
    ):
        with pytest.raises(InputError, match=message):
            run(**options)
    assert not (tmp_path / "run").exists()


def test_a_resumed_stream_keeps_what_was_asked_for(run: Run, tmp_path: Path) -> None:
    run()
    with pytest.raises(InputError, match="started with other settings: shuffle is 1, not 7; leave out --shuffle"):
        stream(resume=tmp_path / "run", shuffle=7)
    with pytest.raises(InputError, match="already exists"):
        run()
    with pytest.raises(InputError, match="batch_size"):
        run(resume=True, batch_size=5)
    with pytest.raises(InputError, match="no training run on a stream to resume"):
        stream(resume=tmp_path)
    with pytest.raises(InputError, match=r"resume it with remargin.stream"):
        fit(resume=tmp_path / "run")


def test_the_command_line(remargin: Run, tmp_path: Path, data: Path, tiny_model: Any) -> None:
    (tmp_path / "in.jsonl").write_text("".join(pair(n) + "\n" for n in range(4)))
    words = ["fit", "--stream", tmp_path / "in.jsonl", "--data", data, "--model", tiny_model("bert"), "--wait", 0]
    words += ["--out", tmp_path / "run", "--batch-size", 2, "--also", "docstrings:json"]
    assert "trained on 4 examples of 4 lines in 2 steps; rejected 0" in remargin(*words).stdout
    assert "resuming after step 2" in remargin("fit", "--resume", tmp_path / "run", "--wait", 0).stdout
    refused = remargin(*words, "--epochs", 2)
    assert (refused.returncode, "--epochs does nothing for a stream" in refused.stderr) == (2, True)
    refused = remargin("fit", "--data", data, "--model", "m", "--out", tmp_path / "other", "--wait", 2)
    assert "--wait does nothing for training without --stream" in refused.stderr
