"""Each requirement holds, does not hold, or cannot be told, and says by which numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remargin.paper.beyond.requirements import RECIPE, RIVAL, Requirement, check_requirements, counts
from remargin.paper.beyond.rows import Row

from .made_up import GOOD, collections, row

HOME, HOME_BLENDED, EACH, EACH_BLENDED, AWAY, AWAY_RIVAL, COMPUTE = range(7)


def test_everything_holds_and_the_numbers_are_right() -> None:
    requirements = check_requirements(collections())
    assert [requirement.verdict for requirement in requirements] == ["holds"] * 7
    measured = [requirement.measured for requirement in requirements]
    assert measured[HOME] == "+0.010, bound +0.010"  # every query differs by 0.01: there is no spread
    assert measured[HOME_BLENDED] == "+0.005, bound +0.005"
    assert measured[AWAY] == "+0.010, bound +0.010"
    assert measured[AWAY_RIVAL] == "+0.030, bound +0.030"
    assert measured[COMPUTE] == "0.11 (660 s of 6,000 s)"
    assert counts(requirements) == {"holds": 7, "does not hold": 0, "cannot be told": 0}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({"rival": row(0.735, 0.41, 1000)}, []),  # behind by 0.005
        ({"rival": row(0.745, 0.41, 1000)}, [HOME]),  # behind by 0.015
        ({"blended_rival": row(0.745, 0.43, 1010)}, [HOME_BLENDED]),
        ({"rival": row(0.76, 0.41, 1000)}, [HOME, EACH]),  # behind by 0.03 on each collection
        ({"blended_rival": row(0.76, 0.43, 1010)}, [HOME_BLENDED, EACH_BLENDED]),
        ({"untrained": row(0.50, 0.455)}, []),  # behind by 0.015
        ({"untrained": row(0.50, 0.47)}, [AWAY]),
        ({"rival": row(0.72, 0.445, 1000)}, [AWAY_RIVAL]),
        ({"rival": row(0.72, 0.41, 439)}, [COMPUTE]),  # 110 of 439 is more than a quarter
        ({"rival": row(0.72, 0.41, 440)}, []),
        ({"recipe": row(0.69, 0.40, 300, 1.0)}, list(range(7))),
    ],
)
def test_a_verdict_flips_at_its_bound(changed: dict[str, Row], fails: list[int]) -> None:
    found = [requirement.verdict for requirement in check_requirements(collections(**changed))]
    assert found == ["does not hold" if i in fails else "holds" for i in range(7)]


def test_an_uncertain_difference_does_not_hold() -> None:
    """The mean is at the bound, and queries differ so much that it could well be below."""
    noisy = {"q0": 0.23, "q1": 0.73, "q2": 1.2}
    found = check_requirements(collections(recipe=replace(GOOD[RECIPE], home=noisy)))
    assert found[HOME].verdict == "does not hold"
    assert found[HOME].measured.startswith("+0.000, bound -0.1")
    assert found[EACH].verdict == "holds"  # no interval is wholly below


def test_one_collection_that_is_far_behind_fails_though_the_mean_does_not() -> None:
    behind = collections(1, recipe=row(0.69, 0.44, 110, 0.6))[0]
    others = [replace(rows, rows={**rows.rows, RECIPE: row(0.76, 0.44, 110, 0.6)}) for rows in collections()[1:]]
    found = check_requirements([behind, *others])
    assert (found[HOME].verdict, found[EACH].verdict) == ("holds", "does not hold")
    assert found[EACH].measured == "below: c0"


def test_too_few_collections_seeds_or_runs_cannot_be_told() -> None:
    for few, missing in ((collections(2), "2 of 6 collections"), (collections(seeds=1), "1 of 3 seeds")):
        found = check_requirements(few)
        assert {one.verdict for one in found} == {"cannot be told"}
        assert all(one.missing == missing and one.so_far for one in found)
    lacking = collections()
    lacking[3] = replace(lacking[3], rows={name: value for name, value in lacking[3].rows.items() if name != RIVAL})
    found = check_requirements(lacking)
    assert [one.missing for one in found] == ["runs on c3", "", "runs on c3", "", "", "runs on c3", "runs on c3"]
    assert found[AWAY].verdict == "holds"
    only = replace(lacking[3], rows={RECIPE: Row({"q": 1.0})})
    assert all(one.so_far is None and not one.measured for one in check_requirements([only]))


def test_a_requirement_without_results_says_nothing() -> None:
    assert Requirement("home", "above 0").verdict == "cannot be told"
    assert Requirement("home", "above 0", so_far=False).verdict == "does not hold"
