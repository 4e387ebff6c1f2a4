"""Index folders: damage is noticed, and whoever reads one finds it whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, InputError
from remargin.files.checksums import Sums
from remargin.retrieval import index_folder as module
from remargin.retrieval import updating
from remargin.retrieval.building import build_index
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.updating import add_documents, delete_documents
from remargin.retrieval.vectors import Vectors

from .indexes import DOCUMENTS, QUERIES, SETTINGS, same

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")


def test_an_open_index_does_not_change_under_its_reader(model: BiEncoder, tmp_path: Path) -> None:
    build_index(Vectors.of(model, DOCUMENTS), tmp_path / "index")
    reader = open_index(tmp_path / "index", model)
    before = reader.search(QUERIES)
    delete_documents(tmp_path / "index", list(DOCUMENTS)[:30])
    add_documents(tmp_path / "index", Vectors.of(model, {"new": "which number 1 words"}))
    same(reader.search(QUERIES), before)
    assert len(open_index(tmp_path / "index", model)) == 31


def test_an_index_that_changes_while_it_is_opened_is_opened_as_it_is_then(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder, SETTINGS["flat"])
    read, reads = module.IndexFolder.read.__func__, 0  # type: ignore[attr-defined]

    def changed_after_reading(cls: Any, place: Path) -> Any:
        nonlocal reads
        reads += 1
        found = read(cls, place)
        if reads == 1:
            add_documents(folder, Vectors.of(model, {"new": "text"}))
        return found

    monkeypatch.setattr(module.IndexFolder, "read", classmethod(changed_after_reading))
    assert len(open_index(folder, model)) == len(DOCUMENTS) + 1


def test_damaged_files_are_named_and_not_built_upon(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    more = Vectors.of(model, {"new": "text"})
    for damage in ("vectors.bin", "hashes.bin", "deleted.1.bin"):
        build_index(Vectors.of(model, DOCUMENTS), folder, overwrite=True)
        os.truncate(folder / damage, 10)
        with pytest.raises(InputError, match=rf"{damage}: 10 bytes long"):
            open_index(folder, model)
        with pytest.raises(InputError, match=rf"{damage}: 10 bytes long"):
            add_documents(folder, more)
        (folder / damage).unlink()
        with pytest.raises(InputError, match=rf"{damage}: missing"):
            open_index(folder, model)


def test_an_index_may_change_while_it_is_checked(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder)
    of = Sums.of

    def slow(path: Path, *arguments: Any) -> Sums:
        if path.name == "deleted.1.bin":
            monkeypatch.undo()
            delete_documents(folder, ["d1"])
        return of(path, *arguments)

    monkeypatch.setattr(Sums, "of", slow)
    assert len(open_index(folder, model)) == len(DOCUMENTS) - 1


@pytest.mark.parametrize("settings", [BackendSettings(), BackendSettings(coding="int8"), SETTINGS["flat"]])
def test_a_single_bit_is_noticed_also_of_what_was_added(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remargin.files.checksums.BLOCK", 100)  # so that there are several
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder, settings)
    add_documents(folder, Vectors.of(model, {"new": "text"}))
    delete_documents(folder, ["d1"])
    assert open_index(folder, model).search(QUERIES).rankings
    for path in sorted(folder.rglob("*.*")):
        if path.is_dir():
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(InputError, match=rf"{path}: .*(damaged|not a header)"):
            open_index(folder, model)
        with pytest.raises(InputError, match=rf"{path}: .*(damaged|not a header)"):
            delete_documents(folder, ["d2"])
        path.write_bytes(whole)
    assert open_index(folder, model).search(QUERIES).rankings


def test_an_index_is_not_replaced_while_it_changes(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder)
    with updating._changing(folder) as index:
        with pytest.raises(InputError, match="another process is writing it"):
            build_index(Vectors.of(model, {"other": "text"}), folder, overwrite=True)
        index.delete(index.rows_of(["d1"]))
    assert len(open_index(folder, model)) == len(DOCUMENTS) - 1
