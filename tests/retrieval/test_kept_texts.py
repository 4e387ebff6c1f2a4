"""An index keeps the texts of its documents: through updates, moves, and indexes of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import remargin
from remargin import BiEncoder, InputError
from remargin.data.ids import Ids, IdWriter
from remargin.files.headers import write_header
from remargin.retrieval.index_folder import HEADER, open_parts, read_index_header
from remargin.retrieval.kept_texts import KeptTexts, keep_texts
from remargin.retrieval.vectors import Vectors

TEXTS = {"d1": "how do margins adapt", "d2": "a file of text", "d3": "图书馆几点开门" * 50}
OTHERS = {"n1": "the value of a list", "n2": "to train a model"}


def write(folder: Path, texts: dict[str, str]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "queries.jsonl").touch()
    lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items()]
    (folder / "corpus.jsonl").write_text("".join(lines))
    return str(folder)


def shown(folder: Path, **options: Any) -> dict[str, str | None]:
    return {answer.id: answer.text for answer in remargin.ask("margins", folder, k=10, **options)}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("remargin")]


@given(some.lists(some.lists(some.none() | some.text(max_size=20), max_size=5), max_size=4))
def test_what_is_kept_is_read_again(tmp_path_factory: pytest.TempPathFactory, parts: list[list[str | None]]) -> None:
    folder, count = tmp_path_factory.mktemp("texts"), 0
    for part in [[], *parts]:
        assert list(keep_texts(folder, count, part)) == part
        count += len(part)
    kept = [text for part in parts for text in part]
    writer = IdWriter(folder)
    writer.add([f"d{i}" for i in range(count)])
    found = KeptTexts(folder, Ids(folder, **writer.close())).of([f"d{i}" for i in range(count + 1)])
    assert found == {f"d{i}": text for i, text in enumerate(kept) if text is not None}


@pytest.mark.parametrize("hybrid", ["off", 0.5])
def test_texts_follow_the_documents(
    tiny_encoder: Any, tmp_path: Path, hybrid: str | float, caplog: pytest.LogCaptureFixture
) -> None:
    data, other, folder = write(tmp_path / "data", TEXTS), write(tmp_path / "other", OTHERS), tmp_path / "index"
    built = remargin.index(folder, data=data, model=tiny_encoder("bert"), hybrid=hybrid)
    assert 0 < built.text_bytes < sum(len(text.encode()) for text in TEXTS.values())
    assert shown(folder) == TEXTS
    remargin.update(folder, data=other, keep_others=True)
    assert shown(folder) == TEXTS | OTHERS
    remargin.update(folder, delete=["d1"])
    changed = {"d2": "another text", "n1": OTHERS["n1"], "d1": "margins are back"}
    remargin.update(folder, data=write(tmp_path / "third", changed))
    assert shown(folder) == changed
    (tmp_path / "third" / "corpus.jsonl").unlink()
    assert shown(folder) == changed
    assert shown(folder, data=other) == {"n1": OTHERS["n1"], "d1": None, "d2": None}
    [line] = warnings(caplog)
    assert (
        line == f"2 documents are without their text, such as 'd1' (not in {other}); say where the texts are (--data)"
    )


def test_an_index_without_texts_says_which_it_lacks_and_follows_its_collection(
    tiny_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, folder = write(tmp_path / "data", TEXTS), tmp_path / "index"
    assert remargin.index(folder, data=data, model=tiny_encoder("bert"), texts=False).text_bytes == 0
    assert not (folder / "texts.bin").exists()
    moved = write(tmp_path / "moved", TEXTS)
    (tmp_path / "data" / "corpus.jsonl").unlink()
    assert set(shown(folder).values()) == {None}
    assert warnings(caplog)[0].startswith("3 documents are without their text, such as 'd1' (")
    caplog.clear()
    assert str(remargin.update(folder, data=moved)) == "Changes(added=0, replaced=0, deleted=0)"
    assert shown(folder) == TEXTS
    remargin.update(folder, data=write(tmp_path / "other", OTHERS), keep_others=True)
    assert shown(folder) == TEXTS | dict.fromkeys(OTHERS)
    assert [message.partition(",")[0] for message in warnings(caplog)] == ["2 documents are without their text"]


def test_vectors_have_no_texts_but_the_collection_beside_them_has(
    tiny_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, folder = write(tmp_path / "data", TEXTS), tmp_path / "index"
    vectors = remargin.encode(data, tiny_encoder("bert"), tmp_path / "vectors", passage_length="off")
    assert remargin.index(tmp_path / "bare", vectors=vectors).text_bytes == 0
    remargin.index(folder, vectors=vectors, data=data)
    model = BiEncoder.from_pretrained(tiny_encoder("bert"))
    remargin.update(folder, vectors=Vectors.of(model, OTHERS))
    (tmp_path / "data" / "corpus.jsonl").unlink()
    assert shown(folder) == TEXTS | dict.fromkeys(OTHERS)
    assert [message.partition(" (")[0] for message in warnings(caplog)] == [
        "2 documents are without their text, such as 'n1'"
    ]
    with pytest.raises(InputError, match="an index is made of vectors, or of texts and a model"):
        remargin.index(tmp_path / "x", vectors=vectors, data=data, texts=False)


@pytest.mark.parametrize(("hybrid", "format"), [("off", "remargin-index-2"), (0.5, "remargin-index-3")])
def test_indexes_of_earlier_versions_are_read_and_updated(
    tiny_encoder: Any, tmp_path: Path, hybrid: str | float, format: str
) -> None:
    data, folder = write(tmp_path / "data", TEXTS), tmp_path / "index"
    remargin.index(folder, data=data, model=tiny_encoder("bert"), hybrid=hybrid, texts=False)
    header = {name: value for name, value in read_index_header(folder).items() if name != "texts"}
    write_header(folder / HEADER, {**header, "format": format})
    assert shown(folder) == TEXTS  # from the collection
    remargin.update(folder, data=write(tmp_path / "data", TEXTS | OTHERS))
    assert read_index_header(folder)["format"] == "remargin-index-4"
    assert open_parts(folder).texts is None
    assert shown(folder) == TEXTS | OTHERS
    header = dict(read_index_header(folder))
    write_header(
        folder / HEADER, {**header, "hybrid": {"weight": 0.5}} if hybrid == "off" else header | {"format": "x"}
    )
    with pytest.raises(InputError, match=r"hybrid and terms go together|format 'x', expected 'remargin-index-4'"):
        open_parts(folder)
