"""The worker process: takes requests from the queue, has them answered, answers, acknowledges.

It has no batching logic: up to `MAX_IN_FLIGHT` requests are handed to the backend as they come, and
the engine's scheduler groups them. A request that was in flight when workers or engines died runs
alone the next time, and if that ends the same way it is answered as failed.

Run as `python -m engine.worker`; the NATS address, which holds a credential, comes in the
environment.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import math
import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from engine.backend import Backend
from engine.bundle import TOKENIZER_CONFIG
from engine.claims import Claims
from engine.contract import DecisionReply, DecisionRequest, Failure, Prime
from engine.deliveries import PULL_S, Delivery, Pulls
from engine.errors import (
    BadRequest,
    DecisionExpired,
    EngineError,
    EngineFailed,
    QueueUnavailable,
    RequestTooLarge,
)
from engine.fleet import ChatInfo, WorkerInfo
from engine.mock import MockBackend, parse_mock
from engine.models import Model, open_model, served_name
from engine.process import exit_with_parent
from engine.queue import Queue
from engine.remote import PREFIX, parse_remote
from engine.server import Server
from engine.settings import WorkerSettings, decode_settings
from engine.streams import ACK_WAIT_S, MAX_DELIVER, PROGRESS_S, partition_of

log = logging.getLogger(__name__)

NATS_VARIABLE: Final = "OSTINATO_NATS"
MAX_IN_FLIGHT: Final = 64
MAX_CHARACTERS: Final = 1 << 20  # of states in flight; about 250,000 tokens
SUSPECT: Final = 3  # the delivery that runs alone: two ended without an answer
GRACE_S: Final = 2.5  # with a last pull and the time to close, under 5 s from signal to end
_FRESH_S: Final = 1.0
_CLOSE_S: Final = 1.5
_RETRY_S: Final = 0.2
_ACK_AFTER_S: Final = 0.02  # an answer is out; what says so to the queue can wait for others
_AWAY_S: Final = 2 * PULL_S  # then the last pull of a worker that ends is over


class _Asking:
    """A decision that is being worked on."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()  # cancelled when nobody waits for the answer any more


class Worker:
    """One backend on one queue."""

    def __init__(
        self, queue: Queue, model: Model, backend: Backend, *, ack_wait_s: float = ACK_WAIT_S
    ) -> None:
        self._queue = queue
        self._model = model
        self._backend = backend
        self._ack_wait_s = ack_wait_s
        self._name = uuid.uuid4().hex[:8]
        self._claims = Claims(queue.leases(model.hash), self._name)
        self._pulls: dict[int, Pulls] = {}  # by partition
        self._taken: set[Delivery] = set()
        self._characters = 0  # of the state that was taken last; the next may be as long
        self._asking: dict[tuple[str, str], _Asking] = {}
        self._alone = anyio.Lock(fast_acquire=True)  # held by a decision that runs alone
        self._together = 0  # decisions that the backend has, but for one alone
        self._served: set[int] = set()  # partitions with a task that pulls
        self._finished = anyio.Event()  # of any request; then replaced
        self._done: list[Delivery] = []  # answered, and not yet acknowledged
        self._some_done = anyio.Event()
        self._pulling = anyio.CancelScope()
        self._counts: Counter[str] = Counter()
        self._gone: set[str] = set()  # sources that did not answer lately

    def describe(self) -> WorkerInfo:
        """Say what this worker is and does."""
        return WorkerInfo(
            worker=self._name,
            bundle=self._model.hash,
            fingerprint=self._backend.fingerprint,
            in_flight=len(self._taken),
            pid=os.getpid(),
            partitions=tuple(sorted(self._claims.held)),
            engine=self._backend.statistics,
            **self._counts,
        )

    async def run(self) -> None:
        """Work until `drain`; raises EngineFailed when the backend is dead."""
        await self._queue.subscribe_cancelled(self._model.hash, self._cancel)
        await self._queue.subscribe_undeliverable(self._model.hash, self._bury)
        await self._queue.announce(self._model.hash, self.describe)
        async with anyio.create_task_group() as keeping:
            keeping.start_soon(self._keep)
            keeping.start_soon(self._acknowledge)

            async def on_prime(prime: Prime) -> None:
                keeping.start_soon(self._prime, prime)

            await self._queue.subscribe_primes(self._model.hash, on_prime)
            async with anyio.create_task_group() as answering:
                with self._pulling:
                    await self._pull(answering)
                grace_s = 0.0 if self._backend.dead else GRACE_S
                answering.cancel_scope.deadline = anyio.current_time() + grace_s
            keeping.cancel_scope.cancel()
        if self._backend.dead:
            raise EngineFailed("the engine has died; see the worker's log")

    @property
    def _ending(self) -> bool:
        """Whether the task that pulls must take nothing more; what it waits for is shielded."""
        return self._backend.dead or anyio.current_effective_deadline() == -math.inf

    def drain(self) -> None:
        """Take no more requests; what is under way has the grace time, then it is handed back."""
        self._pulling.cancel()

    async def _pull(self, answering: TaskGroup) -> None:
        """Pull from every partition that is claimed; what is claimed is given up at the end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._claims.keep)
            try:
                while True:
                    changed = self._claims.changed
                    for partition in self._claims.held - self._served:
                        self._served.add(partition)
                        group.start_soon(self._pull_on, answering, partition)
                    await changed.wait()
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                    await self._claims.give_up()

    async def _pull_on(self, answering: TaskGroup, partition: int) -> None:
        pulls = self._pulls.get(partition)
        if pulls is None:
            pulls = self._pulls[partition] = self._queue.pulls(
                self._model.hash, partition, ack_wait_s=self._ack_wait_s
            )
        try:
            # what was asked for still comes to a worker that serves the partition no more
            while not self._ending and (partition in self._claims.held or pulls.due):
                most = self._room() if partition in self._claims.held else 0
                if most or pulls.due:
                    await self._pull_one(answering, pulls, most)
                else:
                    await self._finished.wait()
        finally:
            self._served.discard(partition)
            # What came to a cancelled pull would be nobody's until the time to acknowledge
            # is over. A pull is short, and a drain can wait for it.
            with anyio.CancelScope(shield=True):
                while pulls.due:
                    if (delivery := await self._next(pulls, 0)) is not None:
                        await delivery.hand_back(delay_s=_AWAY_S)

    def _room(self) -> int:
        """How many requests may come from one partition, while others get as many."""
        characters = MAX_CHARACTERS - sum(len(taken.request.ask.state) for taken in self._taken)
        places = MAX_IN_FLIGHT - len(self._taken)
        if characters <= 0 or places <= 0 or self._alone.locked():
            return 0
        fitting = min(places, characters // max(1, self._characters))
        return max(1, fitting // len(self._served))

    async def _next(self, pulls: Pulls, most: int) -> Delivery | None:
        try:
            with anyio.CancelScope(shield=True):
                return await pulls.next(most)
        except QueueUnavailable:
            await anyio.sleep(_RETRY_S)
            return None

    async def _pull_one(self, answering: TaskGroup, pulls: Pulls, most: int) -> None:
        delivery = await self._next(pulls, most)
        if delivery is None:
            return
        if self._ending:
            with anyio.CancelScope(shield=True):
                await delivery.hand_back(delay_s=_AWAY_S)
            return
        self._counts["redelivered"] += delivery.number > 1
        self._characters = len(delivery.request.ask.state)
        self._taken.add(delivery)
        answering.start_soon(self._finish, delivery)

    async def _finish(self, delivery: Delivery) -> None:
        decision = (delivery.request.source, delivery.request.id)
        try:
            while asking := self._asking.get(decision):
                await asking.over.wait()  # delivered or published again while it is worked on
            asking = self._asking[decision] = _Asking()
            try:
                with asking.scope:
                    await self._answer(delivery)
            finally:
                self._asking.pop(decision).over.set()
            if asking.scope.cancelled_caught:
                self._is_done(delivery)  # nobody waits for it
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                open_ = any(pulls.due for pulls in self._pulls.values())  # it would come back here
                await delivery.hand_back(delay_s=_AWAY_S if open_ else None)
            raise
        finally:
            self._taken.discard(delivery)
            finished, self._finished = self._finished, anyio.Event()
            finished.set()
            if self._backend.dead:
                self._pulling.cancel()

    async def _cancel(self, source: str, decision: str) -> None:
        asking = self._asking.get((source, decision))
        if asking is not None:
            asking.scope.cancel()

    async def _prime(self, prime: Prime) -> None:
        """Read a state ahead if its questions will come to this worker."""
        if self._alone.locked() or partition_of(prime.affinity) not in self._claims.held:
            return
        try:
            await self._backend.prime(prime)
        except EngineError as error:
            log.info("not read ahead", extra={"why": str(error)})
        except Exception:
            log.exception("the engine broke while it read ahead")

    async def _keep(self) -> None:
        """Tell the queue what is being worked on, well before it would redeliver it.

        What nobody waits for is given up; a source that comes back asks again.
        """
        while True:
            await anyio.sleep(min(PROGRESS_S, self._ack_wait_s / 3))
            for delivery in list(self._taken):
                await delivery.in_progress()
            gone: set[str] = set()
            for source in {source for source, _ in self._asking}:
                if not await self._queue.is_waiting(source):
                    gone.add(source)
            for source, decision in list(self._asking):
                if source in gone & self._gone:
                    await self._cancel(source, decision)
            self._gone = gone

    def _is_done(self, delivery: Delivery) -> None:
        self._done.append(delivery)
        self._some_done.set()

    async def _acknowledge(self) -> None:
        """Acknowledge what is done, several at a time."""
        try:
            while True:
                await self._some_done.wait()
                await anyio.sleep(_ACK_AFTER_S)
                await self._acknowledge_done()
        finally:
            with anyio.CancelScope(shield=True):
                await self._acknowledge_done()

    async def _acknowledge_done(self) -> None:
        done, self._done, self._some_done = self._done, [], anyio.Event()
        await self._queue.gather(delivery.ack for delivery in done)

    async def _bury(self, request: DecisionRequest, deliveries: int) -> None:
        failed = _failed(request, _worn(request, deliveries))
        await self._queue.publish_answer(request.source, failed)

    async def _answer(self, delivery: Delivery) -> None:
        request = delivery.request
        try:
            reply = None
            # one that was delivered for the first time by a consumer made anew is old, too
            if delivery.number > 1 or request.attempt > 1 or delivery.age_s > _FRESH_S:
                reply = await self._queue.find_answer(request.source, request.id)
            if reply is None and delivery.number >= SUSPECT:
                reply = await self._decide_alone(delivery)
            elif reply is None:
                reply = await self._decide_together(delivery)
            if reply is None:
                # the engine died with it: it is for another worker, or this one started again
                await delivery.hand_back(delay_s=_AWAY_S)
                return
            await self._publish(delivery, reply)
        except QueueUnavailable as error:
            log.info("answer not delivered", extra={"decision": request.id, "why": str(error)})
            return  # not acknowledged, so it is delivered again and then answered
        self._is_done(delivery)

    async def _publish(self, delivery: Delivery, reply: DecisionReply) -> None:
        """Publish an answer, again and again until its deadline if the broker is away."""
        source = delivery.request.source
        while True:
            try:
                await self._queue.publish_answer(source, reply)
                self._counts["failed" if reply.failure else "answered"] += 1
                self._counts["tokens_read"] += reply.tokens_read
                self._counts["tokens_reused"] += reply.tokens_reused
                return
            except (BadRequest, RequestTooLarge) as error:
                reply = _failed(delivery.request, error)
            except QueueUnavailable:
                if time.monotonic() > delivery.deadline:
                    raise
                await anyio.sleep(_RETRY_S)

    async def _decide_together(self, delivery: Delivery) -> DecisionReply | None:
        async with self._alone:
            self._together += 1
        try:
            return await self._decide(delivery)
        finally:
            self._together -= 1

    async def _decide_alone(self, delivery: Delivery) -> DecisionReply | None:
        """Decide what may have killed workers with nobody beside it, once."""
        source, decision = delivery.request.source, delivery.request.id
        async with self._alone:
            if await self._queue.suspects.ran_alone(source, decision):
                return _failed(
                    delivery.request,
                    EngineFailed(
                        f"decision {decision} was delivered {delivery.number - 1} times without an"
                        " answer, and the last worker or engine died of it alone; see their logs"
                    ),
                )
            while self._together:
                await self._finished.wait()
            if self._backend.dead:
                return None
            try:
                # in here: a worker that is cancelled meanwhile takes the note back
                await self._queue.suspects.note(source, decision, alone=True)
                return await self._decide(delivery)
            finally:
                if not self._backend.dead:
                    # without the broker the answer still goes out, once it is back
                    with anyio.CancelScope(shield=True), contextlib.suppress(QueueUnavailable):
                        await self._queue.suspects.note(source, decision, alone=False)

    async def _decide(self, delivery: Delivery) -> DecisionReply | None:
        """Have the backend answer within what is left of the deadline; failures are answers too."""
        request, waited = delivery.request, delivery.age_s
        # a redelivery is a further attempt too, without a publication
        attempt = max(request.attempt, delivery.number)
        started = time.monotonic()
        left = delivery.deadline - started
        try:
            if delivery.number >= MAX_DELIVER:
                raise _worn(request, delivery.number)
            reply = None
            if left > 0:
                with anyio.move_on_after(left):
                    reply = await self._backend.decide(
                        msgspec.structs.replace(request, attempt=attempt, remaining_s=left)
                    )
            if reply is None:
                where = "in the engine" if left > 0 else f"after {waited:.1f} s in the queue"
                raise DecisionExpired(
                    f"decision {request.id}: its {request.remaining_s:g} s ended {where}"
                )
        except EngineError as error:
            if self._backend.dead:
                return None
            return _failed(request, error)
        except Exception:
            # a fault of the backend that one request meets must not end the others
            log.exception("the engine broke", extra={"decision": request.id})
            return _failed(
                request,
                EngineFailed(f"decision {request.id}: the engine broke; see the worker's log"),
            )
        return msgspec.structs.replace(
            reply,
            attempt=request.attempt,
            queue_ms=waited * 1000,
            engine_ms=(time.monotonic() - started) * 1000,
        )


def _failed(request: DecisionRequest, error: EngineError) -> DecisionReply:
    return DecisionReply(
        id=request.id, attempt=request.attempt, failure=Failure(error.code, str(error))
    )


def _worn(request: DecisionRequest, deliveries: int) -> EngineFailed:
    return EngineFailed(
        f"decision {request.id} was delivered {deliveries} times, and no worker lived to answer it;"
        " see the workers' logs"
    )


async def open_backend(model: Model, settings: WorkerSettings) -> Backend:
    """Load what answers for a model.

    Raises:
        EngineError: It cannot be loaded here.
    """
    if model.spec.startswith(PREFIX):
        from engine.remote_backend import RemoteBackend

        return await RemoteBackend.start(parse_remote(model.spec))
    if model.bundle is None:
        mock = parse_mock(model.spec)
        return MockBackend(msgspec.structs.replace(mock, window=model.window))
    # vLLM takes seconds to import and is not needed for a mock
    from engine.llm.backend import VllmBackend

    return await VllmBackend.start(model.bundle, settings)


@asynccontextmanager
async def _chatting(backend: Backend, model: Model, host: str) -> AsyncIterator[ChatInfo | None]:
    """Let a backend that can also chat do so, for the length of the block."""
    if model.bundle is None or not (model.bundle.tokenizer / TOKENIZER_CONFIG).is_file():
        yield None  # without a model, or one whose tokenizer makes no text
        return
    from engine.llm.backend import VllmBackend
    from engine.llm.chat_server import chat_server

    assert isinstance(backend, VllmBackend)
    async with chat_server(backend.engine, served_name(model.name), host=host) as chat:
        yield chat


async def serve_worker(
    *,
    nats: Server | str,
    model: Model,
    settings: WorkerSettings,
    on_ready: Callable[[Worker], None] | None = None,
) -> None:
    """Work until SIGTERM or SIGINT.

    Args:
        nats: The broker, or its URL with the credential.
        model: What is loaded.
        settings: How it is loaded.
        on_ready: Is called with the worker when it takes requests.

    Raises:
        QueueUnavailable: The broker cannot be reached.
        EngineError: The model cannot be loaded, or its engine has died.
    """
    queue = await Queue.connect(nats)
    try:
        async with anyio.create_task_group() as group:
            stop = group.cancel_scope.cancel  # while it loads, nothing is under way

            async def stop_on_signal() -> None:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    async for _ in signals:
                        stop()
                        return

            group.start_soon(stop_on_signal)
            backend = await open_backend(model, settings)
            try:
                async with _chatting(backend, model, settings.chat_host) as chat:
                    worker = Worker(queue, model, backend)
                    stop = worker.drain
                    if chat is not None:
                        await queue.announce_chat(model.hash, chat)
                    log.info("worker ready", extra={"bundle": model.hash})
                    gc.freeze()  # what is there stays, and need not be looked at again and again
                    if on_ready is not None:
                        on_ready(worker)
                    await worker.run()
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                    await backend.close()
            group.cancel_scope.cancel()
    finally:
        await queue.close()


def main() -> int:
    """Run as a child process; the last line of the log says why it ended."""
    parser = argparse.ArgumentParser(prog="python -m engine.worker")
    parser.add_argument("--model", required=True)
    parser.add_argument("--settings", type=decode_settings, default=WorkerSettings())
    arguments = parser.parse_args()
    exit_with_parent()
    debug = bool(os.environ.get("OSTINATO_DEBUG"))
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings: WorkerSettings = arguments.settings
        model = open_model(arguments.model, window=settings.longest_record)
        anyio.run(
            lambda: serve_worker(nats=os.environ[NATS_VARIABLE], model=model, settings=settings),
            backend_options={"use_uvloop": True},
        )
    except BaseExceptionGroup as group:
        known, _ = group.split(EngineError)
        if known is None or debug:
            raise
        while isinstance(known, BaseExceptionGroup):
            known = known.exceptions[0]
        return _report(known)
    except EngineError as error:
        if debug:
            raise
        return _report(error)
    return 0


def _report(error: BaseException) -> int:
    code = error.code if isinstance(error, EngineError) else "engine/error"
    sys.stderr.write(f"error: {error} [{code}]\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
