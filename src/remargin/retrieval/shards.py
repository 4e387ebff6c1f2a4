"""Encoding in shards, which workers write side by side: joined, they are what one process would have written.

A shard is a folder of vectors like any other, of some thousand texts, and appears at once when it is whole. The
manifest says which shards are there and what they are of: interrupted encoding encodes only what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from remargin.data.source import Text
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.files.arrays import write_array
from remargin.files.atomic import locked, naming, new_file, new_folder, refuse_existing
from remargin.files.checksums import sha256
from remargin.files.executor import Executor, Work
from remargin.files.hashes import texts_fingerprint
from remargin.files.journal import JOURNAL, append_line, journal_line, read_journal
from remargin.files.shapes import Count, Size
from remargin.model.encoder import BiEncoder
from remargin.progress import track
from remargin.retrieval import encoding
from remargin.retrieval.encoders import for_workers
from remargin.retrieval.encoding import Filling, fill
from remargin.retrieval.vectors import HEADER, Made, Vectors

SHARD = 65_536  # texts: seconds of a GPU, minutes of a CPU
MANIFEST = "manifest.jsonl"


class Entry(TypedDict):
    """A line of a manifest: a shard that is there.

    Attributes:
        number: which.
        key: a hash of its texts.
        texts: how many.
        rows: how many vectors they have.
        sum: the SHA-256 of its header, which has the checksums of its other files.
    """

    number: Count
    key: str
    texts: Size
    rows: Size
    sum: str


class Shard(NamedTuple):
    """Texts to encode together."""

    number: int
    texts: list[Text]


def encode_shards(
    model: BiEncoder,
    texts: Iterable[Text],
    out: str | Path,
    executor: Executor,
    made: Made | None = None,
    overwrite: bool = False,
    only_longer: bool = False,
    size: int | None = None,
    at_once: int | None = None,
) -> Vectors:
    """Write the vectors of texts to a folder, as `encode_texts` does, by the workers of an executor.

    Shards that are done lie in a hidden folder beside `out`, which all workers must see, until all are there.

    Args:
        model: the encoder, which the workers are sent.
        texts: each with its own id.
        out: the folder.
        executor: where to encode.
        made: settings, as `Made.by(model, ...)` gives them.
        overwrite: replace `out` if it is there.
        only_longer: as in `encode_texts`.
        size: texts in a shard, a multiple of `at_once`; 65,536 if not given.
        at_once: as in `fill`.

    Example:
        >>> import tempfile
        >>> from remargin.files.executor import InThisProcess
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> texts = [Text("d1", "one text"), Text("d2", "another")]
        >>> out = Path(tempfile.mkdtemp()) / "vectors"
        >>> list(encode_shards(model, texts, out, InThisProcess(), size=1, at_once=1).ids)
        ['d1', 'd2']
    """
    out = Path(out).resolve()
    refuse_existing(out, overwrite, HEADER)
    made = made or Made.by(model)
    if made.model_fingerprint != model.fingerprint():
        raise InputError("these settings were made for another model", do="use Made.by(model, ...)")
    at_once = at_once or encoding.TEXTS_AT_ONCE
    size = -(-SHARD // at_once) * at_once if size is None else size
    if size < 1 or size % at_once:
        problem = f"shards of {size:,} texts, which are encoded {at_once:,} at a time"
        raise InputError(problem, do=f"use a multiple of {at_once:,}")
    work = [made.on_disk(), model.precision, executor.device or model.device.type, size, at_once]
    folder = out.parent / f".{out.name}.{hashlib.blake2b(json.dumps(work).encode(), digest_size=8).hexdigest()}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), naming(out):
        try:
            shards = _encoded(model, texts, folder, executor, made, size, at_once)
            if not shards:
                raise InputError("there are no texts to encode", do="name another collection")
        except BaseException:
            if not any(folder.glob(f"*/{HEADER}")):  # there is nothing to resume
                shutil.rmtree(folder)
            raise
        whole = only_longer and all(entry["rows"] == entry["texts"] for entry in shards)
        with new_folder(out, overwrite, HEADER) as joined:
            join((Vectors.load(folder / _name(entry["number"])) for entry in shards), joined, made, whole)
        shutil.rmtree(folder)
    return Vectors.mapped(out)


def join(shards: Iterable[Vectors], folder: Path, made: Made, whole: bool = False) -> None:
    """Write the vectors of all shards to one folder, byte for byte as if they had been encoded there.

    Args:
        shards: in the order of their texts.
        folder: where to write.
        made: the settings of all.
        whole: whether no text of any shard was split, so that there are no passages to write.
    """
    filling = Filling(folder, made)
    with contextlib.ExitStack() as opened:
        names = filling.names[:1] if whole else filling.names
        files = [opened.enter_context(open(folder / name, "wb")) for name in names]
        for vectors in track(shards, "joining shards"):
            contents = [vectors.matrix]
            if len(files) > 1 and vectors.owners is not None:
                contents.append(vectors.owners + np.uint32(filling.texts))
            for file, content in zip(files, contents, strict=True):
                write_array(file, content)
            filling.add(list(vectors.ids), np.asarray(vectors.hashes), len(vectors.matrix), vectors.truncated)
    filling.close(only_longer=whole)


def _encoded(
    model: BiEncoder, texts: Iterable[Text], folder: Path, executor: Executor, made: Made, size: int, at_once: int
) -> list[Entry]:
    """The entries of all shards in their order, after those that were missing have been encoded."""
    before = {entry["number"]: entry for entry in read_journal(folder / MANIFEST, Entry)}
    with new_file(folder / MANIFEST, overwrite=True) as manifest:  # without a line that a kill left unfinished
        manifest.writelines(map(journal_line, before.values()))
    there: dict[int, Entry] = {}
    kept: list[Entry] = []
    keys: dict[int, str] = {}  # of the shards that are being encoded

    def missing() -> Iterator[Shard]:
        for number, block in enumerate(batches(texts, size)):
            key = texts_fingerprint((text.id, text.text) for text in block)
            entry = before.get(number)
            if entry is not None and entry["key"] == key and _intact(folder / _name(number), entry):
                kept.append(entry)
            else:
                keys[number] = key
                yield Shard(number, block)

    def done() -> Iterator[Entry]:
        for number, count, rows in executor.run(start, missing()):
            header = folder / _name(number) / HEADER
            if not header.is_file():
                problem = f"shard {number} was written where this machine does not see it"
                raise InputError(problem, file=folder, do="write to a folder that all workers share")
            yield from _taken(kept)
            yield {"number": number, "key": keys.pop(number), "texts": count, "rows": rows, "sum": sha256(header)}
        yield from _taken(kept)

    start = EncodeShards(for_workers(model, executor), made, folder, at_once)
    for entry in track(done(), "encoding", size=lambda entry: entry["texts"]):
        if before.get(entry["number"]) is not entry:
            append_line(folder / MANIFEST, entry)
        there[entry["number"]] = entry
    return [there[number] for number in sorted(there)]


@dataclass(frozen=True)
class EncodeShards:
    """Encodes shards, each into a folder of its own; gives their numbers, and how many texts and vectors they have."""

    model: BiEncoder
    made: Made
    folder: Path
    at_once: int

    def __call__(self, device: str | None) -> Work[Shard, tuple[int, int, int]]:
        """What a worker does with shards."""
        if device is not None:
            self.model.to(device)
        return lambda shards: map(self._encode, shards)

    def _encode(self, shard: Shard) -> tuple[int, int, int]:
        out = self.folder / _name(shard.number)
        with new_folder(out, True, HEADER) as folder:  # one that is there is damaged, or of other texts
            fill(folder, self.model, shard.texts, self.made, at_once=self.at_once)
            (folder / JOURNAL).unlink()
        return shard.number, len(shard.texts), len(Vectors.mapped(out).matrix)


def _name(number: int) -> str:
    return f"{number:06}"


def _taken(entries: list[Entry]) -> Sequence[Entry]:
    """All entries of a list, which is empty then."""
    taken, entries[:] = entries[:], []
    return taken


def _intact(shard: Path, entry: Entry) -> bool:
    """Whether a shard is as the manifest says, and as it was written."""
    try:
        Vectors.load(shard)
        return sha256(shard / HEADER) == entry["sum"]
    except (InputError, OSError):
        return False
