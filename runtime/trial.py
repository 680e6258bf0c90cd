"""Holds an agent to what every agent has to do, by matches in memory against random play.

`python -m runtime.trial AGENT GAME...` does it in its own process and prints a document;
`ostinato check-agent` runs two of them under different values of PYTHONHASHSEED. A turn that never
comes back ends the process, whatever the agent hangs in.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.errors import NoWorker
from engine.mock import MockBackend, parse_mock
from engine.models import open_model
from games.base import Game
from games.errors import GamesError
from games.registry import load_game
from games.trial import TRIALS
from games.trial import Trial as TrialGame
from runtime.agents.base import Act, Agent, Turn
from runtime.agents.random import RandomAgent
from runtime.agents.registry import make_agent
from runtime.errors import AgentBroken, BadInput, CannotPlay, RuntimeFault, first_of
from runtime.match import Match
from runtime.table import Seat, Table, Terms, check_seats
from runtime.tally import Tally
from store.events import ActionRefused, ChanceDrawn, DecisionAnswered, Event, TurnTaken
from store.log import Recorded
from store.memory import MemoryLog

GAMES: Final = ("tictactoe", "kuhn_poker", *TRIALS)
"""Perfect information, hidden information with chance, and awkward options."""

AT: Final = "at "
"""Starts the lines on standard error that say which turn is next."""

OnTurn = Callable[[str], None]
"""Called with the place of each turn before the agent takes it."""

_MATCH: Final = "trial"
_MODEL: Final = "mock:seed=1"
_BEAT_S: Final = 0.5
_REMEDIES: Final = {
    "seed": "take what looks random from turn.draw(), and keep nothing from match to match",
    "resume": "what a choice depends on has to be in the turn, not in the agent",
    "company": "matches at once share the agent; keep nothing of one in it",
}


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent did in one game.

    Attributes:
        turns: That it took.
        decisions: That it asked a model for.
        refused: Why it does not play this game; nothing else was tried then.
        digest: SHA-256 of all that it chose.
    """

    game: str
    matches: int = 0
    turns: int = 0
    decisions: int = 0
    refused: str = ""
    digest: str = ""


class _Mock:
    """The model without a model, in this process; `fails` answers nothing."""

    def __init__(self, *, fails: bool = False) -> None:
        self.model = open_model(_MODEL)
        self._backend = MockBackend(parse_mock(_MODEL))
        self._fails = fails

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        await anyio.lowlevel.checkpoint()
        if self._fails:
            raise NoWorker("no worker, as a trial has it")
        return await self._backend.decide(request)

    async def prime(self, prime: Prime) -> None:
        await self._backend.prime(prime)


class _Watched(Agent):
    """Says where it is before each turn, and has no more time than a trial gives."""

    def __init__(self, agent: Agent, deadline_s: float, on_turn: Callable[[int], None]) -> None:
        self.deadline_s = min(agent.deadline_s or deadline_s, deadline_s)
        self.asks = agent.asks
        self._agent = agent
        self._on_turn = on_turn

    async def act(self, turn: Turn) -> Act:
        self._on_turn(turn.number)
        return await self._agent.act(turn)


class Trial:
    """The laws, for one agent in one game."""

    def __init__(
        self, spec: str, game: Game, *, seeds: int, deadline_s: float, on_turn: OnTurn
    ) -> None:
        self._spec = spec
        self._game = game
        self._seeds = seeds
        self._deadline_s = deadline_s
        self._on_turn = on_turn
        self._asks = make_agent(spec).asks

    async def run(self) -> Tried:
        """Try everything.

        Raises:
            AgentBroken: A law is broken; names the law, the game, the seed, the turn.
            RuntimeFault, GamesError: What is no fault of the agent.
        """
        seats = self._game.facts.min_seats
        try:
            check_seats(self._game, [Seat(self._spec, make_agent(self._spec))] * seats)
        except CannotPlay as error:
            return Tried(game=self._game.facts.id, refused=str(error))
        digest, turns, decisions = hashlib.sha256(), 0, 0
        agent = make_agent(self._spec)
        alone: list[list[Recorded]] = []
        for seed in range(self._seeds):
            log = await self._play(seed, agent)
            recorded = log.read(_MATCH)
            self._require_sound(seed, recorded)
            again = await self._play(seed, agent)
            self._require_same("seed", seed, recorded, again.read(_MATCH))
            await self._require_resumed(seed, log)
            if self._asks:
                deaf = await self._play(seed, agent, engine=_Mock(fails=True))
                self._require_sound(seed, deaf.read(_MATCH), deaf=True)
            alone.append(recorded)
            own = [event for _, event in _turns(recorded) if event.seat == self._seat(seed)]
            turns += len(own)
            decisions += sum(event.decision is not None for event in own)
            digest.update(msgspec.json.encode(_timeless(recorded)))
        await self._require_alone(alone)
        return Tried(
            game=self._game.facts.id,
            matches=self._seeds,
            turns=turns,
            decisions=decisions,
            digest=digest.hexdigest(),
        )

    def _seat(self, seed: int) -> int:
        """The agent sits everywhere, by turns; the others play at random."""
        return seed % self._game.facts.min_seats

    def _table(self, seed: int, agent: Agent, log: MemoryLog, engine: _Mock | None) -> Table:
        def at(turn: int) -> None:
            self._on_turn(f"{self._game.facts.id}, seed {seed}, turn {turn}")

        seats = [Seat("random", RandomAgent()) for _ in range(self._game.facts.min_seats)]
        seats[self._seat(seed)] = Seat(self._spec, _Watched(agent, self._deadline_s, at))
        return Table(
            log=log,
            game=self._game,
            seats=tuple(seats),
            engine=engine or (_Mock() if self._asks else None),
            terms=Terms(fallback="random", deadline_s=self._deadline_s),
            tally=Tally(),
        )

    async def _play(self, seed: int, agent: Agent, *, engine: _Mock | None = None) -> MemoryLog:
        log = MemoryLog()
        await Match.new(self._table(seed, agent, log, engine), _MATCH, seed=seed).run()
        return log

    def _require_sound(
        self, seed: int, recorded: Sequence[Recorded], *, deaf: bool = False
    ) -> None:
        """Every label was offered, nothing was raised, no turn took longer than it may.

        Only its own seat can be refused or fall back. Of an engine that fails, being `deaf`, it may
        pass the error on.
        """
        turn = 0
        for each in recorded:
            match each.event:
                case ActionRefused(action=action):
                    what = f"it named {action!r}, which is not offered"
                    raise self._broken("label", seed, turn, what)
                case TurnTaken(how="fallback", note=note) if not (deaf and _is_engines(note)):
                    law = "time" if "no action within" in note else "act"
                    raise self._broken(law, seed, turn, note.partition(": ")[2])
                case TurnTaken() | ChanceDrawn():
                    turn += 1
                case _:
                    pass

    def _require_same(
        self, law: str, seed: int, first: Sequence[Recorded], second: Sequence[Recorded]
    ) -> None:
        for (turn, was), (_, now) in zip(_turns(first), _turns(second), strict=False):
            if (was.action, was.draw) != (now.action, now.draw):
                what = f"it chose {was.action!r} (draw {was.draw}), then {now.action!r} (draw"
                raise self._broken(law, seed, turn, f"{what} {now.draw}); {_REMEDIES[law]}")
        if _timeless(first) != _timeless(second):
            raise self._broken(law, seed, 0, f"it asked something else; {_REMEDIES[law]}")

    async def _require_resumed(self, seed: int, log: MemoryLog) -> None:
        """A new agent that takes the match up before any of its turns chooses the same."""
        recorded, stored = log.read(_MATCH), log.stored(_MATCH)
        for each in recorded:
            if isinstance(each.event, TurnTaken) and each.event.seat == self._seat(seed):
                rest = MemoryLog()
                await rest.restore(_MATCH, stored[: each.version])
                table = self._table(seed, make_agent(self._spec), rest, None)
                await Match.resume(table, rest.read(_MATCH)).run()
                self._require_same("resume", seed, recorded, rest.read(_MATCH))

    async def _require_alone(self, alone: Sequence[Sequence[Recorded]]) -> None:
        """Matches at once, of one agent, come out as they do alone."""
        agent = make_agent(self._spec)
        found: dict[int, list[Recorded]] = {}

        async def play(seed: int) -> None:
            found[seed] = (await self._play(seed, agent)).read(_MATCH)

        try:
            async with anyio.create_task_group() as group:
                for seed in range(self._seeds):
                    group.start_soon(play, seed)
        except ExceptionGroup as failed:
            raise first_of(failed) from None
        for seed, recorded in enumerate(alone):
            self._require_same("company", seed, recorded, found[seed])

    def _broken(self, law: str, seed: int, turn: int, what: str) -> AgentBroken:
        return AgentBroken(
            f"{self._spec} breaks the law {law!r}, {self._game.facts.id}, seed {seed}, turn {turn}:"
            f" {what}"
        )


def _turns(recorded: Sequence[Recorded]) -> list[tuple[int, TurnTaken]]:
    """Give the turns that seats took, each with its number in the match."""
    moves = [each.event for each in recorded if isinstance(each.event, TurnTaken | ChanceDrawn)]
    return [(turn, event) for turn, event in enumerate(moves) if isinstance(event, TurnTaken)]


def _timeless(recorded: Sequence[Recorded]) -> list[Event]:
    """Give the events without what differs from run to run: times, attempts, costs of chats."""
    events: list[Event] = []
    for each in recorded:
        event = each.event
        if isinstance(event, DecisionAnswered):
            event = replace(event, attempt=0, queue_ms=0.0, engine_ms=0.0, total_ms=0.0)
        elif isinstance(event, TurnTaken):
            event = replace(event, chat=None)
        events.append(event)
    return events


def _is_engines(note: str) -> bool:
    return note.startswith("engine/")


async def try_agent(
    spec: str,
    games: Sequence[str],
    *,
    seeds: int,
    deadline_s: float,
    on_turn: OnTurn = lambda place: None,
) -> list[Tried]:
    """Try an agent in games; those that it says it cannot play are only noted.

    Raises:
        AgentBroken: A law is broken.
        CannotPlay: It plays none of the games.
        UnknownAgent, BadInput, GamesError: There is no such agent or game.
    """
    if make_agent(spec).interactive:
        raise BadInput(f"{spec} waits for a person; there is nothing to check without one")
    tried = [
        await Trial(spec, _game(name), seeds=seeds, deadline_s=deadline_s, on_turn=on_turn).run()
        for name in games
    ]
    if all(each.refused for each in tried):
        raise CannotPlay(f"{spec} plays none of these games: {tried[0].refused}")
    return tried


def _game(name: str) -> Game:
    return TrialGame(name) if name in TRIALS else load_game(name)


def _announce(place: str) -> None:
    sys.stderr.write(f"{AT}{place}\n")
    sys.stderr.flush()


async def _beat(deadline_s: float) -> None:
    """End the process when no task has had its turn for longer than an agent may think."""
    while True:
        faulthandler.dump_traceback_later(deadline_s + _BEAT_S, exit=True)
        await anyio.sleep(_BEAT_S)


async def _try_watched(
    spec: str, games: Sequence[str], seeds: int, deadline_s: float
) -> list[Tried]:
    tried: list[Tried] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_beat, deadline_s)
            tried += await try_agent(
                spec, games, seeds=seeds, deadline_s=deadline_s, on_turn=_announce
            )
            group.cancel_scope.cancel()
    except ExceptionGroup as failed:
        raise first_of(failed) from None
    finally:
        faulthandler.cancel_dump_traceback_later()
    return tried


def main(arguments: list[str]) -> int:
    """Try the agent of the arguments and print a document; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runtime.trial", description=__doc__)
    parser.add_argument("agent")
    parser.add_argument("game", nargs="+")
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--deadline", type=float, required=True)
    given = parser.parse_args(arguments)
    try:
        tried = anyio.run(_try_watched, given.agent, given.game, given.seeds, given.deadline)
    except (RuntimeFault, GamesError) as error:
        document = {"error": {"code": error.code, "message": str(error)}}
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return 1
    sys.stdout.write(msgspec.json.encode(tried).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
