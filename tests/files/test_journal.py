"""A journal of files that only grow: what is there is kept, up to the first block that changed or was damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from remargin import InputError
from remargin.files.journal import JOURNAL, Journal, read_journal

KEYS = ["first", "second", "third"]


def opened(folder: Path) -> Journal:
    return Journal(folder / JOURNAL, [folder / "numbers.bin", folder / "texts.bin"])


def contents(number: int) -> list[object]:
    return [np.full((number + 1, 2), number, np.float32), b"text %d" % number]


def filled(folder: Path) -> None:
    journal = opened(folder)
    for number, key in enumerate(KEYS):
        journal.add(key, contents(number), number=number)


def test_blocks_are_there_in_their_order(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = opened(tmp_path)
    for number, key in enumerate(KEYS):
        block = journal.find(key)
        assert block is not None
        array, text = contents(number)
        assert block.contents == [np.asarray(array).tobytes(), text]
        assert block.numbers == {"number": number}
    assert journal.find("fourth") is None
    assert journal.kept == 3
    assert opened(tmp_path).find("second") is None


@pytest.mark.parametrize(
    ("name", "damage", "kept"),
    [
        ("numbers.bin", lambda content: content[:-1] + b"x", 2),
        ("numbers.bin", lambda content: content[:10], 1),
        ("texts.bin", lambda content: b"T" + content[1:], 0),
        ("texts.bin", lambda content: content + b"torn", 3),
        (JOURNAL, lambda content: content + b'{"torn', 3),
        (JOURNAL, lambda content: content[: content.index(b"\n") + 40], 1),
        (JOURNAL, lambda content: content.replace(b'"second"', b'"2econd"'), 1),
    ],
)
def test_what_is_damaged_and_all_behind_it_is_replaced(
    name: str, damage: Callable[[bytes], bytes], kept: int, tmp_path: Path
) -> None:
    filled(tmp_path)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / name).write_bytes(damage(whole[name]))
    journal = opened(tmp_path)
    for number, key in enumerate(KEYS):
        if journal.find(key) is None:
            journal.add(key, contents(number), number=number)
    journal.close()
    assert journal.kept == kept
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {**after, JOURNAL: b""} == {**whole, JOURNAL: b""}
    assert after[JOURNAL].startswith(whole[JOURNAL])


def test_a_changed_input_replaces_what_follows(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = opened(tmp_path)
    assert journal.find("first") is not None
    assert journal.find("changed") is None
    assert journal.find("third") is None  # although it is there
    journal.add("changed", [b"", b"new"])
    journal.close()
    assert (tmp_path / "texts.bin").read_bytes() == b"text 0new"
    assert (tmp_path / "numbers.bin").stat().st_size == 8
    assert [entry["key"] for entry in read_journal(tmp_path / JOURNAL, dict)] == ["first", "changed"]


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(InputError, match=r"journal\.jsonl: is a folder; delete it"):
        opened(tmp_path)
