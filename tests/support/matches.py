"""Playing single matches, cutting their logs, and comparing what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.client import Engine
from games.base import Game
from runtime.agents import Agent, make_agent
from runtime.match import Match, MatchResult
from runtime.table import Seat, Table, Terms
from runtime.tally import Tally
from store.events import DecisionAnswered, Event, TurnTaken
from store.log import EventLog
from store.memory import MemoryLog

MATCH = "m-1"


def seat(agent: str | Agent) -> Seat:
    """Make a seat of an agent's name, or of an agent of the test's own."""
    return Seat(agent, make_agent(agent)) if isinstance(agent, str) else Seat("own", agent)


def table(
    log: EventLog,
    game: Game,
    agents: Sequence[str | Agent],
    *,
    engine: Engine | None = None,
    terms: Terms | None = None,
    home: Path | None = None,
) -> Table:
    """Put agents at a game."""
    return Table(
        log=log,
        game=game,
        seats=tuple(map(seat, agents)),
        engine=engine,
        terms=terms or Terms(),
        tally=Tally(home=home),
    )


async def play_one(
    game: Game,
    agents: Sequence[str | Agent],
    *,
    seed: int = 1,
    engine: Engine | None = None,
    terms: Terms | None = None,
    log: MemoryLog | None = None,
    home: Path | None = None,
) -> tuple[MemoryLog, MatchResult]:
    """Play a match into a log in memory."""
    log = log or MemoryLog()
    at = table(log, game, agents, engine=engine, terms=terms, home=home)
    return log, await Match.new(at, MATCH, seed=seed).run()


async def resume_one(
    log: MemoryLog, game: Game, agents: Sequence[str | Agent], *, engine: Engine | None = None
) -> MatchResult:
    """Go on with the match of a log."""
    return await Match.resume(table(log, game, agents, engine=engine), log.read(MATCH)).run()


async def cut(log: MemoryLog, length: int) -> MemoryLog:
    """Give a log that has only the first `length` events of the match."""
    shorter = MemoryLog()
    await shorter.restore(MATCH, log.stored(MATCH)[:length])
    return shorter


def events_of(log: EventLog, match: str = MATCH) -> list[Event]:
    """Give the events of a match."""
    return [each.event for each in log.read(match)]


def timeless(events: Sequence[Event]) -> list[Event]:
    """Give events without what differs from run to run: times and attempts."""
    return [
        msgspec.structs.replace(event, attempt=0, queue_ms=0.0, engine_ms=0.0, total_ms=0.0)
        if isinstance(event, DecisionAnswered)
        else event
        for event in events
    ]


def kinds(events: Sequence[Event]) -> list[str]:
    """Give the types of events."""
    return [str(event.__struct_config__.tag) for event in events]


def turns(events: Sequence[Event]) -> list[TurnTaken]:
    return [event for event in events if isinstance(event, TurnTaken)]


def only(events: Sequence[Event], kind: type) -> Any:
    [event] = [event for event in events if isinstance(event, kind)]
    return event
