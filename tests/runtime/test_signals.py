from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import msgspec
import pytest

from engine.contract import DecisionRequest
from engine.errors import DecisionExpired
from games import load_game
from games.base import Game, View
from runtime import signals
from runtime.agents.base import Act, Agent, Turn
from runtime.live import LiveMatches
from runtime.match import Match
from runtime.signals import SignalReport, Signals
from runtime.table import Terms
from runtime.tournament.plan import Contestant, Plan
from runtime.tournament.run import Tournament
from store.events import DecisionRequested
from store.memory import MemoryLog
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import MATCH, events_of, seat, table
from tests.support.runs import KeptRun as Run
from tests.support.toys import Diary, DiaryState


class Cycling(Agent):
    """Plays the same actions over and over."""

    def __init__(self, actions: str) -> None:
        self._actions = [{"r": "rest", "w": "walk"}[each] for each in actions]

    async def act(self, turn: Turn) -> Act:
        return Act(self._actions[turn.index % len(self._actions)])


class DatedState(DiaryState, frozen=True):
    """Shows the day, so that no two turns look the same."""

    def view(self, seat: int) -> View:
        return msgspec.structs.replace(super().view(seat), private=f"Day {len(self.done)}\n")


class BareState(DiaryState, frozen=True):
    """Has no private text."""

    def view(self, seat: int) -> View:
        return msgspec.structs.replace(super().view(seat), private="")


class Of(Diary):
    """A diary whose states are of another kind."""

    def __init__(self, kind: type[DiaryState], days: int) -> None:
        super().__init__(days=days)
        self._state = kind(days, 10)


async def seen(actions: str, *, days: int, game: Game | None = None) -> tuple[int, int]:
    """Play a diary and give how often its agent was stuck, and oscillated."""
    log = MemoryLog()
    at = table(log, game or Diary(days=days, width=10), [Cycling(actions)])
    await Match.new(at, MATCH, seed=1).run()
    return at.tally.signals.totals["stuck"], at.tally.signals.totals["oscillating"]


@pytest.mark.parametrize(
    ("actions", "days", "found"),
    [
        ("w", 2, (0, 0)),
        ("w", 3, (1, 0)),
        ("w", 30, (1, 0)),
        ("wwr", 30, (0, 1)),
        ("wwwr", 4, (1, 0)),
        ("wr", 5, (0, 0)),
        ("wr", 6, (0, 1)),
        ("wr", 30, (0, 1)),
        ("wwrr", 11, (0, 0)),
        ("wwrr", 12, (0, 1)),
        ("wwwrwwwrrwrwrr", 4, (1, 0)),
        ("wwrrwrwwrw", 10, (0, 0)),
    ],
)
async def test_an_agent_that_repeats_itself_is_seen_once(
    actions: str, days: int, found: tuple[int, int]
):
    assert await seen(actions, days=days) == found


async def test_it_is_seen_again_when_it_happens_again():
    assert (await seen("wwwrrwrwwwrr", days=12))[0] == 2


async def test_where_something_changes_nobody_is_stuck():
    assert await seen("w", days=20, game=Of(DatedState, 20)) == (0, 0)
    assert await seen("wr", days=20, game=Of(DatedState, 20)) == (0, 0)


async def test_without_private_text_the_state_is_compared():
    assert await seen("w", days=20, game=Of(BareState, 20)) == (0, 0)


async def test_games_of_random_agents_show_nothing():
    for name in ("tictactoe", "kuhn_poker"):
        run = Run(MemoryLog(), load_game(name), [seat("random")] * 2, matches=20, seed=1)
        assert (await run.play()).signals == SignalReport()


async def test_a_run_tells_them_by_match_and_by_agent(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger=signals.__name__)
    run = Run(MemoryLog(), Diary(days=8, width=10), [seat(Cycling("w"))], matches=5, seed=1)
    report = await run.play()
    [agent] = report.signals.agents
    assert (agent.agent, agent.matches, agent.stuck, agent.oscillating) == ("own", 5, 5, 0)
    assert [each.match for each in report.signals.matches] == [
        each.match for each in report.matches
    ]
    assert {(each.seat, each.stuck) for each in report.signals.matches} == {(0, 1)}
    assert report.signals.left_out == 0
    levels = [(record.levelno, record.times) for record in caplog.records]  # type: ignore[attr-defined]
    warned, quiet = logging.WARNING, logging.DEBUG
    assert levels == [(warned, 1), (warned, 2), (quiet, 3), (warned, 4), (quiet, 5)]
    first: Any = caplog.records[0]
    assert (first.getMessage(), first.agent, first.seat) == ("agent: stuck", "own", 0)
    assert (first.match, first.version, first.action) == (report.matches[0].match, 3, "walk")


async def test_fallbacks_are_told_with_their_reason(caplog: pytest.LogCaptureFixture):
    engine = FailingEngine(DecisionExpired("too slow"), lambda number: number % 2 == 0)
    log = MemoryLog()
    run = Run(
        *(log, Diary(days=4, width=10), [seat("decision")]),
        matches=1,
        seed=1,
        terms=Terms(fallback="random"),
    )
    report = await run.play(engine)
    [only] = report.signals.matches
    assert (only.agent, only.fallback, only.stale) == ("decision", 2, 0)
    assert report.decisions.fallback == 2
    assert "too slow" in caplog.records[0].why  # type: ignore[attr-defined]


async def test_an_answer_that_comes_too_late_is_stale():
    log = MemoryLog()
    engine = FailingEngine(DecisionExpired("too slow"), lambda number: number == 0)
    at = table(
        *(log, Diary(days=3, width=10), ["decision"]),
        engine=engine,
        terms=Terms(fallback="random"),
    )
    match = Match.new(at, MATCH, seed=1)
    decide = engine.decide

    async def late(request: DecisionRequest) -> Any:
        if engine.requests:
            match.discard(engine.requests[0].id, "late")
        return await decide(request)

    engine.decide = late  # type: ignore[method-assign]
    await match.run()
    [found] = at.tally.signals.report().matches
    assert (found.seat, found.agent, found.stale, found.fallback) == (0, "decision", 2, 1)


async def test_an_answer_after_the_match_is_stale_too():
    log = MemoryLog()
    found = Signals()
    live = LiveMatches(log, found)
    engine = FailingEngine(DecisionExpired("too slow"), lambda number: number == 0)
    at = table(
        *(log, Diary(days=3, width=10), ["decision"]),
        engine=engine,
        terms=Terms(fallback="random"),
    )
    await Match.new(at, MATCH, seed=1).run()
    asked = next(each for each in events_of(log) if isinstance(each, DecisionRequested))
    reply = await DirectEngine().decide(engine.requests[0])
    assert reply.id == asked.decision
    await live.on_stray(reply, "late")
    await live.on_stray(reply, "late")
    [seen_of] = found.report().agents
    assert (seen_of.agent, seen_of.matches, seen_of.stale) == ("decision", 1, 2)
    await live.on_stray(msgspec.structs.replace(reply, id="nobody-7"), "late")
    await live.on_stray(msgspec.structs.replace(reply, id=f"{MATCH}-0"), "late")
    assert found.totals["stale"] == 2


async def test_a_resumed_match_is_watched_from_there():
    log = MemoryLog()
    whole = table(log, Diary(days=9, width=10), [Cycling("w")])
    await Match.new(whole, MATCH, seed=1).run()
    part = MemoryLog()
    await part.restore(MATCH, log.stored(MATCH)[:5])
    at = table(part, Diary(days=9, width=10), [Cycling("w")])
    assert (await Match.resume(at, part.read(MATCH)).run()).end == "terminated"
    assert at.tally.signals.totals == whole.tally.signals.totals == {"stuck": 1}


async def test_matches_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(signals, "KEPT", 3)
    run = Run(MemoryLog(), Diary(days=3, width=10), [seat(Cycling("w"))], matches=8, seed=1)
    report = (await run.play()).signals
    assert (len(report.matches), report.left_out) == (3, 5)
    assert report.agents[0].matches == 8


async def test_a_tournament_names_its_contestants():
    plan = Plan(
        game="tictactoe",
        seeds=3,
        fallback="random",
        agents=(
            Contestant(name="slow", agent="decision"),
            Contestant(name="dice", agent="random"),
        ),
    )
    tournament = Tournament(plan, load_game("tictactoe"), MemoryLog())
    engine = FailingEngine(DecisionExpired("too slow"))
    outcome = await tournament.play([engine, None])
    [agent] = outcome.signals.agents
    assert (agent.agent, agent.matches) == ("slow", outcome.standings.matches)
    assert agent.fallback == outcome.standings.lines[0].fallbacks > 0
    assert {each.agent for each in outcome.signals.matches} == {"slow"}


def test_the_sums_follow_from_the_signs():
    found = Signals()
    kinds: Sequence[signals.Kind] = ("stuck", "oscillating", "stale", "fallback")
    for number, kind in zip(range(40), cycle(kinds), strict=False):
        found.add(kind, f"m{number % 5}", number % 2, f"agent {number % 2}")
    report = found.report()
    for kind in kinds:
        assert found.totals[kind] == sum(getattr(each, kind) for each in report.agents) == 10
        assert found.totals[kind] == sum(getattr(each, kind) for each in report.matches)
    assert [each.matches for each in report.agents] == [5, 5]
