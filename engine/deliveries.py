"""Requests as they come to a worker, and what it says about each."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from engine import streams
from engine.connection import Connection
from engine.contract import DecisionRequest
from engine.errors import QueueUnavailable
from engine.streams import DECISIONS
from engine.wire import read

log = logging.getLogger(__name__)

PULL_S: Final = 0.5  # the longest that a pull waits; idle workers ask so often, for each partition
_LATE_S: Final = 1.0  # for the server's word that nothing came
_CHECK_S: Final = 10.0  # from one look at an idle partition to the next
_NOTHING: Final = ("404", "408")  # statuses of a pull whose time is over
_LEFT: Final = "Nats-Pending-Messages"  # what did not come to such a pull


class Delivery:
    """One request as it was delivered to this worker.

    What it is told only counts for the server that delivered it: another one may have given the
    request's number in the stream to a new request.
    """

    def __init__(
        self, message: Msg, request: DecisionRequest, age_s: float, *, same: Callable[[], bool]
    ) -> None:
        self._message = message
        self._same_server = same
        self.request = request
        self.age_s = age_s
        """Since it was published, on the broker's clock."""
        self.deadline = time.monotonic() + request.remaining_s - age_s
        self.number = message.metadata.num_delivered or 1

    async def ack(self) -> None:
        """It is done; the queue forgets it."""
        await self._quietly(self._message.ack)

    async def hand_back(self, *, delay_s: float | None = None) -> None:
        """Let another worker have it, at once or after a delay."""
        await self._quietly(lambda: self._message.nak(delay=delay_s))

    async def in_progress(self) -> None:
        """It is being worked on; the time to acknowledge starts anew."""
        await self._quietly(self._message.in_progress)

    async def _quietly(self, call: Callable[[], Awaitable[None]]) -> None:
        if not self._same_server():
            return
        try:
            await call()
        except NatsError as error:
            # It will be delivered again, and the answers stream then has the answer.
            log.info(
                "acknowledgement not sent", extra={"decision": self.request.id, "why": str(error)}
            )


class Pulls:
    """What one worker takes from one partition.

    Several requests are asked for at a time, and more before all of them are there, so that none
    waits for a question to the broker and its answer.

    Attributes:
        due: How many requests were asked for and may still come.
    """

    def __init__(
        self, connection: Connection, bundle: str, partition: int, *, ack_wait_s: float
    ) -> None:
        self.due = 0
        self._connection = connection
        self._bundle = bundle
        self._partition = partition
        self._ack_wait_s = ack_wait_s
        self._subject = (
            f"$JS.API.CONSUMER.MSG.NEXT.{DECISIONS}.{streams.consumer_of(bundle, partition)}"
        )
        self._server = ""  # that has the consumer
        self._gone = True  # the consumer; it is made again
        self._inbox: Subscription | None = None
        self._came: deque[tuple[str, Msg]] = deque()  # with the server that each came from
        self._more = anyio.Event()
        self._over_at = 0.0  # what was asked for and is not here then does not come
        self._check_at = 0.0  # next look whether the consumer passes over requests

    async def next(self, most: int) -> Delivery | None:
        """Give the next request, or None when there is none for a while.

        Args:
            most: As many are asked for, unless half of them are due already; 0 asks for none.

        Raises:
            QueueUnavailable: The broker or the consumer is not there now; try again.
        """
        try:
            if self._gone or self._server != self._connection.server_id:
                await self._open()
            if most and self.due < max(1, most // 2):
                await self._ask(most - self.due)
            came = await self._next()
            if came is None:
                return None
            server, message = came
            status = (message.headers or {}).get("Status")
            if status is None:
                self.due = max(0, self.due - 1)
                return await self._delivery(server, message)
            self._gone = status not in _NOTHING
            left = (message.headers or {}).get(_LEFT, "")
            self.due = max(0, self.due - int(left)) if left.isdigit() else 0
            if not self._gone:
                await self._check()
                return None
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"requests cannot be pulled: {error}") from error
        raise QueueUnavailable(f"requests cannot be pulled: status {status}")

    async def _open(self) -> None:
        """Make consumer and inbox if they are missing; a new server has none of what was asked."""
        connection, server = self._connection, self._connection.server_id
        self.due = 0
        await connection.ensure_streams()
        anew = self._server not in ("", server)
        await streams.ensure_consumer(
            connection.js, self._bundle, self._partition, ack_wait_s=self._ack_wait_s, anew=anew
        )
        self._server, self._gone = server, False
        if self._inbox is None:
            # Not nats-py's `fetch`: it stops listening when the server stops delivering, and
            # what was under way then would be nobody's until the time to acknowledge is over.
            self._inbox = await connection.client.subscribe(
                connection.client.new_inbox(), cb=self._receive
            )

    async def _receive(self, message: Msg) -> None:
        self._came.append((self._connection.server_id, message))
        self._more.set()

    async def _ask(self, count: int) -> None:
        assert self._inbox is not None
        wanted = msgspec.json.encode({"batch": count, "expires": int(PULL_S * 1e9)})
        await self._connection.client.publish(self._subject, wanted, reply=self._inbox.subject)
        self.due += count
        self._over_at = time.monotonic() + PULL_S + _LATE_S

    async def _next(self) -> tuple[str, Msg] | None:
        if not self._came:
            with anyio.move_on_after(self._over_at - time.monotonic()):
                self._more = anyio.Event()
                await self._more.wait()
        if self._came:
            return self._came.popleft()
        self.due = 0
        return None

    async def _check(self) -> None:
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _CHECK_S
        if not await streams.require_whole(self._connection.js, self._bundle, self._partition):
            log.warning("the queue's files are damaged: it is made anew, and asked again")

    async def _delivery(self, server: str, message: Msg) -> Delivery | None:
        request = read(message.data, message.headers, DecisionRequest)
        if request is None:
            await message.term()
            return None
        connection = self._connection
        published_s = message.metadata.timestamp.timestamp()
        age_s = max(0.0, time.monotonic() + connection.clock_s - published_s)
        same = lambda: connection.connected and connection.server_id == server  # noqa: E731
        return Delivery(message, request, age_s, same=same)
