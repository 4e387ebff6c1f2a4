"""Searching a collection, or asking one question, with whichever index."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from remargin.data.collection import Collection, open_collection
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.inputs import without_self_matches
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing
from remargin.model.ranker import Ranker
from remargin.retrieval.base import BACKENDS, Index
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.bm25 import HEADER as BM25_HEADER
from remargin.retrieval.built import SPARSE
from remargin.retrieval.encoders import AS_GIVEN, OF_QUERIES, as_encoder, as_model, given_texts
from remargin.retrieval.hybrid import Choice, HybridIndex, HybridSettings, chosen_hybrid, read_choice
from remargin.retrieval.kept_texts import KeptTexts
from remargin.retrieval.languages import AUTO, OTHER_TERMS, describe_choice

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder
    from remargin.retrieval.dense import DenseIndex
    from remargin.retrieval.sparse import SparseIndex


log = logging.getLogger(__name__)
KINDS = ("bm25", *BACKENDS)


def search(
    data: str | Path | Collection,
    index: str | Path | Index = "exact",
    model: str | Path | BiEncoder | Ranker | None = None,
    k: int = 1000,
    split: str = "test",
    skip_bad: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    hybrid: str | float | None = None,
    language: str | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
    passage_length: int | str = "auto",
    passage_overlap: int | None = None,
) -> Run:
    """Rank documents for each of a collection's queries, as `remargin search` does.

    A query that is itself a document does not find itself.

    Args:
        data: the collection, or what `Collection.load` takes: queries, and documents if the index is made on the way.
        index: "bm25"; "exact", "faiss" or "milvus" with a model; a folder that `index` wrote; an open index.
        model: the encoder, its folder, or its Hugging Face name; of two encoders, QUERIES+DOCUMENTS. A ColBERT or
            SPLADE model goes with "exact". An index folder knows its own, and refuses another.
        k: how many documents for each query.
        split: whose queries, if `data` is not loaded yet.
        skip_bad: skip bad input, and count it in a warning, if `data` is not loaded yet.
        out: a TREC run file to write; its name may end in .gz.
        overwrite: replace `out` if it is there.
        hybrid: "on", "off", "auto", or the encoder's weight, 0 to 1, in a fusion with BM25. An index folder is searched
            as it was made ("auto"), or by its encoder alone ("off"). An index that is made on the way is not fused,
            so that the encoder itself is measured, unless this says so; "auto" and "on" are as in `index`.
        language: of the texts, for BM25, if its index is made on the way; see `BM25`. If not given, "auto", or the one
            that the model was fused with. An index folder has its own.
        query_length, document_length: maximum lengths in tokens, instead of the model's own. An index folder has its
            own, and refuses others.
        query_prefix, document_prefix: put before every text, likewise.
        pooling, similarity: how the encoder's token vectors become one, such as "mean", and "cosine" or "dot", instead
            of what its folder says. One that does not say them is refused without.
        dims: truncate vectors to so many numbers; best to those that the model was trained for. An index folder has its
            own, and refuses others.
        passage_length, passage_overlap: of an index that is made on the way, as in `index`: documents that are longer
            than the model reads are split into passages ("auto"), or truncated ("off").

    Raises:
        InputError: for bad input, an unknown index or one of another collection, and a model that is missing or does
            not fit the index.

    Example:
        >>> collection = Collection.load("docstrings:json", split="test")
        >>> run = search(collection, "bm25", k=3)
        >>> list(run.rankings) == list(collection.queries)
        True
    """
    if out is not None:
        refuse_existing(Path(out), overwrite)
    named = isinstance(index, str | Path)
    if index in KINDS and not isinstance(data, Collection) and any(Path(str(index)).glob("remargin_*.json")):
        problem = f"{str(index)!r} is both a kind of index and a folder here"
        raise InputError(problem, do=f"write ./{index} for the folder, or search elsewhere")
    given = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity, dims)
    passages = {"passage_length": passage_length, "passage_overlap": passage_overlap}
    encoder = model_for(index, model, given, passages)
    collection = open_collection(data, split, skip_bad)
    if isinstance(index, str | Path):
        opened: Index = _open(collection, index, encoder, hybrid, language, passages)
    else:
        idle = {"hybrid": hybrid, "language": language}
        refuse_idle("an index that is open", [name for name, value in idle.items() if value is not None])
        opened = index
    run = _ranked(opened, collection, k)
    if named and index not in KINDS:
        _check_documents(opened, run, collection, Path(str(index)))
    if named and (empty := run.empty()):
        reason = "; no word of theirs is in a document" if isinstance(opened, BM25) else ""
        reason += f": {OTHER_TERMS}" if reason and len(empty) == len(run) else ""
        log.warning("nothing was found for %d of %d queries, such as %r%s", len(empty), len(run), empty[0], reason)
    if out is not None:
        run.save(out, tag=Path(str(index)).name if named else "search", overwrite=overwrite)
    return run


def model_for(
    index: str | Path | Index,
    model: str | Path | BiEncoder | Ranker | None,
    texts: Mapping[str, Any],
    passages: Mapping[str, Any] = MappingProxyType({}),
) -> BiEncoder | Ranker | None:
    """The model to search with, if one is given or the index has one. Refuses options that would do nothing."""
    split = [name for name, value in passages.items() if value not in (None, "auto")]
    if not isinstance(index, str | Path):
        refuse_idle("an index that is open", [*texts, *split])
    elif index == "bm25" or (Path(index) / BM25_HEADER).is_file():
        refuse_idle("BM25", [*texts, *split])
    elif index not in KINDS and Path(index).is_dir():
        refuse_idle("an index that is made already", split)
        if (Path(index) / SPARSE).is_file():
            refuse_idle("an index of sparse vectors", texts)
        elif not isinstance(model, Ranker):
            return index_encoder(index, model, texts)
    return None if model is None else as_model(model, **texts)


def index_encoder(
    folder: str | Path, model: str | Path | BiEncoder | None, texts: Mapping[str, Any] = MappingProxyType({})
) -> BiEncoder:
    """The encoder to search an index with: its own, or the one that is given, with the index's lengths and prefixes.

    Args:
        folder: the index.
        model: the encoder, its folder, or its name, if it is no longer where it was.
        texts: as for `as_model`; those that the index keeps must be the same.

    Raises:
        InputError: for lengths or prefixes that are not the index's.
    """
    from remargin.model.loading import load_encoder
    from remargin.retrieval.index_folder import load_model, read_index_header
    from remargin.retrieval.vectors import Made

    made = Made.from_disk(read_index_header(Path(folder))["made"])  # which no update changes
    kept: dict[str, Any] = {"document_length": made.length, "document_prefix": made.prefix}
    kept |= {"similarity": made.similarity, "dims": made.dimension}
    kept |= {name: getattr(made, name) for name in AS_GIVEN if getattr(made, name) is not None}
    for name, value in texts.items():
        if kept.get(name, value) != value:
            a = "" if name == "dims" else "a "
            problem = f"the index was made with {a}{name.replace('_', ' ')} of {kept[name]!r}, not {value!r}"
            raise InputError(problem, file=folder, do=f"leave out --{name.replace('_', '-')}, or make the index again")
    if "pooling" in texts and made.pooling is None:
        do = "leave out --pooling, or make the index again"
        raise InputError("the index was made with its model's own pooling", file=folder, do=do)
    if model is None:
        return load_model(replace(made, **{name: value for name, value in texts.items() if name in OF_QUERIES}))
    if not isinstance(model, str | Path):
        return as_encoder(model, **texts)
    del kept["dims"]
    return made.truncating(load_encoder(model, **{**texts, **kept}))


def _ranked(index: Index, collection: Collection, k: int) -> Run:
    """The k best documents of each query of a collection, without the query itself."""
    if isinstance(index, HybridIndex):
        warn_shallow(index, k)
        return index.search(collection.queries, k, collection.self_matches)
    run = index.search(collection.queries, k + bool(collection.self_matches))
    return Run.of(without_self_matches(run, collection)[0].rankings, depth=k) if collection.self_matches else run


def warn_shallow(index: Index, k: int) -> None:
    """Warn if a fused ranking is not as deep as is asked for."""
    if isinstance(index, HybridIndex) and k > (depth := index.settings.depth):
        log.warning("BM25 and the encoder are fused %d documents deep: there may be fewer than %d a query", depth, k)


def _check_documents(index: Index, run: Run, collection: Collection, folder: Path) -> None:
    """Refuse the index of another collection, and warn if the collection has changed since the index was made."""
    ranked = {id for ranking in run.rankings.values() for id in ranking}
    unknown = ranked.difference(collection.documents)
    if ranked and unknown == ranked:
        problem = f"is not a document of {collection.name}, nor is any other that the index finds"
        raise InputError(problem, file=folder, id=min(ranked), do="search the index of this collection")
    lacking = index.lacking(list(collection.documents))
    if lacking or unknown:
        log.warning(
            "%s lacks %d of %d documents of %s, and found %d that are not among them: see `remargin update`",
            *(folder, lacking, len(collection.documents), collection.name, len(unknown)),
        )


def _open(
    collection: Collection,
    index: str | Path,
    model: BiEncoder | Ranker | None,
    hybrid: str | float | None,
    language: str | None,
    passages: Mapping[str, Any],
) -> Index:
    if index == "bm25":
        if model is not None:
            raise InputError("index 'bm25' takes no model", do="leave --model out")
        refuse_idle("index 'bm25'", [] if hybrid is None else ["hybrid"])
        return _words(collection, language or AUTO)
    if index in KINDS:
        if model is None:
            raise InputError(f"index {index!r} needs a model", do="give --model")
        if isinstance(model, Ranker):
            return _exhaustive(collection, str(index), model, {"hybrid": hybrid, "language": language, **passages})
        from remargin.retrieval.dense import DenseIndex
        from remargin.retrieval.settings import BackendSettings
        from remargin.retrieval.vectors import Vectors

        settings = BackendSettings(str(index))
        settings.check()
        fused = None if hybrid is None else chosen_hybrid(read_choice(hybrid), model.name)
        if fused is None:
            refuse_idle(f"index {str(index)!r} without BM25 (--hybrid)", [] if language is None else ["language"])
        vectors = Vectors.of(model, collection.documents, collection.name, **passages)
        if (line := vectors.passages_line()) is not None:
            log.warning(line)
        dense = DenseIndex.in_memory(model, vectors, settings)
        return dense if fused is None else HybridIndex(dense, _words(collection, language or fused.language), fused)
    if not Path(index).is_dir():
        do = f"use {', '.join(KINDS)}, or a folder that `remargin index` wrote"
        raise InputError(f"unknown index {str(index)!r}", do=do)
    refuse_idle("an index folder, which has its own", [] if language is None else ["language"])
    return load_index(index, model, hybrid)


def _exhaustive(collection: Collection, index: str, model: Ranker, options: Mapping[str, Any]) -> Index:
    """The exhaustive search of a collection by a model that makes no single vectors."""
    from remargin.retrieval.exhaustive import ExhaustiveIndex

    if index != "exact":
        problem = f"index {index!r} takes a vector of each text, and {model.name} is {model.kind}"
        raise InputError(problem, do="use --index exact")
    refuse_idle(model.kind, [name for name, value in options.items() if value not in (None, "auto", "off")])
    return ExhaustiveIndex(model, collection.documents, collection.name)


def _words(collection: Collection, language: str) -> BM25:
    """BM25 of a collection; if "auto" chose another language than English, a line says so."""
    bm25 = BM25(collection.documents, language=language)
    if chosen := describe_choice(bm25.language, language):
        log.warning(chosen)
    return bm25


def load_index(
    folder: str | Path, model: BiEncoder | Ranker | None = None, hybrid: str | float | None = None
) -> BM25 | DenseIndex | HybridIndex | SparseIndex:
    """Open the index in a folder: BM25's, or one with its model, or both fused; `hybrid` as in `ask`."""
    return load_with_texts(folder, model, hybrid)[0]


def load_with_texts(
    folder: str | Path, model: BiEncoder | Ranker | None, hybrid: str | float | None
) -> tuple[BM25 | DenseIndex | HybridIndex | SparseIndex, KeptTexts | None]:
    """The index in a folder, and the texts that it keeps."""
    if (Path(folder) / BM25_HEADER).is_file():
        if model is not None:
            raise InputError("a BM25 index takes no model", file=folder, do="leave --model out")
        refuse_idle("a BM25 index", [] if hybrid is None else ["hybrid"])
        bm25 = BM25.load(folder)
        return bm25, bm25.texts
    if (Path(folder) / SPARSE).is_file():
        return _load_sparse(folder, model, hybrid)
    from remargin.retrieval.index_folder import open_parts

    if isinstance(model, Ranker):
        raise InputError(f"another model made the index, and no {model.kind}", file=folder, do="leave --model out")

    choice = read_choice("auto" if hybrid is None else hybrid)
    parts = open_parts(folder, model, words=choice != "off")
    fused = _fused(choice, parts.hybrid, folder)
    return parts.dense if fused is None else HybridIndex(parts.dense, parts.bm25, fused), parts.texts


def _load_sparse(
    folder: str | Path, model: BiEncoder | Ranker | None, hybrid: str | float | None
) -> tuple[SparseIndex, KeptTexts | None]:
    from remargin.retrieval.sparse import SparseIndex

    refuse_idle("an index of sparse vectors", [] if hybrid is None else ["hybrid"])
    if model is not None and not isinstance(model, Ranker):
        raise InputError(f"was not made by {model.name}, which is an encoder", file=folder, do="leave --model out")
    index = SparseIndex.load(folder, model)
    return index, index.texts


def _fused(choice: Choice | float, made: HybridSettings | None, folder: str | Path) -> HybridSettings | None:
    """How to search an index folder that was made so; None for its encoder alone."""
    if choice == "off" or (choice == "auto" and made is None):
        return None
    if made is None:
        problem = "holds the encoder's vectors alone, and no BM25 to fuse with them"
        raise InputError(problem, file=folder, do="make the index again with `remargin index --hybrid`")
    return made.weighing(choice)


def fusion_of(
    index: str | Path, model: str | Path | None = None, hybrid: str | float | None = None
) -> HybridSettings | None:
    """How `search` and `ask` will fuse BM25 and an encoder, by the same arguments; None if they will not.

    Example:
        >>> fusion_of("exact", model_folder), print(fusion_of("exact", model_folder, hybrid=0.4))
        BM25 and the encoder fused, weight 0.4
        (None, None)
    """
    if index in KINDS:
        return None if hybrid is None or model is None else chosen_hybrid(read_choice(hybrid), model)
    if not Path(index).is_dir() or any((Path(index) / header).is_file() for header in (BM25_HEADER, SPARSE)):
        return None
    from remargin.retrieval.index_folder import IndexFolder

    return _fused(read_choice("auto" if hybrid is None else hybrid), IndexFolder.read(Path(index)).hybrid, index)
