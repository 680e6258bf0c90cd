"""The tables of a log file, and which release may open it."""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
)

from store.errors import LogUnavailable, NewerSchema

FORMAT = 1
"""Rises when the tables change. Events have a schema version of their own."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True, nullable=False),
    Column("value", Text, nullable=False),
    sqlite_strict=True,
)

matches = Table(
    "matches",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("match", Text, nullable=False, unique=True),
    Column("game", Text, nullable=False),
    Column("next_version", Integer, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("ended", Integer),
    sqlite_strict=True,
)
"""Where each match stands, written with its events. `id` counts from 1 without gaps; `hash` is the
last event's; `ended` is the version of its `MatchEnded`."""

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True),
    Column("match", Integer, ForeignKey(matches.c.id), nullable=False),
    Column("version", Integer, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("at_ms", Integer, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    UniqueConstraint("match", "version"),
    sqlite_strict=True,
)


def create(connection: Connection) -> None:
    """Make the tables of a new log."""
    metadata.create_all(connection)
    connection.execute(
        meta.insert(),
        [
            {"key": "format", "value": str(FORMAT)},
            {"key": "log_id", "value": secrets.token_hex(8)},
        ],
    )


def identify(connection: Connection, path: Path) -> str:
    """Give the log's id.

    Raises:
        LogUnavailable: The database is not a log, or is of a format that no release reads.
        NewerSchema: A newer release made it.
    """
    found: dict[str, str] = {}
    if inspect(connection).has_table(meta.name):
        found = {row.key: row.value for row in connection.execute(select(meta))}
    version = found.get("format", "")
    if "log_id" not in found or not version.isdecimal():
        raise LogUnavailable(f"{path} is empty or another program's database; name another file")
    if int(version) > FORMAT:
        raise NewerSchema(
            f"{path} has format {version}, this release reads {FORMAT}; upgrade to read it"
        )
    if int(version) < FORMAT:
        raise LogUnavailable(f"{path} has format {version}, which no release can read any more")
    return found["log_id"]
