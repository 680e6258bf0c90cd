"""Who plays what, with which model, into which log: the same for all matches of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from engine.client import Engine
from games.base import MAX_OPTIONS, Game
from runtime.agents.base import Agent
from runtime.errors import CannotPlay
from runtime.tally import Tally
from store.events import Fallback
from store.log import EventLog


class Seat(NamedTuple):
    """The agent of a seat, its name as the log records it, and its model if it has its own."""

    name: str
    agent: Agent
    engine: Engine | None = None


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed for every match of a run; part of a match's first event.

    Attributes:
        fallback: What a match does when a decision cannot be had.
        deadline_s: Seconds to wait for a decision.
    """

    fallback: Fallback = "pause"
    deadline_s: float = 30.0


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What the matches of a run share.

    Attributes:
        engine: Of the seats that have none of their own; None when no seat asks a model.
    """

    log: EventLog
    game: Game
    seats: tuple[Seat, ...]
    engine: Engine | None
    terms: Terms
    tally: Tally

    @property
    def asked(self) -> tuple[Engine | None, ...]:
        """What the agent of each seat asks; None where it asks nothing."""
        return tuple(
            engine if seat.agent.asks else None
            for seat, engine in zip(self.seats, self.engines, strict=True)
        )

    @property
    def engines(self) -> tuple[Engine | None, ...]:
        """What each seat asks."""
        return tuple(seat.engine or self.engine for seat in self.seats)


def check_seats(game: Game, seats: Sequence[Seat]) -> None:
    """Refuse agents that cannot play a game.

    Raises:
        CannotPlay: There are too many or too few, or one that cannot play it, such as one that
            asks about more options than a question can have.
    """
    facts = game.facts
    if not facts.min_seats <= len(seats) <= facts.max_seats:
        raise CannotPlay(f"{facts.id} has {facts.seats}, not {len(seats)}; name one agent for each")
    for seat in seats:
        seat.agent.check(game)
    asking = next((seat.name for seat in seats if seat.agent.asks), None)
    if asking is not None and facts.max_options > MAX_OPTIONS and not facts.factors:
        raise CannotPlay(
            f"{facts.id} has up to {facts.max_options} options at once and a question takes"
            f" {MAX_OPTIONS}, so agent {asking!r} cannot play it; the game has to"
            " factor its actions"
        )
