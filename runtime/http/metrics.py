"""Counters and times of this server and of its workers, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.contract import DecisionReply
from engine.fleet import WorkerInfo
from runtime.http.load import Load
from runtime.metrics import figures_of_worker

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Workers(Collector):
    """What the live workers said of themselves when they were last asked."""

    def __init__(self) -> None:
        self._seen: Sequence[WorkerInfo] = ()
        self._tokens: dict[str, int] = {}
        self._at = 0.0
        self._chat_rate = 0.0

    def see(self, workers: Sequence[WorkerInfo]) -> None:
        """Take what they say now."""
        now = time.monotonic()
        tokens = {info.worker: info.engine.chat_tokens for info in workers}
        # a worker that is new here has written its tokens at any time before
        new = sum(count - self._tokens.get(name, count) for name, count in tokens.items())
        self._chat_rate = new / max(now - self._at, 1e-9)
        self._seen, self._tokens, self._at = workers, tokens, now

    def collect(self) -> Iterable[Metric]:
        """Give each worker's figures, and how fast all of them chat."""
        families: dict[str, Metric] = {}
        for info in self._seen:
            for name, value in figures_of_worker(info).items():
                family = families.get(name)
                if family is None:
                    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                    words = name.removeprefix("ostinato_").removesuffix("_total").replace("_", " ")
                    family = families[name] = kind(
                        name, f"{words}.".capitalize(), labels=["worker"]
                    )
                family.add_metric([info.worker], value)  # type: ignore[attr-defined]
        yield from families.values()
        yield GaugeMetricFamily(
            "ostinato_chat_tokens_per_second",
            "Tokens that chats generated between the last two looks at the workers.",
            value=self._chat_rate,
        )


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self, load: Load) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "ostinato_http_requests", "Requests answered.", ("route", "status"), registry=registry
        )
        self._errors = Counter(
            "ostinato_http_errors", "Requests refused or failed.", ("code",), registry=registry
        )
        self._seconds = Histogram(
            "ostinato_http_seconds",
            "From a request's headers to its reply.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._questions = Counter("ostinato_questions", "Questions answered.", registry=registry)
        tokens = Counter(
            "ostinato_tokens", "Tokens of records: read, or reused.", ("how",), registry=registry
        )
        self._read, self._reused = tokens.labels("read"), tokens.labels("reused")
        self._queue = Histogram(
            "ostinato_queue_seconds",
            "From a decision's publication to the worker's pull.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._engine = Histogram(
            "ostinato_engine_seconds",
            "From the worker's pull to the answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._steps = Counter("ostinato_engine_steps", "Steps of decisions.", registry=registry)
        gauge = Gauge("ostinato_decisions_under_way", "Requests that wait.", registry=registry)
        gauge.set_function(lambda: load.decisions)
        gauge = Gauge("ostinato_tokens_under_way", "Tokens of these.", registry=registry)
        gauge.set_function(lambda: load.tokens)
        self.workers = Workers()
        registry.register(self.workers)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def error(self, code: str) -> None:
        """Count an answer that is an error."""
        self._errors.labels(code).inc()

    def answered(self, reply: DecisionReply, *, questions: int) -> None:
        """Count a decision that somebody got."""
        self._questions.inc(questions)
        self._read.inc(reply.tokens_read)
        self._reused.inc(reply.tokens_reused)
        self._queue.observe(reply.queue_ms / 1000)
        self._engine.observe(reply.engine_ms / 1000)
        self._steps.inc(reply.steps)

    def text(self) -> bytes:
        """Give all of it as Prometheus reads it."""
        return generate_latest(self._registry)
