"""Vectors on disk: the same bytes however often encoding was killed, and passages that lose no word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin import BiEncoder, InputError
from remargin.data.source import Text
from remargin.model.tokenizer import Tokenizer
from remargin.retrieval import encoding as module
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.vectors import HEADER, Made, Vectors

TEXTS = [Text(f"d{i}", f"text number {i} " + "word " * (i % 13)) for i in range(50)]


@pytest.fixture
def model(tiny_encoder: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_encoder("bert"))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_vectors_are_those_of_the_model_and_remember_what_made_them(model: BiEncoder, tmp_path: Path) -> None:
    made = Made.by(model, "some data")
    found = encode_texts(model, TEXTS, tmp_path / "out", made)
    np.testing.assert_allclose(found.matrix, model.encode_documents([t.text for t in TEXTS]), atol=1e-6)
    assert list(found.ids) == [t.id for t in TEXTS]
    assert Vectors.load(tmp_path / "out").made == made
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # nothing left beside it
    half = encode_texts(model, TEXTS, tmp_path / "half", Made.by(model, dtype="float16"))
    assert half.matrix.dtype == np.float16
    np.testing.assert_allclose(half.matrix.astype("f4"), found.matrix, atol=1e-3)


def interrupted_at(call: int) -> tuple[Any, list[None]]:
    """`BiEncoder.encode_tokens`, but for one call, and a list that is as long as it was often called."""
    original, calls = BiEncoder.encode_tokens, list[None]()

    def encode_tokens(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments)

    return encode_tokens, calls


def test_a_stopped_encoding_goes_on_and_encodes_nothing_twice(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)
    encode_texts(model, TEXTS, tmp_path / "whole", Made.by(model, passage_length=5))
    stops, calls = interrupted_at(4)
    monkeypatch.setattr(BiEncoder, "encode_tokens", stops)
    with pytest.raises(KeyboardInterrupt):
        encode_texts(model, TEXTS, tmp_path / "out", Made.by(model, passage_length=5))
    assert not (tmp_path / "out").exists()
    (work,) = tmp_path.glob(".out.*")
    for name in ("vectors.bin", "owners.bin", "journal.jsonl"):  # as if killed while writing the fourth block
        with open(work / name, "ab") as file:
            file.write(b'{"torn')
    encode_texts(model, TEXTS, tmp_path / "out", Made.by(model, passage_length=5))
    assert len(calls) == 4 + 4  # 7 blocks, of which 3 were there
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


def test_it_does_not_go_on_in_another_precision(
    tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)
    coarse, fine = (BiEncoder.from_pretrained(tiny_encoder("bert"), precision=name) for name in ("bf16", "32"))
    with monkeypatch.context() as patched:
        patched.setattr(BiEncoder, "encode_tokens", interrupted_at(3)[0])
        with pytest.raises(KeyboardInterrupt):
            encode_texts(coarse, TEXTS, tmp_path / "out")
    found = encode_texts(fine, TEXTS, tmp_path / "out")
    np.testing.assert_array_equal(found.matrix, encode_texts(fine, TEXTS, tmp_path / "whole").matrix)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("vectors.bin", lambda content: flipped(content, 8 * 32 * 4 + 5)),
        ("vectors.bin", lambda content: content[: 8 * 32 * 4 + 5]),
        ("vectors.bin", None),
        ("owners.bin", lambda content: content[: 9 * 4] + bytes(len(content) - 9 * 4)),
        ("journal.jsonl", lambda content: flipped(content, content.index(b"\n") + 40)),
        ("journal.jsonl", lambda content: content[: content.index(b"\n") + 1] + bytes(50) + b"\n"),
        ("journal.jsonl", lambda content: content[: content.index(b"\n") + 1] + b"5\n"),
        ("journal.jsonl", lambda content: content.replace(b'"sizes": [', b'"sizes": [-')),
        ("journal.jsonl", lambda content: content.replace(b'"key"', b'"kex"')),
    ],
)
def test_what_was_damaged_meanwhile_is_encoded_anew(
    name: str,
    damage: Callable[[bytes], bytes] | None,
    model: BiEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)

    def broken() -> Any:
        yield from TEXTS[:40]
        raise RuntimeError("the collection cannot be read on")

    made = Made.by(model, passage_length=30)
    with pytest.raises(RuntimeError):
        encode_texts(model, broken(), tmp_path / "out", made)
    (work,) = tmp_path.glob(".out.*")
    if damage is None:
        (work / name).unlink()
    else:
        (work / name).write_bytes(damage((work / name).read_bytes()))
    encode_texts(model, TEXTS, tmp_path / "out", made)
    encode_texts(model, TEXTS, tmp_path / "fresh", made)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_what_changed_meanwhile_is_encoded_anew(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)

    def broken() -> Any:
        yield from TEXTS[:40]
        raise RuntimeError("the collection cannot be read on")

    with pytest.raises(RuntimeError):
        encode_texts(model, broken(), tmp_path / "out")
    changed = [*TEXTS[:20], Text("d20", "something else"), *TEXTS[21:]]
    encode_texts(model, changed, tmp_path / "out")
    encode_texts(model, changed, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


KILLED = """
import sys
from remargin import BiEncoder
from remargin.retrieval import encoding
from tests.retrieval.test_vectors import MANY
encoding.TEXTS_AT_ONCE = 8
encoding.encode_texts(BiEncoder.from_pretrained(sys.argv[1]), MANY, sys.argv[2])
"""
MANY = [Text(f"d{i}", f"text number {i} " + "word " * (i % 13)) for i in range(400)]


def test_a_killed_encoding_ends_in_the_same_bytes(
    tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_encoder("bert")
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "out")]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    while process.poll() is None:
        journals = list(tmp_path.glob(".out.*/journal.jsonl"))
        if journals and journals[0].stat().st_size > 500:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)
    model = BiEncoder.from_pretrained(folder)
    for name in ("out", "fresh"):
        encode_texts(model, MANY, tmp_path / name)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_two_processes_do_not_write_the_same_vectors(model: BiEncoder, tmp_path: Path) -> None:
    def second() -> Any:
        yield TEXTS[0]
        with pytest.raises(InputError, match="another process is writing it"):
            encode_texts(model, TEXTS, tmp_path / "out")
        yield TEXTS[1]

    assert len(encode_texts(model, second(), tmp_path / "out").ids) == 2


@given(st.lists(st.sampled_from(["a", "b", "ab", "abcabcabc", "word", "...", "  "]), max_size=40), st.data())
def test_passages_cover_the_text_in_order(words: list[str], data: st.DataObject) -> None:
    tokenizer: Tokenizer = TOKENIZER[0]
    text = " ".join(words)
    length = data.draw(st.integers(1, 12))
    overlap = data.draw(st.integers(0, length - 1))
    passages = tokenizer.passages(text, length, overlap)
    place = 0
    for passage in passages:
        place = text.find(passage, place)  # in order, each a piece of the text
        assert place >= 0
        tokens, _ = tokenizer([passage], 512)
        assert len(tokens.ids) - tokenizer.special_tokens <= length or len(passages) == 1
    joined = "".join("".join(passages).split())
    assert len(joined) >= len("".join(text.split()))
    if overlap == 0:
        assert joined == "".join(text.split())


TOKENIZER: list[Tokenizer] = []


@pytest.fixture(autouse=True)
def _tokenizer(tiny_encoder: Any) -> None:
    TOKENIZER[:] = [Tokenizer.from_pretrained(tiny_encoder("bert"))]


def test_long_documents_are_read_whole_in_passages(model: BiEncoder, tmp_path: Path) -> None:
    long = Text("long", " ".join("abcdefgh"[i % 8] for i in range(1000)))
    short = encode_texts(model, [long, TEXTS[0]], tmp_path / "short")
    assert (short.truncated, len(short.matrix)) == (1, 2)
    whole = encode_texts(
        model, [long, TEXTS[0]], tmp_path / "whole", Made.by(model, passage_length=10, passage_overlap=4)
    )
    assert whole.truncated == 0
    assert whole.owners is not None
    assert (whole.owners == 0).sum() == 1 + np.ceil((1000 - 10) / 6)
    assert whole.owners[-1] == 1


def test_bad_settings_are_named(model: BiEncoder, tmp_path: Path) -> None:
    for settings, problem in [
        ({"passage_length": 0}, "passages of 0 tokens"),
        ({"passage_length": 10_000}, "but the model reads"),
        ({"passage_length": 10, "passage_overlap": 10}, "an overlap of 10 tokens in passages of 10"),
        ({"passage_overlap": 3}, "an overlap, but no passages"),
        ({"dtype": "int4"}, "unknown dtype 'int4'"),
    ]:
        with pytest.raises(InputError, match=problem):
            Made.by(model, **settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no texts to encode"):
        encode_texts(model, [], tmp_path / "out")
    encode_texts(model, TEXTS, tmp_path / "out2")
    with pytest.raises(InputError, match="already exists"):
        encode_texts(model, TEXTS, tmp_path / "out2")
    for file in (tmp_path / "out2").glob("*.bin"):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(InputError, match=f"{file.name}: damaged: not what was written; encode again"):
            Vectors.load(tmp_path / "out2")
        file.write_bytes(whole)
    (tmp_path / "out2" / "vectors.bin").write_bytes(b"short")
    with pytest.raises(InputError, match=r"vectors\.bin: 5 bytes long"):
        Vectors.load(tmp_path / "out2")
    with pytest.raises(InputError, match=HEADER):
        Vectors.load(tmp_path)


def test_a_link_stays_one(model: BiEncoder, tmp_path: Path) -> None:
    encode_texts(model, TEXTS, tmp_path / "there")
    (tmp_path / "link").symlink_to("there")
    encode_texts(model, TEXTS[:1], tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert len(Vectors.load(tmp_path / "there").ids) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"link", "there"}


@pytest.mark.parametrize("wrong", [("d1", "text"), "text", Text(1, "text"), Text("d1", None)])  # type: ignore[arg-type]
def test_what_is_no_text_is_named_and_leaves_nothing(wrong: Any, model: BiEncoder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no Text with an id and a text, both strings; pass Text\(id, text\)"):
        encode_texts(model, [TEXTS[0], wrong], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_ids_are_strings(model: BiEncoder) -> None:
    with pytest.raises(InputError, match=r"Text\(id=1, text='a'.* both strings"):
        Vectors.of(model, {1: "a"})  # type: ignore[dict-item]
