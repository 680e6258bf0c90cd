"""Figures of a worker or a run for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.fleet import WorkerInfo
from runtime.errors import BadInput
from runtime.signals import Signals
from runtime.tally import Decisions
from store.writer import WriterStats

Figures = Mapping[str, float]
"""By name; those that end in `_total` only grow."""


class _Figures(Collector):
    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for name, value in self._read().items():
            words = name.removeprefix("ostinato_").removesuffix("_total").replace("_", " ")
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, words.capitalize(), value=value)


@contextmanager
def metrics(port: int | None, read: Callable[[], Figures]) -> Iterator[None]:
    """Answer `GET /metrics` on a port of this machine for the length of the block; None: do not.

    Raises:
        BadInput: The port is taken.
    """
    if port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(_Figures(read))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise BadInput(f"metrics_port {port}: {error.strerror}; set another, or none") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def figures_of_worker(info: WorkerInfo) -> Figures:
    """Name a worker's counts."""
    used = info.engine.cache_used
    occupied = {} if used is None else {"ostinato_worker_cache_used": used}
    return {
        "ostinato_worker_partitions": len(info.partitions),
        "ostinato_worker_in_flight": info.in_flight,
        "ostinato_worker_answered_total": info.answered,
        "ostinato_worker_failed_total": info.failed,
        "ostinato_worker_redelivered_total": info.redelivered,
        "ostinato_worker_tokens_read_total": info.tokens_read,
        "ostinato_worker_tokens_reused_total": info.tokens_reused,
        "ostinato_worker_chat_tokens_total": info.engine.chat_tokens,
        **occupied,
    }


def figures_of_run(decisions: Decisions, log: WriterStats, signals: Signals) -> Figures:
    """Name a run's counts, those of its log, and what was seen of its agents."""
    return {
        "ostinato_decisions_asked_total": decisions.asked,
        "ostinato_decisions_answered_total": decisions.answered,
        "ostinato_decisions_failed_total": decisions.failed,
        "ostinato_turns_fallback_total": decisions.fallback,
        "ostinato_agents_stuck_total": signals.totals["stuck"],
        "ostinato_agents_oscillating_total": signals.totals["oscillating"],
        "ostinato_answers_stale_total": signals.totals["stale"],
        "ostinato_answers_discarded_total": decisions.discarded,
        "ostinato_tokens_read_total": decisions.tokens_read,
        "ostinato_tokens_reused_total": decisions.tokens_reused,
        "ostinato_log_events_total": log.events,
        "ostinato_log_commits_total": log.commits,
        "ostinato_log_wal_bytes": log.wal_bytes,
    }
