from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.sqlite import SqliteLog, open_log
from store.testing import LogContract


class TestSqliteLog(LogContract):
    @pytest.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[SqliteLog]:
        log = open_log(tmp_path / "log.db")
        yield log
        await log.close()
