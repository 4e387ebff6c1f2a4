"""Hashes of texts that are on people's disks: their values never change."""

from __future__ import annotations

from remargin.files.hashes import collection_fingerprint, text_hash, texts_fingerprint


def test_values_on_disk_stay() -> None:
    text = "ein Text ü"
    assert text_hash("d1", text) == 2703079928872266832
    assert texts_fingerprint({"d1": text, "d2": ""}) == "afb160d4250991558b725100576259dc"
    assert collection_fingerprint({"d1": text}, {"q": "?"}) == "b0cebe0e07c3cf041c2e2b7f3337e46d"


def test_order_ids_and_texts_count() -> None:
    texts = {"a": "x", "b": "y"}
    others = [{"b": "y", "a": "x"}, {"a": "y", "b": "x"}, {"a": "x"}, {"a": "x", "b": "y", "c": ""}]
    assert texts_fingerprint(texts) not in map(texts_fingerprint, others)
    assert texts_fingerprint(texts) == texts_fingerprint(iter(texts.items()))
