from __future__ import annotations

import os
import shutil
import signal

import anyio
import msgspec
import pytest

from engine.broker import MAX_PAYLOAD, RunningBroker
from engine.client import QueueEngine, Stray, connect_engine
from engine.contract import DecisionReply, DecisionRequest
from engine.errors import (
    BadRequest,
    DecisionExpired,
    EngineFailed,
    NoWorker,
    QueueUnavailable,
    RequestTooLarge,
)
from engine.queue import Queue
from engine.streams import ANSWERS, DECISIONS
from tests.support.queues import MODEL, Gate, Scripted, raw, request, until, working

MANY = 20


class Strays:
    def __init__(self) -> None:
        self.seen: list[tuple[str, Stray]] = []

    async def __call__(self, reply: DecisionReply, stray: Stray) -> None:
        self.seen.append((reply.id, stray))


class Asked:
    """Many decisions asked at once, and what came of them."""

    def __init__(self) -> None:
        self.replies: dict[str, DecisionReply] = {}

    async def ask(self, engine: QueueEngine, decision: str) -> None:
        self.replies[decision] = await engine.decide(request(decision, state=decision))

    def right(self) -> bool:
        return len({reply.answers for reply in self.replies.values()}) == MANY == len(self.replies)


async def crash(running: RunningBroker) -> None:
    os.kill(running.info.pid, signal.SIGKILL)
    await running.child.wait()


async def test_decisions_are_answered_each_with_its_own_answer(running: RunningBroker) -> None:
    asked = Asked()
    async with (
        working(running.url, Scripted()),
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        for number in range(MANY):
            group.start_soon(asked.ask, engine, f"d{number}")
    assert asked.right()
    reply = asked.replies["d3"]
    assert (reply.id, reply.attempt, reply.fingerprint) == ("d3", 1, "mock-1")
    assert reply.queue_ms >= 0
    assert reply.engine_ms >= 0


async def test_a_client_that_has_asked_closes_at_once(running: RunningBroker) -> None:
    async with working(running.url, Scripted()):
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            await engine.decide(request())
            closing = anyio.current_time()
        assert anyio.current_time() - closing < 10  # a drain that waits in vain takes 30


async def test_states_of_900_kb_are_answered(running: RunningBroker) -> None:
    backend = Scripted()
    states = [os.urandom(450_000).hex() for _ in range(12)]

    async def ask(engine: QueueEngine, number: int) -> None:
        await engine.decide(request(f"d{number}", state=states[number]))

    async with (
        working(running.url, backend),
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        for number in range(len(states)):
            group.start_soon(ask, engine, number)
    assert sorted(asked.ask.state for asked in backend.asked) == sorted(states)


async def test_an_oversize_request_fails_alone(running: RunningBroker) -> None:
    async with (
        working(running.url, Scripted()),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(RequestTooLarge, match=rf"\d+ bytes.* takes, {MAX_PAYLOAD - 1024}"):
            await engine.decide(request("large", state=os.urandom(MAX_PAYLOAD).hex() * 2))
        assert (await engine.decide(request("next"))).id == "next"


async def test_a_failure_is_the_same_error_here(running: RunningBroker) -> None:
    async def fail(request: DecisionRequest) -> DecisionReply:
        raise EngineFailed("its numbers are not finite")

    async with (
        working(running.url, Scripted(fail)),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(EngineFailed, match="its numbers are not finite"):
            await engine.decide(request())


async def test_a_decision_that_is_being_asked_is_refused_and_not_disturbed(
    running: RunningBroker,
) -> None:
    gate, asked = Gate(), Asked()
    async with (
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        group.start_soon(asked.ask, engine, "d1")
        await until(lambda: gate.asked)
        with pytest.raises(BadRequest, match="d1 is being asked already"):
            await engine.decide(request("d1"))
        gate.opened.set()
    assert list(asked.replies) == ["d1"]


async def test_nobody_who_answers_is_told_apart_from_no_time_to_answer(
    running: RunningBroker,
) -> None:
    async with connect_engine(running.url, MODEL, source="log1") as engine:
        with pytest.raises(NoWorker, match=rf"no live worker holds {MODEL.name}"):
            await engine.decide(request("d1", remaining_s=0.05))
        async with working(running.url, Gate()):
            with pytest.raises(DecisionExpired, match=r"decision d2: no answer in 0\.05 s"):
                await engine.decide(request("d2", remaining_s=0.05))
        await crash(running)
        await until(lambda: not engine._queue.connected)
        with pytest.raises(QueueUnavailable, match="decision d3"):
            await engine.decide(request("d3", remaining_s=0.05))


async def test_stray_answers_are_given_with_their_reason(running: RunningBroker) -> None:
    strays = Strays()
    async with connect_engine(running.url, MODEL, source="log1", on_stray=strays) as engine:
        queue = await Queue.connect(running.url)
        await queue.publish_answer("log1", DecisionReply(id="d0", attempt=1))
        await until(lambda: strays.seen == [("d0", "unknown")])

        async with working(running.url, Scripted()):
            await engine.decide(request("d1"))
        await queue.publish_answer("log1", DecisionReply(id="d1", attempt=2))
        await until(lambda: strays.seen[1:] == [("d1", "duplicate")])

        async with anyio.create_task_group() as group:
            group.start_soon(engine.decide, request("d2"))
            await until(lambda: engine._waiting)
            group.cancel_scope.cancel()
        await queue.publish_answer("log1", DecisionReply(id="d2", attempt=1))
        await until(lambda: strays.seen[2:] == [("d2", "late")])
        await queue.close()


async def test_an_answer_to_another_source_does_not_come_here(running: RunningBroker) -> None:
    strays = Strays()
    async with (
        working(running.url, Scripted()),
        connect_engine(running.url, MODEL, source="log1", on_stray=strays) as one,
        connect_engine(running.url, MODEL, source="log2", on_stray=strays) as two,
    ):
        await two.decide(request("d2", source="log2"))
        await one.decide(request("d1"))
    assert strays.seen == []


async def test_a_resumed_decision_finds_the_answer_that_it_has(running: RunningBroker) -> None:
    backend = Scripted()
    async with working(running.url, backend):
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            before = await engine.decide(request())
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            assert await engine.decide(request(attempt=2)) == before
    assert len(backend.asked) == 1


async def test_an_answer_missed_while_away_is_found(running: RunningBroker) -> None:
    gate, strays = Gate(), Strays()
    async with (
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1", on_stray=strays) as engine,
        anyio.create_task_group() as group,
    ):
        asked = Asked()
        group.start_soon(asked.ask, engine, "d1")
        await until(lambda: gate.asked)
        # deaf until the answer is in the stream, as between two connections
        for subscription in list(engine._queue.client._subs.values()):
            if subscription.subject.startswith("answers."):
                await subscription.unsubscribe()
        gate.opened.set()
        await until(lambda: engine._queue.find_answer("log1", "d1"))
        assert "d1" not in asked.replies
        await engine._queue._on_reconnect()
        await until(lambda: "d1" in asked.replies)
    assert len(gate.asked) == 1


@pytest.mark.parametrize("fault", ["killed", "folder deleted", "streams deleted"])
async def test_all_are_answered_although_the_queue_lost_them(
    running: RunningBroker, fault: str
) -> None:
    gate, asked, strays = Gate(), Asked(), Strays()
    async with (
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1", on_stray=strays) as engine,
        anyio.create_task_group() as group,
    ):
        for number in range(MANY):
            group.start_soon(asked.ask, engine, f"d{number}")
        await until(lambda: len(gate.asked) >= MANY // 2)
        if fault == "streams deleted":
            async with raw(running.url) as client:
                for name in (DECISIONS, ANSWERS):
                    await client.jetstream().delete_stream(name)
        else:
            await crash(running)
            if fault == "folder deleted":
                shutil.rmtree(running.folder / "jetstream")
            await running.start()
        gate.opened.set()
    assert asked.right()
    assert {stray for _, stray in strays.seen} <= {"duplicate"}


async def test_what_is_asked_while_the_broker_is_away_is_answered(running: RunningBroker) -> None:
    asked = Asked()
    async with (
        working(running.url, Scripted()),
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        await crash(running)
        await until(lambda: not engine._queue.connected)
        for number in range(MANY):
            group.start_soon(asked.ask, engine, f"d{number}")
        await running.start()
    assert asked.right()


async def test_a_request_for_another_source_is_refused_at_once(running: RunningBroker) -> None:
    async with connect_engine(running.url, MODEL, source="log1") as engine:
        with pytest.raises(BadRequest, match="log2"):
            await engine.decide(msgspec.structs.replace(request("d1"), source="log2"))
