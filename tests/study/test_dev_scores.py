"""The measures of every dev query are kept for each validation, and older studies have none of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import fmean

import pytest

from remargin import InputError
from remargin.study.dev_scores import FILE, DevLog, DevScores
from remargin.study.files import pack_study
from remargin.study.results import HITS, MEASURE, Result, Results

from ..small_study import silent


def copy(study_folder: Path, tmp_path: Path) -> Path:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    return out


def test_every_run_has_them_and_their_means_are_its_validations(study_folder: Path) -> None:
    runs = list(Results.open(study_folder, say=silent).all_runs())
    assert len(runs) > 20
    for run in runs:
        scores = run.dev_scores()
        assert scores is not None
        assert [*scores.steps] == [step for step, _ in run.trained]
        for number, (_, means) in enumerate(run.trained):
            assert means.keys() == {MEASURE, HITS}
            for measure, mean in means.items():
                assert fmean(scores.at(number, measure).values()) == pytest.approx(mean, abs=1e-6)


def test_a_packed_study_has_them_too_and_one_of_means_alone_can_be_read(study_folder: Path, tmp_path: Path) -> None:
    out = copy(study_folder, tmp_path)
    packed = Results.open(pack_study(out, tmp_path / "packed"), say=silent)
    whole = {run.spec: run.dev_scores() for run in Results.open(out, say=silent).all_runs()}
    assert {run.spec: run.dev_scores() for run in packed.all_runs()} == whole
    for path in out.glob(f"runs/*/{FILE}"):
        path.unlink()
    older = Results.open(pack_study(out, tmp_path / "older"), say=silent)
    runs = list(older.all_runs())
    assert [run.dev for run in runs] == [run.dev for run in packed.all_runs()]
    assert {run.dev_scores() for run in runs} == {None}


def _one(out: Path) -> Result:
    return next(iter(Results.open(out, say=silent).all_runs()))


def test_what_does_not_belong_to_the_run_is_refused(study_folder: Path, tmp_path: Path) -> None:
    run = _one(copy(study_folder, tmp_path))
    path, scores = run.folder / FILE, run.dev_scores()
    assert scores is not None
    DevScores((*scores.steps, 999), scores.queries, {m: [[*r, 0] for r in v] for m, v in scores.values.items()}).save(
        path
    )
    with pytest.raises(InputError, match=r"dev.json: is not of the same validations as run.json; delete"):
        run.dev_scores()
    DevScores(scores.steps, scores.queries, {m: v[1:] for m, v in scores.values.items()}).save(path)
    with pytest.raises(InputError, match=r"dev.json: lacks values of queries or validations"):
        run.dev_scores()
    path.write_text(path.read_text().replace('"nDCG@10"', '"nDCG@11"'))
    with pytest.raises(InputError, match=r"dev.json"):
        run.dev_scores()


def test_a_validation_that_comes_again_replaces_its_first(tmp_path: Path) -> None:
    log = DevLog(tmp_path / FILE)
    for step, value in ((5, 0.5), (10, 0.25)):
        log(step, {MEASURE: {"q": value}})
    resumed = DevLog(tmp_path / FILE)  # from the checkpoint after step 5
    resumed(10, {MEASURE: {"q": 0.75}})
    scores = resumed.scores([5, 10])
    assert scores is not None
    assert [scores.at(number, MEASURE) for number in (0, 1)] == [{"q": 0.5}, {"q": 0.75}]
    assert DevLog(tmp_path / FILE).scores([5, 10]) == scores
