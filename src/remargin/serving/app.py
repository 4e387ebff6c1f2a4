"""The HTTP API and the page: routes over a `Service`. What is refused gets a status of 4xx and a reason in a line."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from remargin import __version__
from remargin.errors import InputError, printable
from remargin.model.tokenizer import Kind
from remargin.serving import schemas
from remargin.serving.batching import Closed, QueueFull
from remargin.serving.engine import Engine, Hit, Name
from remargin.serving.guard import App, Guard, problem
from remargin.serving.limits import ID_CHARACTERS, LARGEST_K, QUERY_CHARACTERS, SHOWN_CHARACTERS
from remargin.serving.metrics import CONTENT_TYPE
from remargin.serving.service import Service

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        400: "The request names something that is not served.",
        401: "A token is needed, and this is none or another one.",
        413: "The body is too large.",
        422: "The request is not as it should be, or past a limit.",
        429: "Too many queries wait already: try again in a second.",
        503: "The server is stopping.",
    }.items()
}
VOTES: dict[int | str, dict[str, Any]] = {403: {"model": schemas.Problem, "description": "No votes are collected."}}
UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.Problem, "description": "No such document."}}


def create_app(service: Service, token: str | None = None, hosts: Collection[str] | None = None) -> App:
    """The ASGI application of a service; `token` and `hosts` as in `Guard`.

    Example:
        >>> from remargin.serving.loading import ServedModel
        >>> app = create_app(Service(ServedModel(str(model_folder), "docstrings:json")))
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    about = "Search, embeddings, and votes on results. See the page at / for a comparison of the systems."
    api = fastapi.FastAPI(
        title="remargin", version=__version__, description=about, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    _add_refusals(api)
    _add_page(api)
    _add_status(api, service)
    _add_search(api, service)
    _add_encoding(api, service)
    routes = [route.path for route in api.routes if isinstance(route, fastapi.routing.APIRoute)]
    return Guard(api, token, hosts, [*routes, "/openapi.json"], service.metrics)


def _add_refusals(api: fastapi.FastAPI) -> None:
    """What each kind of exception is answered with."""

    def refuse(request: fastapi.Request, status: int, reason: str, **headers: str) -> Response:
        return JSONResponse(problem(request.url.path, status, printable(reason)), status, headers)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: fastapi.Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])  # behind "body" or "query"
        return refuse(request, 422, f"{place[:100] or 'body'}: {first['msg'][:300]}")

    @api.exception_handler(HTTPException)
    async def http(request: fastapi.Request, error: HTTPException) -> Response:
        return refuse(request, error.status_code, str(error.detail), **(dict(error.headers or {})))

    @api.exception_handler(InputError)
    async def wrong(request: fastapi.Request, error: InputError) -> Response:
        return refuse(request, 400, str(error))

    @api.exception_handler(QueueFull)
    async def full(request: fastapi.Request, error: QueueFull) -> Response:
        return refuse(request, 429, "too many queries wait already; try again in a second", **{"retry-after": "1"})

    @api.exception_handler(Closed)
    async def stopping(request: fastapi.Request, error: Closed) -> Response:
        return refuse(request, 503, "the server is stopping", **{"retry-after": "5"})

    @api.exception_handler(TimeoutError)
    async def slow(request: fastapi.Request, error: TimeoutError) -> Response:
        return refuse(request, 503, "the answer took too long", **{"retry-after": "5"})


def _add_page(api: fastapi.FastAPI) -> None:
    """The page: three files, which are read once."""

    def add(path: str, content: bytes, kind: str) -> None:
        @api.get(path, include_in_schema=False)
        async def file() -> Response:
            return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    for path, (name, kind) in PAGE.items():
        add(path, (Path(__file__).parent / "page" / name).read_bytes(), kind)


def _add_status(api: fastapi.FastAPI, service: Service) -> None:
    """How the server is, and what it serves."""

    @api.get("/healthz", response_model=schemas.Health, tags=["status"])
    async def health() -> Response:
        """Whether the server answers."""
        return _json({"status": "ok", "documents": len(service.engine)})

    @api.get("/metrics", tags=["status"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @api.get("/api/systems", response_model=schemas.SystemsAnswer, responses=REFUSALS, tags=["search"])
    async def systems() -> Response:
        """The systems that are loaded, and what the page shows at first."""
        engine = service.engine
        content = {
            "systems": [_described(engine, name) for name in engine.systems],
            "default": engine.default,
            "documents": len(engine),
            "data": _public(engine.data),
            "collects": service.judgments is not None,
            "examples": engine.known.examples,
            "largest_k": LARGEST_K,
            "query_characters": QUERY_CHARACTERS,
            "version": __version__,
        }
        return _json(content)


def _described(engine: Engine, name: Name) -> dict[str, str]:
    """The name of a system, a label for people, and what it is."""
    encoder = "" if name == "bm25" else _public(engine.encoder(name).name)
    labels = {"bm25": "BM25", "before": "Before training", "after": "After training", "hybrid": "Hybrid"}
    if engine.before is None:
        labels["after"] = "Encoder"
    fused = "" if engine.hybrid is None else f"BM25 and the encoder, weight {engine.hybrid.weight:g}"
    description = {"bm25": "words", "hybrid": fused}.get(name, encoder)
    return {"name": name, "label": labels[name], "description": description}


def _public(name: str) -> str:
    """The name of a model or collection without the folders that it lies in: these are nobody's business.

    >>> _public("/home/me/runs/faq/model"), _public("pairs:/home/me/faq.csv"), _public("docstrings:json,csv")
    ('faq/model', 'pairs:faq.csv', 'docstrings:json,csv')
    """
    kind, colon, rest = name.rpartition(":")
    parts = Path(rest.partition("?")[0]).parts
    kept = parts[-2:] if parts and parts[-1] in ("model", "best", "last") else parts[-1:]
    return f"{kind}{colon}{'/'.join(kept)}"


def _add_search(api: fastapi.FastAPI, service: Service) -> None:
    """Searching, documents, and votes on them."""

    async def answer(asked: schemas.SearchRequest) -> Response:
        started = time.perf_counter()
        engine, system, hits = await service.search(asked.query, asked.system, asked.k)
        content = {
            "query": asked.query,
            "system": system,
            **_results(service, engine, asked.query, hits),
            "milliseconds": round(1000 * (time.perf_counter() - started), 2),
        }
        return _json(content)

    @api.post("/api/search", response_model=schemas.SearchAnswer, responses=REFUSALS, tags=["search"])
    async def search(asked: schemas.SearchRequest) -> Response:
        """The best documents for a query, by one of the systems."""
        return await answer(asked)

    @api.get("/api/search", response_model=schemas.SearchAnswer, responses=REFUSALS, tags=["search"])
    async def search_by_get(asked: Annotated[schemas.SearchRequest, fastapi.Query()]) -> Response:
        """The same, for a link or a browser."""
        return await answer(asked)

    @api.get("/api/document", response_model=schemas.DocumentAnswer, responses=REFUSALS | UNKNOWN, tags=["search"])
    async def document(id: Annotated[str, fastapi.Query(min_length=1, max_length=ID_CHARACTERS)]) -> Response:
        """A whole document."""
        return _json({"id": id, "text": _text(service.engine, id)})

    @api.post(
        "/api/judgments", response_model=schemas.JudgmentAnswer, responses=REFUSALS | UNKNOWN | VOTES, tags=["search"]
    )
    async def judge(vote: schemas.JudgmentRequest) -> Response:
        """Vote on a document, if the server collects votes."""
        if service.judgments is None:
            raise HTTPException(403, "this server does not collect votes (--collect)")
        text = _text(service.engine, vote.id)
        await asyncio.to_thread(service.judgments.vote, vote.query, vote.id, text, vote.grade, vote.system)
        service.metrics.vote(vote.grade)
        return _json({"id": vote.id, "grade": vote.grade})


def _text(engine: Engine, id: str) -> str:
    text = engine.texts.of([id]).get(id)
    if text is None:
        raise HTTPException(404, "no such document, or its text is not at hand")
    return text


def _results(service: Service, engine: Engine, query: str, hits: list[Hit]) -> dict[str, Any]:
    """The documents with their texts, judgments and votes."""
    texts = engine.texts.of([hit.id for hit in hits])
    relevant = engine.known.relevant(query)
    votes = {} if service.judgments is None else service.judgments.of(query)
    results = []
    for rank, (id, score) in enumerate(hits, start=1):
        text = texts.get(id)
        results.append(
            {
                "id": id,
                "rank": rank,
                "score": round(score, 6),
                "text": None if text is None else text[:SHOWN_CHARACTERS],
                "more": text is not None and len(text) > SHOWN_CHARACTERS,
                "relevant": None if relevant is None else id in relevant,
                "vote": votes.get(id, 0),
            }
        )
    return {"results": results, "judged": None if relevant is None else len(relevant)}


def _add_encoding(api: fastapi.FastAPI, service: Service) -> None:
    """Vectors of texts, our way and OpenAI's."""

    @api.post("/api/encode", response_model=schemas.EncodeAnswer, responses=REFUSALS, tags=["encode"])
    async def encode(asked: schemas.EncodeRequest) -> Response:
        """Vectors of queries or documents."""
        kinds: dict[str, Kind] = {"query": "queries", "document": "documents"}
        engine, encoded = await service.encode(asked.texts, kinds[asked.kind], asked.system)
        model = engine.encoder(asked.system)
        content = {"vectors": encoded.vectors.tolist(), "dimension": model.dimension, "similarity": model.similarity}
        return _json({**content, "truncated": encoded.truncated})

    @api.post("/v1/embeddings", response_model=schemas.EmbeddingsAnswer, responses=REFUSALS, tags=["encode"])
    async def embeddings(asked: schemas.EmbeddingsRequest) -> Response:
        """Vectors as OpenAI's API gives them: of documents, or of queries if the model's name ends in ":query"."""
        name, _, kind = asked.model.partition(":")
        system: Name = "before" if name == "before" else "after"
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        dimension = service.engine.encoder(system).dimension
        if asked.dimensions not in (None, dimension):
            raise InputError(f"dimensions {asked.dimensions}: the vectors have {dimension}", do="leave it out")
        engine, encoded = await service.encode(texts, "queries" if kind == "query" else "documents", system)
        vectors: list[Any] = encoded.vectors.tolist()
        if asked.encoding_format == "base64":
            vectors = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in encoded.vectors]
        content = {
            "object": "list",
            "data": [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)],
            "model": _public(engine.encoder(system).name),
            "usage": {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens},
        }
        return _json(content)


def _json(content: dict[str, Any]) -> Response:
    """An answer that is known to be as its schema says, and so is not checked against it again."""
    return Response(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"), media_type="application/json")
