"""A folder of text files as a collection: what is a query, what is split how, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, InputError, ask, index
from remargin.data.collection import open_source
from remargin.data.source import Source
from remargin.data.splits import split_of

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def pairs(source: Source) -> dict[str, set[str]]:
    queries = {text.id: text.text for text in source.queries()}
    found: dict[str, set[str]] = {}
    for split in source.splits():
        for judgment in source.judgments(split):
            found.setdefault(queries[judgment.query], set()).add(judgment.document)
    return found


def texts(source: Source) -> dict[str, str]:
    return {text.id: text.text for text in source.documents()}


def test_headings_without_headings_below_them_are_queries(tmp_path: Path) -> None:
    body = "Money comes back within 14 days of the order."
    write(
        tmp_path,
        refunds_md=f"# Handbook\nWelcome to it.\n## 1.2 Refunds\nGeneral words.\n### Deadlines\n{body}\n"
        f"### Handbook\nRead it all, from its first to its last page.\n## See also\nThe other pages, all of them.\n",
        sub__my_rst="Shipping\n========\nWe ship on every day but Sunday.\n\nContact\n-------\nCall us.\n",
    )
    source = open_source(f"files:{tmp_path}")
    assert pairs(source) == {"Deadlines": {"refunds.md#deadlines"}, "Handbook": {"refunds.md#handbook-1"}}
    assert texts(source) == {
        "refunds.md#handbook": "Handbook\nWelcome to it.",
        "refunds.md#12-refunds": "Handbook > 1.2 Refunds\nGeneral words.",
        "refunds.md#deadlines": f"Handbook > 1.2 Refunds\n{body}",  # not its own heading, which is the query
        "refunds.md#handbook-1": "1.2 Refunds\nRead it all, from its first to its last page.",
        "refunds.md#see-also": "Handbook > See also\nThe other pages, all of them.",
        "sub/my.rst#shipping": "Shipping\nWe ship on every day but Sunday.",
        "sub/my.rst#contact": "Shipping > Contact\nCall us.",
    }
    assert {note: count for note, count in source.notes.items() if count} == {
        "files": 2,
        "headings that have headings below them, which are no queries": 3,
        "headings that say too little or are those of many sections, which are no queries": 1,
        "sections of fewer than 5 words, whose headings are no queries": 1,
        "sections": 7,
    }


def test_headings_of_many_sections_are_no_queries_and_copies_are_one_document(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.md").write_text(
            f"## Installation\nHow to install the part that is called {name}.\n## Help\nThe same for each of them.\n"
            f"## About {name}\nWhat {name} is good for, in some words.\n"
        )
    source = open_source(f"files:{tmp_path}")
    assert pairs(source) == {"Help": {"a.md#help"}, **{f"About {n}": {f"{n}.md#about-{n}"} for n in "abcd"}}
    assert texts(source)["b.md#installation"].startswith("Installation\nHow")
    assert source.notes["identical sections merged"] == 3


def test_a_heading_of_two_sections_has_two_relevant_documents(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.md").write_text(f"## Opening hours\nFrom nine to five, says the file {name}.\n")
    assert pairs(open_source(f"files:{tmp_path}")) == {"Opening hours": {"a.md#opening-hours", "b.md#opening-hours"}}


def test_the_first_line_of_a_plain_text_finds_its_parts_if_they_are_few(tmp_path: Path) -> None:
    paragraph = " ".join(f"word{i}" for i in range(210))
    write(tmp_path, few_txt=f"Refund rules\n\n{paragraph}\n\n{paragraph} more", no_txt="just a sentence, and no more.")
    (tmp_path / "many.txt").write_text("Minutes\n\n" + "\n\n".join(f"{paragraph} {i}" for i in range(9)))
    source = open_source(f"files:{tmp_path}")
    assert pairs(source) == {"Refund rules": {"few.txt#refund-rules", "few.txt#refund-rules-1"}}
    assert texts(source)["many.txt#minutes-8"].startswith("Minutes\nword0")
    assert texts(source)["no.txt"] == "just a sentence, and no more."


def name_in(split: str, *others: str) -> str:
    return next(name for i in range(1000) if split_of(name := f"f{i}.md") == split and name not in others)


def test_splits_are_files_and_train_repeats_nothing_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    train, dev, test = name_in("train"), name_in("dev"), name_in("test")
    other = name_in("train", train)
    (tmp_path / "docs" / test).write_text(f"# Greek\n{WORDS}\n# Shared heading\none two three four five six\n")
    (tmp_path / "docs" / dev).write_text("# Only in dev\nseven eight nine ten eleven twelve\n")
    (tmp_path / "docs" / train).write_text("# Only here\nentirely different words which nobody else has used\n")
    (tmp_path / "docs" / other).write_text(
        f"# Almost Greek\n{WORDS} omicron\n# Shared heading\nwords that differ although the heading is the same\n"
    )
    source = open_source("files:docs")
    found = {split: {judgment.document for judgment in source.judgments(split)} for split in source.splits()}
    assert found == {
        "train": {f"{train}#only-here"},
        "dev": {f"{dev}#only-in-dev"},
        "test": {f"{test}#greek", f"{test}#shared-heading"},
    }
    assert source.notes["pairs dropped because a held-out split has their query"] == 1
    assert source.notes["train pairs dropped as near-duplicates of held-out documents"] == 1
    assert len(texts(source)) == 6
    monkeypatch.chdir(tmp_path / "docs")
    assert {j.document for j in open_source("files:.").judgments("test")} == found["test"]  # wherever the folder is


@pytest.mark.parametrize("files", [1, 2, 3, 5])
def test_few_files_have_all_splits(files: int, tmp_path: Path) -> None:
    for number in range(files):
        sections = (f"# Topic {number} {i}\n" + f"word{number}{i} " * 9 for i in range(12))
        (tmp_path / f"{number}.md").write_text("\n".join(sections))
    source = open_source(f"files:{tmp_path}")
    assert all(list(source.judgments(split)) for split in ("train", "dev", "test"))


def test_what_is_no_text_is_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, good_md="# Refunds\nWithin 14 days of the order.\n", a_pdf="%PDF")
    write(
        tmp_path, node_modules__x_md="# No\n", venv__lib__x_md="# No\n", venv__pyvenv_cfg="", requirements_txt="torch"
    )
    write(tmp_path / "run", config_yaml="", metrics_csv="", report_html="<h1>No</h1>no")
    (tmp_path / ".hidden.md").write_text("# No")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("# No")
    (tmp_path / "binary.txt").write_bytes(b"\x00\x01\x02" * 99)
    (tmp_path / "sjis.txt").write_bytes("これは文章です".encode("shift-jis") * 9)
    (tmp_path / "west.txt").write_bytes("Grüße an alle, die das hier lesen".encode("cp1252"))
    (tmp_path / "wide.txt").write_text("Größe", encoding="utf-16")
    (tmp_path / "old.html").write_bytes('<meta charset="shift_jis"><p>これは文章です'.encode("shift-jis"))
    (tmp_path / "nowhere.md").symlink_to(tmp_path / "missing.md")
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    with open(tmp_path / "huge.txt", "wb") as file:
        file.truncate(11 << 20)
    source = open_source(f"files:{tmp_path}")
    assert texts(source) == {
        "good.md#refunds": "Within 14 days of the order.",
        "old.html": "これは文章です",
        "west.txt": "Grüße an alle, die das hier lesen",
        "wide.txt": "Größe",
    }
    counted = {
        "files that are not text, or in no known encoding, left out": 2,
        "files read as Windows-1252, as they are not UTF-8": 1,
        "files that cannot be read, left out": 1,
        "files of more than 10 MiB, left out": 1,
        "folders that are links, not followed": 1,
    }
    assert counted.items() <= source.notes.items()
    assert source.notes["files"] == 4
    assert len(caplog.messages) == len(counted)
    assert any(f"left out: 2, the first is {tmp_path / 'binary.txt'}" in message for message in caplog.messages)


def test_names_of_files_make_ids_that_run_files_can_hold(tmp_path: Path) -> None:
    (tmp_path / "my own 100%.md").write_text("# Größe & Maß?\nHow large it is, in some words.\n# Größe & Maß\nagain\n")
    (tmp_path / "日本.md").write_text("# 返金\nお金は十四日以内に戻ります。\n")
    assert list(texts(open_source(f"files:{tmp_path}"))) == [
        "my%20own%20100%25.md#größe-maß",
        "my%20own%20100%25.md#größe-maß-1",
        "日本.md#返金",
    ]


def test_a_folder_without_text_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; check the path after files:"):
        open_source(f"files:{tmp_path / 'missing'}")
    with pytest.raises(InputError, match="nothing after files:"):
        open_source("files:")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(InputError, match=r"no text in it; it should have files such as \.md"):
        Collection.load(f"files:{tmp_path}")
    with pytest.raises(InputError, match=r"a\.pdf: not a kind of text file"):
        open_source(f"files:{tmp_path / 'a.pdf'}")
    write(tmp_path, b_md="no heading at all, but text")
    with pytest.raises(InputError, match="split 'train' has no judgments"):
        Collection.load(f"files:{tmp_path}", "train")


def test_files_can_be_indexed_and_asked(tmp_path: Path) -> None:
    write(tmp_path / "docs", a_md="# Refunds\nWithin 14 days of the order.\n# Shipping\nOn every day but Sunday.\n")
    index(tmp_path / "index", data=f"files:{tmp_path / 'docs'}", index="bm25")
    [answer] = ask("which day do you ship?", tmp_path / "index", k=1)
    assert (answer.id, answer.text) == ("a.md#shipping", "On every day but Sunday.")


def test_a_beir_folder_is_told_from_a_folder_of_files(tmp_path: Path) -> None:
    write(tmp_path, a_md="# Refunds\nWithin 14 days of the order.\n")
    with pytest.raises(InputError, match=f"for a folder of text files write files:{tmp_path}"):
        Collection.load(tmp_path)


def test_prepare_says_what_was_counted(remargin: Any, tiny_model: Any, tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"{number}.md").write_text(f"# Topic {number}\n" + f"word{number} " * 9)
    arguments = ("prepare", "--data", f"files:{tmp_path / 'docs'}", "--model", tiny_model("bert"))
    done = remargin(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "files: 9\nsections: 9\n" in done.stdout
    assert json.loads((tmp_path / "out" / "remargin.json").read_text())["documents"] == 9
    refused = remargin(*arguments, "--out", tmp_path, "--overwrite")
    assert refused.returncode == 2
