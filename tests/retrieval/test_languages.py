"""What BM25 compares in languages without spaces: n-grams by the definition, and what is chosen by itself."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import remargin
from remargin import BiEncoder, Collection, InputError, search
from remargin.files.headers import write_header
from remargin.retrieval.bm25 import BM25, terms_of
from remargin.retrieval.hybrid import BEFORE, FILE, Fusion, chosen_hybrid, read_fusion, save_fusion
from remargin.retrieval.index_folder import IndexFolder
from remargin.retrieval.languages import LANGUAGES, STEMMED, STOP_WORDS, choose_language, words_and_ngrams

# By the names that Unicode gives characters; `languages.py` has ranges of code points.
SCRIPTS = {
    2: ("CJK UNIFIED", "CJK COMPAT", "IDEOGRAPHIC ITERATION", "HIRAGANA LETTER", "KATAKANA LETTER", "HANGUL SYLLABLE",
        "KATAKANA-HIRAGANA PROLONGED"),
    3: ("THAI CHARACTER", "LAO LETTER", "LAO VOWEL", "LAO TONE", "LAO SEMIVOWEL", "LAO CANCELLATION", "LAO NIGGAHITA",
        "KHMER LETTER", "KHMER INDEPENDENT", "KHMER VOWEL", "KHMER SIGN", "MYANMAR LETTER", "MYANMAR VOWEL",
        "MYANMAR SIGN", "MYANMAR CONSONANT"),
}  # fmt: skip
TEXTS = some.text("abzüß09 ._-'،你好世界图书馆々ひらがなカタカナー한국어ห้องสมุดที่ນີ້ແມ່ນຂໍ້ຄວາមខ្មែរမြန်မာहिन्दीÅ", max_size=40)


def slow_terms(text: str) -> list[str]:
    """One character after the other, with its marks; neighbours of a kind make a run."""
    characters: list[tuple[int, str]] = []  # the width of its n-grams, 1 in a word, 0 between words
    for character in unicodedata.normalize("NFKC", text).lower():
        name, category = unicodedata.name(character, ""), unicodedata.category(character)
        width = next((width for width, starts in SCRIPTS.items() if name.startswith(starts)), 0)
        if category.startswith("M") and characters and characters[-1][0]:
            characters[-1] = characters[-1][0], characters[-1][1] + character
            continue
        if not width and (character.isalnum() or character == "_"):
            width = 1
        characters.append((width, character))
    terms, run = list[str](), list[tuple[int, str]]()
    for width, character in [*characters, (0, "")]:
        if run and run[-1][0] != width:
            parts, size = [part for _, part in run], run[-1][0]
            if size == 1:
                terms.append("".join(parts))
            elif size:
                terms += ["".join(parts[i : i + size]) for i in range(max(1, len(parts) - size + 1))]
            run = []
        run.append((width, character))
    return terms


@given(TEXTS)
def test_terms_are_those_of_the_definition(text: str) -> None:
    assert words_and_ngrams(text) == slow_terms(text)


def test_ngrams_of_each_script_and_words_between_them() -> None:
    assert words_and_ngrams("东京塔是Tokyo Tower。") == ["东京", "京塔", "塔是", "tokyo", "tower"]
    assert words_and_ngrams("ｶﾞｽの使い方") == ["ガス", "スの", "の使", "使い", "い方"]  # half-width Kana is composed
    assert words_and_ngrams("猫 犬") == ["猫", "犬"]
    assert words_and_ngrams("한국어 검색") == ["한국", "국어", "검색"]
    assert words_and_ngrams("ที่ไหน ๑๒") == ["ที่ไห", "ไหน", "๑๒"]
    assert words_and_ngrams("हिन्दी में") == ["हिन्दी", "में"]  # vowel signs belong to their word


def test_auto_goes_by_the_script_of_all_documents() -> None:
    english = ["a long text in English about the city of Tokyo (東京)" * 3] * 5
    assert choose_language("auto", english) == "english"
    assert choose_language("auto", []) == "english"
    assert choose_language("auto", ["naïve café Ελλάδα Россия हिन्दी العربية"]) == "english"
    for text in (
        "图书馆几点开门",
        "開館時間は何時ですか",
        "ห้องสมุดเปิดกี่โมง",
        "ຫໍສະໝຸດເປີດຈັກໂມງ",
        "បណ្ណាល័យបើកម៉ោង",
        "စာကြည့်တိုက်",
        "도서관",
    ):
        assert choose_language("auto", [*english[:1], text * 10]) == "ngrams", text
    with pytest.raises(InputError, match="unknown language 'klingon'; use auto, words"):
        choose_language("klingon", english)


def test_english_is_as_it_was() -> None:
    texts = ["Margins adapt to the margin", "naïve cafés in Tōkyō (東京)", "don't"]
    tokens, given = terms_of(texts), terms_of(texts, choose_language("auto", texts))
    named = [[{n: t for t, n in terms.vocab.items()}[n] for ids in terms.ids for n in ids] for terms in (tokens, given)]
    assert named[0] == named[1] == ["margin", "adapt", "margin", "naïv", "café", "tōkyō", "東京", "don"]


def test_every_language_splits_its_texts() -> None:
    for language in LANGUAGES:
        assert terms_of(["one 1", ""], language).ids[1] == []
        assert terms_of(["Zebra"], language).vocab
    assert list(terms_of(["kitaplar kitap"], "turkish").vocab) == ["kitap"]
    assert list(terms_of(["Kitaplar, KITAPLAR the"], "words").vocab) == ["kitaplar", "the"]
    assert set(STOP_WORDS).isdisjoint(STEMMED)


@pytest.mark.parametrize(
    ("documents", "query", "best"),
    [
        ({"a": "图书馆早上九点开门", "b": "火车站在城市的东边", "c": "退货请联系客服"}, "图书馆几点开门？", "a"),
        (
            {"a": "図書館は九時に開きます", "b": "駅は町の東にあります", "c": "返品はお問い合わせください"},
            "駅はどこ",
            "b",
        ),
        ({"a": "ห้องสมุดเปิดเก้าโมงเช้า", "b": "สถานีรถไฟอยู่ทางทิศตะวันออก", "c": "ติดต่อฝ่ายบริการเพื่อคืนสินค้า"}, "คืนสินค้า", "c"),
        ({"a": "iPhone 15 的充电器坏了", "b": "MacBook 的充电器", "c": "Galaxy 手机"}, "iphone充电", "a"),
        ({"a": "how to open a library", "b": "图书馆早上九点开门", "c": "火车站"}, "libraries opening", "a"),
    ],
)
def test_bm25_finds_texts_without_spaces(documents: dict[str, str], query: str, best: str, tmp_path: Path) -> None:
    index = BM25(documents)
    assert index.language == "ngrams"
    assert index.search({"q": query}).top("q", 1) == [best]
    index.save(tmp_path / "saved")
    loaded = BM25.load(tmp_path / "saved")
    assert loaded.language == "ngrams"  # a query in another script is split as the documents were
    assert loaded.search({"q": query}).rankings == index.search({"q": query}).rankings


def test_a_fusion_keeps_its_language_and_older_ones_are_english(tmp_path: Path) -> None:
    save_fusion(tmp_path, Fusion(0.4, "nDCG@10", 0.6, 0.5, 0.7, language="ngrams"))
    for choice in ("auto", "on", 0.5):
        fused = chosen_hybrid(choice, tmp_path)  # type: ignore[arg-type]
        assert fused is not None
        assert fused.language == "ngrams"
    fields = {"weight": 0.4, "measure": "nDCG@10", "bm25": 0.6, "dense": 0.5, "fused": 0.7, "depth": 1000}
    write_header(tmp_path / FILE, {"format": BEFORE, **fields, "data": "", "split": "dev", "normalisation": "min-max"})
    before = read_fusion(tmp_path)
    assert before is not None
    assert before.language == "english"
    write_header(tmp_path / FILE, {"format": "remargin-fusion-9", **fields})
    with pytest.raises(InputError, match="format 'remargin-fusion-9', expected 'remargin-fusion-2'"):
        read_fusion(tmp_path)


def test_search_refuses_a_language_without_effect(tmp_path: Path) -> None:
    documents = {"a": "one", "b": "two"}
    collection = Collection("", "test", documents, {"q": "one"}, {"q": {"a": 1}})
    assert search(collection, "bm25", language="german").top("q", 1) == ["a"]
    BM25(documents).save(tmp_path / "saved")
    for index in (tmp_path / "saved", BM25(documents)):
        with pytest.raises(InputError, match="--language does nothing for an index"):
            search(collection, index, language="german")


def test_an_index_takes_the_language_of_the_fusion_and_keeps_it(tiny_encoder: Any, tmp_path: Path) -> None:
    model, data = tmp_path / "model", tmp_path / "data"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(model)
    data.mkdir()
    (data / "queries.jsonl").touch()
    (data / "corpus.jsonl").write_text('{"_id": "a", "text": "Häuser brennen"}\n{"_id": "b", "text": "Katzen"}\n')
    for language, asked in (("german", None), ("english", None), ("words", "words")):
        save_fusion(model, Fusion(0.4, "nDCG@10", 0.6, 0.5, 0.7, language=language))
        for hybrid in ("auto", 0.0):
            built = remargin.index(
                tmp_path / "index", data=data, model=model, hybrid=hybrid, language=asked, overwrite=True
            )
            assert built.language == language
    (model / FILE).unlink()
    (data / "corpus.jsonl").write_text('{"_id": "a", "text": "图书馆开门"}\n{"_id": "b", "text": "火车站"}\n')
    built = remargin.index(tmp_path / "index", data=data, model=model, hybrid=0.0, overwrite=True)
    assert built.language == "ngrams"
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write(
            '{"_id": "c", "text": "an English text on libraries, so long that its characters are most of all"}\n'
        )
    remargin.update(tmp_path / "index", data=data)
    hybrid = IndexFolder.read(tmp_path / "index").hybrid
    assert hybrid is not None
    assert hybrid.language == "ngrams"
    for question, best in (("图书馆", "a"), ("library", "c")):
        assert remargin.ask(question, tmp_path / "index", k=1)[0].id == best
