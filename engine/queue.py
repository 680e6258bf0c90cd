"""Decisions over NATS: a work queue of requests, a short-lived stream of answers.

A request is acknowledged when its answer is in the answers stream. Answers go to
`answers.{source}.{decision}`: whoever waits is subscribed to the subject itself, and finds in the
stream what it missed while it was away. Failures go to a subject of their own below it, so that
none takes the place of an answer, and asking again is never answered with an old failure.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.js.api import PubAck
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from engine import streams
from engine.connection import Connection, DirectClient
from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.deliveries import Pulls
from engine.errors import BadRequest, QueueFull, QueueUnavailable
from engine.fleet import ChatInfo, WorkerInfo
from engine.leases import Leases
from engine.streams import ACK_WAIT_S, ANSWERS, DECISIONS
from engine.suspects import Suspects
from engine.wire import pack, read, unpack

log = logging.getLogger(__name__)

_ACK_S: Final = 2.0  # for a stream to confirm a message; sent again, it counts once
_LATE_S: Final = 1.0  # for the word of somebody who waits
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


class Queue(Connection):
    """What is said over one connection to the broker; make it with `connect`."""

    def __init__(self, client: DirectClient) -> None:
        super().__init__(client)
        self.suspects = Suspects(self.js)

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
        data, headers = pack(request, limit=self.client.max_payload)
        headers["Nats-Msg-Id"] = f"{request.id}.{request.attempt}"
        subject = f"decide.{bundle}.{streams.token_of(request.affinity)}"
        try:
            taken = await self._publish(subject, data, headers)
        except APIError as error:
            if error.err_code == _STREAM_FULL:
                raise QueueFull(
                    f"{streams.MAX_REQUESTS} decisions are waiting; ask fewer at once or add"
                    " workers"
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
        data, headers = pack(prime, limit=self.client.max_payload)
        if self.connected:  # nats-py would keep it until the broker is back
            with contextlib.suppress(NatsError):
                await self.client.publish(f"prime.{bundle}", data, headers=headers)

    async def take_back(self, bundle: str, request: DecisionRequest, number: int | None) -> None:
        """Say that nobody waits for a request: it leaves the queue, or the worker that has it.

        Nothing is confirmed; what is not reached ends at its deadline.
        """
        named = msgspec.msgpack.encode(_Named(request.source, request.id))
        with contextlib.suppress(NatsError):  # the broker is away
            await self.client.publish(f"cancel.{bundle}", named)
            if number is not None:
                deletion = msgspec.json.encode({"seq": number, "no_erase": True})
                await self.client.publish(f"$JS.API.STREAM.MSG.DELETE.{DECISIONS}", deletion)

    async def subscribe_answers(
        self, source: str, receive: Callable[[DecisionReply], Awaitable[None]]
    ) -> None:
        """Have every answer to `source` given to `receive` from now on."""

        async def on_message(message: Msg) -> None:
            reply = read(message.data, message.headers, DecisionReply)
            if reply is not None:
                await receive(reply)

        async def on_question(message: Msg) -> None:
            await self.client.publish(message.reply, b"")

        await self.client.subscribe(f"answers.{source}.>", cb=on_message)
        await self.client.subscribe(f"sources.{source}", cb=on_question)
        await self.settle()

    async def find_answer(self, source: str, decision: str) -> DecisionReply | None:
        """Look for an answer in the stream; a failure is none.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            found = await self.js.get_last_msg(ANSWERS, f"answers.{source}.{decision}", direct=True)
        except NotFoundError:
            return None
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the answers stream cannot be read: {error}") from error
        return read(found.data or b"", found.headers, DecisionReply)

    async def workers(self, bundle: str, *, wait_s: float = 1.0) -> WorkerInfo | None:
        """Give what one live worker of a bundle says of itself; None when there is none."""
        try:
            message = await self.client.request(f"workers.{bundle}", b"", timeout=wait_s)
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
        inbox = self.client.new_inbox()
        found: list[Info] = []
        try:
            answers = await self.client.subscribe(inbox)
            try:
                await self.client.publish(subject, b"", reply=inbox)
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
            data, headers = pack(describe(), limit=self.client.max_payload)
            await self.client.publish(message.reply, data, headers=headers)

        for subject in ("workers", f"workers.{bundle}"):
            await self.client.subscribe(subject, cb=on_message)
        await self.settle()

    async def announce_chat(self, bundle: str, chat: ChatInfo) -> None:
        """Answer those who ask where workers of a bundle chat."""
        data, headers = pack(chat, limit=self.client.max_payload)

        async def on_message(message: Msg) -> None:
            await self.client.publish(message.reply, data, headers=headers)

        await self.client.subscribe(f"chats.{bundle}", cb=on_message)
        await self.settle()

    async def look(self) -> streams.QueueInfo:
        """Describe the work queue.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            return await streams.look(self.js)
        except (NatsError, TimeoutError) as error:
            raise QueueUnavailable(f"the queue cannot be looked at: {error}") from error

    def leases(self, bundle: str) -> Leases:
        """Give what the workers of a bundle share out among themselves."""
        return Leases(self.js, bundle)

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

        await self.client.subscribe(f"cancel.{bundle}", cb=on_message)
        await self.settle()

    async def subscribe_primes(
        self, bundle: str, receive: Callable[[Prime], Awaitable[None]]
    ) -> None:
        """Have every state that is to be read ahead given to `receive`."""

        async def on_message(message: Msg) -> None:
            prime = read(message.data, message.headers, Prime)
            if prime is not None:
                await receive(prime)

        await self.client.subscribe(f"prime.{bundle}", cb=on_message)
        await self.settle()

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
                found = await self.js.get_msg(DECISIONS, told.stream_seq)
                request = unpack(found.data or b"", found.headers, DecisionRequest)
                await bury(request, told.deliveries)
                await self.js.delete_msg(DECISIONS, told.stream_seq)
            except (NatsError, TimeoutError, BadRequest, QueueUnavailable) as error:
                log.warning("a dead letter is left", extra={"why": str(error)})

        advisory = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{DECISIONS}"
        for consumer in mine:
            await self.client.subscribe(f"{advisory}.{consumer}", queue="graves", cb=on_message)
        await self.settle()

    async def is_waiting(self, source: str) -> bool:
        """Tell whether somebody waits for the answers to a source; if in doubt, yes."""
        try:
            await self.client.request(f"sources.{source}", b"", timeout=_LATE_S)
        except NoRespondersError:
            return False
        except (NatsError, TimeoutError):
            return True
        return True

    def pulls(self, bundle: str, partition: int, *, ack_wait_s: float = ACK_WAIT_S) -> Pulls:
        """Give what takes the requests of a partition; one that is kept listens once."""
        return Pulls(self, bundle, partition, ack_wait_s=ack_wait_s)

    async def publish_answer(self, source: str, reply: DecisionReply) -> None:
        """Put an answer into its stream, which keeps the first one of each decision.

        Raises:
            BadRequest, RequestTooLarge: It cannot be sent.
            QueueUnavailable: The stream did not acknowledge it.
        """
        data, headers = pack(reply, limit=self.client.max_payload)
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
            return await self.js.publish(subject, data, _ACK_S, headers=dict(headers))
        except NoStreamResponseError:
            await self.ensure_streams()
            return await self.js.publish(subject, data, _ACK_S, headers=dict(headers))
