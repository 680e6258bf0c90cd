from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.broker import RunningBroker, broker
from engine.queue import Queue


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with broker(tmp_path) as running:
        yield running


@pytest.fixture
async def queue(running: RunningBroker) -> AsyncIterator[Queue]:
    queue = await Queue.connect(running.url)
    yield queue
    await queue.close()
