"""What the queue and its workers say of themselves."""

from __future__ import annotations

import msgspec

from engine.fleet import WorkerInfo
from engine.queue import Queue
from engine.streams import QueueInfo


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One broker at one moment."""

    queue: QueueInfo
    workers: tuple[WorkerInfo, ...]


async def status_of(queue: Queue) -> Status:
    """Look at a broker; raises QueueUnavailable."""
    return Status(queue=await queue.look(), workers=tuple(await queue.all_workers()))
