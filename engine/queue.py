"""Decisions over NATS: a work queue of requests, a short-lived stream of answers.

Requests go to `decide.{bundle}.{partition}.{affinity}` of a JetStream work queue and are
acknowledged when their answer is in the answers stream. Answers go to
`answers.{source}.{decision}`: whoever waits is subscribed to the subject itself, and finds in the
stream what it missed while it was away. Failures go to a subject of their own below it, so that
none takes the place of an answer, and asking again is never answered with an old failure.

The queue may lose everything. Its stream keeps the default sync, because the log republishes what
has no answer: an fsync for each message would make nothing safer.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    SubjectTransform,
)
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from engine.contract import DecisionReply, DecisionRequest
from engine.errors import BadRequest, QueueFull, QueueUnavailable
from engine.wire import pack, unpack

log = logging.getLogger(__name__)

DECISIONS: Final = "DECISIONS"
ANSWERS: Final = "ANSWERS"
PARTITIONS: Final = 8
MAX_REQUESTS: Final = 20_000  # waiting in the stream; more are refused as QueueFull
MAX_DELIVER: Final = 5
ACK_WAIT_S: Final = 5.0  # what a killed worker had is with another within this
PROGRESS_S: Final = 1.5
ANSWERS_KEPT_S: Final = 600.0
_UNUSED_S: Final = 3600.0  # then requests that nobody took go, and consumers that nobody uses
_TIMEOUT_S: Final = 5.0
PULL_S: Final = 0.25  # the longest that a pull waits
_LATE_S: Final = 1.0  # for the server's word that nothing came

_NEXT: Final = msgspec.json.encode({"batch": 1, "expires": int(PULL_S * 1e9)})
_NOTHING: Final = ("404", "408")  # statuses of a pull that found nothing
_TOKEN = re.compile(r"[^\s.*>]+")
_STREAM_FULL = 10077  # JetStream: maximum messages exceeded


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a live worker says of itself."""

    worker: str
    bundle: str
    fingerprint: str
    in_flight: int
    pid: int


class Delivery:
    """One request as it was delivered to this worker."""

    def __init__(self, message: Msg, request: DecisionRequest, age_s: float) -> None:
        self._message = message
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
        self._has_consumer = False
        self._consumer_lock = anyio.Lock()
        self._clock_s = 0.0  # to add to our monotonic clock for the broker's time
        self.reconnected = anyio.Event()
        """Set when the connection was lost and is back; then replaced."""

    @classmethod
    async def connect(cls, url: str) -> Queue:
        """Connect, make the streams that are missing, and learn the broker's clock.

        Raises:
            QueueUnavailable: Nobody answers there, or the credential is refused.
        """
        queue = cls(Client())
        try:
            await queue._connect(url)
            await queue.ensure_streams()
            await queue._learn_clock()
        except BaseException:  # a cancelled one would go on trying
            await queue.close()
            raise
        return queue

    async def _connect(self, url: str) -> None:
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
            contextlib.suppress(NatsError, OSError),  # the other end is gone already
        ):
            await self._client.close()

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
            created = [await self._ensure(config) for config in (_decisions(), _answers())]
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(
                f"the queue's streams cannot be made: {error}; does the server have JetStream?"
            ) from error
        return "|".join(created)

    async def _ensure(self, config: StreamConfig) -> str:
        assert config.name is not None
        try:
            info = await self._js.stream_info(config.name)
        except NotFoundError:
            info = await self._js.add_stream(config)
        return str(info.created)

    # -- asking ---------------------------------------------------------------------------------

    async def publish_request(self, bundle: str, request: DecisionRequest) -> None:
        """Put a request into the work queue, acknowledged by the stream.

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
        affinity = hashlib.blake2b(request.affinity.encode(), digest_size=8).hexdigest()
        subject = f"decide.{bundle}.{affinity}"
        if not self.connected:
            raise QueueUnavailable("the broker cannot be reached")
        try:
            try:
                await self._js.publish(subject, data, headers=dict(headers))
            except NoStreamResponseError:
                await self.ensure_streams()
                await self._js.publish(subject, data, headers=dict(headers))
        except APIError as error:
            if error.err_code == _STREAM_FULL:
                raise QueueFull(
                    f"{MAX_REQUESTS} decisions are waiting; ask fewer at once or add workers"
                ) from error
            raise QueueUnavailable(f"the queue refused the request: {error}") from error
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the queue did not take the request: {error}") from error

    async def subscribe_answers(
        self, source: str, receive: Callable[[DecisionReply], Awaitable[None]]
    ) -> None:
        """Have every answer to `source` given to `receive` from now on."""

        async def on_message(message: Msg) -> None:
            try:
                reply = unpack(message.data, message.headers, DecisionReply)
            except BadRequest as error:
                log.warning("an answer cannot be read", extra={"why": str(error)})
                return
            await receive(reply)

        await self._client.subscribe(f"answers.{source}.>", cb=on_message)
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
        try:
            return unpack(found.data or b"", found.headers, DecisionReply)
        except BadRequest as error:
            log.warning("an answer cannot be read", extra={"why": str(error)})
            return None

    async def workers(self, bundle: str, *, wait_s: float = 1.0) -> WorkerInfo | None:
        """Give what one live worker of a bundle says of itself; None when there is none."""
        try:
            message = await self._client.request(f"workers.{bundle}", b"", timeout=wait_s)
        except (NatsError, TimeoutError):
            return None
        return unpack(message.data, message.headers, WorkerInfo)

    # -- answering ------------------------------------------------------------------------------

    async def announce(self, bundle: str, describe: Callable[[], WorkerInfo]) -> None:
        """Answer those who ask for workers of a bundle."""

        async def on_message(message: Msg) -> None:
            data, headers = pack(describe(), limit=self._client.max_payload)
            await self._client.publish(message.reply, data, headers=headers)

        await self._client.subscribe(f"workers.{bundle}", cb=on_message)
        await self._settle()

    async def pull(self, bundle: str, *, ack_wait_s: float = ACK_WAIT_S) -> Delivery | None:
        """Take the next request of a bundle; None when there was none for a while.

        Raises:
            QueueUnavailable: The broker or the consumer is not there now; try again.
        """
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{DECISIONS}.{_consumer(bundle)}"
        try:
            async with self._consumer_lock:
                if not self._has_consumer:
                    await self._ensure_consumer(bundle, ack_wait_s)
                    self._has_consumer = True
            # Not nats-py's `fetch`: it stops listening when the server stops delivering, and what
            # was under way then would be nobody's until the time to acknowledge is over.
            message = await self._client.request(
                subject,
                _NEXT,
                timeout=PULL_S + _LATE_S,
                old_style=True,  # the shared inbox drops what keeps the stream's subject
            )
        except TimeoutError:
            return None
        except NatsError as error:
            self._has_consumer = False  # or its stream is gone: made again by the next pull
            raise QueueUnavailable(f"requests cannot be pulled: {error}") from error
        status = (message.headers or {}).get("Status")
        if status in _NOTHING:
            return None
        if status is not None:
            self._has_consumer = False
            raise QueueUnavailable(f"requests cannot be pulled: status {status}")
        return await self._delivery(message)

    async def _ensure_consumer(self, bundle: str, ack_wait_s: float) -> None:
        await self.ensure_streams()
        try:
            await self._js.consumer_info(DECISIONS, _consumer(bundle))
        except NotFoundError:
            await self._js.add_consumer(
                DECISIONS,
                ConsumerConfig(
                    durable_name=_consumer(bundle),
                    filter_subject=f"decide.{bundle}.>",
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=ack_wait_s,
                    max_deliver=MAX_DELIVER,
                    max_ack_pending=MAX_REQUESTS,
                    inactive_threshold=_UNUSED_S,
                ),
            )

    async def _delivery(self, message: Msg) -> Delivery | None:
        try:
            request = unpack(message.data, message.headers, DecisionRequest)
        except BadRequest as error:
            log.warning("a request cannot be read", extra={"why": str(error)})
            await message.term()
            return None
        published_s = message.metadata.timestamp.timestamp()
        return Delivery(message, request, max(0.0, time.monotonic() + self._clock_s - published_s))

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
            try:
                await self._js.publish(subject, data, headers=dict(headers))
            except NoStreamResponseError:
                await self.ensure_streams()
                await self._js.publish(subject, data, headers=dict(headers))
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the answers stream did not take an answer: {error}") from error

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


def _consumer(bundle: str) -> str:
    return f"workers-{bundle}"


class _Refused(Exception):
    """Ends nats-py's attempts to connect."""


class _Stamped(msgspec.Struct):
    ts: datetime.datetime


def _decisions() -> StreamConfig:
    return StreamConfig(
        name=DECISIONS,
        subjects=["decide.*.*"],
        # The partition keeps the requests of one match together (see `engine/worker.py`).
        subject_transform=SubjectTransform(
            src="decide.*.*",
            dest=f"decide.{{{{wildcard(1)}}}}.{{{{partition({PARTITIONS},2)}}}}.{{{{wildcard(2)}}}}",
        ),
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs=MAX_REQUESTS,
        max_age=_UNUSED_S,
        duplicate_window=120,
    )


def _answers() -> StreamConfig:
    return StreamConfig(
        name=ANSWERS,
        subjects=["answers.>"],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.MEMORY,
        discard=DiscardPolicy.OLD,
        max_age=ANSWERS_KEPT_S,
        max_msgs_per_subject=1,
        duplicate_window=ANSWERS_KEPT_S,
        allow_direct=True,
    )
