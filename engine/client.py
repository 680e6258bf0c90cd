"""What the runtime asks: an engine somewhere behind the queue."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

import anyio
import anyio.abc
import msgspec

from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.errors import (
    BadRequest,
    DecisionExpired,
    EngineError,
    NoWorker,
    QueueUnavailable,
    from_failure,
)
from engine.fleet import ChatInfo, WorkerInfo
from engine.models import Model
from engine.queue import Queue
from engine.server import Server

log = logging.getLogger(__name__)

Stray = Literal["late", "duplicate", "unknown"]
OnStray = Callable[[DecisionReply, Stray], Awaitable[None]]

_CHECK_S: Final = 1.0
_REMEMBERED: Final = 10_000  # decisions whose further answers can be told from unknown ones


class Engine(Protocol):
    """Answers decisions."""

    @property
    def model(self) -> Model:
        """The model that answers."""
        ...

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Give the one answer to a request, or raise what went wrong.

        The request is published again, with a raised attempt, when the queue may have lost it. If
        the caller is cancelled it leaves the queue, or the worker that has it.

        Raises:
            DecisionExpired: No answer came in `remaining_s`.
            NoWorker: None came, and no live worker holds the model.
            QueueFull: Too many are waiting; nothing was sent.
            EngineError: The failure that the worker answered with, or that kept it from asking.
        """
        ...

    async def prime(self, prime: Prime) -> None:
        """Have a state read ahead for the questions to come; nothing is waited for.

        Raises:
            BadRequest, RequestTooLarge: It cannot be sent.
        """
        ...


class _Waiting:
    """One decision between its publication and its answer."""

    def __init__(self, request: DecisionRequest) -> None:
        self.request = request
        self.deadline = time.monotonic() + request.remaining_s
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + request.remaining_s)
        self.publishing = True
        self.answered = anyio.Event()
        self.refused = False  # the queue did not take it; it is published again
        self.number: int | None = None  # in the queue
        self.reply: DecisionReply | None = None

    def again(self) -> DecisionRequest:
        """Give the request with the next attempt and the time that is left."""
        self.request = msgspec.structs.replace(self.request, attempt=self.request.attempt + 1)
        return self.now()

    def now(self) -> DecisionRequest:
        return msgspec.structs.replace(
            self.request, remaining_s=max(0.0, self.deadline - time.monotonic())
        )


class QueueEngine:
    """An `Engine` over the queue; make it with `connect_engine`."""

    def __init__(self, queue: Queue, model: Model, source: str, on_stray: OnStray | None) -> None:
        self.model = model
        self._queue = queue
        self._source = source
        self._on_stray = on_stray
        self._waiting: dict[str, _Waiting] = {}
        self._settled: OrderedDict[str, Stray] = OrderedDict()
        self._streams = ""

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self._queue.connected

    async def worker(self) -> WorkerInfo | None:
        """Give what one live worker of the model says of itself; None when there is none."""
        return await self._queue.workers(self.model.hash)

    async def workers(self) -> list[WorkerInfo]:
        """Give what every live worker of the model says of itself; raises QueueUnavailable."""
        return await self._queue.workers_of(self.model.hash)

    async def chats(self) -> list[ChatInfo]:
        """Give where the live workers of the model chat; raises QueueUnavailable."""
        return await self._queue.chats(self.model.hash)

    async def prime(self, prime: Prime) -> None:
        """Have a state read ahead; see `Engine.prime`."""
        await self._queue.publish_prime(self.model.hash, prime)

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Publish and wait; see `Engine.decide`.

        Raises:
            BadRequest: Its answers would go to another source than this one waits on, or it is
                being asked already.
        """
        if request.source != self._source:
            raise BadRequest(
                f"decision {request.id} is for source {request.source!r}, this connection waits"
                f" for {self._source!r}; give both the log's id"
            )
        if request.id in self._waiting:
            raise BadRequest(f"decision {request.id} is being asked already; wait for its answer")
        waiting = self._waiting[request.id] = _Waiting(request)
        further: Stray = "late"
        try:
            # left at the deadline or when the answer is there, be the publication confirmed or not
            with waiting.scope:
                # A first attempt cannot have been answered; a resumed decision may have been.
                if request.attempt == 1 or not await self._found(waiting):
                    await self._publish(waiting, waiting.now())
                waiting.publishing = False
                await waiting.answered.wait()
            if waiting.reply is None:
                raise await self._expired(waiting)
            further = "duplicate"
            if waiting.reply.failure is not None:
                raise from_failure(waiting.reply.failure.code, waiting.reply.failure.message)
            return waiting.reply
        finally:
            if waiting.reply is None:
                with anyio.CancelScope(shield=True):
                    await self._queue.take_back(self.model.hash, request, waiting.number)
            del self._waiting[request.id]
            self._settled[request.id] = further
            while len(self._settled) > _REMEMBERED:
                self._settled.popitem(last=False)

    async def _publish(self, waiting: _Waiting, request: DecisionRequest) -> None:
        try:
            waiting.number = await self._queue.publish_request(self.model.hash, request)
            waiting.refused = False
        except QueueUnavailable as error:
            # The watch publishes it again when the broker is back, or the deadline passes.
            waiting.refused = True
            log.info("request not taken", extra={"decision": request.id, "why": str(error)})

    async def _found(self, waiting: _Waiting) -> bool:
        try:
            reply = await self._queue.find_answer(self._source, waiting.request.id)
        except EngineError:
            return False
        if reply is not None:
            await self.receive(reply)
        return reply is not None

    async def _expired(self, waiting: _Waiting) -> EngineError:
        decision, seconds = waiting.request.id, waiting.request.remaining_s
        what = f"decision {decision}: no answer in {seconds:g} s"
        if not self._queue.connected:
            return QueueUnavailable(f"{what}, the broker cannot be reached")
        if await self._queue.workers(self.model.hash) is None:
            return NoWorker(
                f"{what}, no live worker holds {self.model.name} ({self.model.hash});"
                " start `ostinato worker` with this model"
            )
        return DecisionExpired(f"{what}; allow more time or ask less at once")

    async def receive(self, reply: DecisionReply) -> None:
        """Take an answer that came over the queue."""
        waiting = self._waiting.get(reply.id)
        if waiting is not None and reply.failure and reply.attempt < waiting.request.attempt:
            if self._on_stray is not None:  # the later attempt may yet succeed
                await self._on_stray(reply, "late")
        elif waiting is not None and waiting.reply is None:
            waiting.reply = reply
            waiting.answered.set()
            if waiting.publishing:
                waiting.scope.cancel()
        elif self._on_stray is not None:
            stray = "duplicate" if waiting else self._settled.get(reply.id, "unknown")
            await self._on_stray(reply, stray)

    async def watch(self) -> None:
        """Publish again what the queue may have lost: after a reconnect, or with its streams."""
        everything = False
        lost = self._queue.reconnected
        while True:
            with anyio.move_on_after(_CHECK_S):
                await lost.wait()
            if lost.is_set():
                # taken before asking again, so that a connection lost meanwhile counts too
                everything, lost = True, self._queue.reconnected
            if not self._waiting or not self._queue.connected:
                continue
            try:
                streams = await self._queue.ensure_streams()
            except QueueUnavailable:
                continue
            await self._ask_again(everything or streams != self._streams)
            everything, self._streams = False, streams

    async def _ask_again(self, everything: bool) -> None:
        for waiting in [w for w in self._waiting.values() if everything or w.refused]:
            if waiting.reply is None and not await self._found(waiting):
                try:
                    await self._publish(waiting, waiting.again())
                except EngineError as error:
                    log.warning(
                        "not asked again", extra={"decision": waiting.request.id, "why": str(error)}
                    )

    async def prepare(self) -> None:
        """Subscribe to the answers and note the streams as they are."""
        await self._queue.subscribe_answers(self._source, self.receive)
        self._streams = await self._queue.ensure_streams()


@asynccontextmanager
async def connect_engine(
    server: Server | str, model: Model, *, source: str, on_stray: OnStray | None = None
) -> AsyncIterator[QueueEngine]:
    """Ask over the queue of a server for the length of the block.

    Args:
        server: The NATS server, or its URL with the credential.
        model: Which worker to ask for.
        source: Names who waits; answers to a log's decisions find it again after a restart.
        on_stray: Is given answers that nobody waits for.

    Raises:
        QueueUnavailable: The broker cannot be reached.
    """
    queue = await Queue.connect(server)
    try:
        engine = QueueEngine(queue, model, source, on_stray)
        await engine.prepare()
        async with anyio.create_task_group() as group:
            group.start_soon(engine.watch)
            yield engine
            group.cancel_scope.cancel()
    finally:
        await queue.close()
