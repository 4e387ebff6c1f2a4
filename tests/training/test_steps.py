"""How long fit trains, and on how many negatives, where nobody says it."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError
from remargin.training import fitting
from remargin.training.fitting import fit
from remargin.training.schedule import Rehearsal, StepPlan, steps_for

from .conftest import settings, silent


def test_steps_follow_from_the_pairs_and_are_kept(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    """Nobody says how many: 40 pairs, at most ten epochs of them, in batches of 8. Resumed, there are as many."""
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", also=str(beir), batch_size=8)
    lines: list[str] = []
    fitted = start(say=lines.append)
    assert fitted.steps == 50 == steps_for(40, 8)
    plan = StepPlan.load(tmp_path / "run")
    assert plan is not None
    assert (plan.steps, plan.epochs, plan.minutes) == (50, 10.0, None)
    assert [line for line in lines if re.fullmatch(r"about .* \(50 steps of 8 at .* triplets/s, then ranking\)", line)]
    again: list[str] = []
    assert start(resume=True, say=again.append).steps == 50
    assert not [line for line in again if line.startswith("about ")]  # nothing is timed again
    with pytest.raises(InputError, match="other settings: steps"):
        start(resume=True, say=silent, steps=50)
    with pytest.raises(InputError, match="other settings: minutes"):
        start(resume=True, say=silent, minutes=9)


def test_epochs_are_of_the_pairs(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), also=str(beir), batch_size=8, say=silent)
    assert start(tmp_path / "a", epochs=0.5).steps == 3  # of 8 out of 40, rounded up
    assert start(tmp_path / "b", epochs=1, accumulate=2).steps == 3
    plan = StepPlan.load(tmp_path / "a")
    assert plan is not None
    assert plan.epochs == pytest.approx(24 / 40)


def test_minutes_are_kept_to_and_the_plan_is_not_made_twice(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "rehearse", lambda *_: Rehearsal(2.0, 8, 10**9))  # so that all else takes no time
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", also=str(beir), batch_size=8, minutes=1)
    lines: list[str] = []

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "train_round", stopped)
        with pytest.raises(KeyboardInterrupt):
            start(say=lines.append)
    [line] = [line for line in lines if "minute" in line]
    assert re.fullmatch(r"(29|30) steps instead of 50, to fit into 1 minute", line)
    plan = StepPlan.load(tmp_path / "run")
    assert plan is not None
    assert (plan.minutes, plan.seconds_per_step) == (1, 2.0)
    monkeypatch.setattr(fitting, "rehearse", stopped)
    assert start(resume=True, say=silent).steps == plan.steps


def test_a_damaged_plan_is_refused(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", also=str(beir), say=silent)
    start(steps=2, batch_size=8)
    plan = tmp_path / "run" / "schedule.json"
    plan.write_text(plan.read_text().replace('"steps": 2', '"steps": 3'))
    with pytest.raises(InputError, match=r"schedule.json.*; start the training run anew in another folder"):
        start(steps=2, batch_size=8, resume=True)
    StepPlan(steps=2**31, epochs=1.0).save(tmp_path / "run")
    with pytest.raises(InputError, match=r"schedule.json: 2,147,483,648 steps, but data and settings make 2 at most"):
        start(steps=2, batch_size=8, resume=True)


@pytest.mark.parametrize(("documents", "negatives"), [(3, 1), (6, 4), (30, 8)])
def test_a_tiny_collection_has_fewer_negatives(documents: int, negatives: int, tiny_model: Any, tmp_path: Path) -> None:
    """As many as there are documents beside the positive and, perhaps, the query itself: at most eight."""
    rows = [f"how is value{i},the value{i} is made" for i in range(documents)]
    (tmp_path / "faq.csv").write_text("\n".join(["query,document", *rows]) + "\n")
    lines: list[str] = []
    start = partial(fit, f"pairs:{tmp_path / 'faq.csv'}", str(tiny_model("bert")), say=lines.append)
    assert start(tmp_path / "run", steps=2, batch_size=2).steps == 2
    table = [line.split("\t") for line in (tmp_path / "run" / "triplets.tsv").read_text().splitlines()]
    assert {len(row) - 2 for row in table} == {negatives}
    assert all(len({*row[1:]}) == len(row) - 1 for row in table)  # no positive, and none twice
    each = "1 negative" if negatives == 1 else f"{negatives} negatives"
    assert any(line.startswith(f"mined {len(table) - 1} triplets of {each} for") for line in lines)
    with pytest.raises(InputError, match="too few documents to draw negatives from; ask for fewer"):
        start(tmp_path / "b", steps=2, batch_size=2, per_triplet=documents)
    assert not (tmp_path / "b").exists()


def test_what_another_process_mines_beside_the_data_is_left_alone(
    prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    shutil.copytree(prepared, tmp_path / "data")
    (tmp_path / "triplets.tsv").touch()
    (tmp_path / ".triplets.tsv.0123abcd").mkdir()
    fit(str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run", settings(steps=1), say=silent)
    assert (tmp_path / ".triplets.tsv.0123abcd").is_dir()


def test_several_negatives_of_those_that_are_mined_are_in_a_batch(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), also=str(beir), say=silent, steps=1, batch_size=8)
    one, three = start(tmp_path / "a"), start(tmp_path / "b", per_triplet=3)
    assert one.triplets == three.triplets == 8
    tables = [(tmp_path / name / "triplets.tsv").read_text() for name in "ab"]
    assert tables[0] == tables[1]  # of eight, either way
    last = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in "ab"]
    assert last[0] != last[1]
