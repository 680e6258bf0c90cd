"""What the broker keeps for the queue: its streams, its consumers, its buckets.

Requests go to `decide.{bundle}.{affinity}`; the stream turns that into
`decide.{bundle}.{partition}.{affinity}`, so that the requests of one match stay together, and each
partition has a consumer of its own. Answers are kept for a short time, the first of each decision.

The queue may lose everything. The streams keep the default sync, because the log republishes what
has no answer: an fsync for each message would make nothing safer.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from typing import Final

import msgspec
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DiscardPolicy,
    KeyValueConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
    SubjectTransform,
)
from nats.js.errors import NotFoundError, ServerError

DECISIONS: Final = "DECISIONS"
ANSWERS: Final = "ANSWERS"
LEASES: Final = "WORKERS"
SUSPECTS: Final = "SUSPECTS"
PARTITIONS: Final = 8  # as many workers can share a model's requests
MAX_REQUESTS: Final = 20_000  # waiting in the stream; more are refused as QueueFull
MAX_DELIVER: Final = 20  # drains and lost connections count too, so it is far above what kills
ACK_WAIT_S: Final = 10.0  # what a killed worker had is with another within this
PROGRESS_S: Final = 3.0
ANSWERS_KEPT_S: Final = 600.0
LEASE_S: Final = 3.0  # what a dead worker claimed is free after this
_UNUSED_S: Final = 3600.0  # then requests that nobody took go, and consumers that nobody uses


class PartitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one partition: not yet taken, taken, and taken more than once."""

    bundle: str
    partition: int
    waiting: int
    in_work: int
    redelivered: int


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The work queue: `waiting` counts what has no answer yet, the first for `oldest_s` seconds."""

    waiting: int
    limit: int
    oldest_s: float | None
    partitions: tuple[PartitionInfo, ...]


async def look(js: JetStreamContext) -> QueueInfo:
    """Describe the work queue; raises nats.errors.Error."""
    info = await js.stream_info(DECISIONS)
    oldest_s = None
    if info.state.messages:
        with contextlib.suppress(NotFoundError):  # it was answered meanwhile
            first = await js.get_msg(DECISIONS, info.state.first_seq)
            if first.time is not None:
                oldest_s = (datetime.datetime.now(datetime.UTC) - first.time).total_seconds()
    found: list[PartitionInfo] = []
    for consumer in await js.consumers_info(DECISIONS):
        _, bundle, partition = consumer.name.split("-")
        found.append(
            PartitionInfo(
                bundle=bundle,
                partition=int(partition),
                waiting=consumer.num_pending or 0,
                in_work=consumer.num_ack_pending or 0,
                redelivered=consumer.num_redelivered or 0,
            )
        )
    return QueueInfo(
        waiting=info.state.messages,
        limit=info.config.max_msgs or MAX_REQUESTS,
        oldest_s=oldest_s,
        partitions=tuple(sorted(found, key=lambda each: (each.bundle, each.partition))),
    )


async def ensure_stream(js: JetStreamContext, config: StreamConfig) -> str:
    """Make a stream if it is missing; give when it was made."""
    assert config.name is not None
    try:
        info = await js.stream_info(config.name)
    except NotFoundError:
        info = await js.add_stream(config)
    return str(info.created)


async def ensure_consumer(
    js: JetStreamContext, bundle: str, partition: int, *, ack_wait_s: float, anew: bool
) -> None:
    """Make a partition's consumer if it is missing, and anew if it has lost sight of requests.

    After damage on the disk the stream may give numbers again that the consumer believes to have
    delivered. A consumer that is still no good when it is new has its state from a file that
    nothing else removes than the end of the stream: it goes, and everybody asks again.

    Args:
        js: The connection.
        bundle: Of the requests.
        partition: Of the bundle.
        ack_wait_s: Until an unacknowledged request is delivered again, for a new consumer.
        anew: Trust no consumer, because the server was started anew.

    Raises:
        nats.errors.Error: As for every request to the broker.
    """
    if not anew and await _is_sound(js, bundle, partition):
        return
    with contextlib.suppress(NotFoundError):
        await js.delete_consumer(DECISIONS, consumer_of(bundle, partition))
    try:
        await js.add_consumer(DECISIONS, consumer(bundle, partition, ack_wait_s=ack_wait_s))
        if await _is_sound(js, bundle, partition):
            return
    except ServerError:
        pass
    await _renew(js, await js.stream_info(DECISIONS))
    await js.add_consumer(DECISIONS, consumer(bundle, partition, ack_wait_s=ack_wait_s))


async def require_whole(js: JetStreamContext, bundle: str, partition: int) -> bool:
    """Make the stream anew if a consumer passed over requests in it; tell whether it was whole.

    A consumer passes over what cannot be read, and over all that is written behind it, and the
    stream keeps it for nobody. Everybody asks again when the stream is another one.

    Raises:
        nats.errors.Error: As for every request to the broker.
    """
    before = await js.consumer_info(DECISIONS, consumer_of(bundle, partition))
    subject = f"decide.{bundle}.{partition}.>"
    info = await js.stream_info(DECISIONS, subjects_filter=subject)
    after = await js.consumer_info(DECISIONS, consumer_of(bundle, partition))
    known = (after.num_pending or 0) + (after.num_ack_pending or 0)
    if _counts(before) != _counts(after) or known >= sum((info.state.subjects or {}).values()):
        return True  # where something happens meanwhile, the numbers mean nothing
    now = await js.stream_info(DECISIONS)
    if now.created == info.created:  # and nobody else was faster
        await _renew(js, now)
    return False


def _counts(info: ConsumerInfo) -> tuple[object, ...]:
    delivered, acknowledged = info.delivered, info.ack_floor
    return (
        info.num_pending,
        info.num_ack_pending,
        delivered and (delivered.stream_seq, delivered.consumer_seq),
        acknowledged and acknowledged.stream_seq,
    )


async def _renew(js: JetStreamContext, info: StreamInfo) -> None:
    """Make the work queue anew, empty; no number is given twice, so that no old answer counts."""
    await js.delete_stream(DECISIONS)
    config = decisions()
    await js.add_stream(config.evolve(first_seq=info.state.last_seq + 1))


async def _is_sound(js: JetStreamContext, bundle: str, partition: int) -> bool:
    """Tell whether a partition's consumer is there and knows all that is there for it."""
    subject = f"decide.{bundle}.{partition}.>"
    held = (await js.stream_info(DECISIONS, subjects_filter=subject)).state
    try:
        seen = await js.consumer_info(DECISIONS, consumer_of(bundle, partition))
    except NotFoundError:
        return False
    known = (seen.num_pending or 0) + (seen.num_ack_pending or 0)
    reached = seen.delivered.stream_seq if seen.delivered else 0
    return known >= sum((held.subjects or {}).values()) and reached <= held.last_seq


def consumer(bundle: str, partition: int, *, ack_wait_s: float) -> ConsumerConfig:
    """Describe a partition's consumer."""
    return ConsumerConfig(
        durable_name=consumer_of(bundle, partition),
        filter_subject=f"decide.{bundle}.{partition}.>",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=MAX_DELIVER,
        max_ack_pending=MAX_REQUESTS,
        inactive_threshold=_UNUSED_S,
    )


def consumer_of(bundle: str, partition: int) -> str:
    """Name a partition's consumer."""
    return f"workers-{bundle}-{partition}"


def decisions() -> StreamConfig:
    """Describe the work queue."""
    return StreamConfig(
        name=DECISIONS,
        subjects=["decide.*.*"],
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


def answers() -> StreamConfig:
    """Describe the stream of answers."""
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


def leases() -> KeyValueConfig:
    """Describe the bucket of what workers claim."""
    return KeyValueConfig(bucket=LEASES, ttl=LEASE_S, storage=StorageType.MEMORY, direct=True)


def suspects() -> KeyValueConfig:
    """Describe the bucket of decisions that ran alone."""
    return KeyValueConfig(
        bucket=SUSPECTS, ttl=ANSWERS_KEPT_S, storage=StorageType.MEMORY, direct=True
    )


def token_of(affinity: str) -> str:
    """Give an affinity key as it stands in a subject."""
    return hashlib.blake2b(affinity.encode(), digest_size=8).hexdigest()


def partition_of(affinity: str) -> int:
    """Give the partition of an affinity key: FNV-1a of its subject token, as the server has it."""
    value = 0x811C9DC5
    for byte in token_of(affinity).encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value % PARTITIONS
