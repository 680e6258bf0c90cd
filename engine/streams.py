"""What the broker keeps for the queue: its streams, its consumers, its buckets.

Requests go to `decide.{bundle}.{affinity}`; the stream turns that into
`decide.{bundle}.{partition}.{affinity}`, so that the requests of one match stay together, and each
partition has a consumer of its own. Answers are kept for a short time, the first of each decision.

The queue may lose everything. The streams keep the default sync, because the log republishes what
has no answer: an fsync for each message would make nothing safer.
"""

from __future__ import annotations

from typing import Final

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    KeyValueConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    SubjectTransform,
)
from nats.js.errors import NotFoundError

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


async def ensure_stream(js: JetStreamContext, config: StreamConfig) -> str:
    """Make a stream if it is missing; give when it was made."""
    assert config.name is not None
    try:
        info = await js.stream_info(config.name)
    except NotFoundError:
        info = await js.add_stream(config)
    return str(info.created)


async def ensure_consumer(
    js: JetStreamContext, bundle: str, partition: int, *, ack_wait_s: float
) -> None:
    """Make a partition's consumer if it is missing."""
    try:
        await js.consumer_info(DECISIONS, consumer_of(bundle, partition))
    except NotFoundError:
        await js.add_consumer(DECISIONS, consumer(bundle, partition, ack_wait_s=ack_wait_s))


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


def decisions(*, max_requests: int) -> StreamConfig:
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
        max_msgs=max_requests,
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
