"""Runs the server: listens at once, answers as soon as a worker is ready, ends in order."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from engine.client import QueueEngine, connect_engine
from engine.embedded import embedded
from engine.errors import QueueUnavailable
from engine.models import Model
from engine.server import Server as NatsServer
from engine.settings import WorkerSettings
from runtime.errors import BadInput
from runtime.http.app import application
from runtime.http.gateway import Gateway
from runtime.http.problems import encode, problem
from runtime.http.sharing import Sharing

log = logging.getLogger(__name__)

GRACE_S: Final = 10.0  # for requests under way when the server ends
_CHECK_S: Final = 0.5
_MISSES: Final = 2  # a worker that is silent for so many checks is taken for gone
_HEADERS: Final = 32 << 10  # bytes
_HEADERS_S: Final = 10.0
_IDLE_S: Final = 60  # clients keep a connection for 30 s, and must not find it closed by then


class Server(uvicorn.Server):
    """uvicorn's, without its handling of signals: several parts end together here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class Protocol(HttpToolsProtocol):
    """uvicorn's, with limits on headers: of size, and of the time until they are complete."""

    _size = 0
    _timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEADERS_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Count anew, size and time."""
        self._size = 0
        self._timer.cancel()
        self._timer = self.loop.call_later(_HEADERS_S, self.transport.abort)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the path too."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the clock: the body has its own."""
        self._timer.cancel()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP like any other request at fault: as JSON, with an id."""
        name, body = uuid.uuid4().hex, encode(problem(400, "api_usage_error", msg))
        log.info("request", extra={"request": name, "status": 400, "code": "api_usage_error"})
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nx-typesafe-request-id: %s\r\nconnection: close\r\n\r\n%s"
            % (len(body), name.encode(), body)
        )
        self.transport.close()

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > _HEADERS:
            raise ValueError("the headers are too long")  # the parser then answers 400


def listen(host: str, port: int) -> socket.socket:
    """Open the socket.

    Raises:
        BadInput: The address is taken, or none of this machine.
    """
    try:
        return socket.create_server((host, port), backlog=2048, reuse_port=False)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"cannot listen on {host}:{port}: {why}; name another --port or --host"
        ) from error


async def serve(
    make_gateway: Callable[[Sharing], Gateway],
    *,
    listener: socket.socket,
    model: Model,
    home: Path,
    nats: NatsServer | str | None = None,
    settings: WorkerSettings | None = None,
    on_listening: Callable[[], None] = lambda: None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; what is under way then has `GRACE_S`.

    Args:
        make_gateway: Makes the gateway around what asks.
        listener: The socket, listening.
        model: What is served.
        home: The data folder, for an embedded broker.
        nats: A broker with workers; None runs both here.
        settings: Of an embedded worker.
        on_listening: Called when requests are taken, which are refused until a worker is ready.
        on_ready: Called when one is.

    Raises:
        EngineError: The broker or the worker does not start, or dies again and again.
    """
    source = uuid.uuid4().hex[:12]
    async with anyio.create_task_group() as group:
        gateway = make_gateway(Sharing(source))
        config = uvicorn.Config(
            application(gateway),
            http=Protocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=int(GRACE_S),
        )
        server = Server(config)

        async def end_on_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    gateway.ending = True
                    server.should_exit = True

        async def answer() -> None:
            async with _engine(model, home, nats, source, settings) as engine:
                await _watch(engine, gateway, on_ready)

        group.start_soon(end_on_signal)
        group.start_soon(answer)
        on_listening()
        gc.freeze()  # what is there stays, and need not be looked at again and again
        await server.serve(sockets=[listener])
        await gateway.chat.close()
        group.cancel_scope.cancel()


@asynccontextmanager
async def _engine(
    model: Model,
    home: Path,
    nats: NatsServer | str | None,
    source: str,
    settings: WorkerSettings | None,
) -> AsyncIterator[QueueEngine]:
    if nats is None:
        async with embedded(model, home=home, source=source, settings=settings) as engine:
            yield engine
    else:
        async with connect_engine(nats, model, source=source) as engine:
            yield engine


async def _watch(engine: QueueEngine, gateway: Gateway, on_ready: Callable[[], None]) -> None:
    """Keep the gateway's word on whether a worker is there.

    Without a broker nothing that waits will be answered soon, and clients do better to know.
    Without a worker it may be: one that starts again takes what its predecessor had.
    """
    misses, told = 0, False
    while True:
        worker = await engine.worker() if engine.connected else None
        misses = 0 if worker is not None else misses + 1
        if misses == 0:
            gateway.engine = engine
            with contextlib.suppress(QueueUnavailable):  # the next look tells
                gateway.chat.workers = await engine.chats()
                gateway.metrics.workers.see(await engine.workers())
            if not told:
                on_ready()
                told = True
        elif misses >= _MISSES:
            gateway.engine = None
            gateway.chat.workers = []
            if not engine.connected:
                gateway.fail_all(QueueUnavailable("the queue cannot be reached; ask again"))
        await anyio.sleep(_CHECK_S)
