"""Studies that are not finished: what can be drawn is drawn, and what is missing is named."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from remargin import InputError
from remargin.files.headers import read_header, write_header
from remargin.paper.baselines import findings
from remargin.paper.deciding import OPEN
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.running import draw_experiments, run_experiments, verdicts
from remargin.paper.systems import (
    ADAPTIVE,
    BESIDE,
    DISTRIBUTED,
    EASY_BINS_DROPPED,
    EXPLICIT_MEAN,
    MARGIN_MSE,
    TAS_B,
    TAUGHT_BY_MARGIN_MSE,
)
from remargin.reports.sections import Section
from remargin.study import trainer as module
from remargin.study.header import FORMAT
from remargin.study.results import LAST, MEASURE, Results
from remargin.study.systems import CONTRASTIVE, choose

from ..small_study import Open, silent, without_texts


def verdict_on_the_explicit_mean(study: Results) -> str:
    """As it is computed; the section says the same."""
    (verdict,) = (v for v in verdicts(study) if v.claim.name == "the explicit mean does not work")
    (drawn,) = (
        r for r in Section.load(study.out / "claims").tables[0].blocks[0].rows if r[0].text == verdict.claim.text
    )
    assert drawn[2].text == verdict.verdict
    return verdict.verdict


def test_a_backbone_that_was_not_trained_is_left_out(study_folder: Path, tmp_path: Path) -> None:
    """A second one that only table 3 was made for does not make the other tables impossible."""
    out, said = tmp_path / "study", list[str]()
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    header = read_header(out / "study.json", dict, FORMAT, "")
    write_header(out / "study.json", {**header, "models": {**header["models"], "other": "0" * 32}})
    for name in ("baselines", "static-margins", "variants"):
        said.clear()
        made = EXPERIMENTS[name].section(Results.open(out, say=said.append))
        assert made == without_texts(Section.load(study_folder / name))
        (line,) = (line for line in said if not line.startswith(tuple(row.name for row in TAUGHT_BY_MARGIN_MSE)))
        assert re.fullmatch(r"other is left out: .*other-\S+ is not there; run `remargin reproduce` .*", line)


def test_table_3_of_an_unfinished_study_lacks_our_rows_but_never_the_papers(study_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    whole, *_ = Section.load(study_folder / "variants").tables
    study = Results.open(out, say=silent)
    for gone in ([EXPLICIT_MEAN], BESIDE[:-1]):
        for row in gone:
            shutil.rmtree(study.run(choose(study, "tiny", row).spec).folder)
        draw_experiments(study, ["variants"])
        table, *_ = Section.load(out / "variants").tables
        rows = [[row[0].text for block in of.blocks for row in block.rows] for of in (whole, table)]
        lacking = [name for name in rows[0] if name not in rows[1]]
        assert lacking == [row.name for row in (gone if gone[0] is EXPLICIT_MEAN else BESIDE)]
        assert _but_rates(table.notes) == [*_but_rates(whole.notes), f"Not trained for tiny: {'; '.join(lacking)}."]
    assert verdict_on_the_explicit_mean(study) == OPEN
    shutil.rmtree(study.run(choose(study, "tiny", ADAPTIVE).spec).folder)
    with pytest.raises(InputError, match="no backbone has all runs of this table; run `remargin reproduce` with"):
        draw_experiments(study, ["variants"])


def _but_rates(notes: list[str]) -> list[str]:
    """Without the note on learning rates at an edge of the grid, which depends on which ones win on this machine."""
    return [note for note in notes if "the learning rate is the lowest or highest that was tried" not in note]


def test_so_does_table_4(study_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    whole, *_ = Section.load(study_folder / "baselines").tables
    study = Results.open(out, say=silent)
    gone = (EASY_BINS_DROPPED, EXPLICIT_MEAN)
    for row in gone:
        shutil.rmtree(study.run(choose(study, "tiny", row).spec).folder)
    draw_experiments(study, ["baselines"])
    table, *_ = Section.load(out / "baselines").tables
    rows = [[row[0].text for block in of.blocks for row in block.rows] for of in (whole, table)]
    assert [name for name in rows[0] if name not in rows[1]] == [row.name for row in gone]
    lacking = (EASY_BINS_DROPPED, *TAUGHT_BY_MARGIN_MSE, EXPLICIT_MEAN)
    assert table.notes[-1] == f"Not trained for tiny: {'; '.join(row.name for row in lacking)}."
    for needed in (CONTRASTIVE, TAS_B[0]):  # the first is a second teacher
        folder = study.run(choose(study, "tiny", needed).spec).folder
        folder.rename(tmp_path / "away")
        with pytest.raises(InputError, match="no backbone has all runs of this table"):
            draw_experiments(study, ["baselines"])
        (tmp_path / "away").rename(folder)


def test_rows_of_table_4_have_the_seeds_that_are_there(study_folder: Path, tmp_path: Path) -> None:
    """As of studies whose teachers have one seed."""
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    study = Results.open(out, say=silent)
    before = findings(study).own["tiny"].rows
    assert {row.seeds for row in before.values()} == {2}
    first, second = choose(study, "tiny", MARGIN_MSE).with_seeds(study.plan.seeds)
    means = [fmean(study.run(spec).test()[MEASURE].values()) for spec in (first, second)]
    assert before[MARGIN_MSE].scores[MEASURE].mean == pytest.approx(fmean(means))
    assert before[MARGIN_MSE].scores[MEASURE].deviation == pytest.approx(stdev(means))
    shutil.rmtree(study.run(second).folder)
    row = findings(study).own["tiny"].rows[MARGIN_MSE]
    assert (row.seeds, row.scores[MEASURE].deviation) == (1, None)
    assert row.scores[MEASURE].mean == pytest.approx(means[0])
    (note,) = (n for n in EXPERIMENTS["baselines"].section(study).tables[0].notes if "± is" in n)
    assert "over 2 seeds" in note
    assert "Fewer seeds: MarginMSE (1)." in note


def test_table_5_has_the_taught_rows_that_are_trained(study_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    study = Results.open(out, say=silent)
    rows = {row.system: row for row in EXPERIMENTS["zero-shot"].findings(study)["tiny"].rows}
    gone, _, never, _ = TAS_B
    assert {*TAS_B} - rows.keys() == {never}
    shutil.rmtree(study.run(choose(study, "tiny", gone).spec).folder)
    left = EXPERIMENTS["zero-shot"].findings(study)["tiny"].rows
    assert [row.name for row in rows.values() if row not in left] == [gone.name]
    section = EXPERIMENTS["zero-shot"].section(study)
    assert f"Not trained for tiny: {gone.name}; {never.name}." in section.tables[0].notes
    assert not any(task.key.startswith("tiny-teacher") for task in EXPERIMENTS["zero-shot"].tasks(study))


def test_what_needs_no_training_is_measured_first(
    open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the rows which a study has when it is stopped can be shown."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.loop, "train", stop)
    for name in ("variants", "baselines"):
        with pytest.raises(KeyboardInterrupt):
            run_experiments(open_study(tmp_path / name), [name])
        assert (tmp_path / name / "runs" / "bm25" / "run.json").exists()
    assert (tmp_path / "variants" / "runs" / "tiny-untrained" / "run.json").exists()


def test_of_an_unfinished_study_everything_is_made_that_can_be(study_folder: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "study", list[str]()
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    study = Results.open(out, say=said.append)
    for row in (EXPLICIT_MEAN, MARGIN_MSE):
        shutil.rmtree(study.run(choose(study, "tiny", row).spec).folder)
    made = [folder.name for folder in draw_experiments(study, list(EXPERIMENTS))]
    assert made == [name for name in (*EXPERIMENTS, "claims") if name not in ("baselines", "zero-shot")]
    assert [line for line in said if "no backbone" in line] == [
        f"{name} is left out: no backbone has all runs of this table" for name in ("baselines", "zero-shot")
    ]
    assert verdict_on_the_explicit_mean(study) == OPEN


def test_a_backbone_that_was_not_named_again(study_folder: Path, open_study: Open, tmp_path: Path) -> None:
    shutil.copytree(study_folder, tmp_path / "s", ignore=shutil.ignore_patterns("work"))
    study = open_study(tmp_path / "s")
    study.backbones.clear()
    spec = choose(study.results, "tiny", DISTRIBUTED).spec
    before = study.run(spec)
    for lacking in (replace(spec, rate=0.5), replace(spec, seed=1)):  # never trained, and to be measured otherwise
        with pytest.raises(InputError, match="is not there; name its backbone: --model tiny=PATH"):
            study.run(lacking, LAST)
    assert study.run(spec) == before
    assert study.run(replace(spec, seed=1)).steps == before.steps  # it is kept
    assert EXPERIMENTS["variants"].section(study.results).tables == Section.load(study_folder / "variants").tables
