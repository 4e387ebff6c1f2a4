"""Entries that were appended survive a kill at any byte; damage is an error that names the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin.errors import InputError
from remargin.files.appended import Appended

Numbers = dict[str, int]


def opened(path: Path) -> Appended[Numbers]:
    return Appended(path, Numbers, "begin anew")


def entries(path: Path) -> list[Numbers]:
    return [stored.entry for stored in opened(path).scan()]


def test_cut_off_at_any_byte_the_whole_entries_before_it_are_there_and_more_can_follow(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    opened(path).append({"n": n} for n in range(3))
    whole = path.read_bytes()
    ends = [stored.end for stored in opened(path).scan()]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends)
        assert entries(path) == [{"n": n} for n in range(kept)]
        opened(path).append([{"n": 7}])
        assert entries(path) == [*({"n": n} for n in range(kept)), {"n": 7}]


def test_a_changed_byte_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    opened(path).append({"n": n} for n in range(3))
    whole = path.read_bytes()
    for place in range(len(whole) - 1):
        if whole[place : place + 1] != b"\n":
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            line = whole[:place].count(b"\n") + 1
            with pytest.raises(InputError, match=rf"a\.jsonl:{line}: damaged"):
                entries(path)


def test_an_entry_is_found_by_its_place_also_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    file = opened(path)
    for start in range(0, 9000, 3000):
        file.append({"n": n} for n in range(start, start + 3000))
    stored = list(file.scan())
    assert [each.entry["n"] for each in stored] == list(range(9000))
    assert file.read(stored[4321].start) == {"n": 4321}
    assert [each.entry["n"] for each in file.scan(stored[8998].start)] == [8998, 8999]
    path.write_bytes(path.read_bytes() + b"x" * 200_000)  # an entry of which much was written
    assert opened(path).end == file.end
    with pytest.raises(InputError, match="missing at its end"):
        file.read(file.end)
