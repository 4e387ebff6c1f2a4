"""Blending: the rule that chooses a weight, the path that it chooses on, and `blend`."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, InputError, Validator, blend, evaluate, search
from remargin.model.blend import blended
from remargin.reports.blend_file import read_path, save_path
from remargin.training import blending
from remargin.training.blending import COARSE_POINTS, KEEP, POINTS, Elsewhere, blend_path, choose_weight, smoothed

from .conftest import settings

DATA = "docstrings:json,csv,string,email"


def gains(*curve: float) -> list[float]:
    """Values of a measure that begins at 0.5, in hundredths above it."""
    return [0.5 + gain / 100 for gain in curve]


@pytest.mark.parametrize(
    ("curve", "chosen"),
    [
        (gains(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 0.9),  # monotone: 0.9 of the way has 0.9 of the gain
        (gains(0, 3, 6, 8, 9.5, 10, 9.5, 8, 6, 3, 0), 0.4),  # peaked: (8 + 2 x 9.5 + 10) / 4 of at most 9.75
        (gains(0, 8, 12, 13, 13, 13, 13, 13, 13, 13, 13), 0.3),  # soon level: at 0.2, (8 + 24 + 13) / 4 is too little
        (gains(*[0] * 11), 0.0),  # flat
        (gains(0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10), 0.0),  # all below the start
        (gains(0, -1, -2, -1, 0, 1, 2, 3, 4, 5, 6), 1.0),  # first down, then up
        (gains(0, -4, -4, -4, -4, 1, -4, -4, -4, -4, -4), 0.5),  # one point above: never 0 then
        (gains(0, 5, 6, -9, 7, 6, 6, 6, 6, 6, 6), 0.5),  # a dip in between, which its neighbours feel
    ],
)
def test_the_rule_on_curves_of_every_shape(curve: list[float], chosen: float) -> None:
    assert choose_weight(POINTS, curve) == chosen


def test_the_rule_by_its_definition() -> None:
    """Slowly, on curves of all kinds: nothing smaller would do, and what is chosen does."""
    rng, zeros = random.Random(0), 0
    for _ in range(2000):
        slope, noise = rng.uniform(-0.2, 0.2), rng.choice([0.0, 0.01, 0.1])
        values = [0.5 + slope * a - rng.random() * a * a / 5 + noise * rng.gauss(0, 1) for a in POINTS]
        chosen = choose_weight(POINTS, values)
        place = POINTS.index(chosen)
        if chosen == 0:
            zeros += 1
            assert max(values) <= values[0]
            continue
        assert values[place] > values[0]
        curves = []
        for curve in (values, smoothed(values)):
            gain = [value - values[0] for value in curve]
            fit = [i for i in range(1, 11) if gain[i] > 0 and gain[i] >= KEEP * max(gain) and values[i] > values[0]]
            curves.append(min(fit, default=None))  # type: ignore[type-var]
        assert place == (curves[0] if curves[1] is None else curves[1])
    assert 100 < zeros < 1900


def test_two_points_are_enough_and_noise_is_smoothed() -> None:
    assert (choose_weight([0, 1], [0.5, 0.6]), choose_weight([0, 1], [0.5, 0.5])) == (1, 0)
    assert smoothed([1.0, 2.0]) == [1.0, 2.0]
    assert smoothed([1.0]) == [1.0]
    np.testing.assert_allclose(smoothed([1.0, 2.0, 3.0, 4.0]), [1, 2, 3, 4])
    spike = gains(0, 2, 4, 14.5, 8, 10, 12, 13, 14, 14, 14)
    assert choose_weight(POINTS, spike) == 0.7  # by itself, the spike would choose 0.3


def moved(model: BiEncoder, seed: int) -> BiEncoder:
    """A copy with other weights, large enough that rounding does not decide which of two texts is ranked first."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    return other


@pytest.fixture
def trained(model: BiEncoder) -> BiEncoder:
    return moved(model, seed=3)


def test_the_path_has_what_search_and_evaluate_give(model: BiEncoder, trained: BiEncoder, prepared: Path) -> None:
    model = moved(model, seed=4)
    validator = Validator(prepared, "train", settings(validation_depth=None), also=["RR"])
    before = model.fingerprint(), trained.fingerprint()
    away = Elsewhere("elsewhere", "R@5", lambda encoder: float(encoder.encode_queries(["the value"])[0, 0]))
    path = blend_path(model, trained, validator, points=(0, 0.3, 1), away=away)
    collection = Collection.load(prepared, "train")
    assert path.away is not None
    for point, rr, other in zip(path.points, path.values["RR"], path.away.values, strict=True):
        point_model = blended(model, trained, point)
        run = search(collection, "exact", point_model)
        assert evaluate(run, collection, "RR").means["RR"] == rr
        assert other == away.of(point_model)
    assert len({*path.values["nDCG@10"]}) == len({*path.away.values}) == 3
    assert path.weight == choose_weight(path.points, path.values["nDCG@10"])
    assert (path.measure, path.split, path.queries) == ("nDCG@10", "train", 40)
    assert (path.ranked, path.away.data, path.away.measure) == ("ranked in full (60 documents)", "elsewhere", "R@5")
    assert (model.fingerprint(), trained.fingerprint()) == before
    assert blend_path(model, trained, validator, points=(0, 0.3, 1), away=away) == path


def test_what_is_measured_elsewhere_chooses_nothing(model: BiEncoder, trained: BiEncoder, prepared: Path) -> None:
    validator = Validator(prepared, "train", settings(validation_depth=None))
    rising, falling = (Elsewhere("x", "RR", lambda _, sign=sign: sign) for sign in (1.0, -1.0))  # type: ignore[misc]
    paths = [blend_path(model, trained, validator, (0, 0.5, 1), away) for away in (None, rising, falling)]
    assert len({path.weight for path in paths}) == 1


def test_coarse_points_where_a_point_takes_long(
    model: BiEncoder, trained: BiEncoder, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validator = Validator(prepared, "dev", settings(validation_depth=None))
    assert blend_path(model, trained, validator).points == list(POINTS)
    monkeypatch.setattr(blending, "MANY_TEXTS", 69)
    assert blend_path(model, trained, validator).points == list(COARSE_POINTS)
    for points in ((0, 0.5), (0.5, 1), (0, 0.5, 0.5, 1), (0, 0.7, 0.5, 1)):
        with pytest.raises(InputError, match="give ascending ones from 0 to 1"):
            blend_path(model, trained, validator, points)


def test_the_path_is_kept(model: BiEncoder, trained: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    validator = Validator(prepared, "dev", settings(validation_depth=None), also=["RR"])
    for away in (None, Elsewhere("elsewhere", "RR", lambda _: 0.25)):
        path = blend_path(model, trained, validator, (0, 0.5, 1), away)
        save_path(tmp_path, path)
        assert read_path(tmp_path) == path


def test_blending_models_in_folders(model: BiEncoder, trained: BiEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "start")
    trained.save(tmp_path / "trained")
    made = blend(tmp_path / "start", tmp_path / "trained", 0.3, tmp_path / "out")
    expected = blended(model, trained, 0.3)
    assert (made.weight, made.path) == (0.3, None)
    assert BiEncoder.from_pretrained(tmp_path / "out").fingerprint() == expected.fingerprint()
    assert made.model.fingerprint() == expected.fingerprint()
    with pytest.raises(InputError, match="out: already exists"):
        blend(tmp_path / "start", tmp_path / "trained", 0.3, tmp_path / "out")
    assert blend(model, trained, "0.3", tmp_path / "out", overwrite=True).weight == 0.3
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine.txt").touch()
    with pytest.raises(InputError, match="exists and is not ours to overwrite"):
        blend(model, trained, 0.3, tmp_path / "foreign", overwrite=True)


def test_the_weight_is_chosen_on_dev(model: BiEncoder, trained: BiEncoder, tmp_path: Path) -> None:
    chosen = blend(model, trained, data=DATA, out=tmp_path / "out", measure="RR")
    dev = Collection.load(DATA, "dev")
    validator = Validator.of(dev, trained, settings(validation_depth=None, validation_measure="RR"), passages=True)
    assert chosen.path == blend_path(model, trained, validator)
    assert chosen.path.weight == chosen.weight
    assert chosen.path.split == "dev"
    assert BiEncoder.from_pretrained(tmp_path / "out").fingerprint() == chosen.model.fingerprint()
    assert blend(model, trained, "auto", data=dev, measure="RR").path == chosen.path
    other = blend(model, trained, data=DATA, split="test").path
    assert other is not None
    assert (other.split, other.measure) == ("test", "nDCG@10")


def test_a_raw_backbone_is_no_start_to_go_back_to(tiny_model: Any, tmp_path: Path) -> None:
    trained = BiEncoder.from_pretrained(tiny_model(), "mean", "dot")
    with torch.no_grad():
        trained.backbone.encoder.layer[0].output.dense.bias.add_(0.5)
    made = blend(tiny_model(), trained, data=DATA)
    assert (made.weight, made.path) == (1.0, None)
    assert made.model.fingerprint() == trained.fingerprint()
    start = BiEncoder.from_pretrained(tiny_model(), "mean", "dot")
    half = blend(tiny_model(), trained, 0.5)  # by hand, one may: it is used as the trained one is
    assert half.model.fingerprint() == blended(start, trained, 0.5).fingerprint()
    start.save(tmp_path / "start")
    assert blend(tmp_path / "start", trained, data=DATA).path is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no weight is given; give --weight 0.5, or --data to choose it on dev"),
        ({"weight": "auto"}, "a weight is chosen on the dev split of a collection; give --data too"),
        ({"weight": 1.5}, "a weight of 1.5; use auto, or 0"),
        ({"weight": "half"}, "a weight of half; use auto, or 0"),
        ({"weight": float("nan")}, "a weight of nan"),
        ({"weight": 0.5, "data": DATA}, "--data does nothing for a weight that is given"),
        ({"weight": 0.5, "split": "dev"}, "--split does nothing for a weight that is given"),
        ({"weight": 0.5, "measure": "RR"}, "--measure does nothing"),
        ({"weight": 0.5, "skip_bad": True}, "--skip-bad does nothing"),
        ({"data": DATA, "measure": "RRR"}, "unknown measure 'RRR'"),
        ({"data": DATA, "split": "none"}, "no split 'none'"),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(options: Any, message: str, model: BiEncoder) -> None:
    with pytest.raises(InputError, match=message):
        blend(model, model, **options)


def test_models_that_do_not_belong_together_are_refused(model: BiEncoder, tiny_model: Any) -> None:
    with pytest.raises(InputError, match="the models differ in pooling: cls and mean"):
        blend(model, BiEncoder.from_pretrained(tiny_model(), "mean"), 0.5)
    with pytest.raises(InputError, match=r"the models differ in architecture \(model_type\): distilbert and bert"):
        blend(tiny_model("distilbert"), model, 0.5)
