"""study.json: a study does not go on with something else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, InputError
from remargin.files.headers import read_header, write_header
from remargin.study.header import FORMAT
from remargin.study.study import Study

from ..small_study import DATA, PLAN, Open, silent, write_beir


def test_another_plan_or_collection_is_refused(study_folder: Path, open_study: Open) -> None:
    with pytest.raises(InputError, match=r"is of another study: triplets was 64, is 65 now; choose another place"):
        open_study(study_folder, plan=replace(PLAN, triplets=65))
    with pytest.raises(
        InputError, match=r"is of another study: data was json,csv,string,textwrap, is email,json now, other judgments"
    ):
        open_study(study_folder, data="docstrings:email,json")
    with pytest.raises(InputError, match=r"two collections are called 'email,logging'; give each .* its own name"):
        open_study(study_folder, data="docstrings:email,logging")


def test_backbones_and_collections_that_would_share_files_are_refused(
    study_folder: Path, open_study: Open, tiny_model: Any, tmp_path: Path
) -> None:
    other = str(tiny_model("roberta"))
    with pytest.raises(InputError, match=r"two models are called 'e5-base'; give each model its own name"):
        open_study(tmp_path / "out", models={"e5 base": str(tiny_model()), "e5-base": other})
    open_study(tmp_path / "out", models={"e5 base": str(tiny_model())})
    with pytest.raises(InputError, match=r"two models are called 'e5-base'"):  # one now, one before
        open_study(tmp_path / "out", models={"e5-base": other})
    with pytest.raises(InputError, match=r"two collections are called 'x'; .* --also-test"):
        open_study(tmp_path / "new", also_test=["x=docstrings:json", "x=docstrings:csv"])
    with pytest.raises(InputError, match=r"two collections are called 'json,csv,string,textwrap'; .* --also-test"):
        open_study(tmp_path / "new", also_test=[DATA])


def test_what_a_study_is_tested_on_and_how_texts_are_cut_may_not_change(
    open_study: Open, tiny_model: Any, tmp_path: Path
) -> None:
    """Under the same names: its scores would be of two kinds."""
    folder = write_beir(tmp_path / "other")
    given: dict[str, Any] = {"zero_shot": [str(folder)], "also_test": ["other=docstrings:email"]}
    open_study(tmp_path / "out", **given)
    write_beir(tmp_path / "other", test_queries="r")
    (tmp_path / "out" / "runs").mkdir()
    with pytest.raises(InputError, match="is of another study: other judgments of other; choose another place"):
        open_study(tmp_path / "out", **given)
    write_beir(tmp_path / "other")
    shorter = BiEncoder.from_pretrained(tiny_model())
    shorter.query_length = 7
    shorter.save(tmp_path / "shorter")
    with pytest.raises(InputError, match="is of another study: other lengths or prefixes of tiny"):
        open_study(tmp_path / "out", **given, models={"tiny": str(tmp_path / "shorter")})
    header = read_header(tmp_path / "out" / "study.json", dict, FORMAT, "")
    older = {name: value for name, value in header.items() if name not in ("lengths", "tested_on")}
    write_header(tmp_path / "out" / "study.json", older)
    open_study(tmp_path / "out", **given)  # an older study does not know, and is told
    assert read_header(tmp_path / "out" / "study.json", dict, FORMAT, "") == header


def test_the_collection_must_have_all_splits(open_study: Open, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("query,document\nq,d\n")
    with pytest.raises(InputError, match="no judgments in split"):
        open_study(tmp_path / "out", data=f"pairs:{tmp_path}/pairs.csv")


def test_other_texts_under_the_same_ids_are_another_collection(tiny_model: Any, tmp_path: Path) -> None:
    def study() -> Study:
        return Study(tmp_path / "study", str(tmp_path / "beir"), {"tiny": str(tiny_model())}, PLAN, say=silent)

    for text, known in (("this one", True), ("this one", True), ("another", False)):
        write_beir(tmp_path / "beir", text)
        if known:
            study()
    study()  # it has no results yet, and is begun anew
    write_beir(tmp_path / "beir", "a third")
    for results in ("runs", "variants"):
        (tmp_path / "study" / results).mkdir()
        (tmp_path / "study" / results / "section.json").touch()
        with pytest.raises(InputError, match="is of another study: other texts"):
            study()
        shutil.rmtree(tmp_path / "study" / results)


def test_a_study_that_bad_input_stopped_begins_anew(tiny_model: Any, tmp_path: Path) -> None:
    """Nothing of the input that was wrong is used."""
    folder = write_beir(tmp_path / "beir")
    whole = (folder / "queries.jsonl").read_text()
    (folder / "queries.jsonl").write_text(f"{whole}\n{whole}")

    def begin() -> Study:
        study = Study(tmp_path / "study", str(folder), {"tiny": str(tiny_model())}, PLAN, say=silent)
        study.training.triplets()
        return study

    with pytest.raises(InputError, match="appears a second time"):
        begin()
    (tmp_path / "study" / "work").mkdir(exist_ok=True)
    (tmp_path / "study" / "work" / "triplets.tsv").write_text("of other texts")
    (folder / "queries.jsonl").write_text(whole)
    with pytest.raises(InputError, match="too few documents to draw negatives from"):  # not what lay there
        begin()
