"""Decisions over NATS: a work queue of requests, a short-lived stream of answers.

A request is acknowledged when its answer is in the answers stream. Answers go to
`answers.{source}.{decision}`: whoever waits is subscribed to the subject itself, and finds in the
stream what it missed while it was away. Failures go to a subject of their own below it, so that
none takes the place of an answer, and asking again is never answered with an old failure.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import anyio
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import PubAck
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from engine import streams
from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.errors import BadRequest, QueueFull, QueueUnavailable
from engine.fleet import ChatInfo, WorkerInfo
from engine.leases import Leases
from engine.server import Server
from engine.streams import ACK_WAIT_S, ANSWERS, DECISIONS
from engine.suspects import Suspects
from engine.wire import pack, unpack

log = logging.getLogger(__name__)

MAX_REQUESTS: Final = streams.MAX_REQUESTS
_TIMEOUT_S: Final = 5.0
_ACK_S: Final = 2.0  # for a stream to confirm a message; sent again, it counts once
PULL_S: Final = 0.25  # the longest that a pull waits
_LATE_S: Final = 1.0  # for the server's word that nothing came
_CHECK_S: Final = 10.0  # from one look at an idle partition to the next

_NEXT: Final = msgspec.json.encode({"batch": 1, "expires": int(PULL_S * 1e9)})
_NOTHING: Final = ("404", "408")  # statuses of a pull that found nothing
_TOKEN = re.compile(r"[^\s.*>]+")
_STREAM_FULL = 10077  # JetStream: maximum messages exceeded


Info = TypeVar("Info", bound=msgspec.Struct)


class _Named(msgspec.Struct, frozen=True):
    """Which decision a message is about."""

    source: str
    decision: str


class _Deliveries(msgspec.Struct, frozen=True):
    """What the broker says of a message that it delivers no more."""

    stream_seq: int
    deliveries: int


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


class Queue:
    """One connection to the broker; make it with `connect`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._js: JetStreamContext = client.jetstream(timeout=_TIMEOUT_S)
        self._pulls: dict[tuple[str, int], _Pull] = {}
        self._servers: dict[tuple[str, int], str] = {}  # that have a partition's consumer
        self.suspects = Suspects(self._js)
        self._clock_s = 0.0  # to add to our monotonic clock for the broker's time
        self.reconnected = anyio.Event()
        """Set when the connection was lost and is back; then replaced."""

    @classmethod
    async def connect(cls, server: Server | str) -> Queue:
        """Connect, make the streams that are missing, and learn the broker's clock.

        Args:
            server: The server, or the URL of one that needs no certificates.

        Raises:
            QueueUnavailable: Nobody answers there, or the credential is refused.
        """
        if isinstance(server, str):
            server = Server(url=server)
        tls = server.tls()
        queue = cls(Client())
        try:
            await queue._connect(server.url, tls)
            await queue.ensure_streams()
            await queue._learn_clock()
        except BaseException:  # a cancelled one would go on trying
            await queue.close()
            raise
        return queue

    async def _connect(self, url: str, tls: ssl.SSLContext | None) -> None:
        try:
            with anyio.fail_after(_TIMEOUT_S):  # nats-py itself would try for ever
                await self._client.connect(
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
            cause = self._client.last_error or error
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
            await self._client.close()
        if self._client._transport is not None:  # closing took too long, or broke off before this
            self._client._transport.close()

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self._client.is_connected

    async def ensure_streams(self) -> str:
        """Make the streams that are missing; give what identifies them until they are made anew.

        Raises:
            QueueUnavailable: The broker does not answer, or has no JetStream.
        """
        try:
            configs = (streams.decisions(max_requests=MAX_REQUESTS), streams.answers())
            created = [await streams.ensure_stream(self._js, config) for config in configs]
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(
                f"the queue's streams cannot be made: {error}; does the server have JetStream?"
            ) from error
        return "|".join(created)

    # -- asking ---------------------------------------------------------------------------------

    async def publish_request(self, bundle: str, request: DecisionRequest) -> int:
        """Put a request into the work queue and give its number there.

        Raises:
            BadRequest: Its id or source cannot be part of a subject.
            RequestTooLarge: Its bytes exceed what the broker takes. Nothing was sent.
            QueueFull: The stream holds as many requests as it may.
            QueueUnavailable: The broker does not answer; the request may or may not be there.
        """
        for name in (request.id, request.source):
            if not _TOKEN.fullmatch(name):
                raise BadRequest(f"{name!r} names no decision or source: no space, . * or > in it")
        data, headers = pack(request, limit=self._client.max_payload)
        headers["Nats-Msg-Id"] = f"{request.id}.{request.attempt}"
        subject = f"decide.{bundle}.{streams.token_of(request.affinity)}"
        try:
            taken = await self._publish(subject, data, headers)
        except APIError as error:
            if error.err_code == _STREAM_FULL:
                raise QueueFull(
                    f"{MAX_REQUESTS} decisions are waiting; ask fewer at once or add workers"
                ) from error
            raise QueueUnavailable(f"the queue refused the request: {error}") from error
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the queue did not take the request: {error}") from error
        return taken.seq

    async def publish_prime(self, bundle: str, prime: Prime) -> None:
        """Have a state read ahead, if a worker is there: nothing is kept, nothing is confirmed.

        Raises:
            BadRequest: A text in it is not valid Unicode.
            RequestTooLarge: Its bytes exceed what the broker takes.
        """
        data, headers = pack(prime, limit=self._client.max_payload)
        if self.connected:  # nats-py would keep it until the broker is back
            with contextlib.suppress(NatsError):
                await self._client.publish(f"prime.{bundle}", data, headers=headers)

    async def take_back(self, bundle: str, request: DecisionRequest, number: int | None) -> None:
        """Say that nobody waits for a request: it leaves the queue, or the worker that has it.

        Nothing is confirmed; what is not reached ends at its deadline.
        """
        named = msgspec.msgpack.encode(_Named(request.source, request.id))
        with contextlib.suppress(NatsError):  # the broker is away
            await self._client.publish(f"cancel.{bundle}", named)
            if number is not None:
                deletion = msgspec.json.encode({"seq": number, "no_erase": True})
                await self._client.publish(f"$JS.API.STREAM.MSG.DELETE.{DECISIONS}", deletion)

    async def subscribe_answers(
        self, source: str, receive: Callable[[DecisionReply], Awaitable[None]]
    ) -> None:
        """Have every answer to `source` given to `receive` from now on."""

        async def on_message(message: Msg) -> None:
            reply = _read(message.data, message.headers, DecisionReply)
            if reply is not None:
                await receive(reply)

        async def on_question(message: Msg) -> None:
            await self._client.publish(message.reply, b"")

        await self._client.subscribe(f"answers.{source}.>", cb=on_message)
        await self._client.subscribe(f"sources.{source}", cb=on_question)
        await self._settle()

    async def find_answer(self, source: str, decision: str) -> DecisionReply | None:
        """Look for an answer in the stream; a failure is none.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            found = await self._js.get_last_msg(
                ANSWERS, f"answers.{source}.{decision}", direct=True
            )
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the answers stream cannot be read: {error}") from error
        return _read(found.data or b"", found.headers, DecisionReply)

    async def workers(self, bundle: str, *, wait_s: float = 1.0) -> WorkerInfo | None:
        """Give what one live worker of a bundle says of itself; None when there is none."""
        try:
            message = await self._client.request(f"workers.{bundle}", b"", timeout=wait_s)
        except (NatsError, TimeoutError):
            return None
        return unpack(message.data, message.headers, WorkerInfo)

    async def all_workers(self, *, wait_s: float = 0.5) -> list[WorkerInfo]:
        """Ask every live worker of any bundle, and give what came after a while.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        found = await self._gather("workers", WorkerInfo, wait_s)
        return sorted(found, key=lambda info: (info.bundle, info.worker))

    async def workers_of(self, bundle: str, *, wait_s: float = 0.5) -> list[WorkerInfo]:
        """Ask every live worker of a bundle, and give what came after a while.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        return await self._gather(f"workers.{bundle}", WorkerInfo, wait_s)

    async def chats(self, bundle: str, *, wait_s: float = 0.5) -> list[ChatInfo]:
        """Ask every live worker of a bundle where it chats, and give what came after a while.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        return await self._gather(f"chats.{bundle}", ChatInfo, wait_s)

    async def _gather(self, subject: str, kind: type[Info], wait_s: float) -> list[Info]:
        inbox = self._client.new_inbox()
        found: list[Info] = []
        try:
            answers = await self._client.subscribe(inbox)
            try:
                await self._client.publish(subject, b"", reply=inbox)
                with anyio.move_on_after(wait_s):
                    # without data: the broker's word that nobody listens there
                    while (message := await answers.next_msg(timeout=wait_s)).data:
                        found.append(unpack(message.data, message.headers, kind))
            finally:
                with anyio.CancelScope(shield=True):
                    await answers.unsubscribe()
        except TimeoutError:
            pass
        except NatsError as error:
            raise QueueUnavailable(f"workers cannot be asked: {error}") from error
        return found

    # -- answering ------------------------------------------------------------------------------

    async def announce(self, bundle: str, describe: Callable[[], WorkerInfo]) -> None:
        """Answer those who ask for workers of a bundle."""

        async def on_message(message: Msg) -> None:
            data, headers = pack(describe(), limit=self._client.max_payload)
            await self._client.publish(message.reply, data, headers=headers)

        for subject in ("workers", f"workers.{bundle}"):
            await self._client.subscribe(subject, cb=on_message)
        await self._settle()

    async def announce_chat(self, bundle: str, chat: ChatInfo) -> None:
        """Answer those who ask where workers of a bundle chat."""
        data, headers = pack(chat, limit=self._client.max_payload)

        async def on_message(message: Msg) -> None:
            await self._client.publish(message.reply, data, headers=headers)

        await self._client.subscribe(f"chats.{bundle}", cb=on_message)
        await self._settle()

    async def look(self) -> streams.QueueInfo:
        """Describe the work queue.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            return await streams.look(self._js)
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the queue cannot be looked at: {error}") from error

    def leases(self, bundle: str) -> Leases:
        """Give what the workers of a bundle share out among themselves."""
        return Leases(self._js, bundle)

    async def subscribe_cancelled(
        self, bundle: str, cancel: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """Have source and id of every decision that nobody waits for any more given to `cancel`."""

        async def on_message(message: Msg) -> None:
            try:
                named = msgspec.msgpack.decode(message.data, type=_Named)
            except msgspec.DecodeError as error:
                log.warning("a message cannot be read", extra={"why": str(error)})
                return
            await cancel(named.source, named.decision)

        await self._client.subscribe(f"cancel.{bundle}", cb=on_message)
        await self._settle()

    async def subscribe_primes(
        self, bundle: str, receive: Callable[[Prime], Awaitable[None]]
    ) -> None:
        """Have every state that is to be read ahead given to `receive`."""

        async def on_message(message: Msg) -> None:
            prime = _read(message.data, message.headers, Prime)
            if prime is not None:
                await receive(prime)

        await self._client.subscribe(f"prime.{bundle}", cb=on_message)
        await self._settle()

    async def subscribe_undeliverable(
        self, bundle: str, bury: Callable[[DecisionRequest, int], Awaitable[None]]
    ) -> None:
        """Have each request that was delivered too often given to `bury`, then forget it.

        One of those who subscribe for a bundle gets it.
        """
        mine = [streams.consumer_of(bundle, number) for number in range(streams.PARTITIONS)]

        async def on_message(message: Msg) -> None:
            told = msgspec.json.decode(message.data, type=_Deliveries)
            try:
                found = await self._js.get_msg(DECISIONS, told.stream_seq)
                request = unpack(found.data or b"", found.headers, DecisionRequest)
                await bury(request, told.deliveries)
                await self._js.delete_msg(DECISIONS, told.stream_seq)
            except (NatsError, TimeoutError, BadRequest, QueueUnavailable) as error:
                log.warning("a dead letter is left", extra={"why": str(error)})

        advisory = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{DECISIONS}"
        for consumer in mine:
            await self._client.subscribe(f"{advisory}.{consumer}", queue="graves", cb=on_message)
        await self._settle()

    async def is_waiting(self, source: str) -> bool:
        """Tell whether somebody waits for the answers to a source; if in doubt, yes."""
        try:
            await self._client.request(f"sources.{source}", b"", timeout=_LATE_S)
        except NoRespondersError:
            return False
        except (NatsError, TimeoutError):
            return True
        return True

    async def pull(
        self, bundle: str, partition: int, *, ack_wait_s: float = ACK_WAIT_S
    ) -> Delivery | None:
        """Take the next request of a partition; None when there was none for a while.

        Raises:
            QueueUnavailable: The broker or the consumer is not there now; try again.
        """
        pull = self._pulls.get((bundle, partition))
        server = self._server_id
        try:
            if pull is None or pull.server != server:
                await self.ensure_streams()
                anew = self._servers.get((bundle, partition), server) != server
                await streams.ensure_consumer(
                    self._js, bundle, partition, ack_wait_s=ack_wait_s, anew=anew
                )
                self._servers[bundle, partition] = server
                # Not nats-py's `fetch`: it stops listening when the server stops delivering, and
                # what was under way then would be nobody's until the time to acknowledge is over.
                inbox = pull.inbox if pull else self._client.new_inbox()
                messages = pull.messages if pull else await self._client.subscribe(inbox)
                pull = self._pulls[bundle, partition] = _Pull(server, inbox, messages)
            consumer = streams.consumer_of(bundle, partition)
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{DECISIONS}.{consumer}", _NEXT, reply=pull.inbox
            )
            message = await pull.messages.next_msg(timeout=PULL_S + _LATE_S)
            status = (message.headers or {}).get("Status")
            if status in _NOTHING and time.monotonic() >= pull.check_at:
                pull.check_at = time.monotonic() + _CHECK_S
                if not await streams.require_whole(self._js, bundle, partition):
                    log.warning("the queue's files are damaged: it is made anew, and asked again")
        except TimeoutError:
            return None
        except NatsError as error:
            raise QueueUnavailable(f"requests cannot be pulled: {error}") from error
        if status in _NOTHING:
            return None
        if status is not None:  # the consumer or its stream is gone: made again by the next pull
            if self._pulls.pop((bundle, partition), None):
                await pull.messages.unsubscribe()
            raise QueueUnavailable(f"requests cannot be pulled: status {status}")
        return await self._delivery(message)

    async def _delivery(self, message: Msg) -> Delivery | None:
        request = _read(message.data, message.headers, DecisionRequest)
        if request is None:
            await message.term()
            return None
        published_s = message.metadata.timestamp.timestamp()
        age_s = max(0.0, time.monotonic() + self._clock_s - published_s)
        server = self._server_id
        same = lambda: self.connected and self._server_id == server  # noqa: E731
        return Delivery(message, request, age_s, same=same)

    @property
    def _server_id(self) -> str:
        """Name the running server; it has another name whenever it is started."""
        return str(self._client._server_info.get("server_id"))

    async def publish_answer(self, source: str, reply: DecisionReply) -> None:
        """Put an answer into its stream, which keeps the first one of each decision.

        Raises:
            BadRequest, RequestTooLarge: It cannot be sent.
            QueueUnavailable: The stream did not acknowledge it.
        """
        data, headers = pack(reply, limit=self._client.max_payload)
        subject = f"answers.{source}.{reply.id}"
        headers["Nats-Msg-Id"] = reply.id
        if reply.failure is not None:
            subject += ".failed"
            headers["Nats-Msg-Id"] += f".{reply.attempt}"
        try:
            await self._publish(subject, data, headers)
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the answers stream did not take an answer: {error}") from error

    async def _publish(self, subject: str, data: bytes, headers: dict[str, str]) -> PubAck:
        """Publish into a stream, which is made if it is not there."""
        if not self.connected:
            raise ConnectionClosedError  # nats-py would keep it until the broker is back
        try:
            return await self._js.publish(subject, data, _ACK_S, headers=dict(headers))
        except NoStreamResponseError:
            await self.ensure_streams()
            return await self._js.publish(subject, data, _ACK_S, headers=dict(headers))

    # -- the connection -------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Return when the broker has seen all that was sent: a message to ourselves came back.

        nats-py's `flush` can overtake a subscription that is still in its buffer (2.16.0).
        """
        inbox = self._client.new_inbox()
        mine = await self._client.subscribe(inbox, max_msgs=1)
        await self._client.publish(inbox, b"")
        await mine.next_msg(timeout=_TIMEOUT_S)

    async def _learn_clock(self) -> None:
        """Learn how far the broker's clock is ahead of ours, to tell a request's age by it."""
        before = time.monotonic()
        try:
            reply = await self._client.request(
                "$JS.API.STREAM.INFO." + ANSWERS, b"", timeout=_TIMEOUT_S
            )
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the broker does not tell its time: {error}") from error
        ours = (before + time.monotonic()) / 2
        theirs = msgspec.json.decode(reply.data, type=_Stamped).ts
        self._clock_s = theirs.timestamp() - ours

    async def _on_error(self, error: Exception) -> None:
        # Reconnecting is nats-py's work; the log has a line for whoever looks for the cause.
        log.info("connection to the broker", extra={"why": str(error) or type(error).__name__})
        if self._client.is_connecting and "Authorization" in str(error):
            raise _Refused from error  # trying again would not help

    async def _on_reconnect(self) -> None:
        before, self.reconnected = self.reconnected, anyio.Event()
        before.set()


def _read(data: bytes, headers: Mapping[str, str] | None, kind: type[Info]) -> Info | None:
    """Read a message; None, and a line in the log, if it is damaged."""
    try:
        return unpack(data, headers, kind)
    except BadRequest as error:
        log.warning("a message cannot be read", extra={"why": str(error)})
        return None


class _Pull(msgspec.Struct):
    """Where the requests of one partition come in, and the server that has its consumer.

    Attributes:
        check_at: When it is next looked whether the consumer passes over requests; monotonic
            seconds, and only when there are none.
    """

    server: str
    inbox: str
    messages: Subscription
    check_at: float = 0.0


class _Refused(Exception):
    """Ends nats-py's attempts to connect."""


class _Stamped(msgspec.Struct):
    ts: datetime.datetime
