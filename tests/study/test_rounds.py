"""Several negatives in a triplet, and a second round of mining: what runs train on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder
from remargin.data.tables import Rejects
from remargin.data.triplets import read_id_triplets
from remargin.mining.negatives import mine
from remargin.model.blend import blended
from remargin.study import training_set
from remargin.study.pinned import SECOND_ROUND
from remargin.study.specs import RunSpec
from remargin.study.tasks import Train

from ..small_study import OTHER, Open

FIRST = RunSpec("tiny", "softmax", 16, 64, 5e-4)
SECOND = replace(FIRST, second_round=True)


def negatives(path: Path) -> list[list[str]]:
    return [triplet.negatives for triplet in read_id_triplets(path, Rejects())]


def test_a_run_with_several_negatives_has_triplets_of_its_own(open_study: Open, tmp_path: Path) -> None:
    study = open_study(tmp_path / "out", zero_shot=[], also_test=[])
    assert study.run(replace(FIRST, negatives=2)).triplets == 64
    assert {len(of_triplet) for of_triplet in negatives(study.work / "triplets-2.tsv")} == {2}
    study.run(FIRST)
    assert {len(of_triplet) for of_triplet in negatives(study.work / "triplets.tsv")} == {1}
    assert FIRST.key != replace(FIRST, negatives=2).key


def test_the_second_round_is_mined_by_the_half_blended_first(
    open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(tmp_path / "out", data=OTHER, zero_shot=[], also_test=[])
    second = Train(SECOND)
    assert not second.is_ready(study.results)
    study.run(FIRST)
    assert second.is_ready(study.results)
    given: list[dict[str, Any]] = []

    def spied(*arguments: Any, **named: Any) -> Any:
        given.append(named)
        return mine(*arguments, **named)

    monkeypatch.setattr(training_set, "mine", spied)
    second.do(study)
    assert second.is_done(study.results)
    (named,) = given
    assert SECOND_ROUND.items() <= named.items()
    ends = (
        BiEncoder.from_pretrained(path) for path in (study.backbones["tiny"], study.work / "fits" / FIRST.key / "last")
    )
    assert named["model"].fingerprint() == blended(*ends, 0.5).fingerprint()
    mined = negatives(study.work / f"triplets-{SECOND.key}.tsv")
    assert mined != negatives(study.work / "triplets.tsv")
    study.run(SECOND, "test")  # the triplets are there: nothing is mined again
    assert len(given) == 1
