from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from store import database
from store.errors import LogUnavailable, StoreError, VersionConflict
from store.sqlite import SqliteLog, open_log
from store.testing import started, turn, whole_match
from store.writer import CAPACITY


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = open_log(tmp_path / "log.db")
    yield log
    await log.close()


async def play(log: SqliteLog, match: str, turns: int) -> None:
    for version, event in enumerate(whole_match(turns)):
        await log.append(match, [event], expected=version)


async def test_appends_that_wait_together_share_a_commit(log: SqliteLog) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(64):
            tasks.start_soon(play, log, f"m{number}", 20)
    assert log.stats.appends == log.stats.events == 64 * 22
    assert log.stats.events / log.stats.commits > 4
    assert [len(match) for match in log.scan()] == [22] * 64


async def test_a_reader_that_stays_makes_the_write_ahead_log_grow_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 500_000
    monkeypatch.setattr(database, "WAL_LIMIT", limit)
    log = open_log(tmp_path / "log.db")
    wal = tmp_path / "log.db-wal"
    await play(log, "m0", 5)
    with closing(sqlite3.connect(tmp_path / "log.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        number = 0
        with anyio.fail_after(60):
            while "write-ahead log grows" not in caplog.text:
                number += 1
                await log.append(f"m{number}", whole_match(300), expected=0)
    assert log.stats.wal_bytes > limit
    with anyio.fail_after(60):
        while wal.stat().st_size > limit:  # emptied and cut at the next turn of its pages
            number += 1
            await log.append(f"m{number}", whole_match(300), expected=0)
    await log.close()


async def test_a_conflict_does_not_fail_its_neighbours(log: SqliteLog) -> None:
    outcomes: dict[str, int | StoreError] = {}

    async def append(match: str, expected: int) -> None:
        try:
            outcomes[match] = await log.append(match, [started()], expected=expected)
        except StoreError as error:
            outcomes[match] = error

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(append, f"m{number}", 3 if number == 4 else 0)
    assert log.stats.commits == 1
    conflict = outcomes.pop("m4")
    assert isinstance(conflict, VersionConflict)
    assert (conflict.expected, conflict.actual) == (3, 0)
    assert set(outcomes.values()) == {1}
    assert len(list(log.scan())) == 9


async def test_one_match_can_have_several_appends_in_a_commit(log: SqliteLog) -> None:
    async with anyio.create_task_group() as tasks:
        for version, event in enumerate(whole_match(8)):
            tasks.start_soon(lambda v=version, e=event: log.append("m", [e], expected=v))
    assert log.stats.commits == 1
    assert [record.event for record in log.read("m")] == whole_match(8)


async def test_a_cancelled_append_leaves_the_others_alone(log: SqliteLog) -> None:
    landed: list[int] = []

    async def append(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            landed.append(await log.append(f"m{number}", [started()], expected=0))

    scopes = [anyio.CancelScope() for _ in range(10)]
    async with anyio.create_task_group() as tasks:
        for number, scope in enumerate(scopes):
            tasks.start_soon(append, number, scope)
        await anyio.lowlevel.checkpoint()
        scopes[4].cancel()
    assert landed == [1] * 9


async def test_cancellations_at_any_point_lose_no_room_and_break_no_match(log: SqliteLog) -> None:
    source = random.Random(5)
    scopes = [anyio.CancelScope() for _ in range(300)]

    async def impatient(number: int) -> None:
        with scopes[number]:
            for version, event in enumerate(whole_match(20)):
                await log.append(f"impatient {number}", [event], expected=version)
                source.choice(scopes).cancel()

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(impatient, number)
    assert any(scope.cancelled_caught for scope in scopes)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(CAPACITY + 100):
                tasks.start_soon(play, log, f"patient {number}", 0)
    for summary in log.matches():
        assert len(log.read(summary.match)) == summary.next_version
    assert len(list(log.matches(ended=True))) >= CAPACITY + 100


async def test_what_another_program_wrote_is_not_overwritten(log: SqliteLog) -> None:
    await log.append("m", [started()], expected=0)
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("INSERT INTO events SELECT 2, 1, 1, 1, 1, hash, payload FROM events")
    with pytest.raises(LogUnavailable, match="another program wrote into the log"):
        await log.append("m", [turn(0)], expected=1)
    assert [record.event for record in log.read("m")] == [started()]


async def test_a_full_queue_makes_callers_wait_and_nothing_else(log: SqliteLog) -> None:
    count = 3 * CAPACITY
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(lambda n=number: log.append(f"m{n}", [started()], expected=0))
    assert len(list(log.matches())) == count


async def test_closing_finishes_what_is_queued_and_refuses_the_rest(log: SqliteLog) -> None:
    acknowledged: set[str] = set()
    refused: set[str] = set()

    async def append(match: str) -> None:
        try:
            await log.append(match, [started()], expected=0)
            acknowledged.add(match)
        except LogUnavailable:
            refused.add(match)

    async with anyio.create_task_group() as tasks:
        for number in range(CAPACITY + 200):
            tasks.start_soon(append, f"m{number}")
        await anyio.lowlevel.checkpoint()
        await log.close()
    reader = open_log(log.path, read_only=True)
    assert {one.match for one in reader.matches()} == acknowledged
    assert len(acknowledged) >= CAPACITY
    assert len(acknowledged) + len(refused) == CAPACITY + 200
    await reader.close()


def test_a_loop_that_ends_in_the_middle_leaves_a_working_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db")

    async def leave() -> None:
        append = asyncio.ensure_future(log.append("m", [started()], expected=0))
        await asyncio.sleep(0)
        append.cancel()

    asyncio.run(leave())

    async def go_on() -> None:
        await log.append("n", [started()], expected=0)
        await log.append("m", [turn(0)], expected=1)
        await log.close()

    asyncio.run(go_on())


async def test_the_file_grows_by_the_same_for_every_turn(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    log = open_log(path, synchronous="NORMAL")
    await log.append("m", [started()], expected=0)
    await log.close()
    sizes = [path.stat().st_size]
    for start in (1, 1_001, 2_001):
        log = open_log(path, synchronous="NORMAL")
        await log.append("m", [turn(n % 10) for n in range(1_000)], expected=start)
        await log.close()
        sizes.append(path.stat().st_size)
    first, second, third = (after - before for before, after in pairwise(sizes))
    assert first == pytest.approx(second, rel=0.1)
    assert second == pytest.approx(third, rel=0.1)
    assert third < 600 * 1_000
