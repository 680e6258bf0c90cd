"""What nobody waits for any more, or what came too late, takes nobody's time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from engine.broker import RunningBroker
from engine.client import connect_engine
from engine.contract import DecisionReply, DecisionRequest
from engine.errors import DecisionExpired
from engine.queue import Queue
from engine.streams import ANSWERS, DECISIONS
from engine.worker import NATS_VARIABLE
from tests.support.queues import MODEL, Gate, Scripted, raw, request, until, working

ASKS = """
import sys
import anyio
from engine.client import connect_engine
from tests.support.queues import MODEL, request

async def main():
    async with connect_engine(sys.argv[1], MODEL, source="log1") as engine:
        await engine.decide(request(remaining_s=60))

anyio.run(main)
"""

WORKER_AN_HOUR_OFF = """
import sys, time
was = time.time
time.time = lambda: was() + 3600
before = time.monotonic
time.monotonic = lambda: before() + 12345
sys.argv[1:] = ["--model", sys.argv[1]]
from engine.worker import main
sys.exit(main())
"""


class Cancellable(Gate):
    """Counts what it was told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = 0

    async def _wait(self, request: DecisionRequest) -> DecisionReply:
        try:
            return await super()._wait(request)
        except anyio.get_cancelled_exc_class():
            self.stopped += 1
            raise


async def messages(running: RunningBroker, stream: str) -> int:
    async with raw(running.url) as client:
        return (await client.jetstream().stream_info(stream)).state.messages


async def empty(running: RunningBroker, stream: str = DECISIONS) -> bool:
    return await messages(running, stream) == 0


async def test_a_cancelled_decision_leaves_the_worker_that_has_it(running: RunningBroker) -> None:
    backend = Cancellable()
    async with (
        working(running.url, backend) as worker,
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as others,
    ):
        others.start_soon(engine.decide, request("stays"))
        async with anyio.create_task_group() as group:
            group.start_soon(engine.decide, request("goes"))
            await until(lambda: len(backend.asked) == 2)
            group.cancel_scope.cancel()
        await until(lambda: worker.describe().in_flight == 1)
        assert backend.stopped == 1
        backend.opened.set()
    assert await messages(running, ANSWERS) == 1


async def test_a_cancelled_decision_that_waits_never_reaches_a_worker(
    running: RunningBroker,
) -> None:
    async with connect_engine(running.url, MODEL, source="log1") as engine:
        async with anyio.create_task_group() as group:
            group.start_soon(engine.decide, request())
            await until(lambda: messages(running, DECISIONS))
            group.cancel_scope.cancel()
        await until(lambda: empty(running))


async def test_an_expired_decision_that_waits_never_reaches_a_worker(
    running: RunningBroker,
) -> None:
    gate = Gate()
    async with (
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(DecisionExpired):
            await engine.decide(request(remaining_s=0.2))
        await until(lambda: empty(running))


async def test_what_a_dead_client_asked_is_given_up(running: RunningBroker) -> None:
    backend = Cancellable()
    async with working(running.url, backend, ack_wait_s=0.6) as worker:
        client = subprocess.Popen([sys.executable, "-c", ASKS, running.url])
        with client:
            await until(lambda: backend.asked)
            client.kill()
        await until(lambda: worker.describe().in_flight == 0)
        assert backend.stopped == 1
        await until(lambda: empty(running))
    assert await messages(running, ANSWERS) == 0


async def test_what_a_client_that_lives_asked_is_not(running: RunningBroker) -> None:
    async def slowly(request: DecisionRequest) -> DecisionReply:
        await anyio.sleep(1.2)  # four times the interval at which the worker looks
        return await backend.answer(request)

    backend = Scripted(slowly)
    async with (
        working(running.url, backend, ack_wait_s=0.9),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        assert (await engine.decide(request())).attempt == 1
    assert len(backend.asked) == 1


async def test_a_worker_whose_clock_is_an_hour_off_keeps_deadlines(
    running: RunningBroker, tmp_path: Path
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER_AN_HOUR_OFF, MODEL.spec],
        env={**os.environ, NATS_VARIABLE: running.url},
    )
    queue = await Queue.connect(running.url)
    with worker:
        await until(lambda: queue.workers(MODEL.hash))
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            reply = await engine.decide(request("in-time", remaining_s=5))
            assert 0 <= reply.queue_ms < 5000
            with pytest.raises(DecisionExpired):
                await engine.decide(request("late", remaining_s=0))
        worker.terminate()
    await queue.close()
