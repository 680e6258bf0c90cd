"""Requests in files that cannot be read any more are noticed, and nothing is taken for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from engine import streams
from engine.broker import RunningBroker
from engine.deliveries import Pulls
from engine.errors import QueueUnavailable
from engine.queue import Queue
from tests.support.queues import MODEL, PARTITION, request, until

MANY = 20


@pytest.fixture
async def queue(running: RunningBroker) -> AsyncIterator[Queue]:
    queue = await Queue.connect(running.url)
    try:
        for number in range(MANY):
            await queue.publish_request(MODEL.hash, request(f"d{number}"))
        yield queue
    finally:
        await queue.close()


@pytest.fixture
def pulls(queue: Queue) -> Pulls:
    return queue.pulls(MODEL.hash, PARTITION)


async def pulled(pulls: Pulls) -> list[str]:
    """Take what there is, and look once more when there is nothing."""
    found: list[str] = []
    while True:
        try:
            delivery = await pulls.next(1)
        except QueueUnavailable:
            await anyio.sleep(0.05)
            continue
        if delivery is None:
            return found
        found.append(delivery.request.id)
        await delivery.ack()


async def is_whole(queue: Queue) -> bool:
    return await streams.require_whole(queue.js, MODEL.hash, PARTITION)


@pytest.mark.parametrize("part", [0.2, 0.8])
async def test_a_queue_that_passes_over_requests_is_made_anew(
    running: RunningBroker, queue: Queue, pulls: Pulls, part: float
) -> None:
    before = await queue.ensure_streams()
    await running.child.stop()
    [block] = (running.folder / "jetstream").rglob("DECISIONS/msgs/*.blk")
    data = bytearray(block.read_bytes())
    data[int(len(data) * part)] ^= 4
    block.write_bytes(data)
    await running.start()
    await until(lambda: queue.connected)
    last = await queue.publish_request(MODEL.hash, request("d0", attempt=2))

    async def is_new() -> bool:
        await pulled(pulls)
        return await queue.ensure_streams() != before

    await until(is_new)
    number = await queue.publish_request(MODEL.hash, request("d1", attempt=2))
    assert number > last  # no acknowledgement of an earlier request is taken for its
    assert await pulled(pulls) == ["d1"]
    assert await is_whole(queue)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_queue_that_is_whole_stays(
    running: RunningBroker, queue: Queue, pulls: Pulls, restart: bool
) -> None:
    before = await queue.ensure_streams()
    for number in range(6):
        delivery = await pulls.next(1)
        assert delivery is not None
        assert await is_whole(queue)
        match number % 3:
            case 0:
                await delivery.ack()
            case 1:
                await delivery.hand_back(delay_s=0.1 * number)
            case _:
                pass  # it is being worked on
        assert await is_whole(queue)
    if restart:
        running.child.kill()
        await running.start()
        await until(lambda: queue.connected)
    found: list[str] = []

    async def all_came() -> bool:
        found.extend(await pulled(pulls))  # what was handed back comes after its delay
        return len(found) >= MANY - 4

    await until(all_came)
    assert await is_whole(queue)
    created = (await queue.ensure_streams()).split("|")[0]
    assert created == before.split("|")[0]  # of the requests; answers are kept in memory
