"""Matches as portable files: `docs/match-file.md` describes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from store.chain import Head, Row, check
from store.errors import BadExport, CorruptLog, NewerSchema, UnknownMatch
from store.files import reading, replacing
from store.log import EventLog, Recorded, Stored

FILE_VERSION = 1
SUFFIXES = (".jsonl", ".jsonl.zst")


class _Mark(msgspec.Struct, frozen=True):
    """What the first line has in every version of the format."""

    format: Literal["ostinato-matches"]
    version: int


class _Header(_Mark, frozen=True):
    """The first line. `matches` has how many events of each match follow, in order."""

    matches: dict[str, Annotated[int, msgspec.Meta(ge=1)]]


class _Line(msgspec.Struct, frozen=True):
    match: str
    version: int
    at_ms: int
    schema: int
    hash: str
    payload: msgspec.Raw


_encode = msgspec.json.encode
_line_decoder = msgspec.json.Decoder(_Line)


def export_matches(log: EventLog, path: str | Path, matches: Sequence[str] | None = None) -> int:
    """Write matches of a log to a file, whole or not at all, and give their number.

    Args:
        log: Where they are; every chain is checked on the way.
        path: `NAME.jsonl`, or `NAME.jsonl.zst` to have it compressed. An older one is replaced.
        matches: Ids; None for all.

    Raises:
        UnknownMatch: An id is not in the log.
        CorruptLog: A match is damaged.
        LogUnavailable: The file cannot be written.
        BadExport: Its name is not one of a match file; so a log is never replaced by mistake.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise BadExport(f"{path}: a file of matches is named {' or '.join(SUFFIXES)}; rename it")
    lengths = {summary.match: summary.next_version for summary in log.matches()}
    if matches is not None:
        for match in matches:
            if match not in lengths:
                raise UnknownMatch(f"the log has no match {match!r}; name one that it has")
        lengths = {match: lengths[match] for match in matches}
    with replacing(path) as file:
        file.write(_encode(_Header("ostinato-matches", FILE_VERSION, lengths)) + b"\n")
        for match, length in lengths.items():
            for event in islice(log.stored(match), length):
                version, schema, at_ms, digest, payload = event
                line = _Line(match, version, at_ms, schema, digest.hex(), msgspec.Raw(payload))
                file.write(_encode(line) + b"\n")
    return len(lengths)


def count_export(path: str | Path) -> int:
    """Give how many matches a file has, as its first line tells.

    Raises:
        BadExport, NewerSchema, LogUnavailable: As `read_export`.
    """
    path = Path(path)
    with reading(path) as file:
        return len(_header(path, file.readline()))


def read_export(
    path: str | Path, *, start: int = 0, stop: int | None = None
) -> Iterator[list[Recorded]]:
    """Read a file's matches one by one; positions count the file's events from 1.

    Args:
        path: The file.
        start: The first match, counted from 0; lines of matches before it are not looked at.
        stop: Behind the last match; None for all.

    Raises:
        BadExport: The file is not one of matches; names the line.
        CorruptLog: A match does not verify; names the line.
        NewerSchema: A newer release wrote it.
        LogUnavailable: The file cannot be read.
    """
    return (records for _, records in _read(Path(path), start, stop))


async def import_matches(log: EventLog, path: str | Path) -> int:
    """Add a file's matches to a log and give how many brought something new.

    The whole file is verified first. A match that the log has already, with the same chain, is
    left alone, or continued if the file has more of it.

    Raises:
        BadExport: As `read_export`; also if the log has a different match under the same id.
        CorruptLog, NewerSchema, LogUnavailable: As `read_export`. Nothing was imported, unless it
            was the log's own disk that failed: then every match is there whole or not at all, and
            the import can be repeated.
    """
    path = Path(path)
    for stored, records in _read(path):
        _missing(log, path, records[0].match, stored)
    added = 0
    for stored, records in _read(path):
        match = records[0].match
        missing = _missing(log, path, match, stored)
        if missing:
            await log.restore(match, missing)
            added += 1
    return added


def _missing(log: EventLog, path: Path, match: str, stored: list[Stored]) -> list[Stored]:
    """Give what the log lacks of a match; raises BadExport if it has another under that id."""
    try:
        present = log.stored(match)
    except UnknownMatch:
        return stored
    common = min(len(present), len(stored))
    if present[common - 1].hash != stored[common - 1].hash:
        raise BadExport(
            f"{path}: the log has another match {match!r}; import into another log, nothing was"
            " imported here"
        )
    return stored[common:]


def _read(
    path: Path, start: int = 0, stop: int | None = None
) -> Iterator[tuple[list[Stored], list[Recorded]]]:
    with reading(path) as file:
        lengths = _header(path, file.readline())
        line = 2
        for number, (match, length) in enumerate(lengths.items()):
            if stop is not None and number >= stop:
                return
            if number < start:
                deque(islice(file, length), maxlen=0)
                line += length
                continue
            stored = [
                _event(path, line + version, data, match, version)
                for version, data in enumerate(islice(file, length))
            ]
            if len(stored) < length:
                what = f"{path} ends at line {line + len(stored)}, the event is missing"
                raise CorruptLog(match, len(stored), what)
            # Lines count from 1 and the header has the first, so positions are one behind them.
            rows = [Row(line - 1 + event.version, *event) for event in stored]
            try:
                records = check(match, Head("", length, stored[-1].hash), rows)
            except CorruptLog as damage:
                what = f"{path}, line {line + damage.version}: {damage.what}"
                raise CorruptLog(match, damage.version, what) from damage
            yield stored, records
            line += length
        if file.readline():
            raise BadExport(f"{path}, line {line}: more lines than the first one tells of")


def _header(path: Path, data: bytes) -> dict[str, int]:
    try:
        version = msgspec.json.decode(data, type=_Mark).version
        if version > FILE_VERSION:
            raise NewerSchema(
                f"{path} has version {version}, this release reads {FILE_VERSION}; upgrade"
            )
        return msgspec.json.decode(data, type=_Header).matches
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadExport(f"{path}, line 1: not a file of matches ({error})") from error


def _event(path: Path, line: int, data: bytes, match: str, version: int) -> Stored:
    try:
        found = _line_decoder.decode(data)
        digest = bytes.fromhex(found.hash)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadExport(f"{path}, line {line}: not an event ({error}); export it again") from error
    if (found.match, found.version) != (match, version):
        raise CorruptLog(match, version, f"{path}, line {line}: the event is missing here")
    return Stored(version, found.schema, found.at_ms, digest, bytes(found.payload))
