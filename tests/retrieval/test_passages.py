"""Documents that are longer than the model reads: split into passages, of which the best counts."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, Collection, InputError, Run
from remargin.data.source import Text
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.index_folder import IndexFolder
from remargin.retrieval.vectors import Made, Vectors

LENGTH = 24
WORDS = [f"{word} {other}" for word in ("margin", "query", "value", "test") for other in ("list", "text", "a", "model")]
# Every third document has several passages, and what it is about is at its end.
DOCUMENTS = {
    f"d{i}": " ".join(WORDS[(i + k) % len(WORDS)] for k in range(14 if i % 3 == 0 else 2)) + f" number {i}"
    for i in range(30)
}
QUERIES = {"q1": "number 9", "q2": "query text of a model", "q3": "a value in the list"}


@pytest.fixture
def folder(tiny_encoder: Any) -> Path:
    path: Path = tiny_encoder("bert")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "data", DOCUMENTS)


def written(folder: Path, documents: dict[str, str]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", QUERIES)):
        lines = "".join(json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items())
        (folder / f"{name}.jsonl").write_text(lines)
    rows = "".join(f"{query}\td9\t1\n" for query in QUERIES)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def longer(folder: Path) -> list[str]:
    """The ids of the documents that have more tokens than `LENGTH` has room for."""
    tokenizer = BiEncoder.from_pretrained(folder).tokenizer
    return [id for id, text in DOCUMENTS.items() if tokenizer([text], 100)[0].lengths[0] > LENGTH]


def by_hand(model: BiEncoder) -> dict[str, dict[str, float]]:
    """The best similarity over passages that are cut and encoded one by one."""
    room = model.document_length - 2  # [CLS] and [SEP]
    scores: dict[str, dict[str, float]] = {}
    passages = {id: model.tokenizer.passages(text, room, room // 4) for id, text in DOCUMENTS.items()}
    assert {len(of_text) > 1 for of_text in passages.values()} == {True, False}
    for query, text in QUERIES.items():
        vector = model.encode_queries([text])[0]
        scores[query] = {
            id: max(float(model.encode_documents([passage])[0] @ vector) for passage in of_text)
            for id, of_text in passages.items()
        }
    return scores


def assert_scores(run: Run, expected: dict[str, dict[str, float]]) -> None:
    assert run.rankings.keys() == expected.keys()
    for query, scores in expected.items():
        assert run.rankings[query] == pytest.approx(scores, abs=1e-5)
        assert list(run.rankings[query].values()) == sorted(run.rankings[query].values(), reverse=True)


def test_a_document_scores_as_its_best_passage(
    folder: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In memory, in an index folder, after an update, and re-ranked."""
    expected = by_hand(BiEncoder.from_pretrained(folder, document_length=LENGTH))
    with caplog.at_level(logging.WARNING):
        run = remargin.search(data, model=folder, document_length=LENGTH)
    assert_scores(run, expected)
    line = f"{len(longer(folder))} of 30 documents have more than {LENGTH - 2} tokens: split into "
    assert line in caplog.text
    assert "; a document scores as its best passage" in caplog.text
    built = remargin.index(tmp_path / "index", data=data, model=folder, document_length=LENGTH)
    assert (built.documents, built.truncated) == (30, 0)
    assert built.rows > 30
    assert built.split is not None
    assert built.split.startswith(line)
    assert_scores(remargin.search(data, tmp_path / "index"), expected)
    assert_scores(remargin.rerank(data, folder, run, document_length=LENGTH), expected)
    some = dict(list(DOCUMENTS.items())[4:])
    remargin.update(tmp_path / "index", data=written(tmp_path / "less", some))
    assert remargin.update(tmp_path / "index", data=data).added == 4
    assert_scores(remargin.search(data, tmp_path / "index"), expected)


def test_switched_off_they_are_truncated(folder: Path, data: Path, tmp_path: Path) -> None:
    model, collection = BiEncoder.from_pretrained(folder, document_length=LENGTH), Collection.load(data)
    expected = model.encode_queries(list(QUERIES.values())) @ model.encode_documents(list(DOCUMENTS.values())).T
    as_scores = {q: dict(zip(DOCUMENTS, row.tolist(), strict=True)) for q, row in zip(QUERIES, expected, strict=True)}
    assert_scores(remargin.search(collection, model=model, passage_length="off"), as_scores)
    built = remargin.index(tmp_path / "index", data=data, model=model, passage_length="off")
    assert (built.rows, built.split) == (30, None)
    assert built.truncated == len(longer(folder)) == 10
    assert_scores(remargin.search(data, tmp_path / "index"), as_scores)


def test_without_a_long_document_nothing_changes(folder: Path, data: Path, tmp_path: Path) -> None:
    for name, options in (("auto", {}), ("off", {"passage_length": "off"})):
        remargin.index(tmp_path / name, data=data, model=folder, **options)  # type: ignore[arg-type]
    files = {name: sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("auto", "off")}
    relative = {name: [path.relative_to(tmp_path / name) for path in paths] for name, paths in files.items()}
    assert relative["auto"] == relative["off"]
    assert Path("owners.bin") not in relative["auto"]
    assert [p.read_bytes() for p in files["auto"]] == [p.read_bytes() for p in files["off"]]
    vectors = remargin.encode(data, folder, tmp_path / "vectors")
    assert (vectors.owners, vectors.made.passage_length) == (None, None)
    assert {p.name for p in (tmp_path / "vectors").iterdir()} >= {"vectors.bin", "hashes.bin"}
    assert not (tmp_path / "vectors" / "owners.bin").exists()


def test_a_resumed_encoding_has_the_same_bytes(
    folder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remargin.retrieval import encoding

    monkeypatch.setattr(encoding, "TEXTS_AT_ONCE", 7)
    model = BiEncoder.from_pretrained(folder, document_length=LENGTH)
    whole = remargin.encode(data, model, tmp_path / "whole")
    texts = [Text(id, text) for id, text in DOCUMENTS.items()]
    made = Made.by(model, str(data), passage_length="auto")

    def stopping() -> Any:
        yield from texts[:20]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_texts(model, stopping(), tmp_path / "again", made, only_longer=True)
    again = remargin.encode(data, model, tmp_path / "again")
    for name in ("vectors.bin", "owners.bin", "hashes.bin"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert whole.split == again.split


def test_in_memory_as_on_disk(folder: Path, data: Path, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(folder, document_length=LENGTH, document_prefix="document ")
    for passage_length in ("auto", "off", "5"):
        in_memory = Vectors.of(model, DOCUMENTS, str(data), passage_length=passage_length)
        on_disk = remargin.encode(data, model, tmp_path / passage_length, passage_length=passage_length)
        np.testing.assert_allclose(in_memory.matrix, on_disk.matrix, atol=1e-6)
        np.testing.assert_array_equal(
            np.arange(30) if in_memory.owners is None else in_memory.owners,
            np.arange(30) if on_disk.owners is None else on_disk.owners,
        )
        assert in_memory.made == on_disk.made


def test_an_index_keeps_its_lengths_and_prefixes(folder: Path, data: Path, tmp_path: Path) -> None:
    texts = {"query_length": 6, "document_length": 20, "query_prefix": "query ", "document_prefix": "document "}
    options: Any = dict(texts)
    remargin.index(tmp_path / "index", data=data, model=folder, **options)
    run = remargin.search(data, tmp_path / "index")
    assert_scores(run, remargin.search(data, model=BiEncoder.from_pretrained(folder, **options)).rankings)
    assert run.rankings != remargin.search(data, model=folder).rankings
    assert remargin.search(data, tmp_path / "index", **options).rankings == run.rankings
    assert remargin.search(data, tmp_path / "index", folder).rankings == run.rankings
    made = IndexFolder.read(tmp_path / "index").made
    assert (made.length, made.prefix, made.query_length, made.query_prefix) == (20, "document ", 6, "query ")
    for name, other in (("query_length", 7), ("document_length", 19), ("query_prefix", ""), ("document_prefix", "x ")):
        different: Any = {name: other}
        words = name.replace("_", " ")
        expected = (
            rf"index: the index was made with a {words} of .*, not {other!r}; leave out --{words.replace(' ', '-')}"
        )
        with pytest.raises(InputError, match=expected):
            remargin.search(data, tmp_path / "index", **different)
        with pytest.raises(InputError, match=expected):
            remargin.ask("a list", tmp_path / "index", **different)
    with pytest.raises(InputError, match="--passage-length does nothing for an index that is made already"):
        remargin.search(data, tmp_path / "index", passage_length="off")


def test_an_index_without_passages_says_what_an_update_truncates(
    folder: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = {id: text for id, text in DOCUMENTS.items() if id not in longer(folder)}
    remargin.index(tmp_path / "index", data=written(tmp_path / "short", short), model=folder, document_length=LENGTH)
    with caplog.at_level(logging.WARNING):
        remargin.update(tmp_path / "index", data=data)
    assert "10 of 10 new documents are longer than 24 tokens, and were truncated" in caplog.text
    vectors = remargin.encode(
        written(tmp_path / "more", {"x": DOCUMENTS["d0"]}), folder, tmp_path / "v", document_length=LENGTH
    )
    with pytest.raises(InputError, match=r"passage_length 22, not None; encode .* \(--passage-length off\)"):
        remargin.update(tmp_path / "index", vectors=vectors)


def test_short_documents_join_an_index_of_passages(folder: Path, data: Path, tmp_path: Path) -> None:
    """As if all had been indexed at once, though `encode` made no passages of them."""
    short = {f"s{i}": text for i, text in enumerate(DOCUMENTS[id] for id in DOCUMENTS if id not in longer(folder))}
    options: Any = {"model": folder, "document_length": LENGTH}
    on_disk = remargin.encode(written(tmp_path / "short", short), folder, tmp_path / "v", document_length=LENGTH)
    assert (on_disk.owners, on_disk.fits) == (None, LENGTH - 2)
    model = BiEncoder.from_pretrained(folder, document_length=LENGTH)
    remargin.index(tmp_path / "all", data=written(tmp_path / "both", {**DOCUMENTS, **short}), **options)
    expected = remargin.search(data, tmp_path / "all").rankings
    for name, vectors in (("disk", on_disk), ("memory", Vectors.of(model, short, passage_length="auto"))):
        remargin.index(tmp_path / name, data=data, **options)
        assert remargin.update(tmp_path / name, vectors=vectors).added == len(short)
        assert_scores(remargin.search(data, tmp_path / name), expected)


def test_longer_ones_do_not_join_an_index_of_shorter_passages(folder: Path, data: Path, tmp_path: Path) -> None:
    short = {f"s{i}": text for i, text in enumerate(DOCUMENTS[id] for id in DOCUMENTS if id not in longer(folder))}
    remargin.index(tmp_path / "index", data=data, model=folder, document_length=LENGTH, passage_length=LENGTH - 3)
    vectors = remargin.encode(written(tmp_path / "short", short), folder, tmp_path / "v", document_length=LENGTH)
    with pytest.raises(InputError, match=r"passage_length None, not 21; encode .* \(--passage-length 21\)"):
        remargin.update(tmp_path / "index", vectors=vectors)
    cut = remargin.encode(data, folder, tmp_path / "cut", document_length=LENGTH, passage_length="off")
    assert cut.fits is None  # some are longer


def test_passages_of_what(folder: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="passages of 'some' tokens; use auto, off, or a number"):
        remargin.encode(data, folder, tmp_path / "v", passage_length="some")
    with pytest.raises(InputError, match="--document-length does nothing for queries"):
        remargin.encode(data, folder, tmp_path / "v", kind="queries", document_length=9)
    with pytest.raises(InputError, match="--query-length does nothing for BM25"):
        remargin.search(data, "bm25", query_length=9)
