"""A data set of the datasets package as --data: the collection that its rows make as a table."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, Features, Sequence, Value

from remargin import Collection, InputError, fit
from remargin.data.collection import open_source

ROWS = [(f"how is number {n} made?", f"number {n} is {n} times one") for n in range(60)]


def saved(folder: Path, **columns: Any) -> Path:
    Dataset.from_dict(columns).save_to_disk(folder)
    return folder


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    questions, answers = zip(*ROWS, strict=True)
    return saved(tmp_path / "faq", number=list(range(60)), question=questions, answer=answers)


def test_it_is_the_collection_of_its_table(faq: Path, tmp_path: Path) -> None:
    with open(tmp_path / "faq.csv", "w", newline="") as out:
        csv.writer(out).writerows([("question", "answer"), *ROWS])
    for split in ("train", "test"):
        ours = Collection.load(f"datasets:{faq}", split)
        table = Collection.load(f"pairs:{tmp_path / 'faq.csv'}", split)
        assert len(ours.documents) == 60
        assert (ours.documents, ours.queries, ours.qrels) == (table.documents, table.queries, table.qrels)
    swapped = Collection.load(f"datasets:{faq}?query=answer&document=question", "train")
    assert set(swapped.documents.values()) == {question for question, _ in ROWS}


def test_splits_of_the_data_set_are_named_or_put_together(tmp_path: Path) -> None:
    parts = {
        name: Dataset.from_dict({"anchor": [q], "positive": [p], "negative": [p]})
        for name, (q, p) in zip("ab", ROWS, strict=False)
    }
    DatasetDict(parts).save_to_disk(tmp_path / "two")
    for split, texts in (("a", 1), ("b", 1), ("a+b", 2)):
        assert len(list(open_source(f"datasets:{tmp_path}/two?split={split}").documents())) == texts
    with pytest.raises(InputError, match=r"two: several splits; it has a, b; add '\?split=NAME'.* 'split=a\+b'"):
        Collection.load(f"datasets:{tmp_path}/two")
    with pytest.raises(InputError, match=r"no split 'c'; it has a, b"):
        Collection.load(f"datasets:{tmp_path}/two?split=a+c")
    DatasetDict({"train": parts["a"]}).save_to_disk(tmp_path / "one")
    assert len(list(open_source(f"datasets:{tmp_path}/one").documents())) == 1


def test_a_folder_of_data_files_is_read_by_load_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "files"
    folder.mkdir()
    with open(folder / "train.csv", "w", newline="") as out:
        csv.writer(out).writerows([("question", "answer"), *ROWS])
    assert len(Collection.load(f"datasets:{folder}", "train").documents) == 60


def test_what_is_wrong_is_said_in_one_line(faq: Path, tmp_path: Path, remargin: Callable[..., Any]) -> None:
    three = saved(tmp_path / "three", a=["x"], b=["y"], c=["z"])
    numbers = saved(tmp_path / "numbers", query=[1, 2], document=["a", "b"])
    texts = Features(query=Value("string"), document=Sequence(Value("string")))
    lists = Dataset.from_dict({"query": ["a"], "document": [["b"]]}, features=texts)
    lists.save_to_disk(tmp_path / "lists")
    (tmp_path / "empty").mkdir()
    (faq / "data-00000-of-00001.arrow").write_bytes(b"\0" * 100)
    for data, problem in {
        f"datasets:{three}": r"cannot tell the query and document columns among 'a', 'b', 'c'; write it as 'datasets:",
        f"datasets:{three}?query=a&document=d": r"no column 'd' among 'a', 'b', 'c'",
        f"datasets:{three}?query=a&document=b&split=test": r"no split 'test': it has none; leave split= out",
        f"datasets:{three}?wrong=a&query=a&document=b": r"cannot read .*wrong",
        f"datasets:{numbers}": r":1: column 'query' is not text",
        f"datasets:{tmp_path}/lists": r":1: column 'document' is not text",
        f"datasets:{tmp_path}/missing": r"missing: no such folder",
        f"datasets:{tmp_path}/empty": r"empty: cannot be read \(",
        f"datasets:{faq}": r"faq: cannot be read \(",
        "datasets:someone/some-name": r"no such folder, and the hub did not help \(.*check the name, or your",
        "datasets:": r"nothing after datasets:",
    }.items():  # fmt: skip
        result = remargin("prepare", "--data", data, "--model", "m", "--out", tmp_path / "out")
        assert result.returncode == 2, data
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        with pytest.raises(InputError, match=problem):
            Collection.load(data, "train")


def test_fit_trains_on_it(faq: Path, tiny_model: Any, tmp_path: Path) -> None:
    data = f"datasets:{faq}"
    fitted = fit(data, str(tiny_model()), tmp_path / "run", also=data, steps=2, batch_size=8, say=lambda _: None)
    assert fitted.steps == 2
    assert (tmp_path / "run" / "model" / "modules.json").is_file()


def test_a_damaged_file_is_refused_and_crashes_nothing(faq: Path) -> None:
    """Cut anywhere, or with numbers in it that lead outside: Arrow itself would not notice all of them."""
    arrow = faq / "data-00000-of-00001.arrow"
    whole = arrow.read_bytes()
    for size in range(0, len(whole) - 16, len(whole) // 10):
        arrow.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"faq.*: cannot be read \("):
            Collection.load(f"datasets:{faq}", "train")
    read = 0
    for at in range(400, len(whole) - 16, len(whole) // 20):
        arrow.write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        with contextlib.suppress(InputError):
            Collection.load(f"datasets:{faq}", "train")
            read += 1
    assert read < 8  # where only numbers that nobody reads were overwritten


@pytest.mark.parametrize("file", ["../other.csv", "/etc/passwd", "https://example.org/a.csv", "hf://datasets/a/b.csv"])
def test_files_elsewhere_are_not_followed(file: str, faq: Path, tmp_path: Path) -> None:
    state = json.loads((faq / "state.json").read_text())
    (faq / "state.json").write_text(json.dumps(state | {"_data_files": [{"filename": file}]}))
    with pytest.raises(InputError, match=rf"state.json: names '{re.escape(file)}', which is no file in the folder"):
        open_source(f"datasets:{faq}")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "README.md").write_text(f"---\nconfigs:\n- data_files:\n  - path: {file}\n---\nA card.\n")
    with pytest.raises(InputError, match=r"README.md: names .*, which is no file in the folder; put the file into"):
        open_source(f"datasets:{tmp_path / 'plain'}")
    (tmp_path / "plain" / "README.md").write_text("---\nconfigs: " + "[" * 5000 + "\n---\n")
    with pytest.raises(InputError, match=r"README.md: is damaged"):
        open_source(f"datasets:{tmp_path / 'plain'}")
