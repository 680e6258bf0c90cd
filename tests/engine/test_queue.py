from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import anyio
import pytest

from engine import connection, streams, wire
from engine.broker import MAX_PAYLOAD, RunningBroker, broker
from engine.contract import DecisionReply
from engine.deliveries import Delivery, Pulls
from engine.errors import BadRequest, QueueFull, QueueUnavailable, RequestTooLarge
from engine.models import open_model
from engine.queue import Queue
from engine.streams import ANSWERS, DECISIONS, token_of
from tests.support.queues import AFFINITY, MODEL, PARTITION, raw, request, until, waiting

OTHER = open_model("mock:seed=2")


@pytest.fixture
def pulls(queue: Queue) -> Pulls:
    return queue.pulls(MODEL.hash, PARTITION)


async def pulled(pulls: Pulls, *, most: int = 1) -> Delivery:
    with anyio.fail_after(20):
        while True:
            try:
                delivery = await pulls.next(most)
            except QueueUnavailable:
                await anyio.sleep(0.05)
                continue
            if delivery is not None:
                return delivery


async def holds(running: RunningBroker, number: int) -> bool:
    return await waiting(running) == number


async def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with anyio.fail_after(20), pytest.raises(QueueUnavailable, match=f"127.0.0.1:{port}"):
            await Queue.connect(f"nats://u:secret@127.0.0.1:{port}")


async def test_a_close_that_breaks_off_leaves_no_connection(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ConnectionResetError

    queue = await Queue.connect(running.url)
    client = queue.client
    monkeypatch.setattr(client, "_flush_pending", broken)
    await queue.close()
    assert client.is_closed
    assert client._transport is not None
    await client._transport.wait_closed()


async def test_a_request_is_delivered_as_it_was_sent_and_forgotten_when_acknowledged(
    running: RunningBroker, queue: Queue, pulls: Pulls
) -> None:
    sent = request(state="é" * 3000)
    await queue.publish_request(MODEL.hash, sent)
    delivery = await pulled(pulls)
    assert delivery.request == sent
    assert delivery.number == 1
    assert 0 <= delivery.age_s < 20
    await delivery.ack()
    await until(lambda: holds(running, 0))


async def test_a_publication_counts_once_and_a_further_attempt_again(
    running: RunningBroker, queue: Queue
) -> None:
    for attempt in (1, 1, 2):
        await queue.publish_request(MODEL.hash, request(attempt=attempt))
    assert await waiting(running) == 2


async def test_what_is_handed_back_or_not_acknowledged_is_delivered_again(queue: Queue) -> None:
    pulls = queue.pulls(MODEL.hash, PARTITION, ack_wait_s=0.3)
    await queue.publish_request(MODEL.hash, request())
    first = await pulled(pulls)
    await first.hand_back()
    second = await pulled(pulls)
    third = await pulled(pulls)  # after the time to acknowledge
    assert [first.number, second.number, third.number] == [1, 2, 3]


async def test_several_come_at_once_and_no_more_than_were_asked_for(
    queue: Queue, pulls: Pulls
) -> None:
    ids = [f"d{number}" for number in range(20)]
    for id in ids:
        await queue.publish_request(MODEL.hash, request(id))
    found = [(await pulled(pulls, most=8)).request.id]
    while pulls.due:
        assert pulls.due < 8
        found.append((await pulled(pulls, most=0)).request.id)
    assert await pulls.next(0) is None
    assert found == ids[:8]
    while len(found) < len(ids):
        found.append((await pulled(pulls, most=8)).request.id)
    assert found == ids


async def test_what_did_not_come_in_time_is_not_waited_for(queue: Queue, pulls: Pulls) -> None:
    await queue.publish_request(MODEL.hash, request("first"))
    assert (await pulled(pulls, most=8)).request.id == "first"
    while pulls.due:
        assert await pulls.next(0) is None
    await queue.publish_request(MODEL.hash, request("second"))
    assert await pulls.next(0) is None
    assert (await pulled(pulls)).request.id == "second"


async def test_another_bundle_never_takes_a_request(
    running: RunningBroker, queue: Queue, pulls: Pulls
) -> None:
    await queue.publish_request(MODEL.hash, request("mine"))
    await queue.publish_request(OTHER.hash, request("theirs"))
    other = await Queue.connect(running.url)
    theirs = other.pulls(OTHER.hash, PARTITION)
    assert (await pulled(theirs)).request.id == "theirs"
    assert await theirs.next(1) is None
    assert (await pulled(pulls)).request.id == "mine"
    await other.close()


async def test_a_damaged_message_is_dropped_and_others_go_on(
    running: RunningBroker, queue: Queue, pulls: Pulls
) -> None:
    async with raw(running.url) as client:
        for data, headers in [
            (b"damaged", None),
            (b"damaged", {"Content-Encoding": "zstd"}),
            (b"", None),
        ]:
            await client.jetstream().publish(
                f"decide.{MODEL.hash}.{token_of(AFFINITY)}", data, headers=headers
            )
    await queue.publish_request(MODEL.hash, request("sound"))
    delivery = await pulled(pulls)
    assert delivery.request.id == "sound"
    await delivery.ack()
    await until(lambda: holds(running, 0))


async def test_a_damaged_answer_is_dropped_and_others_go_on(
    running: RunningBroker, queue: Queue
) -> None:
    received: list[DecisionReply] = []

    async def receive(reply: DecisionReply) -> None:
        received.append(reply)

    await queue.subscribe_answers("log1", receive)
    async with raw(running.url) as client:
        await client.jetstream().publish("answers.log1.d0", b"damaged")
    await queue.publish_answer("log1", DecisionReply(id="d1", attempt=1))
    await queue.publish_answer("log2", DecisionReply(id="d2", attempt=1))
    await queue.publish_answer("log1", DecisionReply(id="d3", attempt=1))
    await until(lambda: len(received) == 2)
    assert [reply.id for reply in received] == ["d1", "d3"]


async def test_the_first_answer_is_kept(queue: Queue) -> None:
    assert await queue.find_answer("log1", "d1") is None
    for attempt in (1, 2):
        await queue.publish_answer("log1", DecisionReply(id="d1", attempt=attempt))
    assert await queue.find_answer("log1", "d1") == DecisionReply(id="d1", attempt=1)
    assert await queue.find_answer("log2", "d1") is None


async def test_an_oversize_request_is_refused_with_both_numbers_and_the_next_is_fine(
    queue: Queue, pulls: Pulls
) -> None:
    incompressible = os.urandom(MAX_PAYLOAD).hex()  # half of it remains
    with pytest.raises(RequestTooLarge, match=rf"\d+ bytes.* takes, {MAX_PAYLOAD - 1024}"):
        await queue.publish_request(MODEL.hash, request(state=incompressible * 2))
    await queue.publish_request(MODEL.hash, request("next"))
    assert (await pulled(pulls)).request.id == "next"


async def test_the_largest_request_that_is_sent_is_taken(
    queue: Queue, pulls: Pulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "COMPRESS_ABOVE", MAX_PAYLOAD)  # else sizes are not exact
    filled = "x" * (1 << 20)
    around = len(wire.pack(request(state=filled), limit=MAX_PAYLOAD)[0]) - len(filled)
    largest = request(state="x" * (MAX_PAYLOAD - 1024 - around))
    await queue.publish_request(MODEL.hash, largest)
    assert (await pulled(pulls)).request == largest
    with pytest.raises(RequestTooLarge):
        await queue.publish_request(MODEL.hash, request(state=largest.ask.state + "x"))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", ">", "a\n"])
async def test_names_that_cannot_be_in_a_subject_are_refused(queue: Queue, name: str) -> None:
    for bad in (request(name), request(source=name)):
        with pytest.raises(BadRequest, match="names no decision or source"):
            await queue.publish_request(MODEL.hash, bad)


async def test_a_full_queue_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_REQUESTS", 3)
    async with broker(tmp_path) as running:
        queue = await Queue.connect(running.url)
        for number in range(3):
            await queue.publish_request(MODEL.hash, request(f"d{number}"))
        with pytest.raises(QueueFull, match="3 decisions are waiting"):
            await queue.publish_request(MODEL.hash, request("more"))
        await (await pulled(queue.pulls(MODEL.hash, PARTITION))).ack()
        await until(lambda: holds(running, 2))
        await queue.publish_request(MODEL.hash, request("more"))
        await queue.close()


async def test_streams_that_were_deleted_are_made_again(
    running: RunningBroker, queue: Queue, pulls: Pulls
) -> None:
    await queue.publish_request(MODEL.hash, request("before"))
    await (await pulled(pulls)).ack()
    before = await queue.ensure_streams()
    async with raw(running.url) as client:
        for name in (DECISIONS, ANSWERS):
            await client.jetstream().delete_stream(name)
    await queue.publish_request(MODEL.hash, request("after"))
    assert (await pulled(pulls)).request.id == "after"
    await queue.publish_answer("log1", DecisionReply(id="after", attempt=1))
    assert await queue.find_answer("log1", "after") is not None
    assert await queue.ensure_streams() != before


async def test_consumers_and_subscriptions_stay_constant_over_restarts(
    running: RunningBroker, queue: Queue, pulls: Pulls
) -> None:
    counts: list[tuple[int, int]] = []
    for round_ in range(4):
        await queue.publish_request(MODEL.hash, request(f"d{round_}"))
        await (await pulled(pulls)).ack()
        async with raw(running.url) as client:
            consumers = await client.jetstream().consumers_info(DECISIONS)
        counts.append((len(consumers), len(queue.client._subs)))
        back = queue.reconnected
        os.kill(running.info.pid, signal.SIGKILL)
        await running.child.wait()
        if round_ == 2:
            shutil.rmtree(running.folder / "jetstream")
        await running.start()
        with anyio.fail_after(20):
            await back.wait()
            await queue.ensure_streams()
    assert len(set(counts)) == 1
    assert counts[0][0] == 1


async def test_without_a_broker_each_call_says_so(running: RunningBroker, queue: Queue) -> None:
    os.kill(running.info.pid, signal.SIGKILL)
    await until(lambda: not queue.connected)
    with pytest.raises(QueueUnavailable):
        await queue.publish_request(MODEL.hash, request())
    assert await queue.workers(MODEL.hash, wait_s=0.05) is None
