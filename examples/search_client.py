"""Ask a running server, from any program: all that it takes is JSON over HTTP.

Builds an index of the standard library's docstrings and starts `remargin serve`, to have a server; leave that out if
yours is running. /openapi.json lists all requests, and /v1/embeddings takes those of OpenAI's clients.
"""

import json
import subprocess
import sys
import time
from urllib.parse import urlencode
from urllib.request import urlopen

from remargin import index

MODEL = "minilm"
DATA = "docstrings:stdlib"
ADDRESS = "http://127.0.0.1:8123"


def get(path: str, **parameters: str | int) -> dict:
    """The answer to a request, as JSON."""
    with urlopen(f"{ADDRESS}{path}?{urlencode(parameters)}", timeout=30) as answer:
        return json.load(answer)


index("served.index", data=DATA, model=MODEL, hybrid=0.5)
server = subprocess.Popen([sys.executable, "-m", "remargin", "serve", "--index", "served.index", "--port", "8123"])
try:
    while server.poll() is None:
        try:
            print(get("/healthz"))
            break
        except OSError:  # not there yet
            time.sleep(1)
    for system in ("bm25", "after", "hybrid"):
        answer = get("/api/search", query="wrap long lines of text", k=3, system=system)
        print(system, [result["id"] for result in answer["results"]], f"{answer['milliseconds']:.0f} ms")
finally:
    server.terminate()
    server.wait()
