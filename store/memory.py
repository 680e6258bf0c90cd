"""The log in memory: for tests, and for runs of which nothing is to stay."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence

import anyio.lowlevel

from store.chain import Entry, Head, Row, check, entries_of, entries_of_stored, event_of, extend
from store.errors import LogUnavailable, UnknownMatch
from store.events import Event, MatchEnded
from store.log import MatchSummary, Recorded, Stored
from store.tail import Tails

TAIL_PAGE = 256  # events


class MemoryLog:
    """An `EventLog` that ends with its process."""

    def __init__(self) -> None:
        self.log_id = secrets.token_hex(8)
        self._heads: dict[str, Head] = {}
        self._rows: dict[str, list[Row]] = {}
        self._order: list[tuple[str, int]] = []
        self._tails = Tails()
        self._closed = False

    async def append(self, match: str, events: Sequence[Event], *, expected: int) -> int:
        """See `EventLog.append`."""
        return await self._append(match, entries_of(match, events), expected)

    async def restore(self, match: str, events: Sequence[Stored]) -> None:
        """See `EventLog.restore`."""
        await self._append(match, entries_of_stored(match, events), events[0].version)

    async def _append(self, match: str, entries: Sequence[Entry], expected: int) -> int:
        await anyio.lowlevel.checkpoint()  # as a log on disk does, so that others get their turn
        if self._closed:
            raise LogUnavailable("this log is closed")
        head, rows = extend(
            match,
            self._heads.get(match),
            entries,
            expected=expected,
            position=len(self._order) + 1,
        )
        self._heads[match] = head
        self._rows.setdefault(match, []).extend(rows)
        self._order.extend((match, row.version) for row in rows)
        self._tails.wake()
        return head.next_version

    def read(self, match: str, *, start: int = 0, stop: int | None = None) -> list[Recorded]:
        """See `EventLog.read`."""
        head = self._head(match)
        return check(match, head, self._rows[match][max(start - 1, 0) :], start=start, stop=stop)

    def stored(self, match: str) -> list[Stored]:
        """See `EventLog.stored`."""
        self._head(match)
        return [Stored(*row[1:]) for row in self._rows[match]]

    def count(self) -> int:
        """See `EventLog.count`."""
        return len(self._heads)

    def scan(self, *, start: int = 0, stop: int | None = None) -> Iterator[list[Recorded]]:
        """See `EventLog.scan`."""
        return (self.read(match) for match in list(self._heads)[start:stop])

    def matches(self, *, ended: bool | None = None) -> Iterator[MatchSummary]:
        """See `EventLog.matches`."""
        for match, head in list(self._heads.items()):
            if ended is None or ended == (head.ended is not None):
                yield MatchSummary(
                    match=match,
                    game=head.game,
                    next_version=head.next_version,
                    ended=self._end(match, head),
                )

    def tail(self, *, after: int = 0) -> AsyncIterator[Recorded]:
        """See `EventLog.tail`."""
        return self._tails.follow(self._behind, after)

    def _behind(self, after: int) -> list[Recorded]:
        return [
            record
            for match, version in self._order[after : after + TAIL_PAGE]
            for record in self.read(match, start=version, stop=version + 1)
        ]

    async def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True
        self._tails.close()

    def _head(self, match: str) -> Head:
        if match not in self._heads:
            raise UnknownMatch(f"this log has no match {match!r}; name one that it has")
        return self._heads[match]

    def _end(self, match: str, head: Head) -> MatchEnded | None:
        if head.ended is None:
            return None
        row = self._rows[match][head.ended]
        end = event_of(match, row.version, row.schema, row.payload)
        assert isinstance(end, MatchEnded)
        return end
