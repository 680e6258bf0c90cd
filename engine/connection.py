"""The connection to the broker: opened, kept, closed; streams that are missing are made."""

from __future__ import annotations

import contextlib
import datetime
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Self

import anyio
import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from engine import streams
from engine.errors import QueueUnavailable
from engine.server import Server
from engine.streams import ANSWERS

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 5.0


class DirectClient(Client):
    """Writes what is published at once.

    nats-py's own flusher is a task behind all others that are ready: of requests that come together
    none would be on its way before all of them are made, and their answers would come together too.
    """

    gathering = False

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        if self.gathering:
            return None
        if not self.is_connected or self._transport is None:
            return await super()._flush_pending(force_flush)
        try:
            if self._pending:
                self._transport.writelines(self._pending)
                self._pending = []
                self._pending_data_size = 0
            await self._transport.drain()
        except (OSError, RuntimeError):  # uvloop's, for a connection that is gone
            return await super()._flush_pending(force_flush)  # which notices it too, and reconnects


class Connection:
    """One connection to the broker; make it with `connect`.

    Attributes:
        client: The connection as nats-py has it.
        js: What it says to JetStream with.
        clock_s: To add to our monotonic clock for the broker's time.
        reconnected: Set when the connection was lost and is back; then replaced.
    """

    def __init__(self, client: DirectClient) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=TIMEOUT_S)
        self.clock_s = 0.0
        self.reconnected = anyio.Event()

    @classmethod
    async def connect(cls, server: Server | str) -> Self:
        """Connect, make the streams that are missing, and learn the broker's clock.

        Args:
            server: The server, or the URL of one that needs no certificates.

        Raises:
            QueueUnavailable: Nobody answers there, or the credential is refused.
        """
        if isinstance(server, str):
            server = Server(url=server)
        tls = server.tls()
        connection = cls(DirectClient())
        try:
            await connection._connect(server.url, tls)
            await connection.ensure_streams()
            await connection._learn_clock()
        except BaseException:  # a cancelled one would go on trying
            await connection.close()
            raise
        return connection

    async def _connect(self, url: str, tls: ssl.SSLContext | None) -> None:
        try:
            with anyio.fail_after(TIMEOUT_S):  # nats-py itself would try for ever
                await self.client.connect(
                    url,
                    connect_timeout=2,
                    reconnect_time_wait=0.1,  # pyright: ignore[reportArgumentType]  seconds
                    max_reconnect_attempts=-1,
                    error_cb=self._on_error,
                    reconnected_cb=self._on_reconnect,
                    allow_reconnect=True,
                    name="ostinato",
                    tls=tls,
                )
        except (NatsError, OSError, TimeoutError, _Refused) as error:
            cause = self.client.last_error or error
            why = str(cause) or type(cause).__name__
            raise QueueUnavailable(
                f"no NATS server takes this connection at {url.rpartition('@')[2]} ({why});"
                " start one, or check address and credential"
            ) from error

    async def close(self) -> None:
        """Close the connection."""
        with (
            anyio.CancelScope(shield=True),
            anyio.move_on_after(2),
            # the other end is gone already; uvloop then refuses what was still to be sent
            contextlib.suppress(NatsError, OSError, RuntimeError),
        ):
            await self.client.close()
        if self.client._transport is not None:  # closing took too long, or broke off before this
            self.client._transport.close()

    async def gather(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Write what several calls publish in one go; none of them may wait for anything."""
        self.client.gathering = True
        try:
            for call in calls:
                await call()
        finally:
            self.client.gathering = False
        await self.client._flush_pending()

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self.client.is_connected

    @property
    def server_id(self) -> str:
        """Name the running server; it has another name whenever it is started."""
        return str(self.client._server_info.get("server_id"))

    async def ensure_streams(self) -> str:
        """Make the streams that are missing; give what identifies them until they are made anew.

        Raises:
            QueueUnavailable: The broker does not answer, or has no JetStream.
        """
        try:
            configs = (streams.decisions(), streams.answers())
            created = [await streams.ensure_stream(self.js, config) for config in configs]
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(
                f"the queue's streams cannot be made: {error}; does the server have JetStream?"
            ) from error
        return "|".join(created)

    async def settle(self) -> None:
        """Return when the broker has seen all that was sent: a message to ourselves came back.

        nats-py's `flush` can overtake a subscription that is still in its buffer (2.16.0).
        """
        inbox = self.client.new_inbox()
        mine = await self.client.subscribe(inbox, max_msgs=1)
        await self.client.publish(inbox, b"")
        await mine.next_msg(timeout=TIMEOUT_S)

    async def _learn_clock(self) -> None:
        """Learn how far the broker's clock is ahead of ours, to tell a request's age by it."""
        before = time.monotonic()
        try:
            reply = await self.client.request(
                "$JS.API.STREAM.INFO." + ANSWERS, b"", timeout=TIMEOUT_S
            )
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the broker does not tell its time: {error}") from error
        ours = (before + time.monotonic()) / 2
        theirs = msgspec.json.decode(reply.data, type=_Stamped).ts
        self.clock_s = theirs.timestamp() - ours

    async def _on_error(self, error: Exception) -> None:
        # Reconnecting is nats-py's work; the log has a line for whoever looks for the cause.
        log.info("connection to the broker", extra={"why": str(error) or type(error).__name__})
        if self.client.is_connecting and "Authorization" in str(error):
            raise _Refused from error  # trying again would not help

    async def _on_reconnect(self) -> None:
        before, self.reconnected = self.reconnected, anyio.Event()
        before.set()


class _Refused(Exception):
    """Ends nats-py's attempts to connect."""


class _Stamped(msgspec.Struct):
    ts: datetime.datetime
