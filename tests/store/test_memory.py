from __future__ import annotations

import pytest

from store.memory import MemoryLog
from store.testing import LogContract


class TestMemoryLog(LogContract):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()
