"""One decision more than once: published again, delivered again, failed before."""

from __future__ import annotations

import contextlib
from functools import partial

import anyio
import pytest

from engine import streams
from engine import worker as worker_module
from engine.broker import RunningBroker
from engine.client import Stray, connect_engine
from engine.contract import DecisionReply, DecisionRequest
from engine.errors import EngineFailed, QueueUnavailable
from engine.queue import Queue
from engine.streams import ANSWERS, DECISIONS, PARTITIONS
from engine.suspects import Suspects
from tests.support.queues import (
    MODEL,
    PARTITION,
    Gate,
    Scripted,
    nothing_waits,
    raw,
    redeliver_after,
    request,
    until,
    working,
)


async def test_what_failed_may_succeed_when_it_is_asked_again(running: RunningBroker) -> None:
    async def once(request: DecisionRequest) -> DecisionReply:
        if len(backend.asked) == 1:
            raise EngineFailed("out of memory")
        return await backend.answer(request)

    backend = Scripted(once)
    async with (
        working(running.url, backend),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        with pytest.raises(EngineFailed, match="out of memory"):
            await engine.decide(request())
        assert (await engine.decide(request(attempt=2))).failure is None


async def test_a_failure_of_an_earlier_attempt_does_not_end_the_one_under_way(
    running: RunningBroker,
) -> None:
    strays: list[tuple[int, Stray]] = []

    async def on_stray(reply: DecisionReply, stray: Stray) -> None:
        strays.append((reply.attempt, stray))

    gate = Gate()
    replies: list[DecisionReply] = []
    async with (
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1", on_stray=on_stray) as engine,
    ):

        async def ask() -> None:
            replies.append(await engine.decide(request(attempt=3)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until(lambda: gate.asked)
            queue = await Queue.connect(running.url)
            failed = worker_module._failed(request(attempt=2), EngineFailed("it died"))
            await queue.publish_answer("log1", failed)
            await queue.close()
            await until(lambda: strays)
            gate.opened.set()
    assert replies[0].failure is None
    assert strays == [(2, "late")]


async def test_a_failure_never_takes_the_place_of_an_answer(running: RunningBroker) -> None:
    queue = await Queue.connect(running.url)
    answer = DecisionReply(id="d1", attempt=1)
    await queue.publish_answer("log1", answer)
    await queue.publish_answer(
        "log1", worker_module._failed(request(attempt=2), EngineFailed("it died"))
    )
    assert await queue.find_answer("log1", "d1") == answer
    await queue.close()


async def test_a_damaged_answer_in_the_stream_is_no_answer(running: RunningBroker) -> None:
    async with raw(running.url) as client, working(running.url, Scripted()):
        await client.jetstream().publish("answers.log1.d1", b"damaged")
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            assert (await engine.decide(request(attempt=2))).id == "d1"


async def test_a_decision_published_again_is_not_worked_on_twice_at_once(
    running: RunningBroker,
) -> None:
    gate = Gate()
    async with working(running.url, gate) as worker:
        queue = await Queue.connect(running.url)
        await queue.publish_request(MODEL.hash, request())
        await until(lambda: gate.asked)
        await queue.publish_request(MODEL.hash, request(attempt=2))
        await until(lambda: worker.describe().in_flight == 2)
        gate.opened.set()
        await until(lambda: nothing_waits(running))
        assert await queue.find_answer("log1", "d1") is not None
        await queue.close()
    assert len(gate.asked) == 1


async def test_what_was_delivered_too_often_is_answered_as_failed(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the worker that gets it last, or, if that one is gone too, from the stream."""
    monkeypatch.setattr(streams, "MAX_DELIVER", 3)
    monkeypatch.setattr(worker_module, "MAX_DELIVER", 3)
    await redeliver_after(running.url, MODEL, 0.2)
    backend = Scripted()
    queue = await Queue.connect(running.url)
    pulls = queue.pulls(MODEL.hash, PARTITION)
    async with connect_engine(running.url, MODEL, source="log1") as engine:

        async def ask(decision: str) -> None:
            with pytest.raises(EngineFailed, match=f"{decision} was delivered 3 times"):
                await engine.decide(request(decision))

        for lost in (2, 3):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, f"d{lost}")
                for number in range(1, lost + 1):
                    delivery = await pulls.next(1)
                    while delivery is None:  # the one before ended without a word
                        delivery = await pulls.next(1)
                    assert delivery.number == number
                async with working(running.url, backend):
                    await until(lambda: nothing_waits(running))
    assert backend.asked == []
    await queue.close()


class Deadly(Scripted):
    """An engine that dies of one decision, together with all that it has then."""

    def __init__(self, poison: str) -> None:
        super().__init__(self._decide_or_die)
        self.poison = poison
        self.company: list[set[str]] = []
        self._died = anyio.Event()
        self._has: set[str] = set()

    async def _decide_or_die(self, request: DecisionRequest) -> DecisionReply:
        self._has.add(request.id)
        try:
            await anyio.sleep(0.05)  # so that others come in
            if request.id == self.poison:
                self.company.append(set(self._has))
                self._died.set()
                return await self.die(request)
            with anyio.move_on_after(0.1):
                await self._died.wait()
                return await self.die(request)
            return await self.answer(request)
        finally:
            self._has.discard(request.id)


async def test_what_kills_engines_runs_alone_and_is_then_given_up_and_its_neighbours_are_not(
    running: RunningBroker,
) -> None:
    neighbours = [f"d{number}" for number in range(6)]
    replies: dict[str, DecisionReply] = {}
    company: list[set[str]] = []
    async with connect_engine(running.url, MODEL, source="log1") as engine:

        async def ask(decision: str) -> None:
            replies[decision] = await engine.decide(request(decision))

        async def ask_poison() -> None:
            with pytest.raises(EngineFailed, match="died of it alone"):
                await engine.decide(request("poison"))

        async def work() -> None:
            """One worker after another, as a supervisor starts them."""
            while True:
                backend = Deadly("poison")
                with contextlib.suppress(ExceptionGroup):
                    async with working(running.url, backend):
                        await until(lambda backend=backend: backend.dead)
                        await anyio.sleep_forever()
                company.extend(backend.company)

        async with anyio.create_task_group() as supervised:
            supervised.start_soon(work)
            async with anyio.create_task_group() as group:
                group.start_soon(ask_poison)
                for decision in neighbours:
                    group.start_soon(ask, decision)
            supervised.cancel_scope.cancel()
    assert len(company) <= 3
    assert len(company[0]) > 1
    assert company[-1] == {"poison"}
    assert {reply.attempt for reply in replies.values()} == {1}
    assert replies.keys() == set(neighbours)


async def test_a_worker_that_ends_while_it_notes_a_suspect_condemns_nobody(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is with the broker, its confirmation not yet here, when the worker is cancelled."""
    noted = anyio.Event()
    stock = Suspects.note

    async def note(suspects: Suspects, source: str, decision: str, *, alone: bool) -> None:
        await stock(suspects, source, decision, alone=alone)
        if alone and not noted.is_set():
            noted.set()
            await anyio.sleep_forever()

    monkeypatch.setattr(Suspects, "note", note)
    replies: list[DecisionReply] = []
    queue = await Queue.connect(running.url)
    pulls = queue.pulls(MODEL.hash, PARTITION)
    async with connect_engine(running.url, MODEL, source="log1") as engine:

        async def ask() -> None:
            replies.append(await engine.decide(request()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            for number in (1, 2):  # drains count as deliveries too
                delivery = await pulls.next(1)
                while delivery is None:
                    delivery = await pulls.next(1)
                assert delivery.number == number
                await delivery.hand_back()
            async with working(running.url, Scripted()):
                await noted.wait()
            async with working(running.url, Scripted()):
                await until(lambda: replies)
    await queue.close()


async def test_a_suspect_that_ran_well_is_answered_though_the_broker_was_away_then(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = Suspects.note

    async def note(suspects: Suspects, source: str, decision: str, *, alone: bool) -> None:
        if not alone:
            raise QueueUnavailable("away")
        await stock(suspects, source, decision, alone=alone)

    monkeypatch.setattr(Suspects, "note", note)
    await redeliver_after(running.url, MODEL, 0.5)
    queue = await Queue.connect(running.url)
    pulls = queue.pulls(MODEL.hash, PARTITION)
    backend = Scripted()
    async with (
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        group.start_soon(engine.decide, request())
        for _ in range(2):
            delivery = await pulls.next(1)
            while delivery is None:
                delivery = await pulls.next(1)
            await delivery.hand_back()
        async with working(running.url, backend, ack_wait_s=0.5):
            await until(lambda: queue.find_answer("log1", "d1"))
    assert len(backend.asked) == 1
    await queue.close()


async def test_streams_that_are_deleted_delay_no_decision(running: RunningBroker) -> None:
    async with (
        working(running.url, Scripted()),
        connect_engine(running.url, MODEL, source="log1") as engine,
    ):
        await engine.decide(request("before"))
        async with raw(running.url) as client:
            for name in (DECISIONS, ANSWERS):
                await client.jetstream().delete_stream(name)
        await engine.decide(request("after", remaining_s=3.0))


async def test_a_drain_under_load_loses_sight_of_no_request(running: RunningBroker) -> None:
    """Nothing waits for the time to acknowledge, however the end falls between two requests."""
    rounds, many = 4, 100
    answered = 0
    run = partial(working, running.url, ack_wait_s=600.0)

    async with connect_engine(running.url, MODEL, source="log1") as engine:

        async def ask(decision: str) -> None:
            nonlocal answered
            await engine.decide(request(decision, remaining_s=60.0))
            answered += 1

        for round_ in range(rounds):
            async with anyio.create_task_group() as group, run(Scripted()):
                async with run(Scripted()) as worker:
                    before = answered
                    for number in range(many):
                        group.start_soon(ask, f"d{round_}-{number}")
                    await until(lambda before=before: answered > before + many // 5)
                    worker.drain()
                await until(lambda round_=round_: answered == (round_ + 1) * many)


async def test_large_states_wait_until_there_is_room(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MAX_CHARACTERS", 1000)
    gate = Gate()
    async with working(running.url, gate) as worker:
        queue = await Queue.connect(running.url)
        for number in range(20):
            await queue.publish_request(MODEL.hash, request(f"d{number}", state="x" * 1000))
        await until(lambda: gate.asked)
        # as many as were being pulled when the first filled the room
        assert worker.describe().in_flight <= PARTITIONS
        gate.opened.set()
        await until(lambda: nothing_waits(running))
        await queue.close()
    assert len(gate.asked) == 20
