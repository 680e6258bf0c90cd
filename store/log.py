"""The interface of an event log; `store/sqlite.py` and `store/memory.py` fulfil it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple, Protocol

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


class Stored(NamedTuple):
    """One event of a match as the bytes that its hash was made of."""

    version: int
    schema: int
    at_ms: int
    hash: bytes
    payload: bytes


class MatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the log knows of a match without reading it."""

    match: str
    game: str
    next_version: int
    ended: MatchEnded | None


class EventLog(Protocol):
    """Append-only events of many matches; one process writes, any number read.

    A log is used from one event loop.
    """

    @property
    def log_id(self) -> str:
        """A random name that the log keeps for good; a NATS subject token."""
        ...

    async def append(self, match: str, events: Sequence[Event], *, expected: int) -> int:
        """Append all of `events` or none, durably, and give the match's next version.

        Args:
            match: The match's id.
            events: At least one.
            expected: The version that the first of them is to have, 0 for a new match.

        An append whose caller is cancelled may or may not happen, as one does whose caller dies:
        read the match again. Others are not disturbed.

        Raises:
            BadEvent: An event cannot be stored as it is, or a match does not begin as it must.
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

    def count(self) -> int:
        """Give how many matches there are."""
        ...

    def scan(self, *, start: int = 0, stop: int | None = None) -> Iterator[list[Recorded]]:
        """Read matches whole, in order of their first event; memory holds a few at a time.

        Args:
            start: The first match, counted from 0.
            stop: Behind the last one; None for all.

        Raises:
            CorruptLog: As `read`; also when a match is missing.
        """
        ...

    def stored(self, match: str) -> list[Stored]:
        """Read a match as it is stored, its chain checked; raises what `read` raises."""
        ...

    async def restore(self, match: str, events: Sequence[Stored]) -> None:
        """Append what another log gave as `stored`, durably, all or none.

        Raises:
            VersionConflict: The first event's version is not the match's next one here.
            CorruptLog: They do not continue the match as this log has it.
            LogUnavailable: As `append`.
        """
        ...

    def matches(self, *, ended: bool | None = None) -> Iterator[MatchSummary]:
        """Give all matches in order of their first event, or only (un)ended ones."""
        ...

    def tail(self, *, after: int = 0) -> AsyncIterator[Recorded]:
        """Give every event behind a position, once, in order, and wait for more.

        Ends when the log is closed. Events of this process come at once, of another one within
        a tenth of a second.

        Raises:
            CorruptLog: The chain, the order or an event is damaged.
        """
        ...

    async def close(self) -> None:
        """Finish what is queued, release the file. Appends after it raise LogUnavailable."""
        ...
