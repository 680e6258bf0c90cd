from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from engine.contract import DecisionRequest
from engine.errors import (
    DecisionExpired,
    NoWorker,
    RecordTooLong,
)
from games import load_game
from games.base import Game
from runtime.agents import Act, Agent, Turn
from runtime.errors import CannotPlay, ReplayDiffers
from runtime.match import Match
from runtime.replay import replay_match
from runtime.table import Terms
from store.events import (
    AnswerDiscarded,
    DecisionRequested,
    EpochStarted,
    TurnTaken,
)
from store.memory import MemoryLog
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import (
    MATCH,
    cut,
    events_of,
    kinds,
    only,
    play_one,
    resume_one,
    table,
    timeless,
    turns,
)
from tests.support.toys import Diary, Grid

TICTACTOE = load_game("tictactoe")
KUHN = load_game("kuhn_poker")


async def test_stray_answers_are_recorded_and_change_nothing() -> None:
    log = MemoryLog()
    engine = DirectEngine()
    at = table(log, TICTACTOE, ["decision", "random"], engine=engine)
    match = Match.new(at, MATCH, seed=1)

    def strays(request: DecisionRequest) -> None:
        if len(engine.requests) == 2:
            match.discard(engine.requests[0].id, "duplicate")
            match.discard(f"{MATCH}-999", "unknown")

    engine._on_request = strays
    await match.run()
    discarded = [event for event in events_of(log) if isinstance(event, AnswerDiscarded)]
    assert [event.reason for event in discarded] == ["duplicate", "unknown"]
    undisturbed, _ = await play_one(TICTACTOE, ["decision", "random"], engine=DirectEngine())
    assert turns_without_ids(log) == turns_without_ids(undisturbed)
    assert not replay_match(log.read(MATCH)).differences


def turns_without_ids(log: MemoryLog) -> list[TurnTaken]:
    return [msgspec.structs.replace(turn, decision=None) for turn in turns(events_of(log))]


async def test_answer_to_an_expired_decision_is_late_also_after_a_restart() -> None:
    agents = ["decision", "random"]
    engine = FailingEngine(DecisionExpired("late"), failing=lambda number: number == 0)
    log, _ = await play_one(TICTACTOE, agents, engine=engine, terms=Terms(fallback="pause"))
    at = table(log, TICTACTOE, agents, engine=DirectEngine())
    match = Match.resume(at, log.read(MATCH))
    match.discard(engine.requests[0].id, "unknown")
    await match.run()
    assert only(events_of(log), AnswerDiscarded).reason == "late"
    assert not replay_match(log.read(MATCH)).differences


CASES: dict[str, tuple[Game, list[str | Any]]] = {
    "decision against random": (TICTACTOE, ["decision:temperature=0.9", "random"]),
    "hidden cards": (KUHN, ["decision", "decision:floor=0.2"]),
    "factored": (Grid(turns=3), ["decision:temperature=1", "random"]),
    "two questions": (Diary(), ["decision"]),
    "chance between decisions": (
        load_game("expedition(rules=short,size=tiny)"),
        ["decision:temperature=1"],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_match_cut_anywhere_and_resumed_is_the_same_match(case: str) -> None:
    game, agents = CASES[case]
    whole, result = await play_one(game, agents, engine=DirectEngine())
    expected = timeless(events_of(whole))
    for length in range(1, len(expected)):
        log = await cut(whole, length)
        engine = DirectEngine()
        assert await resume_one(log, game, agents, engine=engine) == result
        assert timeless(events_of(log)) == expected
        pending = isinstance(expected[length - 1], DecisionRequested)
        assert all(
            (request.attempt > 1) == (pending and number == 0)
            for number, request in enumerate(engine.requests)
        )
        assert not replay_match(log.read(MATCH), game=game).differences


@pytest.mark.parametrize("fallback", ["random", "pass"])
async def test_faults_cut_anywhere_and_resumed_are_the_same_match(fallback: Any) -> None:
    agents = ["decision", "decision"]
    terms = Terms(fallback=fallback)
    whole, result = await play_one(
        KUHN, agents, engine=FailingEngine(NoWorker("none")), terms=terms
    )
    expected = timeless(events_of(whole))
    for length in range(1, len(expected)):
        log = await cut(whole, length)
        engine = FailingEngine(NoWorker("none"))
        assert await resume_one(log, KUHN, agents, engine=engine) == result
        assert timeless(events_of(log)) == expected


async def test_resumption_is_refused_where_the_rules_have_changed() -> None:
    log, _ = await play_one(Diary(width=10), ["random"])
    shorter = await cut(log, 4)
    with pytest.raises(ReplayDiffers, match=r"m-1, version 1: views\[0\]"):
        await resume_one(shorter, Diary(width=11), ["random"])
    assert len(events_of(shorter)) == 4


async def test_pending_decision_is_not_put_to_another_model() -> None:
    log, _ = await play_one(TICTACTOE, ["decision", "random"], engine=DirectEngine())
    pending = await cut(log, 2)
    with pytest.raises(ReplayDiffers, match="same --model"):
        await resume_one(
            pending, TICTACTOE, ["decision", "random"], engine=DirectEngine("mock:seed=2")
        )


async def test_agent_that_asks_something_else_after_a_restart_is_refused() -> None:
    class Fickle(Agent):
        asks = True

        def __init__(self, text: str) -> None:
            self._text = text

        async def act(self, turn: Turn) -> Act:
            [question] = turn.questions()
            question = msgspec.structs.replace(question, instructions=self._text)
            await turn.ask([question])
            return Act(turn.options[0].id)

    log, _ = await play_one(TICTACTOE, [Fickle("one"), "random"], engine=DirectEngine())
    with pytest.raises(ReplayDiffers, match="now asks"):
        await resume_one(
            await cut(log, 2), TICTACTOE, [Fickle("two"), "random"], engine=DirectEngine()
        )


async def test_match_is_truncated_where_the_next_record_does_not_fit() -> None:
    game = Diary(days=50, width=40)
    log, result = await play_one(game, ["decision"], engine=DirectEngine(window=200))
    assert (result.end, result.reason) == ("truncated", "record_too_long")
    assert 0 < result.turns < 50
    assert result.returns == (float(sum(t.action == "walk" for t in turns(events_of(log)))),)
    assert kinds(events_of(log))[-2:] == ["turn_taken", "match_ended"]
    assert not replay_match(log.read(MATCH), game=game).differences


async def test_text_starts_anew_where_the_game_can() -> None:
    game = Diary(days=30, width=60, overflow="rebase")
    log, result = await play_one(game, ["decision"], engine=DirectEngine(window=200))
    assert (result.end, result.turns) == ("terminated", 30)
    epochs = [event.epoch for event in events_of(log) if isinstance(event, EpochStarted)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > 1
    assert not replay_match(log.read(MATCH), game=game).differences
    for length in range(1, len(events_of(log))):
        shorter = await cut(log, length)
        await resume_one(shorter, game, ["decision"], engine=DirectEngine(window=200))
        assert timeless(events_of(shorter)) == timeless(events_of(log))


async def test_new_text_that_does_not_fit_either_ends_the_match() -> None:
    game = Diary(days=30, width=40, overflow="rebase", sealed=True)
    log, result = await play_one(game, ["decision"], engine=DirectEngine(window=200))
    assert (result.end, result.reason) == ("truncated", "record_too_long")
    assert kinds(events_of(log))[-2:] == ["epoch_started", "match_ended"]


async def test_worker_that_finds_the_record_too_long_has_the_last_word() -> None:
    engine = FailingEngine(RecordTooLong("too long"), failing=lambda number: number == 1)
    log, result = await play_one(Diary(), ["decision"], engine=engine)
    assert (result.end, result.reason, result.turns) == ("truncated", "record_too_long", 1)
    assert kinds(events_of(log))[-2:] == ["decision_failed", "match_ended"]


async def test_match_whose_first_question_does_not_fit_does_not_start() -> None:
    log = MemoryLog()
    with pytest.raises(CannotPlay, match="record_too_long"):
        await play_one(TICTACTOE, ["random", "decision"], engine=DirectEngine(window=20), log=log)
    assert list(log.matches()) == []


async def test_cancelled_match_can_be_resumed() -> None:
    agents = ["decision", "random"]
    log = MemoryLog()
    with anyio.CancelScope() as scope:
        engine = DirectEngine()

        def stop(request: DecisionRequest) -> None:
            if len(engine.requests) == 3:
                scope.cancel()

        engine._on_request = stop
        await play_one(TICTACTOE, agents, engine=engine, log=log)
    whole, result = await play_one(TICTACTOE, agents, engine=DirectEngine())
    assert len(events_of(log)) < len(events_of(whole))
    assert await resume_one(log, TICTACTOE, agents, engine=DirectEngine()) == result
    assert timeless(events_of(log)) == timeless(events_of(whole))
