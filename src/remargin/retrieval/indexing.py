"""Making an index of a collection or of vectors, whatever its kind."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remargin.data.tables import Rejects
from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import refuse_existing
from remargin.model.folder import read_settings
from remargin.retrieval import bm25
from remargin.retrieval.base import storage_class
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.built import SPARSE, Built
from remargin.retrieval.encoders import as_model, names_ranker, warn_untrained
from remargin.retrieval.hybrid import Choice, HybridSettings, chosen_hybrid, has_folder, read_choice
from remargin.retrieval.kept_texts import GROWING
from remargin.retrieval.languages import AUTO, choose_language
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.texts import collection_texts, counted_rejects

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder, EncodingPrecision
    from remargin.model.ranker import Ranker
    from remargin.retrieval.settings import Coding
    from remargin.retrieval.vectors import Dtype, Vectors

log = logging.getLogger(__name__)


def index(
    out: str | Path,
    *,
    vectors: str | Path | Vectors | None = None,
    data: str | Path | None = None,
    model: str | Path | BiEncoder | Ranker | None = None,
    index: str = "exact",
    dtype: Dtype | None = None,
    precision: EncodingPrecision | None = None,
    passage_length: int | str = "auto",
    passage_overlap: int | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
    coding: Coding | None = None,
    over_fetch: int | None = None,
    factory: str | None = None,
    links: int | None = None,
    ef_construction: int | None = None,
    code_bytes: int | None = None,
    search_parameters: str | None = None,
    uri: str | None = None,
    k1: float | None = None,
    b: float | None = None,
    language: str | None = None,
    hybrid: str | float = "auto",
    texts: bool = True,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Built:
    """Build an index in a folder, from vectors or straight from a collection, as `remargin index` does.

    Dense indexes of a collection are made of vectors that lie in a folder beside `out` until the index has its own
    copy. If it cannot be built, they stay there, so that nothing has to be encoded again.

    Args:
        out: the folder to write.
        vectors: what `encode` wrote, or its folder.
        data: the collection, as `Collection.load` takes it, instead of vectors; or beside them, for the texts.
        model: the encoder for `data`, its folder, or its Hugging Face name; of two encoders, QUERIES+DOCUMENTS. A
            SPLADE model makes an index of sparse vectors.
        index: "exact", "faiss", "milvus" or "bm25".
        dtype: of the stored vectors; this and all down to `similarity` as in `encode`.
        precision: the numeric precision to compute in.
        passage_length: "auto" splits documents that are longer than the model reads into passages, "off" truncates
            them, a number splits all documents into passages of so many tokens. A document scores as its best passage.
        passage_overlap: how many tokens neighbouring passages share.
        query_length, document_length, query_prefix, document_prefix: instead of the model's own. The index keeps them.
        pooling, similarity: of the encoder, which the index keeps, too.
        dims: truncate vectors to so many numbers, also those that are encoded already; queries are truncated alike.
        coding: exact: scalar ("int8") or binary ("binary") quantisation.
        over_fetch: candidates to score exactly for each wanted document; this and the next as in `BackendSettings`.
        factory: faiss: any index, as its factory writes it; milvus: an index type.
        links: faiss: HNSW neighbours per vector (M).
        ef_construction: faiss: HNSW candidates for neighbours while building.
        code_bytes: faiss: bytes of the product-quantisation code.
        search_parameters: faiss: such as "nprobe=64".
        uri: milvus: the address of a server.
        k1: bm25, hybrid: term-frequency saturation, 0.9 if not given.
        b: bm25, hybrid: length normalisation, 0 to 1, 0.4 if not given.
        language: bm25, hybrid: of the texts; see `BM25`. If not given, that of the model's fusion, or "auto".
        hybrid: whether the folder holds BM25 beside the vectors, so that searches fuse both: "auto", if the model's
            folder has a weight that dev chose, and the fusion is better there (see `Fusion.pays`); "on", with that
            weight in any case; "off"; or the encoder's weight, 0 to 1.
        texts: keep the texts in the folder, compressed, so that `ask` shows them wherever the collection is then.
        skip_bad: skip bad input, and count it in a warning.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, for options that have no effect on this kind of index, and if `out`, or the folder
            for the vectors, is there already.

    Example:
        >>> import tempfile
        >>> from remargin import search
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> built = index(folder, data="docstrings:json", model=model_folder, dtype="float16")
        >>> 0 < built.documents <= built.rows  # one vector each, or one for each passage
        True
        >>> run = search("docstrings:json", folder, k=3)
    """
    encoding = _given(
        dtype=dtype,
        precision=precision,
        passage_length=None if passage_length == "auto" else passage_length,
        passage_overlap=passage_overlap,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        pooling=pooling,
        similarity=similarity,
    )
    cut = _given(dims=dims)  # which vectors that are encoded already can be, too
    backend = _given(
        coding=coding,
        over_fetch=over_fetch,
        factory=factory,
        links=links,
        ef_construction=ef_construction,
        code_bytes=code_bytes,
        search_parameters=search_parameters,
        uri=uri,
    )
    words = _given(k1=k1, b=b, language=language)
    choice = read_choice(hybrid)
    if index == "bm25":
        idle = _given(vectors=vectors, model=model, dims=dims, hybrid=None if choice == "auto" else choice)
        refuse_idle("a BM25 index", [*backend, *encoding, *idle])
        return _index_words(data, Path(out), words, texts, skip_bad, overwrite)
    if model is not None and names_ranker(model):
        idle = {**backend, **words, **_given(vectors=vectors, hybrid=None if choice == "auto" else choice)}
        ranker: Any = model
        return _index_sparse(data, ranker, Path(out), index, encoding | cut, idle, texts, skip_bad, overwrite)
    from remargin.retrieval.building import build_index, index_texts
    from remargin.retrieval.index_folder import HEADER

    settings = BackendSettings(index, **backend)
    _refuse_idle_settings(settings, backend)
    settings.check()
    refuse_existing(Path(out), overwrite, HEADER)
    if vectors is not None and data is None and model is None:
        refuse_idle("vectors that are encoded already", [*encoding, *_given(skip_bad=skip_bad or None)])
        if choice not in ("auto", "off"):
            raise InputError("BM25 takes the texts, and vectors have none", do="give --data beside --vectors")
        refuse_idle(f"index {index} without BM25 (--hybrid)", words)
        loaded = _loaded(vectors, dims)
        if choice == "auto":
            _warn_without_words(loaded)
        return build_index(loaded, out, settings, overwrite, dims=dims)
    if vectors is not None and data is not None and model is None and (texts or choice != "off"):
        refuse_idle("vectors that are encoded already", encoding)
        loaded = _loaded(vectors, dims)
        fused = _hybrid(choice, loaded.made.model, words, index, data)
        if texts or fused is not None:
            with counted_rejects(skip_bad) as rejects:
                read = collection_texts(data, rejects=rejects)
                return build_index(loaded, out, settings, overwrite, fused, read, texts, dims)
    if vectors is not None or data is None or model is None:
        raise InputError("an index is made of vectors, or of texts and a model", do="give --vectors, or --data --model")
    encoder: Any = model
    fused = _hybrid(choice, encoder, words, index, data)
    return index_texts(data, encoder, Path(out), settings, encoding | cut, skip_bad, overwrite, fused, texts)


def _loaded(vectors: str | Path | Vectors, dims: int | None) -> Vectors:
    """Vectors that are encoded already; a warning says if their model was not trained to have them truncated."""
    from remargin.retrieval.vectors import Vectors

    loaded = vectors if isinstance(vectors, Vectors) else Vectors.load(vectors)
    model = Path(loaded.made.model)
    if dims is not None and dims <= loaded.made.dimension and model.is_dir():
        warn_untrained(loaded.made.model, dims, loaded.made.dimension, read_settings(model).dims)
    return loaded


def _index_sparse(
    data: str | Path | None,
    model: str | Path | Ranker,
    out: Path,
    index: str,
    encoding: dict[str, Any],
    idle: Mapping[str, Any],
    keep: bool,
    skip_bad: bool,
    overwrite: bool,
) -> Built:
    """Write an index of sparse vectors; of models that make no single vectors, only those have one."""
    from remargin.model.layouts.splade import Splade
    from remargin.retrieval.sparse import index_sparse

    if data is None:
        raise InputError("an index of sparse vectors is made of texts", do="give --data")
    refuse_existing(out, overwrite, SPARSE)
    passages = {name: encoding.pop(name, None) for name in ("passage_length", "passage_overlap")}
    splitting = [name for name, value in passages.items() if value not in (None, "off")]
    storing = ["dtype"] if encoding.pop("dtype", None) else []
    loaded = as_model(model, encoding.pop("precision", "auto"), **encoding)
    if not isinstance(loaded, Splade) or index != "exact":
        kind = getattr(loaded, "kind", "an encoder")
        problem = f"{loaded.name} is {kind}, for which there is no index {index!r}"
        do = (
            "leave --index out"
            if isinstance(loaded, Splade)
            else "search without an index (`search --model`), or re-rank"
        )
        raise InputError(problem, do=do)
    refuse_idle("an index of sparse vectors", [*idle, *splitting, *storing])
    with counted_rejects(skip_bad) as rejects:
        return index_sparse(loaded, collection_texts(data, rejects=rejects), out, str(data), keep, overwrite)


def _hybrid(
    choice: Choice | float, model: str | Path | BiEncoder, words: Mapping[str, Any], index: str, data: str | Path
) -> HybridSettings | None:
    """How the index fuses, if it does; BM25's own parameters are refused if it does not."""
    if isinstance(model, str | Path):
        fused = chosen_hybrid(choice, model)
    else:  # whose folder may be gone, if it ever had one
        fused = None if choice == "auto" and not has_folder(model.name) else chosen_hybrid(choice, model.name)
    if fused is None:
        refuse_idle(f"index {index} without BM25 (--hybrid)", words)
        return None
    fused = replace(fused, **words)
    if fused.language != AUTO:
        return fused
    texts = (text.text for text in collection_texts(data, rejects=Rejects(skip=True)))  # bad ones are said later
    return replace(fused, language=choose_language(AUTO, texts))


def _warn_without_words(vectors: Vectors) -> None:
    """Warn where the model would be fused with BM25, but vectors alone have no words."""
    model = vectors.made.model
    if Path(model).is_dir() and chosen_hybrid("auto", model) is not None:
        log.warning("dev says that %s is better fused with BM25, which takes the texts: give --data, too", model)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse_idle_settings(settings: BackendSettings, given: Mapping[str, Any]) -> None:
    options = storage_class(settings.backend).options
    refuse_idle(f"index {settings.backend}", [name for name in given if name not in options])
    if settings.backend == "faiss" and settings.factory is not None:
        refuse_idle("a --factory of your own", [name for name in ("links", "code_bytes") if name in given])
    if settings.backend == "exact" and settings.coding is None:
        refuse_idle("exact search without --coding", [name for name in ("over_fetch",) if name in given])


def _index_words(
    data: str | Path | None, out: Path, parameters: Mapping[str, Any], keep: bool, skip_bad: bool, overwrite: bool
) -> Built:
    """Write a BM25 index of a collection's documents."""
    if data is None:
        raise InputError("a BM25 index is made of texts", do="give --data")
    refuse_existing(out, overwrite, bm25.HEADER)
    with counted_rejects(skip_bad) as rejects:
        texts = {text.id: text.text for text in collection_texts(data, rejects=rejects)}
    started = time.perf_counter()
    built = BM25(texts, **parameters)
    built.save(out, str(data), overwrite, texts.values() if keep else None)
    seconds = time.perf_counter() - started
    sizes = {file: file.stat().st_size for file in out.rglob("*") if file.is_file()}
    of_texts = sum(size for file, size in sizes.items() if file.name in GROWING)
    size = sum(sizes.values()) - of_texts
    return Built(len(texts), 0, 0, None, seconds, 0, size, language=built.language, text_bytes=of_texts)
