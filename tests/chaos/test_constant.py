"""What a long run must not use up, and what an idle worker must not cost."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest

from engine.broker import RunningBroker, broker
from engine.client import QueueEngine, connect_engine
from engine.process import Child
from engine.streams import ANSWERS, DECISIONS, PARTITIONS
from tests.support.queues import MODEL, Scripted, raw, request, until, worker_process, working


class Usage:
    """What this process and the broker hold."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.memory: list[int] = []

    async def note(self, running: RunningBroker, engine: QueueEngine) -> None:
        async with raw(running.url) as client:
            js = client.jetstream()
            consumers = [len(await js.consumers_info(name)) for name in (DECISIONS, ANSWERS)]
        process = psutil.Process()
        subscriptions = len(engine._queue.client._subs)
        row = (*consumers, subscriptions, threading.active_count(), process.num_fds())
        self.rows.append(row)
        self.memory.append(process.memory_info().rss)


async def decide_many(engine: QueueEngine, start: int, count: int) -> None:
    numbers = iter(range(start, start + count))

    async def lane() -> None:
        for number in numbers:
            await engine.decide(request(f"d{number}", affinity=f"m{number % 64}"))

    async with anyio.create_task_group() as group:
        for _ in range(32):
            group.start_soon(lane)


@pytest.mark.timeout(600)
async def test_nothing_grows_over_20_restarts_and_10000_decisions(tmp_path: Path) -> None:
    usage = Usage()
    backend = Scripted()
    async with (
        broker(tmp_path) as running,
        working(running.url, backend) as worker,
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        await until(lambda: len(worker.describe().partitions) == PARTITIONS)
        for round_ in range(21):
            if round_:
                running.child.kill()
                await running.start()
            await decide_many(engine, round_ * 500, 500)
            backend.asked.clear()
            if round_:
                await usage.note(running, engine)
    assert len(set(usage.rows)) <= 2, usage.rows  # a thread of the loop's pool may come once
    assert max(usage.rows) == usage.rows[-1] or usage.rows[-1] == min(usage.rows)
    first, last = statistics.median(usage.memory[:5]), statistics.median(usage.memory[-5:])
    assert last < 1.15 * first, usage.memory


class Idle:
    """A worker that nobody asks anything, and what it has used since it was asked last."""

    def __init__(self, child: Child, engine: QueueEngine) -> None:
        self.child = child
        self.engine = engine
        self.begin()

    def begin(self) -> None:
        self._started, self._before = time.monotonic(), self._used()

    def _used(self) -> float:
        times = psutil.Process(self.child.pid).cpu_times()
        return times.user + times.system

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def busy(self) -> float:
        return (self._used() - self._before) / self.passed_s

    async def ask(self, decision: str) -> float:
        begun = time.perf_counter()
        await self.engine.decide(request(decision))
        return time.perf_counter() - begun


@pytest.fixture(scope="module", autouse=True)
async def idle(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Idle]:
    """It idles while the other tests of this module run."""
    folder = tmp_path_factory.mktemp("idle")
    async with broker(folder / "broker") as running:
        child = worker_process(running.url, folder)
        try:
            async with connect_engine(running.url, MODEL, source="log1") as engine:
                await engine.decide(request("first"))
                yield Idle(child, engine)
        finally:
            await child.stop()


@pytest.mark.parametrize("seconds", [30, pytest.param(600, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
async def test_an_idle_worker_costs_nothing_and_wakes_at_once(idle: Idle, seconds: int) -> None:
    await anyio.sleep(max(0.0, seconds - idle.passed_s))  # idling is what is measured
    busy = idle.busy
    woken_s = await idle.ask(f"woken-{seconds}")
    others = [await idle.ask(f"d{seconds}-{number}") for number in range(20)]
    idle.begin()
    print(f"idle {seconds} s: {busy:.2%} of a core, first answer {woken_s * 1e3:.1f} ms")
    assert idle.child.tail() == ""
    assert busy < 0.01
    assert woken_s < max(0.05, 10 * max(others))
