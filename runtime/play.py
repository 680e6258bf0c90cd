"""Plays many matches at once.

A run is a function of its game, seats, model and seed: the ids and seeds of its matches follow
from them. Played again into the same log it goes on where it stopped: finished matches are not
repeated, the others are resumed. Matches end in any order and are counted in theirs, so that what
is kept of them does not grow with how many have ended.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec

from engine.client import Engine, Stray
from engine.contract import DecisionReply
from games.base import Game
from runtime.draws import match_seed
from runtime.errors import CannotPlay, first_of
from runtime.live import LiveMatches
from runtime.match import Match, MatchResult
from runtime.results import Results, SeatResults
from runtime.signals import SignalReport, Signals
from runtime.table import Seat, Table, Terms, check_seats
from runtime.tally import Chats, Decisions, Tally
from store.log import EventLog

logger = logging.getLogger(__name__)

CONCURRENCY = 16

AHEAD = 1_024
"""How far a match may run ahead of the first that has not ended; bounds what is kept."""

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9]+")


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to; with `seed` it can be repeated.

    `results` are of all its matches; `decisions`, `chats` and `signals` count what was done now,
    not what the log had already.
    """

    seed: int
    results: Results
    decisions: Decisions
    chats: Chats = Chats()
    signals: SignalReport = SignalReport()


class Run:
    """Matches of one game between the same agents.

    It exists before the engine does, because an engine is told where stray answers go:

        run = Run(log, game, seats, matches=10, seed=1)
        async with embedded(model, ..., source=log.log_id, on_stray=run.on_stray) as engine:
            report = await run.play(engine)
    """

    def __init__(
        self,
        log: EventLog,
        game: Game,
        seats: Sequence[Seat],
        *,
        matches: int,
        seed: int | None = None,
        concurrency: int = CONCURRENCY,
        terms: Terms | None = None,
        home: Path | None = None,
        on_result: Callable[[MatchResult], None] | None = None,
    ) -> None:
        """Describe a run; nothing happens yet.

        Args:
            log: Where the matches are, or go.
            game: The rules.
            seats: One for each seat of the game.
            matches: How many there are to be, those included that the log has already.
            seed: Of the run; None draws one.
            concurrency: How many matches are under way at once; one where a person plays.
            terms: What holds for every match that starts now; a resumed one keeps its own.
            home: The data folder, where snapshots of long matches are kept; None keeps none.
            on_result: Called with each match that has ended or paused, in their order.

        Raises:
            CannotPlay: These agents cannot play this game.
        """
        check_seats(game, seats)
        self.seed = secrets.randbits(32) if seed is None else seed
        self._log = log
        self._game = game
        self._seats = tuple(seats)
        self._matches = matches
        self._concurrency = 1 if any(seat.agent.interactive for seat in seats) else concurrency
        self._terms = terms or Terms()
        self._on_result = on_result
        self._tally = Tally(home=home)
        self._live = LiveMatches(log, self._tally.signals)

    @property
    def decisions(self) -> Decisions:
        """What the decisions came to until now."""
        return self._tally.decisions()

    @property
    def signals(self) -> Signals:
        """What was seen until now of agents that do not get on."""
        return self._tally.signals

    @property
    def asks(self) -> bool:
        """Whether a seat asks a model, so that `play` needs an engine."""
        return any(seat.agent.asks for seat in self._seats)

    async def play(self, engine: Engine | None = None) -> RunReport:
        """Play all matches that the log does not have whole.

        Raises:
            CannotPlay: A seat asks a model and there is none, or the game does not fit its window.
            ReplayDiffers: An unfinished match was recorded by other code.
            RuntimeFault, GamesError, EngineError, StoreError: The first of a match; the others
                stop too, and the same run goes on from the log.
        """
        if not self.asks:
            engine = None
        elif engine is None:
            raise CannotPlay("a seat asks a model; name one with --model")
        table = Table(
            log=self._log,
            game=self._game,
            seats=self._seats,
            engine=engine,
            terms=self._terms,
            tally=self._tally,
        )
        prefix = self._prefix(engine)
        counted = _Counted(len(self._seats), self._on_result)
        indices = iter(range(self._matches))

        async def work() -> None:
            for index in indices:
                # Agents that answer at once wait for the log alone, which nothing cuts short.
                await anyio.lowlevel.checkpoint()
                await counted.near(index)
                result = await self._one(table, f"{prefix}{index:04d}", index)
                counted.add(index, result)

        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(self._concurrency, self._matches)):
                    group.start_soon(work)
        except ExceptionGroup as failed:
            raise first_of(failed) from None
        return RunReport(
            seed=self.seed,
            results=counted.results,
            decisions=self.decisions,
            chats=table.tally.chats(),
            signals=self.signals.report(),
        )

    async def on_stray(self, reply: DecisionReply, stray: Stray) -> None:
        """Record an answer that nobody waits for, if the log has its match."""
        await self._live.on_stray(reply, stray)

    async def _one(self, table: Table, match: str, index: int) -> MatchResult:
        seed = match_seed(self.seed, index)
        return await self._live.finish(match, table, new=lambda: Match.new(table, match, seed=seed))

    def _prefix(self, engine: Engine | None) -> str:
        """Give how the ids of this run's matches start; a token, whatever the game is called."""
        game = self._game.facts.id
        names = [seat.name for seat in self._seats]
        what = [game, names, self.seed, engine.model.hash if engine else None]
        digest = hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:8]
        return f"{_NOT_IN_ID.sub('_', game).strip('_')}-{digest}-"


class _Counted:
    """The results of a run, taken in the order of its matches."""

    def __init__(self, seats: int, on_result: Callable[[MatchResult], None] | None) -> None:
        self.results = Results(seats=(SeatResults(),) * seats)
        self._on_result = on_result
        self._waiting: dict[int, MatchResult] = {}
        self._moved = anyio.Event()

    async def near(self, index: int) -> None:
        """Wait until a match is not too far ahead of the first that has not ended."""
        while index >= self.results.matches + AHEAD:
            await self._moved.wait()

    def add(self, index: int, result: MatchResult) -> None:
        """Take one, and count those that are next."""
        self._waiting[index] = result
        while (known := self._waiting.pop(self.results.matches, None)) is not None:
            self.results = self.results.plus(known)
            if self._on_result is not None:
                self._on_result(known)
        self._moved.set()
        self._moved = anyio.Event()
