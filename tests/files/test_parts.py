"""Work in parts: what is done is kept for the next run, and nothing is left once all is done or nothing was."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from remargin import InputError
from remargin.files.parts import resumable


def stop_after(out: Path, numbers: list[int]) -> None:
    with contextlib.suppress(KeyboardInterrupt), resumable(out, "f", "test-1", dict) as parts:
        for number in numbers:
            parts.write(number, {"value": number})
        raise KeyboardInterrupt


def test_what_is_done_is_kept_until_all_is(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    stop_after(out, [0, 2])
    assert sorted(path.name for path in (tmp_path / ".out.txt.f").iterdir()) == ["0.json", "2.json"]
    with resumable(out, "f", "test-1", dict) as parts:
        assert [parts.find(number) for number in range(3)] == [{"value": 0}, None, {"value": 2}]
        assert parts.read(2) == {"value": 2}
        with pytest.raises(InputError, match=r"1\.json: not found; run the same again"):
            parts.read(1)
    assert not list(tmp_path.iterdir())


def test_other_work_has_parts_of_its_own(tmp_path: Path) -> None:
    stop_after(tmp_path / "out.txt", [0])
    for fingerprint, format in (("g", "test-1"), ("f", "test-2")):
        with resumable(tmp_path / "out.txt", fingerprint, format, dict) as parts:
            assert parts.find(0) is None


@pytest.mark.parametrize("damage", ["a digit", "cut off", "empty", "not ours"])
def test_damaged_parts_are_not_done(damage: str, tmp_path: Path) -> None:
    stop_after(tmp_path / "out.txt", [0, 1])
    file = tmp_path / ".out.txt.f" / "1.json"
    text = file.read_text()
    file.write_text(
        {"a digit": text.replace('"value": 1', '"value": 7'), "cut off": text[:-9], "empty": "", "not ours": "[1]"}[
            damage
        ]
    )
    with resumable(tmp_path / "out.txt", "f", "test-1", dict) as parts:
        assert parts.find(0) == {"value": 0}
        assert parts.find(1) is None


def test_what_fails_at_once_leaves_nothing(tmp_path: Path) -> None:
    stop_after(tmp_path / "out.txt", [])
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with resumable(tmp_path / "out.txt", "f", "test-1", dict) as parts:
        with (
            pytest.raises(InputError, match="another process is writing it"),
            resumable(tmp_path / "out.txt", "f", "test-1", dict),
        ):
            pass
        parts.write(0, {})  # the folder is still there
