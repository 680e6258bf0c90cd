"""Matches of 2,000 turns whose text outgrows the model's window, under each overflow policy."""

from __future__ import annotations

from typing import Literal

from games.base import State
from runtime.replay import replay_match
from runtime.requests import derive
from store.events import DecisionRequested, EpochStarted, MatchEnded, TurnTaken
from store.memory import MemoryLog
from tests.support.engines import DirectEngine
from tests.support.matches import MATCH, cut, events_of, play_one, resume_one, timeless, turns
from tests.support.toys import Diary

TURNS = 2_000
AGENTS = ["decision:temperature=1"]


def diary(overflow: Literal["stop", "rebase"]) -> Diary:
    return Diary(days=TURNS, width=8, overflow=overflow)


def tokens(engine: DirectEngine, state: State) -> int:
    return engine.model.measure(derive(state.view(0), state.questions()).ask)


async def test_stop_plays_as_long_as_the_record_fits_and_not_one_turn_longer() -> None:
    game, engine = diary("stop"), DirectEngine(window=4_000)
    log, result = await play_one(game, AGENTS, engine=engine)
    assert (result.end, result.reason) == ("truncated", "record_too_long")
    assert TURNS * 0.95 < result.turns < TURNS
    state = game.start(seats=1, seed=1)
    for turn in turns(events_of(log)):
        last, state = state, state.apply(turn.action)
    assert tokens(engine, last) <= 4_000 < tokens(engine, state)
    assert isinstance(events_of(log)[-1], MatchEnded)
    assert not any(isinstance(event, EpochStarted) for event in events_of(log))
    replayed = replay_match(log.read(MATCH), game=game)
    assert (replayed.turns, replayed.ended, replayed.differences) == (result.turns, True, ())
    shorter = await cut(log, len(events_of(log)) - 1)
    assert await resume_one(shorter, game, AGENTS, engine=DirectEngine(window=4_000)) == result
    assert timeless(events_of(shorter)) == timeless(events_of(log))


async def test_rebase_plays_to_the_end_in_epochs_that_fit() -> None:
    game, engine = diary("rebase"), DirectEngine(window=500)
    log, result = await play_one(game, AGENTS, engine=engine)
    assert (result.end, result.turns) == ("terminated", TURNS)
    events = events_of(log)
    epochs = [event.epoch for event in events if isinstance(event, EpochStarted)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert 5 < len(epochs) < 20
    assert sum(isinstance(event, DecisionRequested) for event in events) == TURNS
    assert all(engine.model.measure(request.ask) <= 500 for request in engine.requests)
    _require_growth_within_epochs(game, log)
    replayed = replay_match(log.read(MATCH), game=game)
    assert (replayed.turns, replayed.ended, replayed.differences) == (TURNS, True, ())
    last = max(at for at, event in enumerate(events) if isinstance(event, EpochStarted))
    for length in (last, last + 1, len(events) - 1):
        shorter = await cut(log, length)
        await resume_one(shorter, game, AGENTS, engine=DirectEngine(window=500))
        assert timeless(events_of(shorter)) == timeless(events)


def _require_growth_within_epochs(game: Diary, log: MemoryLog) -> None:
    """An epoch begins only where the text that there was no longer fits."""
    state: State = game.start(seats=1, seed=1)
    engine = DirectEngine(window=500)
    for event in events_of(log):
        before = state.view(0)
        if isinstance(event, TurnTaken):
            state = state.apply(event.action)
            assert state.view(0).public.startswith(before.public)
            assert state.view(0).epoch == before.epoch
        elif isinstance(event, EpochStarted):
            assert tokens(engine, state) > 500
            state = state.rebase()
            assert tokens(engine, state) < 100
            assert state.view(0).epoch == event.epoch == before.epoch + 1
