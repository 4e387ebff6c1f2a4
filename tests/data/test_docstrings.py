"""Docstrings as a collection: what is a pair, what is split how, and that nothing runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from remargin import Collection, InputError
from remargin.data.collection import open_source
from remargin.data.docstrings import Docstrings, find_code
from remargin.data.splits import split_of
from remargin.data.tables import Rejects

MODULE = '''
"""Tools for margins.

They live in this module, all of them together."""

raise RuntimeError("imported or run!")

class Margin:
    """How far apart two
    scores should be.

    A margin is set by the model itself, never by hand.
    """

    def adapt(self):
        """Adapt the margin.

        Looks at the documents and changes the margin accordingly.
        """

    def _private(self):
        """Not for users.

        This text is long enough but belongs to a private name."""

if True:
    async def later():
        """Do it later.

        Waits for the loop, then does what was asked of it."""

def short():
    """Too short.

    Not much."""

def nothing():
    pass

def copy():
    """Adapt a margin again.

    Looks at the documents and changes the margin   accordingly.
    """
'''


def names_in(*modules: str, split: str) -> str:
    """A module name that falls into a split."""
    return next(name for i in range(1000) if split_of(f"pkg.{(name := f'm{i}')}") == split and name not in modules)


def write_package(root: Path, **modules: str) -> Path:
    package = root / "pkg"
    package.mkdir(parents=True)
    for name, text in modules.items():
        (package / f"{name}.py").write_text(textwrap.dedent(text))
    return package


def test_what_a_pair_is(tmp_path: Path) -> None:
    name = names_in(split="train")
    package = write_package(tmp_path, **{name: MODULE, "test_it": MODULE})
    (package / "tests").mkdir()
    (package / "tests" / "more.py").write_text(MODULE)
    collection = Collection.load(f"docstrings:{package}", split="train")
    pairs = {
        (collection.queries[q], d.removeprefix(f"pkg.{name}")) for q, docs in collection.qrels.items() for d in docs
    }
    assert pairs == {
        ("Tools for margins.", ""),
        ("How far apart two scores should be.", ".Margin"),
        ("Adapt the margin.", ".Margin.adapt"),
        ("Adapt a margin again.", ".Margin.adapt"),  # the same body is one document
        ("Do it later.", ".later"),
    }
    assert collection.documents[f"pkg.{name}.later"] == (
        f"pkg.{name}.later\nWaits for the loop, then does what was asked of it."
    )
    assert collection.notes["identical documents merged"] == 1


def function(name: str, summary: str, body: str) -> str:
    return f'def {name}():\n    """{summary}\n\n    {body}\n    """\n\n'


def test_held_out_modules_and_what_repeats_them(tmp_path: Path) -> None:
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"
    train = names_in(split="train")
    other = names_in(train, split="train")
    dev, test = names_in(split="dev"), names_in(split="test")
    package = write_package(
        tmp_path,
        **{
            test: function("f", "Only in test.", words)
            + function("g", "Shared summary.", "one two three four five six"),
            dev: function("f", "Only in dev.", "seven eight nine ten eleven twelve"),
            train: function("f", "Only in train.", "entirely different words that nobody else has used here")
            + function("g", "Shared summary.", "these words are different but the summary is the same"),
            other: function("f", "Nearly a copy.", f"{words} omicron"),
        },
    )
    source = open_source(f"docstrings:{package}")
    found = {split: {j.document for j in source.judgments(split)} for split in source.splits()}
    assert found == {
        "train": {f"pkg.{train}.f"},
        "dev": {f"pkg.{dev}.f"},
        "test": {f"pkg.{test}.f", f"pkg.{test}.g"},
    }
    assert source.notes["pairs dropped because a held-out split has their query"] == 1
    assert source.notes["train pairs dropped as near-duplicates of held-out documents"] == 1
    assert len(list(source.documents())) == 6  # what is dropped from train stays findable


def test_a_file_that_cannot_be_parsed_is_named_or_skipped(tmp_path: Path) -> None:
    package = write_package(tmp_path, **{names_in(split="train"): MODULE, "broken": "def broken(:\n"})
    with pytest.raises(InputError, match=r"broken\.py:1: cannot be parsed"):
        Collection.load(f"docstrings:{package}", split="train")
    collection = Collection.load(f"docstrings:{package}", split="train", skip_bad=True)
    assert len(collection.queries) == 5
    assert collection.rejects.count == 1


def test_packages_are_found_without_importing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path, __init__="raise RuntimeError('imported!')", **{names_in(split="train"): MODULE})
    monkeypatch.syspath_prepend(tmp_path)
    assert Collection.load("docstrings:pkg", split="train").queries
    assert find_code("json.decoder").name == "decoder.py"
    assert find_code("stdlib").is_dir()


def test_a_package_without_docstrings_is_one_clear_line(tmp_path: Path) -> None:
    package = write_package(tmp_path, empty="x = 1\n")
    with pytest.raises(InputError, match="no docstrings with a summary line and more"):
        Collection.load(f"docstrings:{package}")


def test_the_standard_library_is_a_collection() -> None:
    source = Docstrings(["json", "email", "logging", "asyncio", "concurrent"], Rejects())
    documents = [text.id for text in source.documents()]
    assert "logging.Logger.debug" in documents
    assert len(documents) == len(set(documents)) > 200
    assert source.splits() == ["train", "dev", "test"]
    files = {text.id: text.file for text in source.documents()}
    modules = {split: {files[j.document] for j in source.judgments(split)} for split in source.splits()}
    assert not modules["train"] & (modules["dev"] | modules["test"])
    queries = {split: {j.query for j in source.judgments(split)} for split in source.splits()}
    assert not queries["train"] & (queries["dev"] | queries["test"])
