"""The queue's files are deleted or damaged: what was asked is answered all the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from engine.broker import broker
from engine.client import QueueEngine, connect_engine
from engine.contract import DecisionReply
from engine.errors import BrokerFailed
from tests.support.queues import MODEL, Gate, request, until, working

MANY = 100  # more than a worker takes at once, so that some wait in the stream


def delete(folder: Path, _: random.Random) -> None:
    shutil.rmtree(folder)


def flip(folder: Path, source: random.Random) -> None:
    """Flip one bit in one of the stream's blocks."""
    _flip_in(source.choice(sorted(folder.rglob("DECISIONS/msgs/*.blk"))), source)


def flip_anywhere(folder: Path, source: random.Random) -> None:
    """Flip a bit in every file: blocks, indices, the streams' and consumers' descriptions."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.stat().st_size:
            _flip_in(file, source)


def _flip_in(file: Path, source: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    file.write_bytes(data)


async def lose(folder: Path, damage: Callable[[Path, random.Random], None], seed: int) -> None:
    """Ask, stop the server, damage what it has, start it, and wait for every answer."""
    replies: dict[str, DecisionReply] = {}
    gate = Gate()

    async def ask(engine: QueueEngine, decision: str) -> None:
        replies[decision] = await engine.decide(
            request(decision, state=decision, affinity=decision, remaining_s=60)
        )

    async with (
        broker(folder) as running,
        working(running.url, gate),
        connect_engine(running.url, MODEL, source="log1") as engine,
        anyio.create_task_group() as group,
    ):
        for number in range(MANY):
            group.start_soon(ask, engine, f"d{number}")
        await until(lambda: len(gate.asked) > MANY // 4)
        await running.child.stop()
        damage(running.folder / "jetstream", random.Random(seed))
        if damage is flip_anywhere:
            await running.start_anew()  # as `embedded` does, which trusts none of the files
        else:
            try:
                await running.start(within_s=10)
            except BrokerFailed:  # there are damages over which nats-server 2.15 never gets ready
                await running.start_anew()
        gate.opened.set()
    assert {reply.id for reply in replies.values()} == set(replies)
    assert len({reply.answers for reply in replies.values()}) == len(replies) == MANY


@pytest.mark.parametrize(
    ("damage", "seeds"),
    [
        (delete, 1),
        (flip, 3),
        (flip_anywhere, 2),
        pytest.param(flip, 100, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
        pytest.param(flip_anywhere, 100, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
async def test_all_are_answered_whatever_became_of_the_files(
    tmp_path: Path, damage: Callable[[Path, random.Random], None], seeds: int
) -> None:
    for seed in range(seeds):
        await lose(tmp_path / str(seed), damage, seed)
    print(f"{damage.__name__}: {seeds} times {MANY} decisions, all answered")
