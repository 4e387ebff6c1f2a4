"""JSON files, and headers with a checksum and fields that are known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from remargin.errors import InputError
from remargin.files.headers import read_header, read_json, read_record, write_header
from remargin.files.shapes import Checksums, Count, FieldsOf, FileName, mismatch


def test_a_header_notices_any_change(tmp_path: Path) -> None:
    path = tmp_path / "header.json"
    write_header(path, {"format": "x-1", "count": 3})
    assert read_header(path, dict, "x-1", "again") == {"format": "x-1", "count": 3}
    with pytest.raises(InputError, match="format 'x-1', expected 'x-2'; again"):
        read_header(path, dict, "x-2", "again")
    changed = json.loads(path.read_text())
    changed["count"] = 4
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="checksum"):
        read_header(path, dict, "x-1", "again")
    for damage in ("{", "[]", "{}", "3"):
        path.write_text(damage)
        with pytest.raises(InputError, match="not a header"):
            read_header(path, dict, "x-1", "again")
    path.unlink()
    with pytest.raises(InputError, match="not found; again"):
        read_header(path, dict, "x-1", "again")


@dataclass
class Made:
    by: str
    rows: list[int] = field(default_factory=list)


class Example(TypedDict):
    format: str
    count: Count
    kind: Literal["a", "b"]
    made: Annotated[dict[str, Any], FieldsOf(Made)]
    sums: Checksums
    more: NotRequired[tuple[int, float] | None]


VALID = {"format": "x-1", "count": 3, "kind": "a", "made": {"by": "us"}, "sums": {"a/b.bin": "12ab"}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"more": None}, None),
        ({"more": [1, 2]}, None),
        ({"made": {"by": "us", "rows": [1]}}, None),
        ({"count": None}, "count is None, not int"),
        ({"count": True}, "count is True, not int"),
        ({"count": -1}, "count is -1, not 0 or more"),
        ({"kind": "c"}, "kind is 'c', not Literal['a', 'b']"),
        ({"made": {}}, "made.by is missing"),
        ({"made": {"by": "us", "rows": [1, "2"]}}, "made.rows[1] is '2', not int"),
        ({"made": {"by": "us", "why": ""}}, "made.why is unknown"),
        ({"made": []}, "made is [], not dict[str, Any]"),
        ({"sums": {"../b": ""}}, "sums is '../b', not a path inside the folder"),
        ({"sums": {"a": 5}}, "sums.a is 5, not str"),
        ({"more": [1]}, "more is [1], not tuple[int, float] | None"),
        ({"unknown": 1}, "unknown is unknown"),
    ],
)
def test_fields_are_checked_although_the_checksum_is_right(
    change: dict[str, Any], problem: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "header.json"
    write_header(path, VALID | change)
    if problem is None:
        assert read_header(path, Example, "x-1", "again") == VALID | change
        return
    with pytest.raises(InputError) as refused:
        read_header(path, Example, "x-1", "again")
    assert str(refused.value) == f"{path}: not a header of format x-1: {problem}; again"


@pytest.mark.parametrize("name", list(VALID))
def test_a_field_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    write_header(tmp_path / "header.json", {key: value for key, value in VALID.items() if key != name})
    words = "format None, expected 'x-1'" if name == "format" else f"not a header of format x-1: {name} is missing"
    with pytest.raises(InputError, match=words):
        read_header(tmp_path / "header.json", Example, "x-1", "again")


def test_a_record_is_a_dataclass(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_header(path, {"format": "x-1", "by": "us"})
    assert read_record(path, Made, "x-1", "again") == Made("us")
    write_header(path, {"format": "x-1", "by": "us", "rows": None})
    with pytest.raises(InputError, match=r"rows is None, not list\[int\]; again"):
        read_record(path, Made, "x-1", "again")


def test_no_path_leads_out_of_a_folder() -> None:
    for name in ("", "..", "../a", "a/../../b", "/etc/passwd", "a\0b"):
        assert mismatch(name, FileName) is not None
    for name in ("a", "a/b", ".hidden", "a..b", "1_Pooling"):
        assert mismatch(name, FileName) is None


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_json_that_is_nested_too_deeply_is_bad_input(content: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"deep.json: not valid JSON \("):
        read_json(path, "again")
    with pytest.raises(InputError, match="not a header that remargin wrote; again"):
        read_header(path, Example, "x-1", "again")
