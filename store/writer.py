"""The one thread that writes a log: appends that wait together are committed together."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from sqlalchemy import Connection, Engine, bindparam, func, select
from sqlalchemy.dialects.sqlite import insert

from store import database
from store.chain import Entry, Head, extend
from store.database import driver_errors
from store.errors import LogUnavailable, StoreError
from store.schema import events, matches

CAPACITY = 1024
"""Appends that may wait at once; more callers wait for room."""

MAX_GROUP = 256
"""Appends in one commit; bounds how long the first of them waits for the last."""


WAL_CHECK = 64
"""Commits between two looks at the size of the write-ahead log."""

log = logging.getLogger(__name__)


class WriterStats(msgspec.Struct):
    """What the writer has done.

    `busy_s` are the seconds from taking a group to having it committed: the disk, and waiting for
    the interpreter while other threads hold it. `wal_bytes` is the size of the write-ahead log at
    the last look.
    """

    appends: int = 0
    events: int = 0
    commits: int = 0
    busy_s: float = 0.0
    wal_bytes: int = 0


class _Append(msgspec.Struct, frozen=True):
    match: str
    entries: Sequence[Entry]
    expected: int
    done: asyncio.Future[int]


_Outcome = tuple[_Append, int | Exception]

_HEADS = select(
    matches.c.match,
    matches.c.id,
    matches.c.game,
    matches.c.next_version,
    matches.c.hash,
    matches.c.ended,
).where(matches.c.match.in_(bindparam("wanted", expanding=True)))

_new = insert(matches)
_PUT_HEADS = _new.on_conflict_do_update(
    index_elements=[matches.c.id],
    set_={name: _new.excluded[name] for name in ("next_version", "hash", "ended")},
)


class Writer:
    """Appends to a log from a thread of its own.

    Args:
        engine: Makes the one writing connection; the writer disposes of it.
        path: The log, for messages.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.stats = WriterStats()
        self._engine = engine
        self._path = path
        self._queue: queue.SimpleQueue[_Append | None] = queue.SimpleQueue()
        self._room = anyio.Semaphore(CAPACITY, fast_acquire=True)
        self._closed = False
        self._warned = database.WAL_LIMIT // 2
        self._heads: dict[str, tuple[int, Head]] = {}
        self._next: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name=f"log {path.name}", daemon=True)
        self._thread.start()

    async def append(self, match: str, entries: Sequence[Entry], *, expected: int) -> int:
        """Append durably and give the match's next version; see `EventLog.append`."""
        await self._room.acquire()
        if self._closed:
            self._room.release()
            raise LogUnavailable(f"{self._path} is closed; open it again to append")
        done = asyncio.get_running_loop().create_future()
        self._queue.put(_Append(match, entries, expected, done))
        return await done

    async def close(self) -> None:
        """Commit what is queued and end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
        self._engine.dispose()

    def _run(self) -> None:
        last = False
        while not last:
            group = [self._queue.get()]
            with suppress(queue.Empty):
                while len(group) < MAX_GROUP:
                    group.append(self._queue.get_nowait())
            last = group[-1] is None
            appends = [append for append in group if append is not None]
            if appends:
                started = time.perf_counter()
                outcomes = self._commit(appends)
                self.stats.busy_s += time.perf_counter() - started
                self._report(outcomes)

    def _commit(self, group: list[_Append]) -> list[_Outcome]:
        """Write every append of a group that fits, in one transaction."""
        outcomes: list[_Outcome] = []
        touched: dict[str, tuple[int, Head]] = {}
        rows: list[dict[str, object]] = []
        try:
            with driver_errors(self._path), self._engine.begin() as connection:
                position, number = self._next or _next_numbers(connection)
                self._load(connection, {append.match for append in group})
                for append in group:
                    match = append.match
                    at, head = touched.get(match) or self._heads.get(match) or (number, None)
                    try:
                        head, added = extend(
                            match, head, append.entries, expected=append.expected, position=position
                        )
                    except StoreError as refusal:
                        outcomes.append((append, refusal))
                        continue
                    touched[match] = at, head
                    number = max(number, at + 1)
                    position += len(added)
                    rows.extend({"match": at, **row._asdict()} for row in added)
                    outcomes.append((append, head.next_version))
                if rows:
                    connection.execute(_PUT_HEADS, [_head_row(m, *touched[m]) for m in touched])
                    connection.execute(events.insert(), rows)
        except Exception as error:  # whatever it was, those who wait have to hear of it
            self._heads.clear()
            self._next = None
            return [(append, error) for append in group]
        self._next = position, number
        for match, (at, head) in touched.items():
            if head.ended is None:
                self._heads[match] = at, head
            else:
                self._heads.pop(match, None)
        if rows:
            self.stats.commits += 1
            if self.stats.commits % WAL_CHECK == 0:
                self._look_at_wal()
            self.stats.events += len(rows)
            self.stats.appends += sum(isinstance(result, int) for _, result in outcomes)
        return outcomes

    def _look_at_wal(self) -> None:
        """Say so when a reader keeps the write-ahead log from being emptied."""
        with suppress(OSError):
            size = self._path.with_name(f"{self._path.name}-wal").stat().st_size
            self.stats.wal_bytes = size
            if size > 2 * self._warned:
                self._warned = size
                log.warning(
                    "the write-ahead log grows: a reader has been at it for long; end that one",
                    extra={"log": str(self._path), "bytes": size},
                )

    def _load(self, connection: Connection, wanted: set[str]) -> None:
        """Fetch where matches stand that were not written lately."""
        unknown = wanted - self._heads.keys()
        if unknown:
            found = connection.execute(_HEADS, {"wanted": list(unknown)})
            self._heads.update({match: (at, Head(*head)) for match, at, *head in found})

    def _report(self, outcomes: list[_Outcome]) -> None:
        """Tell those who wait, with one wake-up of their loop for the whole group."""
        loops = {append.done.get_loop() for append, _ in outcomes}
        for loop in loops:
            mine = [outcome for outcome in outcomes if outcome[0].done.get_loop() is loop]
            with suppress(RuntimeError):  # the loop was closed while its appends were on their way
                loop.call_soon_threadsafe(self._settle, mine)

    def _settle(self, outcomes: list[_Outcome]) -> None:
        for append, result in outcomes:
            self._room.release()
            if append.done.done():  # its caller was cancelled
                continue
            if isinstance(result, int):
                append.done.set_result(result)
            else:
                append.done.set_exception(result)


def _next_numbers(connection: Connection) -> tuple[int, int]:
    """Give the next event's position and the next new match's id."""
    last = connection.execute(
        select(
            select(func.max(events.c.position)).scalar_subquery(),
            select(func.max(matches.c.id)).scalar_subquery(),
        )
    ).one()
    return (last[0] or 0) + 1, (last[1] or 0) + 1


def _head_row(match: str, number: int, head: Head) -> dict[str, object]:
    return {"id": number, "match": match, **msgspec.structs.asdict(head)}
