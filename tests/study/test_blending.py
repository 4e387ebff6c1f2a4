"""Blending in a study: what is measured between the start and the end of a run, and what dev chooses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder, InputError
from remargin.model.blend import blended
from remargin.study.blending import FILE, blend_of, blended_at
from remargin.study.files import pack_study
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, Results
from remargin.study.specs import RunSpec
from remargin.study.study import Study
from remargin.training.blending import choose_weight

from ..small_study import DATA, OTHER, Open

SPEC = RunSpec("tiny", "contrastive", 16, 64, 5e-4)
CHOSEN = blended_at(TEST, "blended")
WANTED = (TEST, CHOSEN, blended_at(TEST, 0.5), blended_at(ZERO_SHOT, "blended"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, open_study: Open, tiny_model: Any) -> Study:
    """A run from a start that says how it encodes texts: only from such a one does dev choose the point."""
    folder = tmp_path_factory.mktemp("blended")
    BiEncoder.from_pretrained(tiny_model()).save(folder / "start")
    study = open_study(
        folder / "out", data=OTHER, models={"tiny": str(folder / "start")}, zero_shot=[DATA], also_test=[]
    )
    study.run(SPEC, *WANTED)
    return study


def last(study: Study) -> Path:
    return study.work / "fits" / SPEC.key / "last"


def by_hand(study: Study, weight: float) -> BiEncoder:
    """The weights between the start and the last model, added up one by one."""
    start = BiEncoder.from_pretrained(study.backbones["tiny"]).state_dict()
    model = BiEncoder.from_pretrained(last(study))
    with torch.no_grad():
        for name, weights in model.state_dict().items():
            if weights.is_floating_point():
                weights.copy_(weight * weights.double() + (1 - weight) * start[name].double())
    return model


def test_half_way_is_measured_with_half_of_either_weights(study: Study) -> None:
    result = study.results.run(SPEC, *WANTED)
    (_, evaluation), *others = study.rankings.measure(TEST, by_hand(study, 0.5), "tiny")
    assert not others
    assert result.test(blended_at(TEST, 0.5))[MEASURE] == pytest.approx(evaluation.per_query[MEASURE], abs=1e-6)


def test_dev_chooses_the_point(study: Study) -> None:
    result = study.results.run(SPEC, *WANTED)
    blend = blend_of(result)
    validator = study.training.validator("tiny")
    ends = [BiEncoder.from_pretrained(path) for path in (study.backbones["tiny"], last(study))]
    slow = [validator.evaluate(blended(*ends, point)).means[MEASURE] for point in blend.points]
    assert blend.values == pytest.approx(slow)
    assert len(set(blend.values)) > 2  # training has changed something
    assert blend.chosen == choose_weight(blend.points, blend.values)
    assert blend.seconds > 0
    (_, evaluation), *_ = study.rankings.measure(TEST, blended(*ends, blend.chosen), "tiny")
    assert result.test(CHOSEN)[MEASURE] == pytest.approx(evaluation.per_query[MEASURE], abs=1e-6)
    assert [*result.zero_shot(blended_at(ZERO_SHOT, "blended"))] == next(iter(study.results.header["stems"].values()))


def test_a_raw_backbone_keeps_all_of_its_training(open_study: Open, tmp_path: Path) -> None:
    study = open_study(tmp_path / "out", data=OTHER, zero_shot=[], also_test=[])
    study.run(SPEC, CHOSEN)
    blend = blend_of(study.results.run(SPEC, CHOSEN))
    assert blend.chosen == 1.0
    assert choose_weight(blend.points, blend.values) != 1.0  # else it could not be told


def test_the_path_is_measured_once_and_packed(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (study.results.folder(SPEC.key) / FILE).read_bytes()
    monkeypatch.setattr("remargin.study.study.find_blend", None)  # would be an error to call
    shutil.copytree(study.out, tmp_path / "copy")
    study.run(SPEC, *WANTED, blended_at(ZERO_SHOT, 0.5))
    assert (study.results.folder(SPEC.key) / FILE).read_bytes() == before
    packed = Results.open(pack_study(tmp_path / "copy", tmp_path / "packed"))
    assert blend_of(packed.run(SPEC, *WANTED)) == blend_of(study.results.run(SPEC, *WANTED))


def test_a_path_that_makes_no_sense_is_refused(study: Study, tmp_path: Path) -> None:
    shutil.copytree(study.out, tmp_path / "copy")
    results = Results.open(tmp_path / "copy")
    path = results.folder(SPEC.key) / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "chosen": 0.123}))
    with pytest.raises(InputError, match="delete"):
        blend_of(results.run(SPEC))
    path.unlink()
    with pytest.raises(InputError, match="delete"):
        blend_of(results.run(SPEC))


def test_a_run_that_is_trained_again_has_a_path_of_its_own(study: Study, tmp_path: Path) -> None:
    shutil.copytree(study.out, tmp_path / "copy")
    again = Study(**{**study.given, "out": tmp_path / "copy"}, say=str)
    shutil.rmtree(again.work / "fits")
    path = again.results.folder(SPEC.key) / FILE
    old = path.read_text()
    path.write_text("of a model that is no more")
    again.run(SPEC, *WANTED, blended_at(TEST, 0.75))
    assert json.loads(path.read_text())["values"] == pytest.approx(json.loads(old)["values"], abs=1e-6)
    assert again.results.has(SPEC, *WANTED, blended_at(TEST, 0.75))
