"""`serve`: from what is on disk to a server that answers until it is stopped."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remargin.errors import InputError, refuse_idle
from remargin.progress import tell
from remargin.retrieval.encoders import given_texts

if TYPE_CHECKING:
    from remargin.serving.loading import Served

TOKEN = "REMARGIN_TOKEN"
PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
SHORTEST_TOKEN = 16
LOCAL = ("localhost", "127.0.0.1", "::1")
GRACE_SECONDS = 30  # in which requests that were accepted are answered before the server ends


def serve(
    model: str | Path | None = None,
    data: str | Path | None = None,
    index: str | Path | None = None,
    before: str | Path | None = None,
    hybrid: str | float = "auto",
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    collect: str | Path | None = None,
    batch_size: int = 64,
    batch_wait: float = 4.0,
    queue: int = 512,
    skip_bad: bool = False,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
    say: Callable[[str], None] = tell,
) -> None:
    """Serve search and embeddings over HTTP, with a page to try them, until stopped, as `remargin serve` does.

    A new model or index in the same folder is loaded beside the old one, and takes over without a failed request.

    Args:
        model: the encoder, with `data`: a folder, or its Hugging Face name. With `index`, the encoder that made the
            index, if it is no longer where it was.
        data: the collection, as `Collection.load` takes it, whose documents are encoded into memory. With `index`,
            where its texts and judgments are, if they are not where they were.
        index: a folder that `index` wrote, instead of `model` and `data`.
        before: an encoder to compare with. Without it, with `model`, the one that its training run started from, if
            the model lies in the folder of one; "none" for none.
        hybrid: "auto", "on", "off", or the encoder's weight, 0 to 1, in a fusion with BM25, as in `index` and `ask`.
        host: the address to bind to. One that other machines reach needs a token.
        port: to listen on; 0 for any that is free.
        token_file: a file with a token that requests must bear. Without it, the environment variable REMARGIN_TOKEN.
        collect: a JSONL file to append votes on results to, which `fit` can train on (`pairs:FILE`). Without it, no
            votes are taken.
        batch_size: queries that are encoded together at most.
        batch_wait: milliseconds that a query waits for others, if nothing else is to be done.
        queue: queries that may wait; more are refused with status 429.
        skip_bad: skip bad input in `data`, and count it in a warning.
        pooling, similarity: of the model, if its folder does not say them.
        dims: truncate the model's vectors to so many numbers, which takes less memory. An index folder has its own.
        say: called with lines for people.

    Raises:
        InputError: for bad input, a port that is taken, and an address that others reach without a token.

    Example:
        >>> serve("runs/faq/model", "pairs:faq.csv", host="0.0.0.0")
        Traceback (most recent call last):
        remargin.errors.InputError: 0.0.0.0 is reached by other machines, and there is no token; ...
    """
    require_packages()
    token = read_token(token_file)
    if token is None and not is_local(host):
        do = f"give one (--token-file, or the environment variable {TOKEN}), or use --host 127.0.0.1"
        raise InputError(f"{host} is reached by other machines, and there is no token", do=do)
    used = given_texts(None, None, None, None, pooling, similarity, dims)
    served = _served(model, data, index, before, hybrid, skip_bad, used)
    with closing(_listening(host, port)) as listening:
        from remargin.serving.service import Service

        service = Service(served, collect, batch_size, batch_wait / 1000, queue, say=say)
        engine = service.engine
        address, number = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        say(f"{len(engine):,} documents, searched by {', '.join(engine.systems)}")
        say(f"page: http://{shown}:{number}/   API: http://{shown}:{number}/openapi.json   Ctrl-C stops")
        _run(service, listening, token, None if token else {*LOCAL, host.lower()})


def _run(service: object, listening: socket.socket, token: str | None, hosts: set[str] | None) -> None:
    import uvicorn

    from remargin.serving.app import create_app
    from remargin.serving.service import Service

    assert isinstance(service, Service)
    config = uvicorn.Config(
        create_app(service, token, hosts),
        log_level="warning",
        access_log=False,  # queries are nobody's business
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
    )
    with _stopping_is_no_error():
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def _stopping_is_no_error() -> Iterator[None]:
    """Uvicorn stops at a signal and then raises it again, for whoever handled it before: here, nobody."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _served(
    model: str | Path | None,
    data: str | Path | None,
    index: str | Path | None,
    before: str | Path | None,
    hybrid: str | float,
    skip_bad: bool,
    used: dict[str, Any],
) -> Served:
    from remargin.serving.loading import ServedIndex, ServedModel

    names = [None if name is None else str(name) for name in (model, data, before)]
    if index is not None:
        idle = {"skip_bad": skip_bad, "dims": "dims" in used}
        refuse_idle("an index folder", [name for name, given in idle.items() if given])
        return ServedIndex(str(index), names[0], names[1], names[2], hybrid, used)
    if names[0] is None or names[1] is None:
        raise InputError("a server needs an index, or a model and a collection", do="give --index, or --model --data")
    return ServedModel(names[0], names[1], names[2], hybrid, skip_bad, used)


def require_packages() -> None:
    """Refuse to serve if a package is missing, in a line that says how to install it."""
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise InputError(f"{missing[0]} is not installed", do="pip install 'remargin[serve]'")


def read_token(file: str | Path | None) -> str | None:
    """The token that requests must bear, from a file or from the environment; None if there is none.

    Raises:
        InputError: if the file cannot be read, or the token is short or has white space in it.
    """
    if file is None:
        token, place = os.environ.get(TOKEN), TOKEN
        if not token:
            return None
    else:
        place = str(file)
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError("the token cannot be read from it", file=place, do="give a text file") from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or len(token.split()) != 1:
        problem = f"a token has {SHORTEST_TOKEN} characters or more, of ASCII and without spaces"
        do = 'make one: python -c "import secrets; print(secrets.token_urlsafe())"'
        raise InputError(problem, file=place, do=do)
    return token


def is_local(host: str) -> bool:
    """Whether an address is reached by this machine alone.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("::1"), is_local("0.0.0.0"), is_local("example.org")
    (True, True, True, False, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """A socket at the address, before anything is loaded: a port that is taken shows at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"no such address ({error})", id=host, do="check --host") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InputError(f"{host}:{port} cannot be used ({error.strerror})", do="choose another --port") from None
    return bound
