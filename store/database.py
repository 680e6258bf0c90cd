"""SQLite files: how they are opened, and what their errors mean to a person."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sqlalchemy import Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from store import schema
from store.errors import CorruptLog, LogUnavailable

Synchronous = Literal["FULL", "NORMAL"]
"""`FULL`: an acknowledged append survives a power cut. `NORMAL`: only the end of the process; the
last appends may be gone after a power cut. Neither can damage the log."""

BUSY_MS = 5_000
WAL_LIMIT = 64 * 1024 * 1024
"""Bytes to which the write-ahead log shrinks again once no reader holds it."""

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check its space, quota and health",
    sqlite3.SQLITE_READONLY: "the file cannot be written; check its permissions or open it to read",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check its folder and the permissions",
    sqlite3.SQLITE_PERM: "the file cannot be opened; check its permissions",
    sqlite3.SQLITE_NOTADB: "the file is not a log; name another",
    sqlite3.SQLITE_ERROR: "the file is another program's database; name another",
    sqlite3.SQLITE_BUSY: "another program holds the file; close it",
    sqlite3.SQLITE_CONSTRAINT: "another program wrote into the log; stop it and open the log again",
}


@contextmanager
def driver_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into LogUnavailable, or CorruptLog of the whole file."""
    try:
        yield
    except DBAPIError as error:
        cause = error.orig
        # only text that is not UTF-8 comes without a code
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_CORRUPT:
            raise CorruptLog("", 0, f"{path} is damaged ({cause})") from error
        remedy = _REMEDIES.get(code, "check the disk and the file's permissions")
        raise LogUnavailable(f"{path}: {remedy} (SQLite: {cause})") from error


def create(path: Path) -> None:
    """Make a new log file, whole or not at all.

    Raises:
        LogUnavailable: It cannot be made, or a write-ahead log without its log lies there.
    """
    if _has_wal(path):
        raise LogUnavailable(
            f"{path} is gone but its last appends are there in {path.name}-wal; bring the log"
            " back, or remove that file"
        )
    workshop = path.with_name(f".{path.name}.new")
    shutil.rmtree(workshop, ignore_errors=True)  # of a process that was killed in the middle
    try:
        workshop.mkdir()
        _make(workshop / path.name, path)
        (workshop / path.name).rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise LogUnavailable(
            f"{path} cannot be made ({error.strerror}); check its folder and the disk's space"
        ) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _make(draft: Path, path: Path) -> None:
    engine = create_engine("sqlite://", creator=_connector(draft, "rwc"), poolclass=QueuePool)
    # Born with its write-ahead log: the switch would need a rollback journal, and a reader cannot
    # open what a kill in the middle of one leaves.
    event.listen(engine, "connect", lambda connection, _entry: use_wal(connection, path))
    try:
        with driver_errors(path), engine.begin() as connection:
            schema.create(connection)
    finally:
        engine.dispose()


def writing(path: Path, synchronous: Synchronous) -> Engine:
    """Give the engine of the one connection that writes and checkpoints a log.

    Raises:
        LogUnavailable: The file is read-only; SQLite would say so at the first append.
    """
    if not os.access(path, os.W_OK):
        raise LogUnavailable(f"{path}: {_REMEDIES[sqlite3.SQLITE_READONLY]}")
    level = {"FULL": "FULL", "NORMAL": "NORMAL"}[synchronous]
    engine = create_engine(
        "sqlite://",
        creator=_connector(path, "rw"),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        use_wal(connection, path)
        connection.execute(f"PRAGMA synchronous={level}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA wal_autocheckpoint=1000")
        connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")

    return engine


def reading(path: Path) -> Engine:
    """Give an engine whose connections cannot write."""
    mode = "ro"
    if not os.access(path.parent, os.W_OK) and not _has_wal(path):
        # SQLite would make the index of the write-ahead log here, which this folder forbids. There
        # is no such log, and nobody can start one.
        mode = "ro&immutable=1"
    engine = create_engine(
        "sqlite://",
        creator=_connector(path, mode),
        poolclass=QueuePool,
        isolation_level="AUTOCOMMIT",
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA query_only=ON")

    return engine


def use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch a database to its write-ahead log; raises LogUnavailable where that cannot be.

    SQLite does not fail where the file system has no shared memory; it goes on without.
    """
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise LogUnavailable(
            f"{path}: this file system does not take a write-ahead log (journal mode {mode});"
            " put the log on a local disk"
        )


def _connector(path: Path, mode: str) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, check_same_thread=False
        )
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        return connection

    return connect


def _has_wal(path: Path) -> bool:
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
