"""What a long run must not use up, and what an idle worker must not cost."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

import anyio
import psutil
import pytest

from engine.broker import RunningBroker, broker
from engine.client import QueueEngine, connect_engine
from engine.queue import Queue
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
        subscriptions = len(engine._queue._client._subs)
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


@pytest.mark.parametrize(
    "seconds", [10, pytest.param(600, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
async def test_an_idle_worker_costs_nothing_and_wakes_at_once(tmp_path: Path, seconds: int) -> None:
    async with broker(tmp_path / "broker") as running:
        child = worker_process(running.url, tmp_path)
        queue = await Queue.connect(running.url)
        await until(lambda: queue.workers(MODEL.hash))
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            await engine.decide(request("first"))
            process = psutil.Process(child.pid)
            before, started = process.cpu_times(), time.monotonic()
            await anyio.sleep(seconds)  # idling is what is measured
            after, passed = process.cpu_times(), time.monotonic() - started
            busy = (after.user + after.system - before.user - before.system) / passed
            begun = time.perf_counter()
            await engine.decide(request("woken"))
            woken_s = time.perf_counter() - begun
            times: list[float] = []
            for number in range(20):
                begun = time.perf_counter()
                await engine.decide(request(f"d{number}"))
                times.append(time.perf_counter() - begun)
        await queue.close()
        await child.stop()
        assert child.tail() == ""
        print(f"idle {seconds} s: {busy:.2%} of a core, first answer {woken_s * 1e3:.1f} ms")
        assert busy < 0.01
        assert woken_s < max(0.05, 10 * max(times))
