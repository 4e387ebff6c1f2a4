"""Studies: what was trained once is not trained again, and everything published follows from the small files."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError, train
from remargin.data.triplets import Triplets
from remargin.files.headers import read_header, write_header
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.running import draw_experiments, run_experiments
from remargin.paper.systems import DISTRIBUTED, TAUGHT_BY_MARGIN_MSE, TEACHERS
from remargin.paper.variants import findings as variants
from remargin.reports.sections import Section
from remargin.study import results
from remargin.study import trainer as module
from remargin.study.header import FORMAT
from remargin.study.results import FORMAT as RUN_FORMAT
from remargin.study.results import LAST, MEASURE, TEST, ZERO_SHOT, Result, Results
from remargin.study.systems import CONTRASTIVE, STATIC, choose, sweep, sweep_of
from remargin.study.trainer import run_settings, teacher_scale

from ..small_study import PLAN, Open, leave_out_rows, silent, without_texts, write_beir


def test_every_section_can_be_made_again_from_the_small_files(study_folder: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    for part in ("runs", "teacher"):
        shutil.copytree(study_folder / part, small / part)
    shutil.copy(study_folder / "study.json", small)
    again = Results.open(small, say=silent)
    assert again.name == "json,csv,string,textwrap"
    for name, experiment in EXPERIMENTS.items():
        made, before = experiment.section(again), Section.load(study_folder / name)
        assert made == without_texts(before), name
        assert experiment.findings(again) == experiment.findings(Results.open(study_folder, say=silent))


def test_what_is_there_is_not_trained_again(
    study_folder: Path, open_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(module.loop, "train", never)
    leave_out_rows(monkeypatch)
    run_experiments(open_study(study_folder), ["variants", "baselines"])


def test_cells_are_the_means_of_the_scores_of_queries(study_folder: Path) -> None:
    section = Section.load(study_folder / "variants")
    rows = {row[0].text: row for row in section.tables[0].blocks[0].rows}
    study = Results.open(study_folder, say=silent)
    for row in (STATIC, DISTRIBUTED):
        means = []
        spec = choose(study, "tiny", row).spec
        for seed in PLAN.seeds:
            path = study_folder / "runs" / replace(spec, seed=seed).key / "test.csv.gz"
            with gzip.open(path, "rt", newline="") as file:
                values = [float(line[MEASURE]) for line in csv.DictReader(file)]
            means.append(sum(values) / len(values))
        assert rows[row.name][2].value == pytest.approx(sum(means) / len(means))
        assert rows[row.name][3].value == pytest.approx(abs(means[0] - means[1]) / 2**0.5)


def test_a_sweep_is_counted_and_its_choice_is_devs(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    found = sweep(study, "tiny", STATIC)
    assert [value for value, _ in found.points] == list(PLAN.margins)
    assert all(result.steps == 2 for _, result in found.points)
    chosen = choose(study, "tiny", STATIC)
    highest = {value: max(v[MEASURE] for step, v in result.curve if step) for value, result in found.points}
    assert highest[chosen.tuned_to or 0.0] == max(highest.values())
    row = variants(study).own["tiny"].rows[STATIC]
    own = [study.run(replace(chosen.spec, seed=seed)) for seed in PLAN.seeds]
    trained = sum(result.seconds * result.best_step / result.steps for result in own) / len(own)
    assert row.seconds == pytest.approx(trained + sum(result.seconds for _, result in found.points))
    assert row.sweep_seconds == pytest.approx(found.seconds)
    assert choose(study, "tiny", CONTRASTIVE).tuned_to in PLAN.temperatures


def test_a_teachers_margins_are_scaled_as_dev_chooses(study_folder: Path, open_study: Open) -> None:
    """Of their natural scale, which brings 99% of them within 1; each row has a sweep of its own, which is counted."""
    study = open_study(study_folder)
    results = study.results
    data = study.training.prepared("tiny", taught=True)
    large = Triplets(data / "triplets").large_margin()
    assert large
    for row in (row for row in TEACHERS if row not in TAUGHT_BY_MARGIN_MSE):
        found = sweep(results, "tiny", row)
        assert [result.spec and result.spec.teacher_scale for _, result in found.points] == list(PLAN.teacher_scales)
        for scale, result in found.points:
            assert result.spec
            second = Path("unused") if row.spec(study.plan, "tiny", 1e-3).in_batch else None
            wanted = teacher_scale(result.spec, data, "cosine")
            told = run_settings(result.spec, study.plan, wanted, second).loss.teacher_scale
            assert (told or 1 / large) == pytest.approx(scale / large)
        assert choose(results, "tiny", row).tuned_to == found.best()
    points = [result for _, result in sweep(results, "tiny", TEACHERS[0]).points]
    assert points[0].curve != points[1].curve
    section = Section.load(study_folder / "baselines")
    (cells,) = (row for row in section.tables[0].blocks[1].rows if row[0].text == "MarginMSE")
    chosen = choose(results, "tiny", TEACHERS[0])
    assert cells[1].text == f"teacher scale {chosen.tuned_to:g}, rate {chosen.spec.rate:g}"
    assert float(cells[6].value or 0) > sum(result.seconds for result in points)


def test_a_model_that_is_needed_again_leaves_what_was_measured_as_it_is(
    study_folder: Path, open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teachers and table 2 need models of runs whose numbers other tables have printed."""
    out = tmp_path / "study"
    shutil.copytree(study_folder, out)
    study = open_study(out)
    spec = choose(study.results, "tiny", DISTRIBUTED).spec
    shutil.rmtree(out / "work" / "fits", ignore_errors=True)
    before = {path: path.read_bytes() for path in (out / "runs").rglob("*") if path.is_file()}

    def killed(*arguments: Any, **others: Any) -> None:
        train(*arguments, **others)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module.loop, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            study.model(spec)
    model = study.model(spec)
    assert model.parent.name == spec.key
    assert study.model(spec) == model
    assert {path: path.read_bytes() for path in (out / "runs").rglob("*") if path.is_file()} == before
    assert list((out / "work").glob(f"*/{spec.key}*/best")) == [model]


def test_a_grid_of_one_is_no_sweep(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    study.plan = replace(PLAN, teacher_scales=(1.0,))
    chosen = choose(study, "tiny", TEACHERS[0])
    assert (chosen.tuned_to, sweep_of(study, chosen)) == (1.0, None)


def one_digit(content: bytes) -> bytes:
    """The content with another last digit, which no reader could notice by itself."""
    *before, digit, after = re.split(rb"(\d)(?=\D*$)", content)
    return b"".join([*before, b"3" if digit != b"3" else b"4", after])


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("runs/bm25/run.json", lambda _: b"{no", "not a header that remargin wrote; delete"),  # only claims need it
        ("runs/bm25/run.json", one_digit, "damaged"),
        ("runs/*/targets.csv.gz", lambda _: b"{no", "damaged"),
    ],
)
def test_damaged_files_are_named(
    name: str, damage: Callable[[bytes], bytes], words: str, study_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    damaged = list(out.glob(name))
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=words) as refused:
        draw_experiments(Results.open(out, say=silent), ["target-evolution"])
    assert any(str(path) in str(refused.value) for path in damaged)


def test_the_texts_of_queries_are_there_without_the_collection(study_folder: Path, tmp_path: Path) -> None:
    """As long as the study's own work folder is, which is not published."""
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("fits", "again", "data", "taught"))
    assert EXPERIMENTS["variants"].section(Results.open(out, say=silent)) == Section.load(study_folder / "variants")
    assert any(Results.open(out, say=silent).queries().values())


def test_table_3_does_not_ask_for_the_scores_of_table_5(study_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(study_folder, out, ignore=shutil.ignore_patterns("work"))
    for path in out.glob("runs/*/run.json"):
        header = read_header(path, dict, RUN_FORMAT, "")
        write_header(path, {**header, "scores": {k: v for k, v in header["scores"].items() if "zero" not in k}})
    for name in ("variants", "baselines"):
        made = EXPERIMENTS[name].section(Results.open(out, say=silent))
        assert made == without_texts(Section.load(study_folder / name))
    with pytest.raises(InputError, match="no backbone has all runs"):
        EXPERIMENTS["zero-shot"].section(Results.open(out, say=silent))


def test_the_scores_of_a_benchmark_of_several_parts_are_found_again(study_folder: Path, tmp_path: Path) -> None:
    """Under whatever name it was given."""
    header = read_header(study_folder / "study.json", dict, FORMAT, "")
    assert header["stems"] == {"email,logging": ["email,logging"]}
    header |= {"zero_shot": ["forums", "SCF"], "stems": {"forums": ["forums-android", "forums-english"]}}
    write_header(tmp_path / "study.json", header)
    study = Results.open(tmp_path, say=silent)
    assert [study.stems(column) for column in study.columns] == [["forums-android", "forums-english"], ["SCF"]]


def test_a_run_that_is_measured_elsewhere_keeps_what_it_was_trained_on(
    study_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Results.open(study_folder, say=silent)
    spec = choose(study, "tiny", DISTRIBUTED).spec
    shutil.copytree(study.run(spec).folder, tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    monkeypatch.setattr(results, "hardware", lambda: "another machine")
    result = Result.load(tmp_path / "run", spec)
    assert result is not None
    result.save()
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert Result(None, tmp_path).about["hardware"] == "another machine"
    with pytest.raises(InputError, match=r"run.json: is of another run than its name says"):
        Result.load(tmp_path / "run", replace(spec, seed=7))
    result.curve[-1][1].pop("nDCG@10")
    result.save()
    with pytest.raises(InputError, match=r"run.json: its validations are not all by the same measures"):
        Result.load(tmp_path / "run", spec)


def test_triplets_are_counted_as_they_were_seen(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    result = study.run(choose(study, "tiny", DISTRIBUTED).spec)
    assert (result.steps, result.triplets) == (4, 64)
    assert result.best_triplets == result.best_step * PLAN.batch_size
    topics = [
        header
        for path in study_folder.glob("runs/*/run.json")
        if (spec := (header := json.loads(path.read_text()))["spec"])
        and (spec["sampler"], spec["triplets"]) == ("tas-balanced", PLAN.triplets)
    ]
    assert topics
    assert all(header["steps"] == 6 and 64 <= header["triplets"] <= 96 for header in topics)  # not full, but more


def test_the_learning_rate_is_devs_choice_from_one_grid(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    spec = choose(study, "tiny", DISTRIBUTED).spec
    best = {rate: study.run(replace(spec, rate=rate)).dev for rate in PLAN.rates}
    assert best[spec.rate] == max(best.values())


def test_damaged_scores_are_noticed(study_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(study_folder, tmp_path / "s", ignore=shutil.ignore_patterns("work"))
    (tmp_path / "s" / "runs" / "bm25" / "test.csv.gz").write_bytes(b"other")
    with pytest.raises(InputError, match="is not as it was written"):
        Results.open(tmp_path / "s", say=silent).bm25(TEST)


def test_without_data_nothing_is_trained(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    with pytest.raises(InputError, match="is not there"):
        study.run(DISTRIBUTED.spec(study.plan, "tiny", 0.5))


def test_a_single_test_query_is_refused_before_anything_is_trained(open_study: Open, tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "one", test_queries="q")
    for given in ({"data": str(folder), "also_test": []}, {"also_test": [str(folder)]}):
        study = open_study(tmp_path / str(len(given)), **given)
        with pytest.raises(InputError, match=r"one: one judged query in split 'test'; choose another collection"):
            run_experiments(study, ["static-margins", "variants"])
        assert not (study.out / "runs").exists()


def test_a_run_that_is_trained_again_and_killed_counts_as_not_done(
    study_folder: Path, open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else half a model would be measured in its place."""
    shutil.copytree(study_folder, tmp_path / "s")
    study = open_study(tmp_path / "s")
    spec = choose(study.results, "tiny", DISTRIBUTED).spec
    shutil.rmtree(study.work / "fits")

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.loop, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        study.run(replace(spec, seed=1), "last")
    assert not (tmp_path / "s" / "runs" / replace(spec, seed=1).key / "run.json").exists()


@pytest.mark.parametrize("given", [{"zero_shot": []}, {"also_test": []}])
def test_a_run_that_is_trained_again_is_measured_on_what_is_there(
    given: dict[str, Any], study_folder: Path, open_study: Open, tmp_path: Path
) -> None:
    """A study that goes on need not be told of all collections; what was measured on them is measured when it is."""
    shutil.copytree(study_folder, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "work" / "fits", ignore_errors=True)
    spec = choose(Results.open(tmp_path / "s", say=silent), "tiny", DISTRIBUTED).spec
    (tmp_path / "s" / "runs" / spec.key / "test.csv.gz").unlink()
    shutil.rmtree(tmp_path / "s" / "runs" / spec.key)
    whole = open_study(tmp_path / "s")
    before = whole.run(spec, *whole.results.tests, ZERO_SHOT).scores
    shutil.rmtree(tmp_path / "s" / "work" / "fits")
    less = open_study(tmp_path / "s", **given).run(spec, LAST).scores
    assert set(less) == {*before, LAST} - ({ZERO_SHOT} if "zero_shot" in given else {"test-email,logging"})
    again = open_study(tmp_path / "s").run(spec, *whole.results.tests, ZERO_SHOT).scores
    assert {what: list(files) for what, files in again.items() if what != LAST} == {
        what: list(files) for what, files in before.items()
    }


def test_a_plan_without_patience_has_none_whatever_the_preset(open_study: Open, tmp_path: Path) -> None:
    for patience in (None, 3):
        study = open_study(tmp_path / str(patience), plan=replace(PLAN, preset="paper", patience=patience))
        spec = DISTRIBUTED.spec(study.plan, "tiny", 1e-3)
        assert run_settings(spec, study.plan).patience == patience
        whole = replace(spec, early_stopping=False)  # as figures and sweeps run
        assert run_settings(whole, study.plan).patience is None


def test_tables_are_made_for_every_test_collection(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    assert list(study.tests.values()) == ["json,csv,string,textwrap", "email,logging"]
    _, what = study.tests
    _, further, published, _ = Section.load(study_folder / "variants").tables
    assert (further.title, published.title) == ("Target variants on email,logging", "Published for MS MARCO")
    spec = choose(study, "tiny", DISTRIBUTED).spec
    every = [study.run(replace(spec, seed=seed)).test(what)[MEASURE].values() for seed in PLAN.seeds]
    (row,) = (row for row in further.blocks[0].rows if row[0].text == "distributed")
    assert row[2].value == pytest.approx(sum(sum(scores) / len(scores) for scores in every) / len(every))
    titles = [table.title for table in Section.load(study_folder / "baselines").tables]
    assert titles[:2] == [f"tiny, measured on {name}" for name in study.tests.values()]
