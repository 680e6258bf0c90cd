"""A broker, a worker and a connection to both, for as long as somebody needs them."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from engine import process
from engine.broker import RunningBroker, broker
from engine.client import OnStray, QueueEngine, connect_engine
from engine.errors import BrokerFailed, BrokerRunning, EngineError, EngineFailed, from_failure
from engine.models import Model
from engine.queue import Queue
from engine.settings import WorkerSettings, encode_settings
from engine.worker import NATS_VARIABLE

log = logging.getLogger(__name__)

READY_S: Final = 900.0  # a compiled 27B takes minutes
MAX_RESTARTS: Final = 5  # of a worker or a server that dies while it is in use
SOUND_S: Final = 60.0  # a worker that lived this long has its restarts anew
_CHECK_S: Final = 0.05


@asynccontextmanager
async def embedded(
    model: Model,
    *,
    home: Path,
    source: str,
    settings: WorkerSettings | None = None,
    on_stray: OnStray | None = None,
) -> AsyncIterator[QueueEngine]:
    """Run everything that answers a model's decisions, for the length of the block.

    A worker or a broker that dies is started again, and open decisions are answered after all.
    Everything started here is gone afterwards, also when this process is killed.

    Args:
        model: What the worker loads.
        home: The data folder; the broker's files are in `run/1` or the next one that is free.
        source: Names who waits for the answers.
        settings: The worker's; None takes the defaults, and the model's window.
        on_stray: Is given answers that nobody waits for.

    Raises:
        BrokerFailed: There is no nats-server, or it does not start.
        EngineFailed: The worker does not become ready, or dies again and again.
    """
    async with AsyncExitStack() as stack:
        running = await _free_broker(stack, home / "run")
        worker = _WorkerChild(model, running, settings)
        try:
            await worker.start()
            async with (
                connect_engine(running.url, model, source=source, on_stray=on_stray) as engine,
                anyio.create_task_group() as group,
            ):
                group.start_soon(worker.keep)
                group.start_soon(keep_broker, running)
                yield engine
                group.cancel_scope.cancel()
        finally:
            await worker.stop()


async def _free_broker(stack: AsyncExitStack, folder: Path) -> RunningBroker:
    """Start a broker in the first numbered folder that has no live one."""
    number = 1
    while True:
        try:
            return await stack.enter_async_context(broker(folder / str(number)))
        except BrokerRunning:
            number += 1


async def keep_broker(running: RunningBroker) -> None:
    """Start a server again whenever it dies, unless it dies in every start.

    Raises:
        BrokerFailed: What the last start came to.
    """
    failures = 0
    while True:
        await running.child.wait()
        log.warning("nats-server died and is started again")
        try:
            await running.start_anew()
            failures = 0
        except BrokerFailed:
            failures += 1
            if failures > MAX_RESTARTS:
                raise
            await anyio.sleep(_CHECK_S * failures)


class _WorkerChild:
    """The worker's process, kept alive."""

    def __init__(
        self, model: Model, running: RunningBroker, settings: WorkerSettings | None
    ) -> None:
        self._model = model
        self._broker = running
        self._log_file = running.folder / "worker.log"
        self._settings = settings or WorkerSettings(window=model.window)
        self._child: process.Child | None = None

    async def start(self) -> None:
        """Start the process and return when it takes requests."""
        command = [sys.executable, "-m", "engine.worker", "--model", self._model.spec]
        command += ["--settings", encode_settings(self._settings)]
        child = self._child = process.start(
            command, log=self._log_file, environment={NATS_VARIABLE: self._broker.url}
        )
        queue = await Queue.connect(self._broker.url)
        try:
            deadline = time.monotonic() + READY_S
            while await queue.workers(self._model.hash) is None:
                if child.returncode is not None:
                    raise _last_words(child)
                if time.monotonic() > deadline:
                    raise EngineFailed(f"the worker is not ready after {READY_S:g} s")
                await anyio.sleep(_CHECK_S)
        finally:
            await queue.close()

    async def keep(self) -> None:
        """Start the process again whenever it dies, unless it does so time and again."""
        deaths = 0
        while True:
            assert self._child is not None
            started = time.monotonic()
            code = await self._child.wait()
            deaths = deaths + 1 if time.monotonic() - started < SOUND_S else 1
            if deaths > MAX_RESTARTS:
                raise EngineFailed(f"the worker died {deaths} times; {_last_words(self._child)}")
            log.warning("the worker died and is started again", extra={"code": code})
            self._child.kill()
            try:
                await self.start()
            except EngineError:
                # a worker that died again is one more death; one that does not get ready is no use
                if self._child.returncode is None:
                    raise

    async def stop(self) -> None:
        """End the process and take its log away."""
        if self._child is not None:
            await self._child.stop(grace_s=8)
        self._log_file.unlink(missing_ok=True)


def _last_words(child: process.Child) -> EngineError:
    """Make the error again with which a worker explained its end, or one of its last lines."""
    lines = child.tail(30).splitlines()
    for line in reversed(lines):
        if said := re.fullmatch(r"error: (.*) \[([a-z_/]+)\]", line):
            return from_failure(code=said[2], message=said[1])
    return EngineFailed(f"the worker ended with code {child.returncode}: {' | '.join(lines[-3:])}")
