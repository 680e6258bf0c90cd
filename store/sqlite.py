"""The log in a SQLite file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Executable, and_, bindparam, func, select

from store import database, schema
from store.chain import (
    GENESIS,
    AnyRow,
    Entry,
    Head,
    check,
    entries_of,
    entries_of_stored,
    event_of,
    recorded,
)
from store.database import Synchronous, driver_errors
from store.errors import CorruptLog, LogUnavailable, UnknownMatch
from store.events import Event, MatchEnded
from store.lock import FileLock
from store.log import MatchSummary, Recorded, Stored
from store.schema import events, matches
from store.tail import Tails
from store.writer import Writer, WriterStats

_END = 2**63 - 1
TAIL_PAGE = 256  # events
SCAN_PAGE = 16  # matches, whose events are in memory together
LIST_PAGE = 1_000  # matches

_EVENT = (
    events.c.position,
    events.c.version,
    events.c.schema,
    events.c.at_ms,
    events.c.hash,
    events.c.payload,
)
_HEAD = (matches.c.match, matches.c.game, matches.c.next_version, matches.c.hash)

# One statement each, so that heads and events are of one moment although a writer goes on.
_MATCH = (
    select(*_HEAD, *_EVENT)
    .outerjoin_from(
        matches,
        events,
        and_(
            events.c.match == matches.c.id,
            events.c.version >= bindparam("first"),
            events.c.version < bindparam("stop"),
        ),
    )
    .where(matches.c.match == bindparam("wanted"))
    .order_by(events.c.version)
)
_COUNT = select(func.count()).select_from(matches)
_page = (
    select(matches.c.id)
    .where(matches.c.id > bindparam("after"), matches.c.id <= bindparam("last"))
    .order_by(matches.c.id)
    .limit(SCAN_PAGE)
)
_SCAN = (
    select(*_HEAD, *_EVENT, matches.c.id)
    .outerjoin_from(matches, events, events.c.match == matches.c.id)
    .where(matches.c.id.in_(_page.scalar_subquery()))
    .order_by(matches.c.id, events.c.version)
)
_LIST = (
    select(matches, events.c.schema, events.c.payload)
    .outerjoin_from(
        matches,
        events,
        and_(events.c.match == matches.c.id, events.c.version == matches.c.ended),
    )
    .where(matches.c.id > bindparam("after"))
    .order_by(matches.c.id)
    .limit(LIST_PAGE)
)
_LISTS = {
    None: _LIST,
    True: _LIST.where(matches.c.ended.is_not(None)),
    False: _LIST.where(matches.c.ended.is_(None)),
}
_before = events.alias()
_TAIL = (
    select(matches.c.match, _before.c.hash, *_EVENT)
    .join_from(events, matches, matches.c.id == events.c.match)
    .outerjoin(
        _before,
        and_(_before.c.match == events.c.match, _before.c.version == events.c.version - 1),
    )
    .where(events.c.position > bindparam("after"))
    .order_by(events.c.position)
    .limit(TAIL_PAGE)
)


def open_log(
    path: str | Path, *, synchronous: Synchronous = "FULL", read_only: bool = False
) -> SqliteLog:
    """Open a log file; make it if it is not there and is to be written.

    Args:
        path: The file; its folder has to exist.
        synchronous: What an acknowledged append survives, see `store.database.Synchronous`.
        read_only: Beside a writing process, or where nothing may be written.

    Raises:
        LogLocked: Another process writes it.
        LogUnavailable: It cannot be opened, or is not a log.
        NewerSchema: A newer release made it.
        CorruptLog: The file as a whole is damaged.
    """
    path = Path(os.path.realpath(path))
    if os.path.isdir(path):
        raise LogUnavailable(f"{path} is a folder; name a file in it")
    if read_only:
        if not os.path.exists(path):
            raise LogUnavailable(f"{path} is not there; name an existing log")
        return SqliteLog(path, _identify(path), None, None)
    if os.path.exists(path):  # what is no log is refused before a lock file appears beside it
        _identify(path)
    lock = FileLock(path)
    try:
        if not os.path.exists(path):
            database.create(path)
        engine = database.writing(path, synchronous)
        with driver_errors(path), engine.connect():
            pass
        return SqliteLog(path, _identify(path), Writer(engine, path), lock)
    except BaseException:
        lock.release()
        raise


def _identify(path: Path) -> str:
    engine = database.reading(path)
    try:
        with driver_errors(path), engine.connect() as connection:
            return schema.identify(connection, path)
    finally:
        engine.dispose()


class SqliteLog:
    """An `EventLog` in a file; made by `open_log`."""

    def __init__(
        self, path: Path, log_id: str, writer: Writer | None, lock: FileLock | None
    ) -> None:
        self.path = path
        self.log_id = log_id
        self._reader = database.reading(path)
        self._writer = writer
        self._lock = lock
        self._tails = Tails()

    @property
    def stats(self) -> WriterStats:
        """What has been written since the log was opened."""
        return self._writer.stats if self._writer else WriterStats()

    async def append(self, match: str, events: Sequence[Event], *, expected: int) -> int:
        """See `EventLog.append`."""
        return await self._append(match, entries_of(match, events), expected)

    async def restore(self, match: str, events: Sequence[Stored]) -> None:
        """See `EventLog.restore`."""
        await self._append(match, entries_of_stored(match, events), events[0].version)

    async def _append(self, match: str, entries: Sequence[Entry], expected: int) -> int:
        if self._writer is None:
            raise LogUnavailable(f"{self.path} was opened to read; open it to write")
        next_version = await self._writer.append(match, entries, expected=expected)
        self._tails.wake()
        return next_version

    def read(self, match: str, *, start: int = 0, stop: int | None = None) -> list[Recorded]:
        """See `EventLog.read`."""
        head, rows = self._rows(match, start, stop)
        return check(match, head, rows, start=start, stop=stop)

    def stored(self, match: str) -> list[Stored]:
        """See `EventLog.stored`."""
        head, rows = self._rows(match, 0, None)
        check(match, head, rows)
        return [Stored(*row[1:]) for row in rows]

    def _rows(self, match: str, start: int, stop: int | None) -> tuple[Head, list[AnyRow]]:
        if not match.isprintable():  # such as a lone surrogate, which SQLite would not take
            raise UnknownMatch(f"{self.path} has no match {match!r}; name one that it has")
        first = max(start - 1, 0)
        found: list[Any] = []
        wanted = {"wanted": match, "first": first, "stop": _END if stop is None else stop}
        try:
            self._fetch(_MATCH, wanted, found)
        except CorruptLog as damage:
            raise CorruptLog(match, first + len(found), damage.what) from damage
        if not found:
            raise UnknownMatch(f"{self.path} has no match {match!r}; name one that it has")
        _, game, next_version, digest, *event = found[0]
        rows = [] if event[0] is None else [row[4:] for row in found]
        return Head(game, next_version, digest), rows

    def count(self) -> int:
        """See `EventLog.count`."""
        found: list[Any] = []
        self._fetch(_COUNT, {}, found)
        return found[0][0]

    def scan(self, *, start: int = 0, stop: int | None = None) -> Iterator[list[Recorded]]:
        """See `EventLog.scan`."""
        number, last = start, _END if stop is None else stop
        while True:
            found: list[Any] = []
            try:
                self._fetch(_SCAN, {"after": number, "last": last}, found)
            except CorruptLog as damage:
                if not found:
                    raise
                raise CorruptLog(found[-1].match, found[-1].version + 1, damage.what) from damage
            if not found:
                return
            for at, rows in groupby(found, key=itemgetter(-1)):
                number += 1
                events = list(rows)
                match, game, next_version, digest, *_ = events[0]
                if at != number:
                    raise CorruptLog(match, 0, "a match that began before it is missing")
                yield check(match, Head(game, next_version, digest), [row[4:-1] for row in events])

    def matches(self, *, ended: bool | None = None) -> Iterator[MatchSummary]:
        """See `EventLog.matches`."""
        number = 0
        while True:
            found: list[Any] = []
            self._fetch(_LISTS[ended], {"after": number}, found)
            if not found:
                return
            for row in found:
                yield MatchSummary(
                    match=row.match,
                    game=row.game,
                    next_version=row.next_version,
                    ended=_end(row),
                )
            number = found[-1].id

    def tail(self, *, after: int = 0) -> AsyncIterator[Recorded]:
        """See `EventLog.tail`."""
        return self._tails.follow(self._behind, after)

    def _behind(self, after: int) -> list[Recorded]:
        found: list[Any] = []
        self._fetch(_TAIL, {"after": after}, found)
        records: list[Recorded] = []
        for position, row in enumerate(found, after + 1):
            match, previous = row[:2]
            if row.position != position:
                raise CorruptLog(match, row.version, f"event {position} of the log is missing")
            if previous is None and row.version > 0:
                raise CorruptLog(match, row.version - 1, "the event is missing")
            records.append(recorded(match, match.encode(), row[2:], previous or GENESIS))
        return records

    async def close(self) -> None:
        """See `EventLog.close`."""
        self._tails.close()
        self._reader.dispose()  # first, because the last connection to go has to empty the WAL
        if self._writer is not None:
            await self._writer.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _fetch(self, statement: Executable, values: Mapping[str, object], into: list[Any]) -> None:
        """Add a statement's rows to a list; where reading fails, what came before is in it."""
        with driver_errors(self.path), self._reader.connect() as connection:
            into.extend(connection.execute(statement, values))


def _end(row: Any) -> MatchEnded | None:
    if row.ended is None:
        return None
    end = row.payload and event_of(row.match, row.ended, row.schema, row.payload)
    if not isinstance(end, MatchEnded):
        raise CorruptLog(row.match, row.ended, "it is not the match's end")
    return end
