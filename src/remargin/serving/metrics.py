"""What /metrics says, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server, in a registry of their own.

    >>> metrics = Metrics()
    >>> metrics.request("/api/search", 200, 0.01)
    >>> b'remargin_requests_total{route="/api/search",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "remargin_requests", "Requests that were answered.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "remargin_request_seconds", "From a request to its answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self._batches = Histogram(
            "remargin_batch_size", "Queries and texts in a batch.", buckets=SIZES, registry=registry
        )
        self._busy = Histogram(
            "remargin_batch_seconds", "Time of encoding and searching a batch.", buckets=SECONDS, registry=registry
        )
        self._waiting = Gauge("remargin_queue", "Queries and texts that wait for a batch.", registry=registry)
        self._documents = Gauge("remargin_documents", "Documents that are searched.", registry=registry)
        self._truncated = Counter(
            "remargin_truncated_texts", "Texts to encode that were longer than the encoder reads.", registry=registry
        )
        self._reloads = Counter(
            "remargin_reloads", "New models or indexes, by whether they were taken over.", ["result"], registry=registry
        )
        self._votes = Counter("remargin_votes", "Votes by their grade.", ["grade"], registry=registry)

    def watch(self, waiting: Callable[[], float], documents: Callable[[], float]) -> None:
        """Where to look for numbers that are not counted, but are as they are."""
        self._waiting.set_function(waiting)
        self._documents.set_function(documents)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request. The route is one of the server's own: else there would be a label for anything."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.observe(size)
        self._busy.observe(seconds)

    def truncated(self, texts: int) -> None:
        """Count texts that were truncated."""
        self._truncated.inc(texts)

    def reload(self, taken: bool) -> None:
        """Count a change of what is served."""
        self._reloads.labels("taken over" if taken else "failed").inc()

    def vote(self, grade: int) -> None:
        """Count a vote."""
        self._votes.labels(str(grade)).inc()

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)
