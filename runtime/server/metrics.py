"""What the server tells Prometheus about itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from runtime.scheduler import Scheduler

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counters, times and fill levels of one server.

    Args:
        scheduler: tells how full it is whenever it is asked.
        rows: rows of its cache.
        context: most tokens of a row.
    """

    def __init__(self, scheduler: Scheduler, *, rows: int, context: int) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered, by path and status", "path", "status")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts")
        self.tokens = self._counter("generated_tokens", "Tokens generated")
        self.first_token_seconds = self._histogram("time_to_first_token_seconds", "From request to first token")
        self.token_seconds = self._histogram("time_per_token_seconds", "Between two tokens of one text")
        self._gauge("queue", "Texts that wait for a slot").set_function(lambda: scheduler.waiting)
        self._gauge("slots_live", "Slots at work").set_function(lambda: scheduler.live)
        self._gauge("slots", "Slots that there are").set(rows)
        self._gauge("cache_fill_ratio", "Share of the cache that holds tokens").set_function(
            lambda: scheduler.held / (rows * context)
        )

    def text(self) -> bytes:
        """Give everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"smollm3_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"smollm3_{name}", text, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"smollm3_{name}", text, buckets=_SECONDS, registry=self._registry)
