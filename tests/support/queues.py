"""Brokers, workers and requests for tests of the queue."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import nats
from nats.aio.client import Client

from engine import process
from engine.broker import RunningBroker
from engine.contract import Ask, DecisionReply, DecisionRequest, Field, Prime, Primed
from engine.errors import EngineFailed
from engine.fleet import Statistics
from engine.mock import MockBackend, parse_mock
from engine.models import Model, open_model
from engine.queue import Queue
from engine.server import Server
from engine.streams import DECISIONS, PARTITIONS, consumer, partition_of
from engine.worker import NATS_VARIABLE, Worker

MODEL = open_model("mock:seed=1,window=10000000")

AFFINITY = "m1"

Decide = Callable[[DecisionRequest], Awaitable[DecisionReply]]


def request(
    decision: str = "d1",
    *,
    attempt: int = 1,
    source: str = "log1",
    state: str = "a state",
    remaining_s: float = 60.0,
    affinity: str = AFFINITY,
) -> DecisionRequest:
    """Make a request with one question of two options."""
    field = Field(
        id="q",
        type="choice",
        instruction="Which?",
        option_ids=("a", "b"),
        option_texts=('{"option_id":"a"}', '{"option_id":"b"}'),
    )
    return DecisionRequest(
        id=decision,
        attempt=attempt,
        source=source,
        affinity=affinity,
        remaining_s=remaining_s,
        ask=Ask(state=state, fields=(field,)),
    )


async def until(condition: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Wait for a condition, plain or async; the deadline only bounds a failing test."""
    deadline = time.monotonic() + within_s
    while True:
        came = condition()
        if await came if inspect.isawaitable(came) else came:
            return
        assert time.monotonic() < deadline, "the condition did not come true"
        await anyio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; tell whether there was somebody to get it, who may end at any moment."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Scripted:
    """A backend that does what a test says; `asked` has every request that reached it."""

    def __init__(self, decide: Decide | None = None) -> None:
        self._mock = MockBackend(parse_mock(MODEL.spec))
        self._decide = decide
        self.fingerprint = "scripted"
        self.statistics = Statistics()
        self.dead = False
        self.closed = False
        self.asked: list[DecisionRequest] = []
        self.primes: list[Prime] = []

    async def prime(self, prime: Prime) -> Primed:
        self.primes.append(prime)
        return await self._mock.prime(prime)

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        self.asked.append(request)
        return await (self._decide or self._mock.decide)(request)

    async def answer(self, request: DecisionRequest) -> DecisionReply:
        return await self._mock.decide(request)

    async def die(self, request: DecisionRequest) -> DecisionReply:
        self.dead = True
        raise EngineFailed("it died")

    async def close(self) -> None:
        self.closed = True


class Gate(Scripted):
    """A backend that holds every decision until `opened` is set."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.opened = anyio.Event()

    async def _wait(self, request: DecisionRequest) -> DecisionReply:
        await self.opened.wait()
        return await self.answer(request)


@asynccontextmanager
async def working(
    url: Server | str, backend: Scripted, *, model: Model = MODEL, ack_wait_s: float = 10.0
) -> AsyncIterator[Worker]:
    """Run a worker in this process, ready, for the length of the block."""
    queue = await Queue.connect(url)
    try:
        worker = Worker(queue, model, backend, ack_wait_s=ack_wait_s)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await until(lambda: queue.workers(model.hash))
            yield worker
            group.cancel_scope.cancel()
    finally:
        await queue.close()


def worker_process(url: str, folder: Path, *, spec: str = MODEL.spec) -> process.Child:
    """Start a worker as a process of its own."""
    return process.start(
        [sys.executable, "-m", "engine.worker", "--model", spec],
        log=folder / f"worker-{os.urandom(4).hex()}.log",
        environment={NATS_VARIABLE: url},
    )


@asynccontextmanager
async def raw(url: str, **options: Any) -> AsyncIterator[Client]:
    """Connect to the server past the queue."""
    client = await nats.connect(url, **options)
    try:
        yield client
    finally:
        await client.close()


async def waiting(running: RunningBroker) -> int:
    """Give how many requests the work queue holds."""
    async with raw(running.url) as client:
        return (await client.jetstream().stream_info(DECISIONS)).state.messages


async def nothing_waits(running: RunningBroker) -> bool:
    return await waiting(running) == 0


PARTITION = partition_of(AFFINITY)


async def redeliver_after(url: str, model: Model, seconds: float) -> None:
    """Make a model's consumers, or change them, to a short time to acknowledge."""
    queue = await Queue.connect(url)
    for partition in range(PARTITIONS):
        config = consumer(model.hash, partition, ack_wait_s=seconds)
        await queue.js.add_consumer(DECISIONS, config)
    await queue.close()
