from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from store import database
from store.errors import LogLocked, LogUnavailable, NewerSchema, UnknownMatch
from store.sqlite import open_log
from store.testing import followed, started, turn, whole_match

HOLD = """
import sys
from store.sqlite import open_log
log = open_log(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


async def test_a_log_keeps_its_events_and_its_name(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db")
    await log.append("m", [started()], expected=0)
    before, name = log.read("m"), log.log_id
    await log.close()
    log = open_log(str(tmp_path / "log.db"))
    assert (log.read("m"), log.log_id) == (before, name)
    assert await log.append("m", [turn(0)], expected=1) == 2
    assert [record.position for record in await followed(log, 2)] == [1, 2]
    await log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db", "log.db.lock"]


async def test_two_files_have_two_names(tmp_path: Path) -> None:
    one, two = open_log(tmp_path / "1.db"), open_log(tmp_path / "2.db")
    assert one.log_id != two.log_id
    await one.close()
    await two.close()


async def test_a_second_process_is_told_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(LogLocked) as refusal:
            open_log(path)
        assert f"process {holder.pid} on {socket.gethostname()}" in str(refusal.value)
        reader = open_log(path, read_only=True)
        await reader.close()
        holder.kill()
    # the lock file still names the dead process; the lock went with it
    assert f"process {holder.pid} " in (tmp_path / "log.db.lock").read_text()
    log = open_log(path)
    await log.close()


async def test_one_process_opens_a_log_once_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "log.db")
    log = open_log(tmp_path / "log.db")
    with pytest.raises(LogLocked, match=f"process {os.getpid()} "):
        open_log(tmp_path / "link.db")
    await log.close()
    log = open_log(tmp_path / "link.db")
    await log.close()


async def test_a_reader_follows_the_writer_and_writes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db")
    reader = open_log(tmp_path / "log.db", read_only=True)
    assert reader.log_id == log.log_id
    with pytest.raises(UnknownMatch):
        reader.read("m")
    await log.append("m", whole_match(), expected=0)
    assert reader.read("m") == await followed(reader, 5) == log.read("m")
    with pytest.raises(LogUnavailable, match="opened to read"):
        await reader.append("m", [turn(0)], expected=5)
    await reader.close()
    await log.close()


def test_a_reader_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="not there"):
        open_log(tmp_path / "log.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("content", [b"", b"Dear diary,\n" * 500], ids=["empty", "text"])
def test_another_file_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, read_only: bool
) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    with pytest.raises(LogUnavailable, match=r"diary\.txt.* name another"):
        open_log(path, read_only=read_only)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE contacts (name TEXT)",
        "CREATE TABLE meta (a TEXT, b TEXT)",
        "CREATE TABLE meta (key TEXT, value TEXT)",
    ],
)
def test_another_programs_database_is_refused(tmp_path: Path, tables: str) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute(tables)
    with pytest.raises(LogUnavailable, match=r"other\.db.* name another"):
        open_log(tmp_path / "other.db")


@pytest.mark.parametrize(("version", "error"), [("2", NewerSchema), ("0", LogUnavailable)])
async def test_another_format_is_refused(
    tmp_path: Path, version: str, error: type[Exception]
) -> None:
    path = tmp_path / "log.db"
    await open_log(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (version,))
    for read_only in (True, False):
        with pytest.raises(error, match=f"has format {version}"):
            open_log(path, read_only=read_only)


def test_a_folder_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match=r"nowhere.*check the folder"):
        open_log(tmp_path / "nowhere" / "log.db")
    for path in (tmp_path, tmp_path / ("x" * 300)):
        for read_only in (True, False):
            with pytest.raises(LogUnavailable):
                open_log(path, read_only=read_only)


async def test_appends_without_their_log_are_not_covered_up(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = open_log(path)
    await log.append("m", [started()], expected=0)
    wal = (tmp_path / "log.db-wal").read_bytes()
    await log.close()
    path.unlink()
    (tmp_path / "log.db-wal").write_bytes(wal)
    with pytest.raises(LogUnavailable, match=r"last appends are there in log\.db-wal"):
        open_log(path)


def test_a_new_log_needs_no_switch_that_could_be_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    leftover = tmp_path / ".log.db.new"
    leftover.mkdir()
    (leftover / "log.db-wal").write_bytes(b"of a process that was killed")
    database.create(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes()[18:20] == b"\2\2"  # SQLite's header: written and read through a WAL


def test_no_write_ahead_log_is_an_error(tmp_path: Path) -> None:
    # a database in memory refuses WAL as a network file system does: without an error
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(LogUnavailable, match="put the log on a local disk"),
    ):
        database.use_wal(connection, tmp_path / "log.db")


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_the_writing_connection_is_set_up_as_promised(
    tmp_path: Path, synchronous: database.Synchronous, level: int
) -> None:
    database.create(tmp_path / "log.db")
    engine = database.writing(tmp_path / "log.db", synchronous)
    with engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    assert found == {
        "journal_mode": "wal",
        "synchronous": level,
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }


async def test_opening_and_closing_leaves_no_thread_and_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def once(match: str) -> int:
        log = open_log(path, synchronous="NORMAL")
        await log.append(match, [started()], expected=0)
        log.read(match)
        await log.close()
        return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))

    counts = [await once(f"m{number}") for number in range(60)]
    assert len(set(counts[10:])) == 1


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    for read_only in (False, True):
        with pytest.raises(LogUnavailable, match="is a folder; name a file in it"):
            open_log(tmp_path, read_only=read_only)
