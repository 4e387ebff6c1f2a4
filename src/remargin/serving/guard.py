"""What every request passes before it is looked at: the host, the token, the size of the body. And what is counted.

Answers get headers that keep a browser from running anything but the page's own script.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from remargin.serving.limits import BODY_BYTES, BODY_SECONDS, DRAINED_BYTES
from remargin.serving.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/page.css", "/page.js", "/healthz")  # without a token: they tell nothing
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Refused(Exception):
    """A request is not passed on: the status, the reason, and headers of the answer."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Guard:
    """Passes requests on to the app, or refuses them.

    Args:
        app: what answers.
        token: which requests must bear; None if all may ask.
        hosts: names by which the server may be addressed; None for any. A server without a token is addressed by this
            machine's own names alone: a web page elsewhere may have its own name lead here, and read the answers.
        routes: the paths that are counted by their names.
        metrics: where requests are counted.
    """

    def __init__(
        self, app: App, token: str | None, hosts: Collection[str] | None, routes: Collection[str], metrics: Metrics
    ) -> None:
        self._app, self._hosts, self._routes, self._metrics = app, hosts, frozenset(routes), metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        started, status = time.perf_counter(), 500

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name.lower() for name, _ in message.get("headers", ())}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in names]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            self._check(scope)
            body = await _body(scope, receive)
            await self._app(scope, _replayed(body, receive), with_headers)
        except Refused as refused:
            await _refuse(refused, scope["path"], with_headers)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.request(route, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._hosts is not None and _name(headers.get(b"host", b"")) not in self._hosts:
            raise Refused(421, "this server is addressed as localhost; a token (--token-file) allows other names")
        if self._token is None or scope["path"] in OPEN:
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN", **{"www-authenticate": "Bearer"})


def _name(host: bytes) -> str:
    """The name in a Host header, without the port.

    >>> _name(b"localhost:8000"), _name(b"[::1]:8000"), _name(b"127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body, which is neither large nor slow."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":  # whoever asked has gone
                    return b"".join(parts)
                part = message.get("body", b"")
                size += len(part)
                if size <= BODY_BYTES:
                    parts.append(part)
                else:
                    parts.clear()
                if not message.get("more_body", False) or size > DRAINED_BYTES:
                    break
    except TimeoutError:
        raise Refused(408, f"the body took longer than {BODY_SECONDS:.0f} seconds", connection="close") from None
    if size > BODY_BYTES:
        raise Refused(413, f"the body has more than {BODY_BYTES:,} bytes", connection="close")
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, in one piece, and then whatever else comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(refused: Refused, path: str, send: Send) -> None:
    content = json.dumps(problem(path, refused.status, refused.reason)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), **refused.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})


def problem(path: str, status: int, reason: str) -> dict[str, Any]:
    """The content of an answer that refuses; under /v1 as OpenAI's clients expect it.

    >>> problem("/api/search", 429, "too many queries wait")
    {'detail': 'too many queries wait'}
    """
    if not path.startswith("/v1/"):
        return {"detail": reason}
    kind = "invalid_request_error" if status not in (429, 401) else {429: "rate_limit", 401: "authentication"}[status]
    return {"error": {"message": reason, "type": kind, "param": None, "code": None}}
