from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from engine import worker as worker_module
from engine.broker import RunningBroker
from engine.claims import Claims
from engine.client import Stray, connect_engine
from engine.contract import DecisionReply, DecisionRequest, Prime, Primed
from engine.errors import DecisionExpired, EngineFailed, RecordTooLong
from engine.models import open_model
from engine.queue import Queue
from engine.streams import ANSWERS, DECISIONS, PARTITIONS
from engine.worker import Worker
from tests.support.queues import (
    AFFINITY,
    MODEL,
    PARTITION,
    Gate,
    Scripted,
    nothing_waits,
    raw,
    redeliver_after,
    request,
    until,
    worker_process,
    working,
)


class Listener:
    """A source that only listens; `replies` has every answer that was sent to it."""

    def __init__(self) -> None:
        self.replies: list[DecisionReply] = []

    async def __call__(self, reply: DecisionReply) -> None:
        self.replies.append(reply)


@pytest.fixture
async def listener(queue: Queue) -> Listener:
    listener = Listener()
    await queue.subscribe_answers("log1", listener)
    return listener


async def test_long_decisions_are_not_delivered_again_while_they_are_worked_on(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    many = 50

    async def long(request: DecisionRequest) -> DecisionReply:
        await anyio.sleep(2.5)
        return await backend.answer(request)

    backend, other = Scripted(long), Scripted()
    async with working(running.url, backend, ack_wait_s=1.0):
        for number in range(many):
            await queue.publish_request(MODEL.hash, request(f"d{number}"))
        await until(lambda: len(backend.asked) == many)
        async with working(running.url, other):
            await until(lambda: len(listener.replies) == many)
            await until(lambda: nothing_waits(running))
    assert {asked.attempt for asked in backend.asked} == {1}
    assert (len(backend.asked), len(other.asked), len(listener.replies)) == (many, 0, many)


async def test_a_redelivery_after_the_answer_is_not_decided_again(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    """Its answer is there, its acknowledgement was lost."""
    backend = Scripted()
    await redeliver_after(running.url, MODEL, 0.3)
    await queue.publish_request(MODEL.hash, request())
    lost = await queue.pulls(MODEL.hash, PARTITION).next(1)
    assert lost is not None
    await queue.publish_answer("log1", await backend.answer(request()))
    async with working(running.url, backend):
        await until(lambda: nothing_waits(running))
    assert backend.asked == []
    async with raw(running.url) as client:
        assert (await client.jetstream().stream_info(ANSWERS)).state.messages == 1
    assert {reply.id for reply in listener.replies} == {"d1"}


async def test_two_publications_of_one_decision_give_one_kept_answer(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    backend = Scripted()
    for attempt in (1, 2, 3):
        await queue.publish_request(MODEL.hash, request(attempt=attempt))
    async with working(running.url, backend):
        await until(lambda: nothing_waits(running))
    async with raw(running.url) as client:
        assert (await client.jetstream().stream_info(ANSWERS)).state.messages == 1
    assert len({reply.answers for reply in listener.replies}) == 1


async def test_a_worker_killed_in_mid_decision_is_followed_by_the_next(
    running: RunningBroker, tmp_path: Path
) -> None:
    model = open_model("mock:seed=1,delay_ms=600000")
    await redeliver_after(running.url, model, 0.5)
    backend, strays = Scripted(), list[Stray]()

    async def on_stray(_: DecisionReply, stray: Stray) -> None:
        strays.append(stray)

    queue = await Queue.connect(running.url)
    child = worker_process(running.url, tmp_path, spec=model.spec)
    replies: list[DecisionReply] = []
    async with connect_engine(running.url, model, source="log1", on_stray=on_stray) as engine:

        async def ask() -> None:
            replies.append(await engine.decide(request()))

        async def taken() -> bool:
            info = await queue.workers(model.hash)
            return info is not None and info.in_flight == 1

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until(taken)
            child.kill()
            async with working(running.url, backend, model=model):
                await until(lambda: replies)
    await queue.close()
    assert child.returncode == -signal.SIGKILL
    assert len(backend.asked) == len(replies) == 1
    assert strays == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_worker_ends_when_it_is_asked_to(
    running: RunningBroker, queue: Queue, tmp_path: Path, number: int
) -> None:
    child = worker_process(running.url, tmp_path)
    await until(lambda: queue.workers(MODEL.hash))
    os.kill(child.pid, number)
    with anyio.fail_after(5):
        assert await child.wait() == 0
    child.kill()
    assert child.tail() == ""


async def test_a_worker_that_is_asked_to_end_answers_what_it_has(
    running: RunningBroker, queue: Queue, listener: Listener, tmp_path: Path
) -> None:
    model = open_model("mock:seed=1,delay_ms=1000")
    child = worker_process(running.url, tmp_path, spec=model.spec)
    await until(lambda: queue.workers(model.hash))
    for number in range(8):
        await queue.publish_request(model.hash, request(f"d{number}"))

    async def busy() -> bool:
        info = await queue.workers(model.hash)
        return info is not None and info.in_flight == 8

    await until(busy)
    os.kill(child.pid, signal.SIGTERM)
    with anyio.fail_after(5):
        assert await child.wait() == 0
    child.kill()
    await until(lambda: len(listener.replies) == 8)
    assert await nothing_waits(running)


async def test_what_does_not_finish_in_time_is_handed_to_another(
    running: RunningBroker, queue: Queue, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "GRACE_S", 0.05)
    gate, other = Gate(), Scripted()
    async with working(running.url, gate) as worker:
        await queue.publish_request(MODEL.hash, request())
        await until(lambda: gate.asked)
        async with working(running.url, other):
            worker.drain()
            with anyio.fail_after(5):  # at once, not after the time to acknowledge
                await until(lambda: listener.replies)
    assert len(other.asked) == len(listener.replies) == 1


async def test_a_worker_that_drains_takes_nothing_more(
    running: RunningBroker, queue: Queue
) -> None:
    gate, other = Gate(), Scripted()
    async with working(running.url, gate) as worker:
        await queue.publish_request(MODEL.hash, request("first"))
        await until(lambda: gate.asked)
        worker.drain()
        async with working(running.url, other):
            for number in range(8):
                await queue.publish_request(MODEL.hash, request(f"d{number}"))
            await until(lambda: len(other.asked) == 8)
            gate.opened.set()
            await until(lambda: nothing_waits(running))
    assert [asked.id for asked in gate.asked] == ["first"]


async def test_a_cancelled_worker_ends_though_it_still_holds_its_partitions(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kept(claims: Claims) -> None:
        """Give nothing up, as when they are renewed at the last moment."""

    monkeypatch.setattr(Claims, "give_up", kept)
    async with working(running.url, Scripted()) as worker:
        await until(lambda: worker.describe().partitions)
    assert worker.describe().partitions  # and the block came to its end


async def test_a_cancelled_worker_takes_nothing_back_that_it_handed_to_others(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    gate, other = Gate(), Scripted()
    async with working(running.url, gate) as worker:
        await until(lambda: len(worker.describe().partitions) == PARTITIONS)
        for number in range(8):
            await queue.publish_request(MODEL.hash, request(f"d{number}"))
        await until(lambda: len(gate.asked) == 8)
    assert len(gate.asked) == 8
    async with working(running.url, other):
        await until(lambda: len({reply.id for reply in listener.replies}) == 8)
        await until(lambda: nothing_waits(running))
    assert not any(reply.failure for reply in listener.replies)
    assert all(asked.attempt == 2 for asked in other.asked)


async def test_a_worker_whose_engine_died_ends_and_another_answers(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    dying, other = Scripted(), Scripted()
    dying._decide = dying.die
    with pytest.raises(ExceptionGroup) as ended:
        async with working(running.url, dying):
            await queue.publish_request(MODEL.hash, request())
            await anyio.sleep_forever()
    assert ended.group_contains(EngineFailed, match="the engine has died")
    async with working(running.url, other):
        with anyio.fail_after(5):
            await until(lambda: listener.replies)
    assert listener.replies[0].failure is None
    assert other.asked[0].attempt == 2  # a redelivery counts as an attempt


async def test_a_fault_of_the_backend_fails_one_decision_alone(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def stumble(request: DecisionRequest) -> DecisionReply:
        if request.id == "bad":
            raise ZeroDivisionError
        return await backend.answer(request)

    backend = Scripted(stumble)
    async with (
        working(running.url, backend),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(EngineFailed, match="decision bad: the engine broke"):
            await engine.decide(request("bad"))
        assert (await engine.decide(request("good"))).id == "good"
    assert "ZeroDivisionError" in caplog.text


async def test_an_answer_too_large_for_the_broker_is_a_failure(running: RunningBroker) -> None:
    async def long(request: DecisionRequest) -> DecisionReply:
        return DecisionReply(id=request.id, attempt=1, fingerprint=os.urandom(9 << 20).hex())

    async with (
        working(running.url, Scripted(long)),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(Exception, match="bytes, even compressed more than the broker takes"):
            await engine.decide(request())


async def test_failures_are_answers(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    async def refuse(request: DecisionRequest) -> DecisionReply:
        raise RecordTooLong("9 tokens, the window 8")

    async with working(running.url, Scripted(refuse)):
        await queue.publish_request(MODEL.hash, request())
        await until(lambda: listener.replies)
        await until(lambda: nothing_waits(running))
    failure = listener.replies[0].failure
    assert failure is not None
    assert (failure.code, failure.message) == (RecordTooLong.code, "9 tokens, the window 8")


async def test_a_deadline_ends_the_work_and_what_is_too_late_is_not_begun(
    running: RunningBroker, queue: Queue, listener: Listener
) -> None:
    gate = Gate()
    async with working(running.url, gate):
        await queue.publish_request(MODEL.hash, request("first", remaining_s=60.0))
        await until(lambda: gate.asked)  # from now on it takes what comes at once
        await queue.publish_request(MODEL.hash, request("begun", remaining_s=1.0))
        await until(lambda: listener.replies)
        gate.opened.set()
        await until(lambda: len(listener.replies) == 2)
    await queue.publish_request(MODEL.hash, request("late", remaining_s=0))
    async with working(running.url, gate):
        await until(lambda: len(listener.replies) == 3)
    assert [asked.id for asked in gate.asked] == ["first", "begun"]
    replies = {reply.id: reply for reply in listener.replies}
    assert replies["first"].failure is None
    for id, where in (("begun", "in the engine"), ("late", "in the queue")):
        reply = replies[id]
        assert reply.failure is not None
        assert reply.failure.code == DecisionExpired.code
        assert where in reply.failure.message


async def test_a_worker_that_cannot_start_says_why_in_its_last_line(
    running: RunningBroker, tmp_path: Path
) -> None:
    for url, spec, words in [
        (running.url, "mock:sed=1", "'sed=1' is not a setting"),
        (running.url, str(tmp_path / "none"), "none"),
        (running.url.replace("ostinato:", "x:"), MODEL.spec, "no NATS server takes"),
    ]:
        child = worker_process(url, tmp_path, spec=spec)
        assert await child.wait() == 1
        child.kill()
        assert child.tail(1).startswith("error: ")
        assert words in child.tail(1)
        assert "Traceback" not in child.tail(50)


async def test_a_state_is_read_ahead_and_nothing_is_kept_of_it(
    running: RunningBroker, queue: Queue
) -> None:
    class Failing(Scripted):
        async def prime(self, prime: Prime) -> Primed:
            await super().prime(prime)
            raise EngineFailed("no")

    backend = Failing()
    prime = Prime(affinity="match", state="a state\n" * 1000, public_end=9, salt="s")
    async with (
        connect_engine(running.url, MODEL, source="log1") as engine,
        working(running.url, backend),
    ):

        async def arrived() -> bool:  # it may be lost
            await engine.prime(prime)
            return prime in backend.primes

        await until(arrived)
        assert (await engine.decide(request())).answers
    async with raw(running.url) as client:
        assert (await client.jetstream().stream_info(DECISIONS)).state.last_seq == 1


async def test_a_state_is_read_ahead_where_its_questions_will_come(queue: Queue) -> None:
    backend = Scripted()
    worker = Worker(queue, MODEL, backend)
    prime = Prime(affinity=AFFINITY, state="a state")
    worker._claims.held = set(range(8)) - {PARTITION}
    await worker._prime(prime)
    assert backend.primes == []
    worker._claims.held = {PARTITION}
    await worker._prime(prime)
    assert backend.primes == [prime]
