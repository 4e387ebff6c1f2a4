"""A study that was packed and unpacked is the study that it was, and goes on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from remargin import InputError
from remargin.files.checksums import sha256
from remargin.files.headers import write_header
from remargin.study.files import FORMAT, PACK, PACKED_RUNS, PACKED_SCORES, pack_study
from remargin.study.results import Results
from remargin.study.unpacked import unpack_study

from ..small_study import silent


def test_packing_what_was_unpacked_gives_the_same_bytes(study_folder: Path, tmp_path: Path) -> None:
    packed = pack_study(study_folder, tmp_path / "packed")
    again = unpack_study(packed, tmp_path / "again")
    assert (again / "study.json").read_bytes() == (study_folder / "study.json").read_bytes()
    runs = {run.spec: run for run in Results.open(study_folder, say=silent).all_runs()}
    for run in Results.open(again, say=silent).all_runs():  # each file of scores with its checksum
        before = runs.pop(run.spec)
        assert (run.curve, run.seconds, run.about, run.scores.keys()) == (
            before.curve, before.seconds, before.about, before.scores.keys(),
        )  # fmt: skip
    assert not runs
    for file in pack_study(again, tmp_path / "twice").iterdir():
        if file.name not in (PACKED_RUNS, PACK):  # which have the checksums of compressed files
            assert file.read_bytes() == (packed / file.name).read_bytes()


@pytest.mark.parametrize(
    "path", ["", "../outside.json", "runs/../../outside.json", "elsewhere/run.json", "/tmp/outside.json"]
)
def test_a_packed_study_that_names_files_elsewhere_is_refused(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    write_header(folder / "study.json", {"format": "any"})
    (folder / PACKED_RUNS).write_bytes(gzip.compress(json.dumps({"path": path, "content": {}}).encode()))
    (folder / PACKED_SCORES).write_bytes(gzip.compress(b"path,query,RR\n"))
    sums = {file: sha256(folder / file) for file in (PACKED_RUNS, PACKED_SCORES)}
    write_header(folder / PACK, {"format": FORMAT, "sha256": sums})
    with pytest.raises(InputError, match="that no study has"):
        unpack_study(folder, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["packed"]
