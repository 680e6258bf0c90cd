"""Counts of one run that stay small however many matches it has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runtime.fold import Fold
from runtime.signals import Signals, Watch
from runtime.snapshots import KeepingWatch
from store.events import (
    ActionRefused,
    AnswerDiscarded,
    ChatCost,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    Event,
    TurnTaken,
)
from store.log import EventLog

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
        asked: Decisions put to the model, resumed ones included.
        answered, failed: How they ended.
        forced: Turns taken without asking, because only one action was legal.
        fallback: Turns taken by the match's fallback.
        refused: Illegal actions that agents named.
        discarded: Answers that came late or twice and changed nothing.
        tokens_read, tokens_reused: Over all answers.
        p50_ms, p95_ms: From before a request was published to after its answer had come.
    """

    asked: int = 0
    answered: int = 0
    failed: int = 0
    forced: int = 0
    fallback: int = 0
    refused: int = 0
    discarded: int = 0
    tokens_read: int = 0
    tokens_reused: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None


class Chats(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's chat agents took.

    Attributes:
        answers: How often one answered, labels or not.
        tokens_read, tokens_reused, tokens_written: Over all answers.
        p50_ms, p95_ms: Of one answer.
    """

    answers: int = 0
    tokens_read: int = 0
    tokens_reused: int = 0
    tokens_written: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None


class Tally:
    """Adds up the events of a run, or of one of its matches.

    Attributes:
        signals: What was seen of agents that do not get on.
    """

    def __init__(
        self,
        signals: Signals | None = None,
        *,
        names: Sequence[str] | None = None,
        home: Path | None = None,
    ) -> None:
        """Count from zero.

        Args:
            signals: Of the run, where each match has a tally of its own.
            names: What signals call the agents, by seat; default: as the match names them.
            home: The data folder, where snapshots of long matches are kept; None keeps none.
        """
        self._home = home
        self.signals = signals or Signals()
        self._names = names
        self._counts: Counter[str] = Counter()
        self._latency = Latency()
        self._chats: Counter[str] = Counter()
        self._chat_latency = Latency()

    def add(self, event: Event) -> None:
        """Count one event."""
        counts = self._counts
        if isinstance(event, TurnTaken | ActionRefused) and event.chat is not None:
            self._add_chat(event.chat)
        match event:
            case DecisionRequested():
                counts["asked"] += 1
            case DecisionAnswered():
                counts["answered"] += 1
                counts["tokens_read"] += event.tokens_read
                counts["tokens_reused"] += event.tokens_reused
                self._latency.add(event.total_ms)
            case DecisionFailed():
                counts["failed"] += 1
            case ActionRefused():
                counts["refused"] += 1
            case AnswerDiscarded():
                counts["discarded"] += 1
            case TurnTaken(how="forced" | "fallback" as how):
                counts[how] += 1
            case _:
                pass

    def watch(self, log: EventLog, fold: Fold) -> Watch | KeepingWatch:
        """Look for signals in one match from here on, and keep snapshots where they are wanted."""
        watch = Watch(self.signals, log, fold, self._names)
        return watch if self._home is None else KeepingWatch(self._home, watch, log, fold)

    def decisions(self) -> Decisions:
        """Give the counts as they stand."""
        return Decisions(
            **self._counts,
            p50_ms=self._latency.quantile(0.50),
            p95_ms=self._latency.quantile(0.95),
        )

    def chats(self) -> Chats:
        """Give what chat agents took so far."""
        return Chats(
            **self._chats,
            p50_ms=self._chat_latency.quantile(0.50),
            p95_ms=self._chat_latency.quantile(0.95),
        )

    def _add_chat(self, cost: ChatCost) -> None:
        self._chats["answers"] += 1
        self._chats["tokens_read"] += cost.tokens_read
        self._chats["tokens_reused"] += cost.tokens_reused
        self._chats["tokens_written"] += cost.tokens_written
        self._chat_latency.add(cost.total_ms)
