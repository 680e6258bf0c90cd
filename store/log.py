"""The interface of an event log; `store/sqlite.py` and `store/memory.py` fulfil it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import msgspec

from store.events import Event, MatchEnded


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it stands in the log.

    Attributes:
        position: Its number in the whole log, from 1, without gaps.
        version: Its number in the match, from 0, without gaps.
        at_ms: When it was appended, milliseconds since 1970 UTC.
        hash: SHA-256 over the previous event's hash of this match and this event, 32 bytes.
    """

    position: int
    match: str
    version: int
    at_ms: int
    hash: bytes
    event: Event


class MatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the log knows of a match without reading it."""

    match: str
    game: str
    next_version: int
    ended: MatchEnded | None


class EventLog(Protocol):
    """Append-only events of many matches; one process writes, any number read."""

    async def append(self, match: str, events: Sequence[Event], *, expected: int) -> int:
        """Append all of `events` or none, durably, and give the match's next version.

        Args:
            match: The match's id.
            events: At least one.
            expected: The version that the first of them is to have, 0 for a new match.

        Raises:
            VersionConflict: `expected` is not the next version.
            LogUnavailable: The disk is full, gone or read-only. Nothing was appended.
        """
        ...

    def read(self, match: str, *, start: int = 0, stop: int | None = None) -> list[Recorded]:
        """Read versions start <= v < stop of a match and check their chain.

        Raises:
            UnknownMatch: There is no such match.
            CorruptLog: The chain, the order or an event is damaged.
        """
        ...

    def matches(self, *, ended: bool | None = None) -> Iterator[MatchSummary]:
        """Give all matches in order of their first event, or only (un)ended ones."""
        ...

    def tail(self, *, after: int = 0) -> AsyncIterator[Recorded]:
        """Give every event behind a position, once, in order, and wait for more."""
        ...

    async def close(self) -> None:
        """Finish what is queued, release the file. Appends after it raise LogUnavailable."""
        ...
