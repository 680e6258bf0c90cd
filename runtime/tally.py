"""Counts of one run that stay small however many matches it has."""

from __future__ import annotations

import math
from collections import Counter

import msgspec

_STEP = math.log(1.02)  # a bucket is 2 % wide, so a quantile is exact to 1 %


class Latency:
    """A histogram of milliseconds."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, ms: float) -> None:
        """Count one duration."""
        self._buckets[round(math.log(max(ms, 1e-3)) / _STEP)] += 1

    def quantile(self, share: float) -> float | None:
        """Give the milliseconds that `share` of the durations do not exceed; None without any."""
        left = math.ceil(share * self._buckets.total())
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return round(math.exp(bucket * _STEP), 3)
        return None


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's decisions came to.

    Attributes:
        asked: Requests sent, resumed ones included.
        answered, failed: How they ended.
        forced: Turns taken without asking, because only one action was legal.
        fallback: Turns taken by the match's fallback.
        refused: Illegal actions that agents named.
        discarded: Answers that came late or twice and changed nothing.
        tokens_read, tokens_reused: Over all answers.
        p50_ms, p95_ms: From before a request was published to after its answer had come.
    """

    asked: int
    answered: int
    failed: int
    forced: int
    fallback: int
    refused: int
    discarded: int
    tokens_read: int
    tokens_reused: int
    p50_ms: float | None
    p95_ms: float | None


class Tally:
    """Counts while a run goes on."""

    def __init__(self) -> None:
        self.asked = 0
        self.answered = 0
        self.failed = 0
        self.forced = 0
        self.fallback = 0
        self.refused = 0
        self.discarded = 0
        self.tokens_read = 0
        self.tokens_reused = 0
        self.latency = Latency()

    def decisions(self) -> Decisions:
        """Give the counts as they stand."""
        return Decisions(
            asked=self.asked,
            answered=self.answered,
            failed=self.failed,
            forced=self.forced,
            fallback=self.fallback,
            refused=self.refused,
            discarded=self.discarded,
            tokens_read=self.tokens_read,
            tokens_reused=self.tokens_reused,
            p50_ms=self.latency.quantile(0.50),
            p95_ms=self.latency.quantile(0.95),
        )
