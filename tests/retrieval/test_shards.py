"""Encoding in shards: the same bytes as in one process, whatever was there before and whoever is stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, InputError, encode
from remargin.data.source import Text
from remargin.files.executor import InThisProcess
from remargin.retrieval import encoding, shards
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.shards import MANIFEST, EncodeShards, Shard, encode_shards
from remargin.retrieval.vectors import HEADER, Made, Vectors

TEXTS = [Text(f"d{i}", f"text {i} " + "of " * (i % 9)) for i in range(50)]


class Backwards:
    """Gives the results in another order than the items came in, and does the first item twice; counts the shards."""

    device = None

    def __init__(self, stop_after: int = 1000) -> None:
        self.left = stop_after
        self.encoded: list[int] = []

    def run(self, start: Any, items: Iterable[Shard]) -> Iterator[Any]:
        work, waiting = start(self.device), list(items)
        for item in [*reversed(waiting), *waiting[:1]]:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            result = next(work([item]))
            if item.number not in self.encoded:
                self.encoded.append(item.number)
                yield result


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "TEXTS_AT_ONCE", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # many small files; the disk is not what is tested


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def settings(model: BiEncoder) -> list[tuple[Made, bool]]:
    """Of whole documents in both data types, of passages, and of passages that no text is long enough for."""
    return [
        (Made.by(model), False),
        (Made.by(model, dtype="float16"), False),
        (Made.by(model, passage_length=5), True),
        (Made.by(model, passage_length=55), True),
        (Made.by(model, passage_length=55), False),
    ]


def test_shards_joined_are_the_bytes_of_one_process(model: BiEncoder, tmp_path: Path) -> None:
    for number, (made, only_longer) in enumerate(settings(model)):
        encode_texts(model, TEXTS, tmp_path / f"one-{number}", made, only_longer=only_longer)
        expected = files(tmp_path / f"one-{number}")
        assert ("owners.bin" in expected) == (number in (2, 4))
        for size in (4, 12, 64):
            executor = Backwards()
            out = tmp_path / f"shards-{number}-{size}"
            encode_shards(model, TEXTS, out, executor, made, only_longer=only_longer, size=size)
            assert sorted(executor.encoded) == list(range(-(-50 // size)))
            assert files(out) == expected
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_only_what_is_missing_is_encoded_again(model: BiEncoder, tmp_path: Path) -> None:
    made = Made.by(model)
    encode_texts(model, TEXTS, tmp_path / "one", made)
    out = tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        encode_shards(model, TEXTS, out, Backwards(stop_after=8), made, size=4)  # 12 down to 5
    assert not out.exists()
    (work,) = tmp_path.glob(".shards.*")
    with open(work / MANIFEST, "ab") as manifest:
        manifest.write(b"half a li")
    vectors = bytearray((work / "000007" / "vectors.bin").read_bytes())
    vectors[3] ^= 1
    (work / "000007" / "vectors.bin").write_bytes(vectors)  # damaged
    shutil.rmtree(work / "000009")  # gone
    (work / "000010" / HEADER).write_bytes((work / "000011" / HEADER).read_bytes())  # another's
    changed = [*TEXTS[:33], Text("d33", "another text"), *TEXTS[34:]]  # in shard 8
    executor = Backwards(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        encode_shards(model, changed, out, executor, made, size=4)
    assert executor.encoded == [10, 9, 8]
    executor = Backwards()
    encode_shards(model, changed, out, executor, made, size=4)
    assert sorted(executor.encoded) == [0, 1, 2, 3, 4, 7]
    encode_texts(model, changed, tmp_path / "changed", made)
    assert files(out) == files(tmp_path / "changed")
    assert files(out) != files(tmp_path / "one")
    assert {path.name for path in tmp_path.iterdir()} == {"one", "changed", "shards"}


def test_other_settings_do_not_continue_with_the_same_shards(model: BiEncoder, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        encode_shards(model, TEXTS, tmp_path / "out", Backwards(stop_after=5), Made.by(model), size=4)
    for made, size in ((Made.by(model, dtype="float16"), 4), (Made.by(model), 8)):
        executor = Backwards()
        encode_shards(model, TEXTS, tmp_path / "out", executor, made, overwrite=True, size=size)
        assert len(executor.encoded) == -(-50 // size)
    executor = Backwards()
    encode_shards(model, TEXTS, tmp_path / "out", executor, Made.by(model), overwrite=True, size=4)
    assert len(executor.encoded) == 8


def test_a_worker_writes_a_shard_at_once_and_replaces_what_is_damaged(model: BiEncoder, tmp_path: Path) -> None:
    work = EncodeShards(model, Made.by(model), tmp_path, 4)(None)

    def half() -> Iterator[Text]:
        yield from TEXTS[:8]
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        list(work([Shard(3, half())]))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        assert list(work([Shard(3, TEXTS[:8])])) == [(3, 8, 8)]
        assert Vectors.load(tmp_path / "000003").matrix.shape == (8, model.dimension)
        (tmp_path / "000003" / "vectors.bin").write_bytes(b"damaged")


def test_what_cannot_be_encoded_in_shards_is_refused(model: BiEncoder, tmp_path: Path) -> None:
    class Elsewhere(InThisProcess):
        def run(self, start: Any, items: Iterable[Any]) -> Iterator[Any]:
            for number, texts in items:
                yield number, len(texts), len(texts)

    made, out = Made.by(model), tmp_path / "out"
    with pytest.raises(InputError, match="shards of 6 texts, which are encoded 4 at a time; use a multiple of 4"):
        encode_shards(model, TEXTS, out, InThisProcess(), made, size=6)
    with pytest.raises(InputError, match="no texts to encode"):
        encode_shards(model, [], out, InThisProcess(), made)
    with pytest.raises(InputError, match=r"shard 0 was written where this machine does not see it; .* all workers"):
        encode_shards(model, TEXTS, out, Elsewhere(), made, size=4)
    with pytest.raises(InputError, match="made for another model"):
        encode_shards(model, TEXTS, out, InThisProcess(), Made(*("x",) * 3, "cosine", 4, 5, ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "MOST", 17)
        with pytest.raises(InputError, match="more than 16 vectors for one folder"):
            encode_texts(model, TEXTS, out, made)
    shutil.rmtree(next(tmp_path.glob(".out.*")))  # what was encoded until then
    with pytest.raises(InputError, match="--shard-size does nothing for encoding in one process"):
        encode("docstrings:json", model, out, shard_size=4)
    assert not list(tmp_path.iterdir())


def test_a_collection_is_encoded_by_an_executor(model: BiEncoder, tmp_path: Path) -> None:
    for kind in ("documents", "queries"):
        encode("docstrings:json", model, tmp_path / "one", kind=kind, overwrite=True)  # type: ignore[arg-type]
        executor = Backwards()
        shards_of: dict[str, Any] = {"executor": executor, "shard_size": 4, "overwrite": True}
        vectors = encode("docstrings:json", model, tmp_path / "two", kind=kind, **shards_of)  # type: ignore[arg-type]
        assert len(executor.encoded) > 1
        assert files(tmp_path / "one") == files(tmp_path / "two")
        assert np.isfinite(vectors.matrix).all()
    assert shards.SHARD % 4096 == 0
