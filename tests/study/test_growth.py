"""Learning curves: their intervals, the smallest gain that shows, and what they say about more data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from remargin.evaluation.significance import bootstrap
from remargin.study.growth import Curve, Trained, curve_json, curve_section, grown

QUERIES = [f"q{i}" for i in range(400)]


def made(gains: list[float], noise: float = 0.1, seeds: int = 3) -> tuple[dict[str, float], list[Trained]]:
    """Scores before training, and for growing shares: each gains as much over the start, with noise."""
    rng = np.random.default_rng(0)
    start = rng.uniform(0.2, 0.6, len(QUERIES))
    trained = []
    for number, gain in enumerate(gains):
        scores = {}
        for seed in range(seeds):
            errors = rng.normal(0, noise, len(start))
            values = start + gain + errors - errors.mean()
            scores[seed] = dict(zip(QUERIES, values.tolist(), strict=True))
        trained.append(Trained(2.0 ** (number + 1 - len(gains)), 100 * 2**number, 150 * 2**number, scores))
    return dict(zip(QUERIES, start.tolist(), strict=True)), trained


def curve(gains: list[float], noise: float = 0.1) -> Curve:
    return grown("nDCG@10", *made(gains, noise))


def test_shares_of_the_same_pairs_have_no_doubling() -> None:
    before, (small, large) = made([0.05, 0.1])
    found = grown("nDCG@10", before, [small, replace(large, pairs=small.pairs)])
    assert found.answer == "yes"
    assert "doubling" not in found.verdict


def test_seeds_are_averaged_within_queries_and_queries_bootstrapped() -> None:
    before, trained = made([0.05, 0.1])
    found = grown("nDCG@10", before, trained)
    averages = []
    for each, point in zip(trained, found.points, strict=True):
        average = [sum(each.scores[seed][query] for seed in range(3)) / 3 for query in QUERIES]
        assert point.mean == pytest.approx(bootstrap(average))
        gain = [value - before[query] for value, query in zip(average, QUERIES, strict=True)]
        assert point.gain == pytest.approx(bootstrap(gain))
        reach = 1.96 * np.std(gain, ddof=1) / 20
        assert point.gain[1:] == pytest.approx((np.mean(gain) - reach, np.mean(gain) + reach), abs=reach / 10)
        for seed in range(3):
            assert point.seeds[seed] == pytest.approx(np.mean(list(each.scores[seed].values())))
        averages.append(average)
    assert found.points[0].step is None
    step = [large - small for small, large in zip(*averages, strict=True)]
    assert found.points[1].step == pytest.approx(bootstrap(step))
    assert found.before == bootstrap(list(before.values()))
    assert found.detectable == pytest.approx(2.8 * np.std(step, ddof=1) / 20, rel=0.01)


def test_a_gain_of_the_detectable_size_shows_four_times_in_five() -> None:
    noise = 0.1
    true = curve([0.0, 0.0], noise).detectable
    rng = np.random.default_rng(1)
    shown = 0
    for _ in range(300):
        step = true + (rng.normal(0, noise, (2, 3, 400)).mean(1) * [[1], [-1]]).sum(0)
        shown += bootstrap(step, samples=1000).low > 0
    assert 0.73 < shown / 300 < 0.87


@pytest.mark.parametrize(
    ("gains", "noise", "answer", "words"),
    [
        ([0.0, 0.05, 0.1], 0.1, "yes", "More data would probably help: the step from 300 to 600 pairs gained 0.0"),
        ([0.0, 0.1, 0.1], 0.02, "no", "so there was no gain of 0.01 or more."),
        ([0.0, 0.1, 0.05], 0.1, "no", "pairs lost 0.0"),
        ([0.0, 0.1, 0.1], 0.3, "unclear", "It is unclear whether more data would help: the step from 300 to 600"),
    ],
)
def test_the_last_step_decides(gains: list[float], noise: float, answer: str, words: str) -> None:
    found = curve(gains, noise)
    assert found.answer == answer
    assert words in found.verdict
    assert f"With 400 test queries, a gain of {found.detectable:.3f} or more shows with a probability of 80%." in (
        found.verdict
    )
    steps = [found.points[-1].seeds[seed] - found.points[-2].seeds[seed] for seed in range(3)]
    assert f"; by seed {steps[0]:+.3f}, {steps[1]:+.3f}, {steps[2]:+.3f})" in found.verdict


def test_a_doubling_is_a_doubling() -> None:
    before, (small, large) = made([0.0, 0.16], noise=0.0)
    eight_times = Trained(1.0, 800, 8 * small.pairs, large.scores)
    assert "about 0.160 for each doubling" in grown("RR", before, [small, large]).verdict
    assert "about 0.053 for each doubling" in grown("RR", before, [small, eight_times]).verdict


def test_the_section_shows_all_of_it() -> None:
    found = curve([0.02, 0.05])
    section = curve_section(found, {"data": "faq"})
    rows = section.tables[0].blocks[0].rows
    assert [row[0].text for row in rows] == ["none", "0.5", "1"]
    assert [row[1].value for row in rows] == [0, 150, 300]
    assert [row[2].value for row in rows] == [found.before.mean, *(point.mean.mean for point in found.points)]
    [figure] = section.figures
    [panel] = figure.panels  # type: ignore[union-attr]
    trained, start = panel.series  # type: ignore[union-attr]
    assert trained.x == [0, 150, 300]
    assert trained.low == [found.before.low, *(point.mean.low for point in found.points)]
    assert set(start.y) == {found.before.mean}
    assert section.summary == [found.verdict]
    assert "<svg" in figure.svg()
    plain = json.loads(json.dumps(curve_json(found)))
    assert plain["points"][1]["step"]["low"] == found.points[1].step.low  # type: ignore[union-attr]
    assert plain["before"]["mean"] == found.before.mean


def test_models_that_were_measured_on_other_queries_are_refused() -> None:
    before, trained = made([0.1, 0.2])
    with pytest.raises(ValueError, match="different queries"):
        grown("RR", {**before, "another": 0.5}, trained)
