"""From any source to a folder that training reads: the collection in BEIR layout, and its token stores."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from remargin.data.beir import QrelsWriter, append_texts
from remargin.data.collection import named_paths, open_source
from remargin.data.ids import Ids
from remargin.data.source import Judgment, Source, Text, checked_texts, unknown_id
from remargin.data.tables import SKIP, Rejects, batches
from remargin.data.tokens import TokenStore, TokenWriter
from remargin.data.triplets import TripletText, TripletWriter, read_triplets, require_triplets
from remargin.errors import InputError
from remargin.files.atomic import locked, new_folder, on_disk, refuse_existing
from remargin.files.checksums import sha256
from remargin.files.headers import read_header, write_header
from remargin.files.journal import JOURNAL, Journal
from remargin.files.shapes import Checksums, Count, encodable
from remargin.model.ahead import ahead
from remargin.model.tokenizer import Kind, TextSettings, Tokenizer, Tokens
from remargin.progress import track

FILES: dict[Kind, str] = {"documents": "corpus.jsonl.gz", "queries": "queries.jsonl.gz"}
FORMAT = "remargin-collection-1"
MARKER = "remargin.json"  # in every folder that `prepare` wrote
REMEDY = "prepare it again"
BATCH = 2048  # small enough that reading, tokenising and writing keep each other busy


@dataclass
class Prepared:
    """What `prepare` wrote: counts for people and for the folder's header."""

    documents: int = 0
    queries: int = 0
    documents_truncated: int = 0
    queries_truncated: int = 0
    document_tokens: int = 0
    query_tokens: int = 0
    judgments: dict[str, int] = field(default_factory=dict)
    triplets: int | None = None
    negatives_per_triplet: int | None = None
    rejected: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    blocks_reused: int = 0
    seconds: float = 0.0


class PreparedHeader(TypedDict):
    """What is in a folder that `prepare` wrote, and how it was made."""

    format: str
    remargin: str
    data: str | None
    model: str
    settings: dict[str, int | str]
    documents: Count
    queries: Count
    documents_truncated: Count
    queries_truncated: Count
    document_tokens: Count
    query_tokens: Count
    judgments: dict[str, Count]
    triplets: Count | None
    negatives_per_triplet: Count | None
    rejected: Count
    notes: dict[str, int]
    blocks_reused: Count
    seconds: float
    sha256: Checksums


def read_prepared(folder: Path) -> PreparedHeader:
    """The header of a folder that `prepare` wrote."""
    return read_header(folder / MARKER, PreparedHeader, FORMAT, REMEDY)


def prepare(
    data: str | Path | None,
    model: str | Path,
    out: str | Path,
    triplets: str | Path | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Prepared:
    """Read a collection, or triplets of texts, and write the folder `out`, whole or not at all.

    If interrupted, it leaves the tokens it made in a hidden folder beside `out`, and the next call continues there.

        out/
          remargin.json                      the header: contents and settings
          corpus.jsonl.gz queries.jsonl.gz qrels/SPLIT.tsv      the collection, as every other tool reads it
          tokens/documents/ tokens/queries/  the texts as tokens (`TokenStore`)
          triplets/                          row numbers into those (`Triplets`), where triplets were given
          rejects.jsonl                      bad input that skip_bad set aside

    Args:
        data: what `Collection.load` takes, or None if the triplets are texts.
        model: the model whose tokenizer is used: a folder, "minilm", or a hub name.
        out: the folder to write.
        triplets: a table of triplets: ids over `data`, or texts; or the docpairs of ir_datasets over `data`, as
            "irds:msmarco-passage/train/triples-small". See `read_triplets`.
        query_length: queries are truncated to this many tokens. Without it, to what the model's folder says, but to 512
            at most.
        document_length: documents are truncated to this many tokens; likewise.
        query_prefix: a text put before every query. Without it, the model's own.
        document_prefix: a text put before every document; likewise.
        skip_bad: count bad input, write it to rejects.jsonl, and continue.
        overwrite: replace `out` if it exists.

    Raises:
        InputError: for bad input, with its file, line and id. Nothing is left behind then.

    Example:
        >>> import tempfile
        >>> report = prepare("docstrings:json", model_folder, Path(tempfile.mkdtemp()) / "json")
        >>> report.documents > 5, list(report.judgments)
        (True, ['train', 'dev', 'test'])
    """
    started = time.perf_counter()
    out = Path(out)
    refuse_existing(out, overwrite, MARKER)  # at once, not after an hour
    if data is None and triplets is None:
        raise InputError("nothing to prepare", do="give --data, --triplets, or both")
    settings = TextSettings.for_model(model, query_length, document_length, query_prefix, document_prefix)
    for prefix in (settings.query_prefix, settings.document_prefix):
        if not encodable(prefix):
            raise InputError(f"prefix {prefix!r} is not text that UTF-8 can hold", do="correct it")
    if triplets is not None:
        require_triplets(Path(triplets))
    read = [Path(given) for given in (triplets, model) if given is not None]
    for path in (*([] if data is None else named_paths(data)), *read):
        if on_disk(str(path)) is not None and path.resolve().is_relative_to(out.resolve()):
            raise InputError(f"{path} lies in the folder to be written", file=out, do="choose another place")
    rejects = Rejects(skip=skip_bad)
    report = Prepared()
    source = None if data is None else open_source(data, rejects)
    unfinished = out.absolute().parent / f".{out.name}.unfinished"
    with new_folder(out, overwrite, MARKER) as folder, _kept_if_interrupted(unfinished):
        (folder / "qrels").mkdir()
        work = _Preparation(folder, unfinished, Tokenizer.from_pretrained(model), settings, rejects, report)
        if source is not None:
            work.write_collection(source)
        if triplets is not None:
            work.write_triplets(Path(triplets), over_collection=source is not None)
        report.rejected = rejects.count
        if rejects.count:
            rejects.write(folder / "rejects.jsonl")
        report.seconds = round(time.perf_counter() - started, 2)
        made = {"data": data, "model": model}
        _write_summary(folder, made, settings, report)
    return report


@contextlib.contextmanager
def _kept_if_interrupted(folder: Path) -> Iterator[None]:
    """A folder for unfinished work, which only one process uses; removed when the work is done or the input was bad."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield
        except InputError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _write_summary(folder: Path, made: dict[str, Any], settings: TextSettings, report: Prepared) -> None:
    from remargin import __version__

    files = [*FILES.values(), *sorted(f"qrels/{path.name}" for path in (folder / "qrels").iterdir())]
    header = {
        "format": FORMAT,
        "remargin": __version__,
        **{name: None if value is None else str(value) for name, value in made.items()},
        "settings": asdict(settings),
        **asdict(report),
        "sha256": {name: sha256(folder / name) for name in files},
    }
    write_header(folder / MARKER, header)


NumberedTriplet = tuple[list[int], list[float] | None]  # rows of query, positive and negatives; and their scores


@dataclass
class _Preparation:
    """Prepares one folder."""

    folder: Path
    unfinished: Path
    tokenizer: Tokenizer
    settings: TextSettings
    rejects: Rejects
    report: Prepared
    held_out: set[str] = field(default_factory=set)  # queries of every split but train
    leaks: int = 0

    def write_collection(self, source: Source) -> None:
        """Texts of both kinds, then the judgments of every split."""
        documents = self._write_texts("documents", source.documents())
        queries = self._write_texts("queries", source.queries())
        if not len(documents):
            raise InputError("there are no documents in it", do=self.rejects.describe() or "name another collection")
        for split in source.splits():
            qrels = QrelsWriter(self.folder / "qrels" / f"{split}.tsv")
            for batch in batches(source.judgments(split), BATCH):
                known = list(self._known(batch, queries, documents))
                qrels.add(known)
                if split != "train":
                    self.held_out.update(judgment.query for judgment in known)
            self.report.judgments[split] = qrels.count
        self.report.notes = dict(source.notes)
        if self.rejects.empty_documents:
            self.report.notes["documents without text, which are kept"] = self.rejects.empty_documents

    def _write_texts(self, kind: Kind, texts: Iterator[Text]) -> Ids:
        writer = _TextWriter(self, kind)
        singular = "document" if kind == "documents" else "query"
        checked = ahead(batches(track(checked_texts(texts, singular, self.rejects), kind), BATCH))
        for batch, tokens, truncated in ahead((batch, *writer.tokenise(batch)) for batch in checked):
            writer.append(batch, tokens, truncated)  # while the next ones are read and tokenised, on all cores
        return writer.close()

    def _known(self, judgments: list[Judgment], queries: Ids, documents: Ids) -> Iterator[Judgment]:
        """The judgments whose query and document are in the collection; the others go to `rejects`."""
        query_rows = queries.rows([j.query for j in judgments])
        document_rows = documents.rows([j.document for j in judgments])
        for judgment, query, document in zip(judgments, query_rows, document_rows, strict=True):
            if query < 0:
                self.rejects.add(unknown_id(judgment, "query"))
            elif document < 0:
                self.rejects.add(unknown_id(judgment, "document"))
            else:
                yield judgment

    def write_triplets(self, path: Path, over_collection: bool) -> None:
        """Triplets of ids over the collection that was just written, or of texts, which become the collection."""
        are_ids, triplets = read_triplets(path, self.rejects, ids=over_collection)
        if are_ids and not over_collection:
            raise InputError("these triplets are ids", file=path, do="name the collection they belong to with --data")
        if over_collection and not are_ids:
            do = "leave --data out, or give query_id, positive_id and negative_id"
            raise InputError("these triplets are texts, but there is a collection", file=path, do=do)
        in_batches = batches(track(triplets, "triplets"), BATCH)
        writer = TripletWriter(self.folder / "triplets")
        for batch in self._rows_of_ids(path, in_batches) if are_ids else self._rows_of_texts(in_batches):
            scores = None if batch[0][1] is None else np.array([scores for _, scores in batch], np.float32)
            writer.add(np.array([rows for rows, _ in batch], np.uint32), scores)
        if not writer.count:
            raise InputError("no usable triplets in it", file=path, do=self.rejects.describe())
        header = writer.close()
        self.report.triplets, self.report.negatives_per_triplet = header["count"], header["negatives"]
        if self.leaks:
            self.report.notes["WARNING: triplets whose query is also in a held-out split"] = self.leaks

    def _rows_of_ids(self, path: Path, batches: Iterator[list[TripletText]]) -> Iterator[list[NumberedTriplet]]:
        queries, documents = (TokenStore(self.folder / "tokens" / kind).ids for kind in ("queries", "documents"))
        for batch in batches:
            query_rows = queries.rows([t.query for t in batch])
            document_rows = documents.rows([id for t in batch for id in (t.positive, *t.negatives)])
            numbered: list[NumberedTriplet] = []
            for triplet, query, row in zip(batch, query_rows, document_rows.reshape(len(batch), -1), strict=True):
                if query >= 0 and row.min() >= 0:
                    self.leaks += triplet.query in self.held_out
                    numbered.append(([int(query), *row.tolist()], triplet.scores))
                    continue
                id = triplet.query if query < 0 else [triplet.positive, *triplet.negatives][int(row.argmin())]
                problem = f"{'query' if query < 0 else 'document'} is not in the collection"
                self.rejects.add(InputError(problem, file=path, line=triplet.line, id=id, do=SKIP))
            if numbered:
                yield numbered

    def _rows_of_texts(self, batches: Iterator[list[TripletText]]) -> Iterator[list[NumberedTriplet]]:
        """Rows of texts, making the collection on the way: each distinct text is written once."""
        queries = _DistinctTexts(_TextWriter(self, "queries"), "q")
        documents = _DistinctTexts(_TextWriter(self, "documents"), "d")
        qrels = QrelsWriter(self.folder / "qrels" / "train.tsv")
        judged: set[tuple[int, int]] = set()
        for batch in batches:
            numbered: list[NumberedTriplet] = []
            new: dict[tuple[int, int], Judgment] = {}
            for t in batch:
                pair = query, positive = queries.row(t.query), documents.row(t.positive)
                numbered.append(([*pair, *map(documents.row, t.negatives)], t.scores))
                if pair not in judged:
                    new[pair] = Judgment(f"q{query}", f"d{positive}", 1)
            judged.update(new)
            qrels.add(new.values())
            yield numbered
        queries.close()
        documents.close()
        self.report.judgments["train"] = qrels.count


class _TextWriter:
    """Writes the texts of one kind twice: as they are, for people and tools, and as tokens."""

    def __init__(self, work: _Preparation, kind: Kind) -> None:
        self._work = work
        self._kind = kind
        self._store = work.folder / "tokens" / kind
        length, prefix = work.settings.of(kind)
        unfinished = work.unfinished / kind
        unfinished.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(unfinished / JOURNAL, [unfinished / "lengths.bin", unfinished / "tokens.bin"])
        self._tokens = TokenWriter(self._store, work.tokenizer, length, prefix, self._journal)
        self._jsonl = work.folder / FILES[kind]
        append_texts(self._jsonl, [], title=False)  # it is there, even if nothing is to come

    def add(self, texts: list[Text]) -> None:
        """Append a batch."""
        self.append(texts, *self.tokenise(texts))

    def tokenise(self, texts: list[Text]) -> tuple[Tokens, int]:
        """Tokens of a batch, and how many of its texts were truncated."""
        return self._tokens.tokenise([item.text for item in texts])

    def append(self, texts: list[Text], tokens: Tokens, truncated: int) -> None:
        """Write a batch that was tokenised."""
        append_texts(self._jsonl, texts, title=self._kind == "documents")
        self._tokens.append([item.id for item in texts], tokens, truncated)

    def close(self) -> Ids:
        """Finish both, count what is in them, and hand over the ids."""
        header = self._tokens.close()
        self._work.report.blocks_reused += self._journal.kept
        counts = header["ids"]["count"], header["truncated"], header["tokens"]
        report = self._work.report
        if self._kind == "documents":
            report.documents, report.documents_truncated, report.document_tokens = counts
        else:
            report.queries, report.queries_truncated, report.query_tokens = counts
        return TokenStore(self._store).ids


class _DistinctTexts:
    """Gives each distinct text a row, in the order of first appearance, and passes it on to be written."""

    def __init__(self, writer: _TextWriter, prefix: str) -> None:
        self._writer = writer
        self._prefix = prefix
        self._rows: dict[bytes, int] = {}  # by a 128-bit hash: texts need not stay in memory
        self._waiting: list[Text] = []

    def row(self, text: str) -> int:
        """The row of a text, new or not."""
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._rows)
            self._waiting.append(Text(f"{self._prefix}{row}", text))
            if len(self._waiting) == BATCH:
                self._flush()
        return row

    def close(self) -> None:
        """Write the rest."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.add(self._waiting)
        self._waiting = []
