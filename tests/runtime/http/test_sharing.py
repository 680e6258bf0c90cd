from __future__ import annotations

import anyio
import pytest

from engine.contract import Ask, DecisionReply, DecisionRequest, Field
from engine.errors import EngineFailed, QueueUnavailable
from runtime.http.load import Load
from runtime.http.problems import Problem
from runtime.http.sharing import Sharing
from tests.support.engines import DirectEngine, FailingEngine


class SlowEngine(DirectEngine):
    """Answers when it is told to; counts what was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()
        self.cancelled = 0

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        self.requests.append(request)
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return await self._backend.decide(request)


def make_ask(state: str = "s", salt: str = "") -> Ask:
    field = Field(
        id="q", type="choice", instruction="?", option_ids=("a", "b"), option_texts=("a", "b")
    )
    return Ask(state=state, fields=(field,), salt=salt)


async def test_the_same_ask_is_asked_once_while_it_is_under_way():
    engine = SlowEngine()
    replies: list[DecisionReply] = []
    sharing = Sharing("here")

    async def one(ask: Ask) -> None:
        replies.append(await sharing.decide(engine, ask, affinity="a", seconds=9))

    async with anyio.create_task_group() as group:
        for wanted in [make_ask()] * 3 + [make_ask("other"), make_ask(salt="other")]:
            group.start_soon(one, wanted)
        while len(engine.requests) < 3:
            await anyio.lowlevel.checkpoint()
        engine.go.set()
    assert len(replies) == 5
    assert len(engine.requests) == 3
    assert {request.source for request in engine.requests} == {"here"}

    await sharing.decide(engine, make_ask(), affinity="a", seconds=9)
    await sharing.decide(engine, make_ask(), affinity="a", seconds=9)
    assert len(engine.requests) == 5  # what has been answered is asked anew


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first asker first", "other first"])
async def test_work_is_given_up_with_the_last_who_waits(order: tuple[int, int]):
    engine = SlowEngine()
    sharing = Sharing("here")

    async def one(scope: anyio.CancelScope) -> None:
        with scope:
            await sharing.decide(engine, make_ask(), affinity="a", seconds=9)

    async with anyio.create_task_group() as group:
        scopes = [anyio.CancelScope() for _ in range(2)]
        for scope in scopes:
            group.start_soon(one, scope)
        await anyio.wait_all_tasks_blocked()
        assert len(engine.requests) == 1
        scopes[order[0]].cancel()
        await anyio.wait_all_tasks_blocked()
        assert engine.cancelled == 0
        scopes[order[1]].cancel()
        await anyio.wait_all_tasks_blocked()
        assert engine.cancelled == 1
        assert len(engine.requests) == 1
        engine.go.set()
        await sharing.decide(engine, make_ask(), affinity="a", seconds=9)
    assert len(engine.requests) == 2


async def test_who_stays_is_answered_though_the_first_asker_left():
    engine = SlowEngine()
    sharing = Sharing("here")
    replies: list[DecisionReply] = []

    async def one(scope: anyio.CancelScope) -> None:
        with scope:
            replies.append(await sharing.decide(engine, make_ask(), affinity="a", seconds=9))

    async with anyio.create_task_group() as group:
        scopes = [anyio.CancelScope() for _ in range(3)]
        for scope in scopes[:2]:
            group.start_soon(one, scope)
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        group.start_soon(one, scopes[2])
        await anyio.wait_all_tasks_blocked()
        engine.go.set()
    assert engine.cancelled == 0
    assert len(engine.requests) == 1
    assert len(replies) == 3  # with that of who left, which nobody reads


async def test_who_comes_while_the_first_asker_leaves_asks_anew():
    engine = SlowEngine()
    sharing = Sharing("here")
    replies: list[DecisionReply] = []

    async def one(scope: anyio.CancelScope) -> None:
        with scope:
            replies.append(await sharing.decide(engine, make_ask(), affinity="a", seconds=9))

    async with anyio.create_task_group() as group:
        leaving = anyio.CancelScope()
        group.start_soon(one, leaving)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(one, anyio.CancelScope())
        group.start_soon(one, anyio.CancelScope())
        leaving.cancel()
        while len(engine.requests) < 2:
            await anyio.lowlevel.checkpoint()
        engine.go.set()
    assert engine.cancelled == 1
    assert len(engine.requests) == len(replies) == 2


async def test_an_error_reaches_all_and_is_not_kept():
    engine = FailingEngine(EngineFailed("no"), lambda number: number == 0)
    sharing = Sharing("here")
    with pytest.raises(EngineFailed):
        await sharing.decide(engine, make_ask(), affinity="a", seconds=9)
    await sharing.decide(engine, make_ask(), affinity="a", seconds=9)


async def test_all_that_waits_can_be_failed():
    engine = SlowEngine()
    sharing = Sharing("here")

    async def one() -> None:
        with pytest.raises(QueueUnavailable):
            await sharing.decide(engine, make_ask(), affinity="a", seconds=9)

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        sharing.fail_all(QueueUnavailable("gone"))
    assert engine.cancelled == 1


def test_load_refuses_what_would_be_late(monkeypatch: pytest.MonkeyPatch):
    now = [50.0]
    monkeypatch.setattr("runtime.http.load.time.monotonic", lambda: now[0])
    load = Load()
    load.admit(10**9, seconds=1)  # nothing is known yet
    with load.under_way(1000):
        now[0] += 2
    assert load.estimate_s(1000) == pytest.approx(2)
    load.admit(10_000, seconds=1)  # alone it is tried whatever it takes
    with load.under_way(3000):
        load.admit(1400, seconds=9)
        with pytest.raises(Problem) as raised:
            load.admit(2000, seconds=9)
        assert raised.value.status == 503
        assert raised.value.headers["retry-after-ms"] == "1000"
        with pytest.raises(Problem) as raised:
            load.admit(10**6, seconds=9)
        assert int(raised.value.headers["retry-after"]) < 30
    assert load.tokens == load.decisions == 0
    with pytest.raises(ZeroDivisionError), load.under_way(500):
        raise ZeroDivisionError
    assert load.tokens == load.decisions == 0
