"""Requests of one match stay on one worker, and workers share the matches out."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from engine import claims
from engine.broker import RunningBroker
from engine.claims import Claims
from engine.client import QueueEngine, connect_engine
from engine.contract import DecisionReply, DecisionRequest
from engine.queue import Queue
from engine.streams import LEASE_S, PARTITIONS
from engine.worker import Worker
from tests.support.bundles import adapter_bundle
from tests.support.queues import MODEL, Scripted, request, until, worker_process, working

MATCHES = [f"tictactoe-1a2b3c4d-{number:04d}" for number in range(64)]


class Meeting:
    """Is over when all have come; workers that took turns would wait there for ever."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._over = anyio.Event()

    async def come(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._over.set()
        await self._over.wait()


class Card(Scripted):
    """Reads one record at a time; what it has read of a match it reads no more.

    Attributes:
        spent: The steps that it took, 5 for a record that it did not know.
    """

    def __init__(self, meeting: Meeting | None = None) -> None:
        super().__init__(self._read)
        self.spent = 0
        self._meeting = meeting or Meeting(1)
        self._busy = anyio.Lock()
        self._known: set[str] = set()

    async def _read(self, request: DecisionRequest) -> DecisionReply:
        async with self._busy:
            if not self.spent:
                await self._meeting.come()
            known = request.affinity in self._known
            self._known.add(request.affinity)
            self.spent += 1 if known else 5
        reply = await self.answer(request)
        return msgspec.structs.replace(
            reply, tokens_read=reply.tokens * (not known), tokens_reused=reply.tokens * known
        )


async def fleet(stack: AsyncExitStack, url: str, size: int) -> tuple[list[Card], list[Worker]]:
    meeting = Meeting(size)
    cards = [Card(meeting) for _ in range(size)]
    workers = [await stack.enter_async_context(working(url, card)) for card in cards]
    await until(lambda: shared(workers))
    return cards, workers


def shared(workers: list[Worker]) -> bool:
    held = [worker.describe().partitions for worker in workers]
    even = all(len(some) >= PARTITIONS // len(workers) for some in held)
    return even and sorted(n for some in held for n in some) == list(range(PARTITIONS))


async def play(engine: QueueEngine, *, turns: int) -> list[DecisionReply]:
    """Ask for all matches at once, turn after turn."""
    replies: list[DecisionReply] = []

    async def match(affinity: str) -> None:
        for turn in range(turns):
            decision = request(f"{affinity}-{turn}-{time.monotonic_ns()}", affinity=affinity)
            replies.append(await engine.decide(decision))

    async with anyio.create_task_group() as group:
        for affinity in MATCHES:
            group.start_soon(match, affinity)
    return replies


def reuse(replies: list[DecisionReply]) -> float:
    return sum(r.tokens_reused for r in replies) / sum(r.tokens for r in replies)


async def test_matches_are_shared_out_and_each_stays_on_its_worker(running: RunningBroker) -> None:
    async with (
        connect_engine(running.url, MODEL, source="log1") as engine,
        AsyncExitStack() as stack,
    ):
        cards, _ = await fleet(stack, running.url, 4)
        await play(engine, turns=3)
    on = [Counter(asked.affinity for asked in card.asked) for card in cards]
    assert all(count == 3 for matches in on for count in matches.values())
    assert sum(map(len, on)) == len(MATCHES)
    assert max(map(len, on)) <= 0.4 * len(MATCHES)


async def test_more_workers_answer_more_and_reuse_as_much(running: RunningBroker) -> None:
    """In steps of the card that takes most of them, since all cards read at once."""
    steps: list[int] = []
    reused: list[float] = []
    async with connect_engine(running.url, MODEL, source="log1") as engine:
        for size in (1, 2, 4):
            async with AsyncExitStack() as stack:
                cards, _ = await fleet(stack, running.url, size)
                replies = await play(engine, turns=4)
                steps.append(max(card.spent for card in cards))
                reused.append(reuse(replies))
    assert steps[0] > 1.4 * steps[1]
    assert steps[0] > 1.8 * steps[2]
    assert min(reused) > 0.7  # of at most 0.75; a partition may move while the machine is busy


async def test_a_worker_that_joins_takes_its_share_and_one_that_leaves_gives_it_back(
    running: RunningBroker,
) -> None:
    async with working(running.url, Card()) as first:
        await until(lambda: shared([first]))
        async with working(running.url, Card()) as second:
            await until(lambda: shared([first, second]))
            second.drain()
            await until(lambda: shared([first]))


async def test_partitions_lost_and_taken_again_while_a_pull_ends_are_served(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_RENEW_S", 0.02)  # they come back before the pull is over
    queue = await Queue.connect(running.url)
    backend = Scripted()
    async with (
        connect_engine(running.url, MODEL, source="log1") as engine,
        working(running.url, backend) as worker,
    ):
        await until(lambda: shared([worker]))
        for _ in range(4):
            other = Claims(queue.leases(MODEL.hash), "other")
            async with anyio.create_task_group() as taking:
                taking.start_soon(other.keep)
                await until(lambda other=other: len(other.held) == PARTITIONS // 2)
                before = len(backend.asked)
                taking.start_soon(partial(play, engine, turns=1))
                await until(lambda before=before: len(backend.asked) > before)
                taking.cancel_scope.cancel()
            await other.give_up()
            await until(lambda: shared([worker]))
            with anyio.fail_after(40):  # a partition that nobody serves keeps its requests
                replies = await play(engine, turns=3)
            assert not any(reply.failure for reply in replies)
    await queue.close()


async def test_a_dead_workers_partitions_are_with_others_within_seconds(
    running: RunningBroker, tmp_path: Path
) -> None:
    async with working(running.url, Card()) as living:
        child = worker_process(running.url, tmp_path)
        await until(lambda: len(living.describe().partitions) == PARTITIONS // 2)
        child.kill()
        await until(lambda: shared([living]), within_s=LEASE_S * 4)


async def test_claims_come_back_after_the_broker_lost_everything(running: RunningBroker) -> None:
    async with working(running.url, Card()) as one, working(running.url, Card()) as two:
        await until(lambda: shared([one, two]))
        running.child.kill()
        await running.start()  # what is claimed is kept in memory, and so it is gone
        await until(lambda: shared([one, two]))
        async with connect_engine(running.url, MODEL, source="log1") as engine:
            assert len(await play(engine, turns=1)) == len(MATCHES)


@pytest.mark.long
@pytest.mark.vllm
async def test_two_workers_with_a_model_share_the_matches(
    running: RunningBroker, tmp_path: Path
) -> None:
    pytest.importorskip("vllm")
    from engine.models import open_model

    model = open_model(str(adapter_bundle(tmp_path).path))
    workers = [worker_process(running.url, tmp_path, spec=model.spec) for _ in range(2)]
    queue = await Queue.connect(running.url)

    async def both() -> bool:
        infos = await queue.all_workers()
        return sorted(len(info.partitions) for info in infos) == [PARTITIONS // 2] * 2

    await until(both, within_s=300)
    async with connect_engine(running.url, model, source="log1") as engine:
        replies = await play(engine, turns=2)
    assert len(replies) == 2 * len(MATCHES)
    for worker in workers:
        await worker.stop(grace_s=10)
    await queue.close()
