"""The line that every benchmark prints beside its figures: machine, versions, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sqlite3
from pathlib import Path


def machine_line() -> str:
    """Describe this machine and the versions that matter for a figure, in one line."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("msgspec", "sqlalchemy", "nats-py")
    )
    return (
        f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version}, {versions}; {day}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
