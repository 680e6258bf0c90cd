"""What vLLM counts of its steps, as far as others hear of it."""

from __future__ import annotations

from typing import Any, Final

from vllm.v1.metrics.loggers import PrometheusStatLogger

DECISION: Final = "decision."
"""How the ids of our own requests begin; what comes through vLLM's server begins otherwise."""


class Statistics(PrometheusStatLogger):
    """Counts; vLLM makes one with the engine.

    vLLM puts metrics of its own beside any class but this one's base; nobody reads them here, and
    to keep them costs every step.

    Attributes:
        cache_used: The share of the cache's blocks that running sequences hold, from 0 to 1. What
            is kept for reuse alone counts as free, because it makes room.
        chat_tokens: As many as chats generated.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cache_used = 0.0
        self.chat_tokens = 0

    def record(self, scheduler_stats: Any, iteration_stats: Any, *args: Any, **kwargs: Any) -> None:
        """Take what one step came to."""
        if scheduler_stats is not None:
            self.cache_used = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            ours = sum(
                each.num_generation_tokens  # a record has its only token in its last step
                for each in iteration_stats.finished_requests
                if each.request_id.startswith(DECISION)
            )
            self.chat_tokens += iteration_stats.num_generation_tokens - ours

    def log_engine_initialized(self) -> None:
        """There is nothing to say."""

    def record_sleep_state(self, *args: Any, **kwargs: Any) -> None:
        """Nothing here sleeps."""
