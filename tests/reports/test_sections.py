"""Sections as files: written, read, refused when damaged."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from remargin.errors import InputError
from remargin.files.headers import write_header
from remargin.reports.sections import FORMAT, Section, unique_names
from remargin.reports.tables import Block, Cell, Table, number, table_from_json, table_json

from .conftest import made_up


def test_a_section_comes_back_as_it_was(tmp_path: Path) -> None:
    section = made_up()
    folder = section.save(tmp_path / "deep" / "out")
    again = Section.load(folder)
    assert again == section == Section.load(folder / "section.json")
    assert [figure.svg() for figure in again.figures] == [figure.svg() for figure in section.figures]
    assert again.settings == {
        "seed": 0,
        "loss": {"target": "distributed", "in_batch": False},
        "sizes": [64, 128],
        "data": "x",
    }
    json.loads((folder / "section.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_files_beside_it(tmp_path: Path) -> None:
    folder = made_up().save(tmp_path)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == [
        "figures/loss.csv", "figures/loss.svg", "figures/pull.csv", "figures/pull.svg", "figures/queries.csv",
        "figures/queries.svg", "section.json", "table.csv", "tables.md", "tables.tex", "zero-shot-ndcg-10.csv",
    ]  # fmt: skip
    for path in (folder / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("}svg")
    rows = list(csv.DictReader((folder / "zero-shot-ndcg-10.csv").read_text(encoding="utf-8").splitlines()))
    assert float(rows[1]["sci_fact"]) == 1 / 3
    tables = made_up().tables
    assert (folder / "tables.md").read_text(encoding="utf-8") == "\n".join(table.markdown() for table in tables)
    assert (folder / "tables.tex").read_text(encoding="utf-8").count(r"\begin{table}") == 2


def test_an_older_section_is_replaced_only_when_asked_to(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("not ours")
    Section("a", "First").save(tmp_path)
    with pytest.raises(InputError, match="already exists"):
        Section("a", "Second").save(tmp_path)
    assert Section.load(tmp_path).title == "First"
    Section("a", "Second").save(tmp_path, overwrite=True)
    assert Section.load(tmp_path).title == "Second"
    assert (tmp_path / "scores.csv").read_text() == "not ours"


def test_section_json_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Table) -> str:
        raise RuntimeError("stopped")

    monkeypatch.setattr(Table, "latex", fail)
    with pytest.raises(RuntimeError):
        made_up().save(tmp_path)
    assert not (tmp_path / "section.json").exists()


def test_settings_become_plain() -> None:
    numpy = pytest.importorskip("numpy")
    given = {1: numpy.int64(3), "f": numpy.float32(0.5), "nan": math.nan, "nothing": None, "yes": True, "set": {"x"}}
    assert Section("a", "A", settings=given).settings == {
        "1": 3, "f": 0.5, "nan": "nan", "nothing": None, "yes": True, "set": "{'x'}",
    }  # fmt: skip


def test_table_values_that_json_does_not_have_survive() -> None:
    cells = [Cell("inf", value=math.inf), number(0.0), number(3, 0), Cell("plain", bold=True, marks="*")]
    table = Table("T", ["a", "b", "c", "d"], [Block("x", [cells]), Block()], ["note"])
    text = json.dumps(table_json(table), allow_nan=False)
    assert table_from_json(json.loads(text)) == table
    table = Table("", ["a"], [Block("", [[Cell("?", value=math.nan)]])])
    [[cell]] = table_from_json(table_json(table)).blocks[0].rows
    assert cell.value is not None
    assert math.isnan(cell.value)


def test_names_of_files_are_safe_and_differ() -> None:
    assert unique_names(["../../etc/passwd", "A b", "a-b", "a b 2", "", "/", "x" * 500]) == [
        "etc-passwd", "a-b", "a-b-2", "a-b-2-2", "unnamed", "unnamed-2", "x" * 60,
    ]  # fmt: skip


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    def refused(words: str) -> None:
        with pytest.raises(InputError, match=words) as caught:
            Section.load(tmp_path)
        assert str(tmp_path / "section.json") in str(caught.value)
        assert caught.value.do == "make it again"

    refused("not found")
    folder = made_up().save(tmp_path)
    file = folder / "section.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    refused("not a header that remargin wrote")
    file.write_bytes(whole.replace(b"0.25", b"0.52", 1))
    refused("its checksum does not match")
    file.write_bytes(b"\xff\xfe")
    refused("not a header that remargin wrote")
    file.write_bytes(b"[]")
    refused("not a header that remargin wrote")
    write_header(file, {"format": "remargin-section-9"})
    refused("format 'remargin-section-9', expected 'remargin-section-1'")
    write_header(file, {"format": FORMAT, "name": "a"})
    refused("not a header of format remargin-section-1: title is missing")
    header = json.loads(whole)
    del header["checksum"]
    write_header(file, {**header, "tables": [{"title": "a"}]})
    refused("not a section that can be read")
    for name, value in {"title": 5, "notes": "one", "more": 1}.items():
        write_header(file, {**header, name: value})
        refused(f"not a header of format remargin-section-1: {name} is ")
    values = made_up().to_json()
    values["figures"][0]["kind"] = "pie"
    write_header(file, values)
    refused("no figure is of kind 'pie'")
    values = made_up().to_json()
    values["tables"][0]["header"] = ["too", "few"]
    write_header(file, values)
    refused("a row of 4 cells under a header of 2")
    file.unlink()
    refused("not found")


def test_what_a_section_no_longer_has_goes_and_what_is_not_its_own_stays(tmp_path: Path) -> None:
    two = Section("s", "S", tables=[Table(name, ["x"], [Block("", [[Cell("1")]])]) for name in ("a", "b")])
    two.save(tmp_path)
    (tmp_path / "mine.csv").write_text("mine")
    Section("s", "S", tables=two.tables[:1]).save(tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {
        "section.json",
        "a.csv",
        "tables.md",
        "tables.tex",
        "mine.csv",
    }
    (tmp_path / "section.json").write_text("damaged")
    two.save(tmp_path, overwrite=True)
    assert Section.load(tmp_path) == two
