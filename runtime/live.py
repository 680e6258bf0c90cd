"""The matches that a process has under way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import anyio

from engine.client import Stray
from engine.contract import DecisionReply
from runtime.match import Match, MatchResult
from runtime.outbox import strays_of
from runtime.requests import match_of
from runtime.signals import Signals, seat_of
from runtime.table import Table
from store.errors import StoreError, UnknownMatch
from store.events import AnswerDiscarded, ChanceDrawn, MatchEnded, MatchStarted, TurnTaken
from store.log import EventLog, Recorded

logger = logging.getLogger(__name__)


class LiveMatches:
    """Plays matches of one log to their end, and takes answers that nobody waits for."""

    def __init__(self, log: EventLog, signals: Signals) -> None:
        """Begin with none; what is stale after its match is counted among `signals`."""
        self._log = log
        self._signals = signals
        self._live: dict[str, Match] = {}
        self._turnstile = anyio.Lock()

    async def on_stray(self, reply: DecisionReply, stray: Stray) -> None:
        """Record an answer that nobody waits for, if the log has its match."""
        match = match_of(reply.id)
        async with self._turnstile:  # held too while a match is taken from the log
            if match in self._live:
                self._live[match].discard(reply.id, stray)
                return
            try:
                recorded = self._log.read(match)
                reason = strays_of(recorded).get(reply.id, stray)
                event = AnswerDiscarded(decision=reply.id, reason=reason)
                await self._log.append(match, [event], expected=recorded[-1].version + 1)
                self._count(match, reply.id, reason, recorded)
            except StoreError as error:
                logger.info("answer discarded", extra={"decision": reply.id, "why": str(error)})

    def _count(self, match: str, decision: str, reason: str, recorded: Sequence[Recorded]) -> None:
        seat, started = seat_of(self._log, decision), recorded[0].event
        if reason == "late" and seat is not None and isinstance(started, MatchStarted):
            self._signals.add("stale", match, seat, started.seats[seat], decision=decision)

    async def finish(self, match: str, table: Table, *, new: Callable[[], Match]) -> MatchResult:
        """Play a match to its end, or give how it ended if it has.

        Args:
            match: Its id.
            table: Who plays what.
            new: Makes it where the log has none of it.
        """
        if recorded_of(self._log, match):
            async with self._turnstile:  # read again: an answer may have been recorded meanwhile
                recorded = self._log.read(match)
                finished = result_of(recorded)
                if finished is not None:
                    return finished
                live = self._live[match] = Match.resume(table, recorded)
        else:
            live = self._live[match] = new()
        try:
            return await live.run()
        finally:
            del self._live[match]


def recorded_of(log: EventLog, match: str) -> list[Recorded]:
    """Give a match's events; none where the log has none of it."""
    try:
        return log.read(match)
    except UnknownMatch:
        return []


def result_of(recorded: Iterable[Recorded]) -> MatchResult | None:
    """Give the result of a match from its events; None if it has not ended."""
    turns = 0
    for each in recorded:
        event = each.event
        if isinstance(event, TurnTaken | ChanceDrawn):
            turns += 1
        elif isinstance(event, MatchEnded):
            return MatchResult(
                match=each.match,
                end=event.end,
                reason=event.reason,
                returns=event.returns,
                turns=turns,
            )
    return None
