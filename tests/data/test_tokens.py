"""The tokenizer and the token store."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from remargin.data.ids import Ids, IdWriter
from remargin.data.tokens import TokenStore, TokenWriter
from remargin.errors import InputError
from remargin.model.tokenizer import Tokenizer

TEXTS = ["how do margins adapt", "the query", "a document returns the value of the query " * 30, "x"]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Any) -> Tokenizer:
    return Tokenizer.from_pretrained(tiny_model("bert"))


@pytest.mark.parametrize("length", [3, 8, 30, 400])
def test_tokens_are_those_of_transformers(length: int, tiny_model: Any, minilm: Path) -> None:
    for folder in (tiny_model("bert"), tiny_model("roberta"), minilm):
        theirs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, truncation=True, max_length=length)
        whole = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, verbose=False)
        tokens, truncated = Tokenizer.from_pretrained(folder)(TEXTS, length)
        parts = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
        assert [part.tolist() for part in parts] == theirs["input_ids"]
        assert truncated == sum(len(ids) > length for ids in whole["input_ids"])


def test_a_length_without_room_for_text_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"a length of 2 tokens leaves no room for text; .* at least 3"):
        tokenizer(TEXTS, 2)


def test_threads_cut_at_lengths_of_their_own(tokenizer: Tokenizer) -> None:
    def longest(length: int) -> set[int]:
        return {int(tokenizer(["text " * 30] * 20, length)[0].lengths.max()) for _ in range(200)}

    lengths = [5, 9, 14, 20]
    with ThreadPoolExecutor(len(lengths)) as pool:
        assert list(pool.map(longest, lengths)) == [{length} for length in lengths]


def test_a_tokenizer_that_was_used_goes_to_other_processes(tokenizer: Tokenizer) -> None:
    (tokens, _), (again, _) = tokenizer(["a text"], 9), pickle.loads(pickle.dumps(tokenizer))(["a text"], 9)
    assert again.ids.tolist() == tokens.ids.tolist()


def test_the_fingerprint_is_the_tokenizers_and_not_how_it_was_used(tiny_model: Any, minilm: Path) -> None:
    one, other = (Tokenizer.from_pretrained(tiny_model("bert")) for _ in range(2))
    one(TEXTS, 10)
    assert one.fingerprint == other.fingerprint
    different = {one.fingerprint, Tokenizer.from_pretrained(tiny_model("roberta")).fingerprint}
    assert len(different | {Tokenizer.from_pretrained(minilm).fingerprint}) == 3


def test_a_tokenizer_without_a_vocabulary_is_refused(tiny_model: Any, tmp_path: Path) -> None:
    """transformers makes one up, in which every word is unknown."""
    import shutil

    shutil.copytree(tiny_model("bert"), tmp_path / "copy")
    (tmp_path / "copy" / "tokenizer.json").unlink()
    (tmp_path / "copy" / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"has no vocabulary|no tokenizer found"):
        Tokenizer.from_pretrained(tmp_path / "copy")


def test_the_tokenizer_of_an_old_sentence_transformers_folder(tiny_model: Any, tmp_path: Path) -> None:
    import json
    import shutil

    shutil.copytree(tiny_model("bert"), tmp_path / "old" / "0_Transformer")
    module = {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "old" / "modules.json").write_text(json.dumps([module]))
    expected = Tokenizer.from_pretrained(tiny_model("bert")).fingerprint
    assert Tokenizer.from_pretrained(tmp_path / "old").fingerprint == expected


def test_a_folder_that_is_not_there_is_not_looked_up_on_the_hub() -> None:
    with pytest.raises(InputError, match=r"\./nowhere: no such folder"):
        Tokenizer.from_pretrained("./nowhere")


def test_a_model_without_a_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer found for model") as error:
        Tokenizer.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)


@given(rows=st.lists(st.integers(0, 49), max_size=30), seed=st.integers(0, 5))
@settings(max_examples=30)
def test_any_rows_come_back_in_any_order(rows: list[int], seed: int, store50: tuple[TokenStore, list[Any]]) -> None:
    store, expected = store50
    taken = store.take(rows)
    assert taken.lengths.tolist() == [len(expected[row]) for row in rows]
    assert taken.ids.tolist() == [token for row in rows for token in expected[row]]


@pytest.fixture(scope="module")
def store50(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, list[Any]]:
    texts = [" ".join(["margins"] * (1 + i * 7 % 13) + ["x"] * (i % 4)) for i in range(50)]
    folder = tmp_path_factory.mktemp("store") / "documents"
    writer = TokenWriter(folder, tokenizer, length=12)
    for start in range(0, 50, 7):  # in several batches
        writer.add([f"d{i}" for i in range(start, min(start + 7, 50))], texts[start : start + 7])
    writer.close()
    expected = [tokenizer([text], 12)[0].ids.tolist() for text in texts]
    assert len({len(ids) for ids in expected}) > 5
    return TokenStore(folder), expected


def test_the_store_knows_its_ids_and_how_it_was_made(store50: tuple[TokenStore, list[Any]], tiny_model: Any) -> None:
    store, expected = store50
    assert len(store) == 50
    assert list(store.ids) == [f"d{i}" for i in range(50)]
    assert store.header["tokens"] == sum(map(len, expected))
    tokenizer = Tokenizer.from_pretrained(tiny_model("bert"))
    store.require(tokenizer, 12, "")
    with pytest.raises(InputError, match="made with length 12, not 13"):
        store.require(tokenizer, 13, "")
    with pytest.raises(InputError, match="made with prefix '', not 'query: '"):
        store.require(tokenizer, 12, "query: ")
    with pytest.raises(InputError, match="made with another tokenizer; run `remargin prepare` again"):
        store.require(Tokenizer.from_pretrained(tiny_model("roberta")), 12, "")
    with pytest.raises(IndexError):
        store.take([50])


def test_damage_is_noticed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    TokenStore.write(folder, ["a", "b"], TEXTS[:2], tokenizer, 30).verify()
    tokens = folder / "tokens.bin"
    content = tokens.read_bytes()
    tokens.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(InputError, match=r"tokens\.bin: damaged"):
        TokenStore(folder).verify()
    tokens.write_bytes(content[:-2])
    with pytest.raises(InputError, match=r"tokens\.bin: .* bytes long, its header says"):
        TokenStore(folder)


def test_a_prefix_is_put_before_every_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = TokenStore.write(tmp_path / "s", ["a"], ["the value"], tokenizer, 30, prefix="query ")
    assert store.take([0]).ids.tolist() == tokenizer(["query the value"], 30)[0].ids.tolist()


def test_an_empty_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = TokenStore.write(tmp_path / "s", [], [], tokenizer, 30)
    assert len(store) == 0
    assert store.take([]).ids.tolist() == []
    assert store.ids.rows(["x"]).tolist() == [-1]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), unique=True, max_size=40), st.data())
@settings(max_examples=30)
def test_ids_are_found_again(ids: list[str], data: st.DataObject) -> None:
    import tempfile

    asked = data.draw(st.lists(st.one_of(st.sampled_from([*ids, "missing"]), st.text(max_size=5)), max_size=20))
    asked = [text for text in asked if not any(0xD800 <= ord(c) < 0xE000 for c in text)]
    with tempfile.TemporaryDirectory() as folder:
        writer = IdWriter(Path(folder))
        writer.add(ids[:10])
        writer.add(ids[10:])
        table = Ids(Path(folder), **writer.close())
        assert list(table) == ids
        assert table.rows(asked).tolist() == [ids.index(id) if id in ids else -1 for id in asked]


def test_ids_survive_colliding_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remargin.data.ids._hashes", lambda ids: np.full(len(ids), 7, np.uint64))
    writer = IdWriter(tmp_path)
    writer.add(["a", "b", "c"])
    table = Ids(tmp_path, **writer.close())
    assert table.rows(["c", "d", "a"]).tolist() == [2, -1, 0]
