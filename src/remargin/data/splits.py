"""Splits into train, dev and test, and near-duplicates between them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from remargin.data.source import SPLITS

HELD_OUT = 0.1  # share of test, and of dev


def split_of(key: str) -> str:
    """train, dev or test, by a hash of the key: the same on every machine, whatever else the collection holds.

    >>> [split_of(module) for module in ("json", "csv", "calendar", "wave")]
    ['test', 'train', 'train', 'train']
    """
    position = _position(key)
    return "test" if position < HELD_OUT else "dev" if position < 2 * HELD_OUT else "train"


def _position(key: str) -> float:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64


def split_units(keys: Iterable[str]) -> dict[str, str]:
    """The split of each key; of three keys or more, test and dev have at least one, also where the hash gives none.

    >>> split_units(["csv", "calendar", "wave", "shelve"])
    {'csv': 'train', 'calendar': 'test', 'wave': 'train', 'shelve': 'dev'}
    """
    splits = {key: split_of(key) for key in keys}
    for split in ("test", "dev", "train") if len(splits) >= len(SPLITS) else ():
        if split not in splits.values():
            sizes = Counter(splits.values())
            spare = [key for key in splits if sizes[splits[key]] > 1]
            splits[min(spare, key=_position)] = split
    return splits


def leaking_pairs(
    pairs: Sequence[tuple[str, str]], splits: Mapping[str, str], texts: Mapping[str, str]
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Pairs to drop: those whose query an earlier split has too, and train's whose document nearly repeats another's.

    Test comes first, then dev, then train. A document of train is compared with those of dev and test.

    Args:
        pairs: of a query, normalised, and a document's id.
        splits: of these documents.
        texts: of these documents, and perhaps of more.

    Example:
        >>> splits = {"a": "test", "b": "train", "c": "train"}
        >>> texts = {"a": "one two three four five", "b": "six seven", "c": "one two three four five six"}
        >>> leaking_pairs([("how", "a"), ("how", "b"), ("why", "c")], splits, texts)
        ({('how', 'b')}, {('why', 'c')})
    """
    queries = {split: {query for query, document in pairs if splits[document] == split} for split in SPLITS}
    earlier = {"test": set(), "dev": queries["test"], "train": queries["test"] | queries["dev"]}
    repeated = {(query, document) for query, document in pairs if query in earlier[splits[document]]}
    of_train = {document: texts[document] for document, split in splits.items() if split == "train"}
    held_out = {document: texts[document] for document, split in splits.items() if split != "train"}
    alike = near_duplicates(of_train, of=held_out)
    return repeated, {(query, document) for query, document in pairs if document in alike} - repeated


def normalised(text: str) -> str:
    """Text as compared for equality: lower case, white space folded.

    >>> normalised("  Return the\\n Value ")
    'return the value'
    """
    return " ".join(text.lower().split())


def near_duplicates(texts: Mapping[str, str], of: Mapping[str, str], overlap: float = 0.5, words: int = 4) -> set[str]:
    """The keys of `texts` that nearly repeat some text of `of`: Jaccard overlap of their word 4-grams is high.

    >>> near_duplicates({"a": "the quick brown fox jumps over dogs", "b": "something else"},
    ...                 of={"c": "the quick brown fox jumps over cats"})
    {'a'}
    """
    shingles = {key: _shingles(text, words) for key, text in of.items()}
    holders: defaultdict[Hashable, list[str]] = defaultdict(list)
    for key, grams in shingles.items():
        for gram in grams:
            holders[gram].append(key)
    duplicates = set()
    for key, text in texts.items():
        grams = _shingles(text, words)
        shared = Counter(other for gram in grams for other in holders.get(gram, ()))
        if any(n / (len(grams) + len(shingles[other]) - n) >= overlap for other, n in shared.items()):
            duplicates.add(key)
    return duplicates


def _shingles(text: str, words: int) -> set[int]:
    tokens = re.findall(r"\w+", text.lower())
    return {hash(tuple(tokens[i : i + words])) for i in range(max(1, len(tokens) - words + 1))}


class Groups:
    """Keys that belong together, joined pair by pair (union-find).

    >>> groups = Groups()
    >>> groups.join(["a", "b"]); groups.join(["b", "c"])
    >>> groups.name("c") == groups.name("a"), groups.name("d")
    (True, 'd')
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def name(self, key: str) -> str:
        """The smallest key of the group."""
        root = key
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while key != root:
            self._parent[key], key = root, self._parent[key]
        return root

    def join(self, keys: Iterable[str]) -> None:
        """Put the groups of all these keys together."""
        roots = sorted({self.name(key) for key in keys})
        for root in roots[1:]:
            self._parent[root] = roots[0]
