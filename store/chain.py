"""The hash chain of a match: what is added to it, and whether what is read still fits it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from store.codec import decode, encode
from store.errors import BadEvent, CorruptLog, NewerSchema, VersionConflict
from store.events import SCHEMA, Event, MatchEnded, MatchStarted
from store.log import Recorded, Stored

GENESIS = bytes(32)
"""What stands for the hash before version 0."""

MAX_MATCH_ID = 200  # characters


class Row(NamedTuple):
    """An event as a log keeps it."""

    position: int
    version: int
    schema: int
    at_ms: int
    hash: bytes
    payload: bytes


_numbers = struct.Struct(">QQqQ").pack


AnyRow = Row | tuple[int, int, int, int, bytes, bytes]
"""A `Row`, or what a driver gives in its place."""


class Entry(msgspec.Struct, frozen=True):
    """An event on its way into a log; `hash` is what it must get there, where that is known."""

    event: Event
    schema: int
    at_ms: int
    payload: bytes
    hash: bytes | None = None


class Head(msgspec.Struct, frozen=True):
    """Where a match stands. `ended` is the version of its `MatchEnded`."""

    game: str
    next_version: int = 0
    hash: bytes = GENESIS
    ended: int | None = None


def link(
    previous: bytes, match: bytes, version: int, schema: int, at_ms: int, payload: bytes
) -> bytes:
    """Give an event's hash: SHA-256 over all that is stored of it, behind the previous hash."""
    numbers = _numbers(version, schema, at_ms, len(match))
    return sha256(b"".join((previous, numbers, match, payload))).digest()


def entries_of(match: str, events: Sequence[Event]) -> list[Entry]:
    """Make events ready to be appended now; raises BadEvent."""
    if not (0 < len(match) <= MAX_MATCH_ID and match.isprintable()):
        raise BadEvent(
            f"{match!r} cannot name a match; take 1 to {MAX_MATCH_ID} printable characters"
        )
    if not events:
        raise BadEvent(f"match {match}: an append needs at least one event")
    at_ms = time.time_ns() // 1_000_000
    return [Entry(event, SCHEMA, at_ms, encode(event)) for event in events]


def entries_of_stored(match: str, events: Sequence[Stored]) -> list[Entry]:
    """Make events of another log ready to be appended here; raises CorruptLog, NewerSchema."""
    return [
        Entry(event_of(match, version, schema, payload), schema, at_ms, payload, digest)
        for version, schema, at_ms, digest, payload in events
    ]


def extend(
    match: str, head: Head | None, entries: Sequence[Entry], *, expected: int, position: int
) -> tuple[Head, list[Row]]:
    """Continue a match's chain: its new head, and rows whose positions start at `position`.

    Raises:
        VersionConflict: `expected` is not the next version.
        BadEvent: A new match does not begin with `MatchStarted`.
        CorruptLog: An event gets another hash than it must.
    """
    if head is None:
        first = entries[0].event
        if expected == 0 and not isinstance(first, MatchStarted):
            raise BadEvent(
                f"match {match}: version 0 has to be MatchStarted, not {type(first).__name__}"
            )
        head = Head(first.game if isinstance(first, MatchStarted) else "")
    if expected != head.next_version:
        raise VersionConflict(match, expected=expected, actual=head.next_version)
    key = match.encode()
    version, digest, ended = head.next_version, head.hash, head.ended
    rows: list[Row] = []
    for entry in entries:
        digest = link(digest, key, version, entry.schema, entry.at_ms, entry.payload)
        if entry.hash is not None and entry.hash != digest:
            raise CorruptLog(match, version, "the event does not continue the match as it is here")
        rows.append(Row(position, version, entry.schema, entry.at_ms, digest, entry.payload))
        if isinstance(entry.event, MatchEnded):
            ended = version
        position += 1
        version += 1
    return Head(head.game, version, digest, ended), rows


def check(
    match: str, head: Head, rows: Iterable[AnyRow], *, start: int = 0, stop: int | None = None
) -> list[Recorded]:
    """Decode versions start <= v < stop of a match and check every link between them.

    Args:
        match: The match's id.
        head: Where the match stood when the rows were read.
        rows: By version, from `max(start - 1, 0)` on; those behind `stop` are left alone.
        start: The first version wanted.
        stop: Behind the last version wanted; None for all.

    Raises:
        CorruptLog: An event is missing, out of order, altered or undecodable.
        NewerSchema: A newer release wrote it.
    """
    if head.next_version < 1:
        raise CorruptLog(match, 0, "the match has no event")
    stop = head.next_version if stop is None else min(stop, head.next_version)
    if start >= stop:
        return []
    key = match.encode()
    digest = GENESIS
    version = max(start - 1, 0)
    records: list[Recorded] = []
    for row in rows:
        if row[1] != version:
            raise CorruptLog(match, version, "the event is missing or out of order")
        if version >= start:
            records.append(recorded(match, key, row, digest))
        digest = row[4]
        version += 1
        if version == stop:
            break
    if version < stop:
        raise CorruptLog(match, version, f"the event is missing, the match had {head.next_version}")
    if stop == head.next_version and digest != head.hash:
        raise CorruptLog(match, stop - 1, "it is not the event that was appended last")
    return records


def recorded(match: str, key: bytes, row: AnyRow, previous: bytes) -> Recorded:
    """Decode one event whose predecessor has the hash `previous`; `key` is the match's id again.

    Raises:
        CorruptLog: It does not fit its hash, or is undecodable.
        NewerSchema: A newer release wrote it.
    """
    position, version, schema, at_ms, digest, payload = row
    if link(previous, key, version, schema, at_ms, payload) != digest:
        raise CorruptLog(match, version, "the event or its hash was altered")
    return Recorded(
        position=position,
        match=match,
        version=version,
        at_ms=at_ms,
        hash=digest,
        event=event_of(match, version, schema, payload),
    )


def event_of(match: str, version: int, schema: int, payload: bytes) -> Event:
    """Decode one event of a match; raises CorruptLog, NewerSchema."""
    if schema > SCHEMA:
        raise NewerSchema(
            f"match {match}, version {version}: the event has schema {schema}, this release reads"
            f" up to {SCHEMA}; upgrade to read it"
        )
    try:
        return decode(schema, payload)
    except (msgspec.MsgspecError, UnicodeError, LookupError) as error:
        raise CorruptLog(match, version, f"the event cannot be read ({error})") from error
