"""Plays a tournament. What was played is in the log, so that it goes on after any end.

Matches run at once and finish in any order; they are counted in the schedule's order. So the
result depends on the file alone: not on speed, not on when or how often it was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
import msgspec

from engine.client import Engine
from games.base import Game
from runtime.agents.registry import make_agent
from runtime.errors import BadInput, CannotPlay, first_of
from runtime.live import LiveMatches, recorded_of
from runtime.match import Match
from runtime.signals import SignalReport, Signals
from runtime.table import Seat, Table, Terms, check_seats
from runtime.tally import Tally
from runtime.tournament.plan import Fixture, Plan, fixtures, game_of, prefix_of, seats_of
from runtime.tournament.ratings import Skills
from runtime.tournament.standings import Played, Standings, played_of
from store.log import EventLog

AHEAD = 256
"""How far a match may run ahead of the first that is not counted; bounds what is kept."""

Stop = Literal["all played", "matches", "tokens", "minutes", "elo0", "elo1"]
"""Why a tournament ended: its schedule, a budget, or what its test accepted."""


class Outcome(msgspec.Struct, frozen=True):
    """A tournament as far as it was counted."""

    plan: Plan
    seats: int
    standings: Standings
    skills: Skills
    stop: Stop
    signals: SignalReport
    """Of the matches that were played now, not of those that the log had."""


class Tournament:
    """One tournament in one log."""

    def __init__(
        self,
        plan: Plan,
        game: Game,
        log: EventLog,
        *,
        home: Path | None = None,
        on_counted: Callable[[Standings], None] | None = None,
    ) -> None:
        """Describe it; nothing happens yet.

        Args:
            plan: The file.
            game: The rules.
            log: Where the matches are, or go.
            home: The data folder, where snapshots of long matches are kept; None keeps none.
            on_counted: Called with the standings after each match that is counted.

        Raises:
            CannotPlay, UnknownAgent: An agent is none, or cannot play the game.
        """
        self._plan = plan
        self._game = game
        self._log = log
        self._home = home
        self._on_counted = on_counted
        self._seats = seats_of(plan, game)
        self._agents = [make_agent(each.agent) for each in plan.agents]
        for each, agent in zip(plan.agents, self._agents, strict=True):
            check_seats(game, [Seat(each.name, agent)] * self._seats)
            if agent.interactive:
                raise CannotPlay(
                    f"agent {each.name!r} waits for a person, and a tournament plays many matches"
                    " at once; `ostinato play` has one at a time"
                )
        self._standings = Standings(len(plan.agents), self._seats)
        self._skills = Skills(len(plan.agents))
        self._waiting: dict[int, tuple[Fixture, Played]] = {}
        self._counted = 0
        self._moved = anyio.Event()
        self._stop: Stop | None = None
        self._signals = Signals()
        self.live = LiveMatches(log, self._signals)

    @property
    def asking(self) -> list[int]:
        """Which agents need a model."""
        return [number for number, agent in enumerate(self._agents) if agent.asks]

    async def play(self, engines: Sequence[Engine | None]) -> Outcome:
        """Play and count until the schedule, a budget or the test ends it.

        Args:
            engines: Of each agent, None for one that asks none.

        Raises:
            BadInput: A match paused, because nothing was to be had and its fallback had no action.
            RuntimeFault, GamesError, EngineError, StoreError: As of a match; the same tournament
                goes on from the log.
        """
        plan, budget = self._plan, self._plan.budget
        hashes = tuple(engine.model.hash if engine else None for engine in engines)
        prefix = prefix_of(plan, self._game, hashes)
        deadline = time.monotonic() + budget.minutes * 60 if budget.minutes else None
        schedule = fixtures(plan, self._seats)

        async def work() -> None:
            for fixture in schedule:
                # Agents that answer at once wait for the log alone, which nothing cuts short.
                await anyio.lowlevel.checkpoint()
                while self._stop is None and fixture.number >= self._counted + AHEAD:
                    await self._moved.wait()
                if deadline is not None and time.monotonic() > deadline:
                    self._stop = self._stop or "minutes"
                if self._stop is not None:
                    return
                played = await self._one(f"{prefix}{fixture.number:06d}", fixture, engines)
                self._waiting[fixture.number] = (fixture, played)
                self._count()
                if self._stop not in (None, "minutes"):
                    group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                for _ in range(plan.concurrency):
                    group.start_soon(work)
        except ExceptionGroup as failed:
            raise first_of(failed) from None
        return Outcome(
            plan,
            self._seats,
            self._standings,
            self._skills,
            self._stop or "all played",
            self._signals.report(),
        )

    def _count(self) -> None:
        """Count what is next in order, until something says that it is enough."""
        while self._stop in (None, "minutes") and self._counted in self._waiting:
            fixture, played = self._waiting.pop(self._counted)
            self._counted += 1
            self._standings.add(fixture, played)
            if self._seats > 2:
                self._skills.add(fixture.players, played.returns)
            if self._on_counted is not None:
                self._on_counted(self._standings)
            self._stop = self._enough() or self._stop
        self._moved.set()
        self._moved = anyio.Event()

    def _enough(self) -> Stop | None:
        budget, test, standings = self._plan.budget, self._plan.sprt, self._standings
        if test is not None and standings.whole_pairs:
            accepted = test.decision(standings.pairs[0, 1])
            if accepted is not None:
                return accepted
        if budget.matches is not None and standings.matches >= budget.matches:
            return "matches"
        if budget.tokens is not None and standings.tokens >= budget.tokens:
            return "tokens"
        return None

    async def _one(self, match: str, fixture: Fixture, engines: Sequence[Engine | None]) -> Played:
        played = played_of(recorded_of(self._log, match), self._seats)
        if played is not None:
            return played
        plan = self._plan
        table = Table(
            log=self._log,
            game=game_of(plan, self._game, fixture.players),
            seats=tuple(
                Seat(plan.agents[player].agent, self._agents[player], engines[player])
                for player in fixture.players
            ),
            engine=None,
            terms=Terms(fallback=plan.fallback, deadline_s=plan.deadline_s),
            tally=Tally(
                self._signals,
                names=[plan.agents[player].name for player in fixture.players],
                home=self._home,
            ),
        )
        result = await self.live.finish(
            match, table, new=lambda: Match.new(table, match, seed=fixture.seed)
        )
        played = played_of(recorded_of(self._log, match), self._seats)
        if played is None:
            raise BadInput(f"match {match} paused: {result.reason}; run the tournament again")
        return played
