"""A packed study has the results of the folder that it was made of, and says when it cannot be packed or read."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from remargin import InputError
from remargin.files.checksums import sha256
from remargin.files.headers import write_header
from remargin.paper.pages import draw_packed
from remargin.study.files import FORMAT, PACK, PACKED_RUNS, PACKED_SCORES, pack_study
from remargin.study.results import TEST, Results

from ..small_study import silent


@pytest.fixture(scope="module")
def packed(study_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_study(study_folder, tmp_path_factory.mktemp("packed") / "study")


def test_everything_is_drawn_from_a_packed_study_as_from_its_folder(
    study_folder: Path, packed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "study"  # without the texts of queries, which are not packed
    shutil.copytree(study_folder, folder, ignore=shutil.ignore_patterns("work"))
    assert draw_packed(Results.open(packed, say=silent)) == draw_packed(Results.open(folder, say=silent))
    assert len(list(packed.iterdir())) == 4


def test_runs_and_scores_are_the_same(study_folder: Path, packed: Path) -> None:
    whole, small = Results.open(study_folder, say=silent), Results.open(packed, say=silent)
    runs = {run.spec: run for run in whole.all_runs()}
    assert len(runs) > 20
    for run in small.all_runs():
        before = runs.pop(run.spec)
        assert (run.curve, run.seconds, run.scores, run.about) == (
            before.curve,
            before.seconds,
            before.scores,
            before.about,
        )
        if TEST in run.scores:
            assert run.test() == before.test()
    assert not runs


def test_what_cannot_be_packed_is_refused_and_left_as_it_is(study_folder: Path, packed: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in packed.iterdir()}
    with pytest.raises(InputError, match="is packed already"):
        pack_study(packed, packed, overwrite=True)
    assert {path: path.read_bytes() for path in packed.iterdir()} == before
    (tmp_path / "begun").mkdir()
    shutil.copy(study_folder / "study.json", tmp_path / "begun")
    with pytest.raises(InputError, match="has no runs to pack"):
        pack_study(tmp_path / "begun", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [PACKED_RUNS, PACKED_SCORES])
def test_a_damaged_pack_is_noticed(name: str, packed: Path, tmp_path: Path) -> None:
    shutil.copytree(packed, tmp_path / "study")
    content = bytearray((tmp_path / "study" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "study" / name).write_bytes(content)
    with pytest.raises(InputError, match="pack the study again") as refused:
        Results.open(tmp_path / "study", say=silent)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (PACKED_RUNS, "[1, 2]\n"),
        (PACKED_RUNS, '{"path": "runs/x/run.json"}\n'),
        (PACKED_RUNS, '{"path": "runs/x/targets.csv.gz", "content": [[0, 0.5]]}\n'),
        (PACKED_SCORES, "runs/x/test.csv.gz,q1,nan,0,0\n"),
        (PACKED_SCORES, "runs/x/test.csv.gz,q1,much,0,0\n"),
        (PACKED_SCORES, "runs/x/test.csv.gz,q1\n"),
    ],
)
def test_lines_that_make_no_sense_are_refused_though_the_checksum_matches(
    name: str, line: str, packed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    shutil.copytree(packed, folder)
    text = gzip.decompress((folder / name).read_bytes()) + line.encode()
    (folder / name).write_bytes(gzip.compress(text))
    sums = {file: sha256(folder / file) for file in (PACKED_RUNS, PACKED_SCORES)}
    write_header(folder / PACK, {"format": FORMAT, "sha256": sums})
    with pytest.raises(InputError, match=r"is damaged \(.*\); pack the study again"):
        Results.open(folder, say=silent)
