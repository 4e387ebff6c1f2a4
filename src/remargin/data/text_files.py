"""Collections from a folder of text files, a handbook or a wiki: headings are queries, their sections documents."""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from remargin.data.headings import PARSERS, Section, sections
from remargin.data.readable_ids import readable_id, slug
from remargin.data.source import SPLITS, Judgment, Text
from remargin.data.splits import Groups, leaking_pairs, normalised, split_units
from remargin.errors import InputError, printable
from remargin.progress import track

log = logging.getLogger(__name__)

# Folders that hold no texts of the user's own; hidden ones and virtual environments are left out as well.
SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "dist-packages", "_build", "_static", "_templates"}
SKIPPED_FILES = re.compile(
    r"\.|(requirements|constraints).*\.txt$|(CMakeLists|robots)\.txt$|(genindex|search|py-modindex)\.html$"
)
LARGEST_FILE = 10 << 20  # bytes; a larger one is a log or a dump
SHORTEST_SECTION = 5  # words of a section whose heading may be a query
LONGEST_HEADING = 300  # characters
PARTS_OF_A_TITLE = 5  # a plain text of more is about more than its first line says
IN_MANY_PLACES = 3  # sections under the same heading: it says nothing about any of them
# Headings that say nothing about the sections below them, even if there is one only.
GENERIC = frozenset(
    (
        *(
            "introduction",
            "overview",
            "contents",
            "table of contents",
            "see also",
            "summary",
            "conclusion",
            "conclusions",
        ),
        *("references", "further reading", "background", "appendix", "notes", "note", "examples", "example", "usage"),
        *("more", "misc", "miscellaneous", "other", "general", "details", "description", "about", "index", "links"),
        *("todo", "license", "licence", "copyright", "acknowledgements", "acknowledgments", "authors", "credits"),
        *(
            "changelog",
            "changes",
            "history",
            "unreleased",
            "home",
            "readme",
            "untitled",
            "related",
            "resources",
            "parameters",
        ),
        *("options", "arguments", "returns", "return value", "attributes", "methods", "remarks", "comments"),
        *(
            "einleitung",
            "einführung",
            "überblick",
            "übersicht",
            "inhalt",
            "inhaltsverzeichnis",
            "siehe auch",
            "beispiel",
        ),
        *("beispiele", "zusammenfassung", "fazit", "sonstiges", "allgemeines", "anhang", "literatur", "hinweise"),
        *("sommaire", "voir aussi", "exemple", "exemples", "introducción", "índice", "ejemplos", "véase también"),
    )
)


# "Step 3" says no more than its number.
NUMBERED = re.compile(
    r"(step|part|chapter|section|figure|table|appendix|example|question|teil|kapitel|schritt)( \w{1,4})?"
)
MOST_BEYOND_ASCII = 0.2  # bytes of a text in a Western language; others are in another encoding
_NUMBER = re.compile(r"^(?:(\d+\.)+\d*\.?\s+|\d+[.)]\s+|§+\s*\d+\w?\s+)")  # before a heading
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_UNFIT = re.compile("[\\s\0%#\udc80-\udcff]")  # for an id
_Doubts = defaultdict[str, list[str]]  # paths, by what is the matter with them


class _Part(NamedTuple):
    """A section, its id, the file that it is of, and that file's path below the folder."""

    id: str
    name: str
    file: str
    section: Section

    @property
    def heading(self) -> str:
        """Its own, without a number."""
        return _NUMBER.sub("", self.section.headings[-1], count=1).strip() or self.section.headings[-1]


class TextFiles:
    """The Markdown, reStructuredText, HTML and plain text files below a folder, or one such file.

    Every section of a file is a document: the headings above it, and its text. Its own heading is a query, if there are
    no headings below it; so the document does not have its query in it, and those of its subsections have not either.
    Headings that say nothing (see also) or are those of many sections are no queries, but their sections are documents.
    Identical sections are one document. Dev and test are whole files; train loses near-duplicates of them.
    """

    def __init__(self, folder: str) -> None:
        self.notes: dict[str, int] = {}
        self._root = Path(folder)
        if not self._root.exists():
            raise InputError("no such folder", file=folder, do="check the path after files:")
        if self._root.is_file() and self._root.suffix.lower() not in PARSERS:
            raise InputError("not a kind of text file", file=folder, do=f"use one of {', '.join(PARSERS)}")

    def documents(self) -> Iterator[Text]:
        """Each distinct section once, by file and place."""
        return iter(self._collected.documents)

    def queries(self) -> Iterator[Text]:
        """Each distinct heading that has a judgment, once."""
        return iter(self._collected.queries)

    def splits(self) -> list[str]:
        """Always all three, though a split of few files may be empty."""
        return list(SPLITS)

    def judgments(self, split: str) -> Iterator[Judgment]:
        """One judgment for each heading and section that belong together."""
        return iter(self._collected.judgments[split])

    @cached_property
    def _collected(self) -> _Collected:
        parts = list(self._parts())
        if not parts:
            raise InputError("no text in it", file=self._root, do=f"it should have files such as {', '.join(PARSERS)}")
        documents: dict[str, _Part] = {}
        first = {part.id: documents.setdefault(normalised(part.section.text), part).id for part in parts}
        asked = self._asked(parts, first)
        pairs: dict[tuple[str, str], _Part] = {}
        for part in parts:
            if part.id in asked:
                pairs.setdefault((normalised(part.heading), first[part.id]), part)
        self.notes["sections"] = len(parts)
        self.notes["identical sections merged"] = len(parts) - len(documents)
        splits = _split(list(pairs), {part.id: part.name for part in documents.values()})
        bodies = {part.id: part.section.text for part in documents.values()}
        repeated, near = leaking_pairs(list(pairs), splits, bodies)
        self.notes["pairs dropped because a held-out split has their query"] = len(repeated)
        self.notes["train pairs dropped as near-duplicates of held-out documents"] = len(near)
        judgments: defaultdict[str, list[Judgment]] = defaultdict(list)
        queries: dict[str, Text] = {}
        for (key, document), part in pairs.items():
            if (key, document) in repeated or (key, document) in near:
                continue
            line = part.section.line
            query = queries.setdefault(key, Text(readable_id("query", part.heading), part.heading, part.file, line))
            judgments[splits[document]].append(Judgment(query.id, document, 1, part.file, line))
        texts = [Text(p.id, _document(p.section, p.id in asked), p.file, p.section.line) for p in documents.values()]
        return _Collected(texts, list(queries.values()), judgments)

    def _asked(self, parts: list[_Part], first: dict[str, str]) -> set[str]:
        """The ids of the sections whose heading is a query; `notes` counts why others are not."""
        with_heading = [part for part in parts if part.section.headings]
        places = Counter(heading for heading, _ in {(normalised(p.heading), first[p.id]) for p in with_heading})
        in_file = Counter((part.file, normalised(part.heading)) for part in with_heading)
        of_file = Counter(part.file for part in parts)
        why: Counter[str] = Counter({"sections without a heading": len(parts) - len(with_heading)})
        asked = set()
        for part in with_heading:
            heading = normalised(part.heading)
            here = in_file[part.file, heading]
            is_title = here == of_file[part.file]  # of all parts of the file
            most = PARTS_OF_A_TITLE if is_title and places[heading] <= here else IN_MANY_PLACES - 1
            if not part.section.leaf:
                why["headings that have headings below them, which are no queries"] += 1
            elif not says_something(heading) or places[heading] > most:
                why["headings that say too little or are those of many sections, which are no queries"] += 1
            elif len(part.section.text.split()) < SHORTEST_SECTION:
                why[f"sections of fewer than {SHORTEST_SECTION} words, whose headings are no queries"] += 1
            else:
                asked.add(part.id)
        self.notes.update(why)
        return asked

    def _parts(self) -> Iterator[_Part]:
        """All sections that have text, in order of path and place."""
        doubts: _Doubts = defaultdict(list)
        paths = [self._root] if self._root.is_file() else list(self._files(doubts))
        self.notes["files"] = 0
        for path in track(paths, f"reading {self._root}", total=len(paths)):
            name = path.name if self._root.is_file() else path.relative_to(self._root).as_posix()
            text = read_text(path, doubts)
            if text is None:
                continue
            self.notes["files"] += 1
            taken: dict[str, int] = {}
            for section in sections(text, path.suffix.lower()):
                if section.text:
                    yield _Part(_id(name, section, taken), name, printable(str(path)), section)
        for why, names in doubts.items():
            self.notes[why] = len(names)
            log.warning("%s: %s: %s, the first is %s", self._root, why, f"{len(names):,}", printable(names[0]))

    def _files(self, doubts: _Doubts) -> Iterator[Path]:
        """The text files below the folder. Links to folders are not followed, so none leads round in a circle."""

        def unreadable(error: OSError) -> None:
            doubts["folders that cannot be read, left out"].append(str(error.filename))

        other = 0
        for folder, below, names in os.walk(self._root, onerror=unreadable):
            here = Path(folder)
            kept = [name for name in sorted(below) if not _is_skipped(here / name)]
            for name in kept:
                if (here / name).is_symlink():
                    doubts["folders that are links, not followed"].append(str(here / name))
            below[:] = kept  # os.walk does not follow links
            for name in sorted(names):
                is_text = Path(name).suffix.lower() in PARSERS and not SKIPPED_FILES.match(name)
                other += not is_text
                if is_text:
                    yield here / name
        self.notes["files of other kinds left out"] = other


def _split(pairs: list[tuple[str, str]], files: dict[str, str]) -> dict[str, str]:
    """The splits of documents: by file, or by section if there are fewer than three files with queries."""
    if len({files[document] for _, document in pairs}) >= len(SPLITS):
        unit = files
    else:
        groups, first = Groups(), dict[str, str]()
        for heading, document in pairs:
            groups.join([first.setdefault(heading, document), document])
        unit = {document: groups.name(document) for _, document in pairs}
    splits = split_units(dict.fromkeys(unit[document] for _, document in pairs))
    return {document: splits[unit[document]] for _, document in pairs}


class _Collected(NamedTuple):
    documents: list[Text]
    queries: list[Text]
    judgments: defaultdict[str, list[Judgment]]


def _is_skipped(folder: Path) -> bool:
    """Whether a folder is hidden, a virtual environment, or a training run of ours, whose report is no document."""
    marks = (["pyvenv.cfg"], ["config.yaml", "metrics.csv"])
    known = folder.name.startswith(".") or folder.name in SKIPPED_FOLDERS
    return known or any(all((folder / name).is_file() for name in names) for names in marks)


def read_text(path: Path, doubts: _Doubts) -> str | None:
    """The text of a file, or None; `doubts` has the paths of files that were left out or whose encoding is a guess.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_bytes("Viele Grüße".encode("cp1252"))
    >>> read_text(file, doubts := defaultdict(list)), list(doubts)
    ('Viele Grüße', ['files read as Windows-1252, as they are not UTF-8'])
    """
    try:
        if not path.is_file():  # a link that leads nowhere, a pipe
            doubts["files that cannot be read, left out"].append(str(path))
            return None
        if path.stat().st_size > LARGEST_FILE:
            doubts[f"files of more than {LARGEST_FILE >> 20} MiB, left out"].append(str(path))
            return None
        content = path.read_bytes()
    except OSError:
        doubts["files that cannot be read, left out"].append(str(path))
        return None
    declared = _CHARSET.search(content[:2048]) if path.suffix.lower() not in (".md", ".rst", ".txt") else None
    encodings = ["utf-8-sig", *([declared[1].decode()] if declared else [])]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif b"\0" in content:
        encodings = []
    for encoding in encodings:
        with contextlib.suppress(UnicodeError, LookupError, ValueError):
            return content.decode(encoding)
    beyond_ascii = sum(byte > 127 for byte in content)
    if encodings == ["utf-8-sig"] and beyond_ascii < MOST_BEYOND_ASCII * len(content):
        with contextlib.suppress(UnicodeError):
            text = content.decode("cp1252")
            doubts["files read as Windows-1252, as they are not UTF-8"].append(str(path))
            return text
    doubts["files that are not text, or in no known encoding, left out"].append(str(path))
    return None


def says_something(heading: str) -> bool:
    """Whether a heading could be a query: not a number, a version, or a word that every other file has.

    >>> [says_something(heading) for heading in ("deadlines", "see also", "1.2.3", "step 2")]
    [True, False, False, False]
    """
    words = " ".join(re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", heading.lower()))
    enough = sum(c.isalpha() for c in words) > 1 and len(heading) <= LONGEST_HEADING
    return enough and words not in GENERIC and not NUMBERED.fullmatch(words)


def _id(file: str, section: Section, taken: dict[str, int]) -> str:
    """The path of a file, and the section's place in it as browsers name it: `refunds.md#deadlines`.

    `taken` has the ids of the file so far, and how many of the name that each begins with were tried.
    """
    name = _UNFIT.sub(lambda character: quote(os.fsencode(character[0])), file)
    anchor = slug(section.headings[-1], words=12, characters=60) if section.headings else ""
    plain = f"{name}#{anchor or 'section'}" if section.headings else name
    id, number = plain, taken.get(plain, 1)
    while id in taken:
        id, number = f"{plain}-{number}" if section.headings else f"{name}#{number + 1}", number + 1
    taken[id] = taken.get(id, 1)
    taken[plain] = number
    return id


def _document(section: Section, asked: bool) -> str:
    """A section's text under the headings above it, without those that have its own in them, if that is a query."""
    headings = section.headings
    if asked:
        own = normalised(headings[-1])
        headings = tuple(heading for heading in headings[:-1] if own not in normalised(heading))
    return f"{' > '.join(headings)}\n{section.text}" if headings else section.text
