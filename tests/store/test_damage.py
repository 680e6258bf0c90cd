"""Whatever happens to a log's bytes, a reader gets what was appended or an error."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from store.errors import CorruptLog, StoreError
from store.log import Recorded
from store.sqlite import SqliteLog, open_log
from store.testing import followed, whole_match

MATCHES, TURNS = 20, 6
EVENTS = MATCHES * (TURNS + 2)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    log = open_log(path)
    for number in range(MATCHES):
        await log.append(f"m{number}", whole_match(TURNS, seed=number), expected=0)
    await log.close()
    return path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


async def damage_found(log: SqliteLog, match: str) -> set[tuple[str, int]]:
    """Give the place that every way of reading names."""
    found: set[tuple[str, int]] = set()
    for read in (lambda: log.read(match), lambda: log.stored(match), lambda: list(log.scan())):
        with pytest.raises(CorruptLog) as damage:
            read()
        found.add((damage.value.match, damage.value.version))
    return found


OF_M3_4 = "WHERE match = 4 AND version = 4"  # ids count from 1, so m3 has 4

ALTERED = {
    "payload": "UPDATE events SET payload ="
    " CAST(replace(CAST(payload AS TEXT), 'square 3', 'square 4') AS BLOB)",
    "hash": "UPDATE events SET hash = zeroblob(32)",
    "time": "UPDATE events SET at_ms = at_ms + 1",
    "schema": "UPDATE events SET schema = 0",
    "gap": "DELETE FROM events",
}


@pytest.mark.parametrize("statement", ALTERED.values(), ids=ALTERED)
async def test_an_altered_or_lost_event_is_named(path: Path, statement: str) -> None:
    change(path, f"{statement} {OF_M3_4}")
    log = open_log(path, read_only=True)
    assert await damage_found(log, "m3") == {("m3", 4)}
    with pytest.raises(CorruptLog) as damage:
        await followed(log, EVENTS)
    assert damage.value.match == "m3"
    assert len(log.read("m2")) == TURNS + 2
    assert len(log.read("m3", stop=4)) == 4
    await log.close()


LOST = {
    "last event": ("DELETE FROM events WHERE match = 4 AND version = 7", "m3", 7),
    "end of the match": ("UPDATE matches SET next_version = 3 WHERE id = 4", "m3", 2),
    "all of the match": ("UPDATE matches SET next_version = 0 WHERE id = 4", "m3", 0),
    "last hash": ("UPDATE matches SET hash = zeroblob(32) WHERE id = 4", "m3", 7),
    "more than there is": ("UPDATE matches SET next_version = 9 WHERE id = 4", "m3", 8),
    "another match's name": ("UPDATE matches SET match = 'm33' WHERE id = 4", "m33", 0),
}


@pytest.mark.parametrize(("statement", "match", "version"), LOST.values(), ids=LOST)
async def test_an_end_that_is_not_the_end_is_named(
    path: Path, statement: str, match: str, version: int
) -> None:
    change(path, statement)
    log = open_log(path, read_only=True)
    assert await damage_found(log, match) == {(match, version)}
    await log.close()


async def test_a_lost_match_is_noticed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE match = 4")
        connection.execute("DELETE FROM matches WHERE id = 4")
    log = open_log(path, read_only=True)
    with pytest.raises(CorruptLog, match=r"match m4, version 0: .*missing"):
        list(log.scan())
    with pytest.raises(CorruptLog, match="match m4, version 0: event 25 of the log is missing"):
        await followed(log, EVENTS)
    await log.close()


async def test_an_end_that_is_lost_is_named_in_the_list(path: Path) -> None:
    change(path, "DELETE FROM events WHERE match = 4 AND version = 7")
    log = open_log(path, read_only=True)
    with pytest.raises(CorruptLog, match="match m3, version 7"):
        list(log.matches())
    assert len(list(log.matches(ended=False))) == 0
    await log.close()


async def everything(path: Path) -> list[list[Recorded]]:
    log = open_log(path, read_only=True)
    try:
        return list(log.scan())
    finally:
        await log.close()


async def test_a_truncated_file_is_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for size in range(0, len(whole), 2048):
        short = tmp_path / f"short-{size}.db"
        short.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            await everything(short)


async def test_any_flipped_byte_is_harmless_or_noticed(path: Path, tmp_path: Path) -> None:
    whole, expected = path.read_bytes(), await everything(path)
    source = random.Random(4)
    noticed = 0
    flipped = tmp_path / "flipped.db"
    for _ in range(300):
        place = source.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << source.randrange(8)
        flipped.write_bytes(damaged)
        try:
            assert await everything(flipped) == expected, f"byte {place}"
        except StoreError:
            noticed += 1
    assert noticed > 100
