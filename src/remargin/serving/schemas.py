"""What requests and answers look like. The OpenAPI document is made of these."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from remargin.serving.limits import (
    DOCUMENT_CHARACTERS,
    ID_CHARACTERS,
    LARGEST_K,
    QUERY_CHARACTERS,
    TEXTS,
)

System = Literal["bm25", "before", "after", "hybrid"]
Encoder = Literal["before", "after"]
Query = Annotated[str, StringConstraints(min_length=1, max_length=QUERY_CHARACTERS, pattern=r"\S")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=DOCUMENT_CHARACTERS)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=ID_CHARACTERS)]


class Request(BaseModel):
    """What all requests have in common: a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Request):
    """A query, how many documents, and which system is to rank them."""

    query: Annotated[Query, Field(description="What to look for.", examples=["how do I get my money back?"])]
    k: Annotated[int, Field(ge=1, le=LARGEST_K, description="Number of documents.")] = 10
    system: Annotated[
        System | None, Field(description="Which system ranks; without it, the default of /api/systems.")
    ] = None


class Result(BaseModel):
    """A document among the results."""

    id: str
    rank: int
    score: float
    text: Annotated[str | None, Field(description="The beginning of the document; null if its text is not at hand.")]
    more: Annotated[bool, Field(description="Whether the document is longer than `text`.")]
    relevant: Annotated[bool | None, Field(description="Its judgment; null if the query is none of the collection's.")]
    vote: Annotated[Literal[1, 0, -1], Field(description="What was voted on it for this query.")]


class SearchAnswer(BaseModel):
    """The documents that a system found, best first."""

    query: str
    system: System
    results: list[Result]
    judged: Annotated[int | None, Field(description="How many documents were judged relevant for this very query.")]
    milliseconds: Annotated[float, Field(description="From the request to the answer, waiting included.")]


class EncodeRequest(Request):
    """Texts to encode."""

    texts: Annotated[list[Text], Field(min_length=1, max_length=TEXTS)]
    kind: Annotated[
        Literal["query", "document"], Field(description="Queries and documents have lengths and prefixes of their own.")
    ] = "query"
    system: Annotated[Encoder, Field(description="Whose encoder.")] = "after"


class EncodeAnswer(BaseModel):
    """A vector for each text."""

    vectors: list[list[float]]
    dimension: int
    similarity: Literal["cosine", "dot"]
    truncated: Annotated[int, Field(description="How many texts were longer than the encoder reads.")]


class EmbeddingsRequest(BaseModel):
    """Texts to encode, as OpenAI's API takes them. Fields that it knows and we do not need are ignored."""

    input: Annotated[Text | Annotated[list[Text], Field(min_length=1, max_length=TEXTS)], Field(description="Texts.")]
    model: Annotated[
        str,
        StringConstraints(max_length=ID_CHARACTERS),
        Field(description='"after" or "before", with ":query" behind it for queries; other names mean "after".'),
    ] = "after"
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="The encoder's own; no other.")] = None
    user: str | None = None


class Embedding(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """A vector for each text, as OpenAI's API gives them."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class JudgmentRequest(Request):
    """A vote on a document for a query."""

    query: Query
    id: Id
    grade: Annotated[Literal[1, 0, -1], Field(description="1 for, -1 against, 0 takes a vote back.")]
    system: System


class JudgmentAnswer(BaseModel):
    """The vote that is kept now."""

    id: str
    grade: Literal[1, 0, -1]


class DocumentAnswer(BaseModel):
    """A whole document."""

    id: str
    text: str


class SystemAnswer(BaseModel):
    """A system that is loaded."""

    name: System
    label: str
    description: str


class SystemsAnswer(BaseModel):
    """What is served."""

    systems: list[SystemAnswer]
    default: System
    documents: int
    data: str
    collects: Annotated[bool, Field(description="Whether votes are taken (--collect).")]
    examples: Annotated[list[str], Field(description="Queries of the collection's test split.")]
    largest_k: int
    query_characters: int
    version: str


class Health(BaseModel):
    """That the server is there."""

    status: Literal["ok"] = "ok"
    documents: int


class Problem(BaseModel):
    """Why a request was refused, in a line."""

    detail: str
