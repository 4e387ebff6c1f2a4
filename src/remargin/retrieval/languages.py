"""What BM25 compares in which language: stems of words, words, or n-grams of characters.

Chinese, Japanese and Thai, among others, are written without spaces, so that a whole clause would count as one word.
There, n-grams of characters take the place of words, as in Lucene's CJKBigramFilter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from remargin.errors import InputError

AUTO, ENGLISH, NGRAMS = "auto", "english", "ngrams"
# Snowball's names and those of the stop word lists that bm25s has for them.
STOP_WORDS = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es", "portuguese": "pt", "italian": "it",
    "russian": "ru", "swedish": "sv", "dutch": "nl", "norwegian": "no",
}  # fmt: skip
# Languages with a stemmer of Snowball's and without a list of stop words.
STEMMED = (
    "arabic", "armenian", "basque", "catalan", "danish", "finnish", "greek", "hindi", "hungarian", "indonesian",
    "irish", "lithuanian", "nepali", "romanian", "serbian", "tamil", "turkish", "yiddish",
)  # fmt: skip
# Languages whose words are not set apart by spaces, or, in Korean, have their particles attached.
SPACELESS = ("chinese", "japanese", "korean", "thai", "lao", "khmer", "burmese")
# The stemmer of each language, if it has one. Among n-grams, words of other scripts are mostly English names.
LANGUAGES: dict[str, str | None] = {
    **{name: name for name in (*STOP_WORDS, *STEMMED)},
    **dict.fromkeys((*SPACELESS, NGRAMS), ENGLISH),
    "words": None,
}
OTHER_TERMS = "name their language (--language), or use a model instead of BM25"  # where BM25 finds nothing at all
SHARE = 0.05  # of all characters: from so many in scripts without spaces on, `auto` is `ngrams`

# Han, Kana, Bopomofo and Hangul: a character is a syllable or a word, and two of them are about a word.
SYLLABLES = (
    "\u1100-\u11ff\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc\U00020000-\U0003ffff"
)
# Thai, Lao, Myanmar and Khmer, without their digits: a character is a consonant or a vowel, and three are about a word.
LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d\u1780-\u17d3\u17d7"
    "\u17dc\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
)
_RUNS = re.compile(f"[{SYLLABLES}{LETTERS}]+")


def check_language(language: str) -> None:
    """Refuse a language that is none of `LANGUAGES`."""
    if language not in LANGUAGES:
        do = "use auto, words (no stemmer), ngrams (of characters), or one of"
        names = sorted({*LANGUAGES} - {"words", NGRAMS})
        raise InputError(f"unknown language {language!r}", do=f"{do} {', '.join(names)}")


def choose_language(language: str, texts: Iterable[str]) -> str:
    """The language itself or, for "auto", the one that the script of the documents asks for: ngrams or english.

    >>> choose_language("auto", ["how do margins adapt"]), choose_language("auto", ["图书馆几点开门", "an answer"])
    ('english', 'ngrams')
    >>> choose_language("german", ["图书馆几点开门"])
    'german'
    """
    if language != AUTO:
        check_language(language)
        return language
    characters = spaceless = 0
    for text in texts:
        characters += len(text)
        if not text.isascii():
            spaceless += sum(map(len, _RUNS.findall(text)))
    return NGRAMS if spaceless > SHARE * characters else ENGLISH


def describe_choice(language: str | None, asked: str | None = None) -> str | None:
    """A line for people, where BM25 took another language than English without being asked for it by name.

    >>> describe_choice("ngrams", "auto")
    "BM25's language: ngrams, of characters in scripts without spaces (--language)"
    >>> describe_choice("german", "german"), describe_choice("english")
    (None, None)
    """
    if language in (None, ENGLISH) or asked not in (None, AUTO):
        return None
    what = ", of characters in scripts without spaces" if language == NGRAMS else ""
    return f"BM25's language: {language}{what} (--language)"


def words_and_ngrams(text: str) -> list[str]:
    """The words of a text in lower case; n-grams of characters in scripts without spaces.

    Two characters of Han, Kana and Hangul make an n-gram, three of Thai, Lao, Myanmar and Khmer; a character keeps its
    marks, such as tones. A shorter run is a term itself. Compatibility forms, such as full-width letters, are replaced.

    >>> words_and_ngrams("Ｔ恤 的iPhone 15充电器")
    ['t', '恤', '的', 'iphone', '15', '充电', '电器']
    >>> words_and_ngrams("ห้องสมุด")
    ['ห้อง', 'องส', 'งสมุ', 'สมุด']
    """
    terms: list[str] = []
    run, character = _patterns()
    for match in run.finditer(unicodedata.normalize("NFKC", text).lower()):
        if match.lastgroup == "word":
            terms.append(match[0])
            continue
        width, parts = 2 if match.lastgroup == "syllables" else 3, character.findall(match[0])
        terms += ["".join(parts[i : i + width]) for i in range(max(1, len(parts) - width + 1))]
    return terms


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Of a word or a run of characters without spaces, and of one such character with its marks.

    Python's \\w knows no marks, and would split words of Hindi at every vowel sign.
    """
    marks = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
    word = rf"[^\W{SYLLABLES}{LETTERS}](?:[^\W{SYLLABLES}{LETTERS}]|[{marks}])*"
    runs = (f"(?P<{name}>[{of}][{of}{marks}]*)" for name, of in (("syllables", SYLLABLES), ("letters", LETTERS)))
    return re.compile(rf"{'|'.join(runs)}|(?P<word>{word})"), re.compile(rf".[{marks}]*")
