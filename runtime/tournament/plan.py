"""What a tournament is: its file, and the matches that follow from it.

The schedule is a function of the file. Seed by seed, every pairing is played once for each way of
seating it in turn, so that what a seed or a seat is worth falls on all alike. More `seeds` only
add matches at the end.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from games.base import Game
from games.errors import BadGameParameters, GamesError
from games.layouts import LaidOut, laid_out
from games.registry import load_game
from runtime.agents.registry import make_agent
from runtime.draws import match_seed
from runtime.errors import BadInput, CannotPlay, UnknownAgent
from runtime.settings import Seconds
from runtime.table import Seat, check_seats
from runtime.tournament.stats import Sprt

Count = Annotated[int, msgspec.Meta(ge=1)]

MOST_ELO = 150
"""Far beyond it the estimates of normalised Elo find no solution, and a few matches tell anyway."""

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9]+")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Contestant(_Table, frozen=True, kw_only=True):
    """One who plays.

    Attributes:
        agent: As `ostinato play --seat` takes it.
        model: As `--model` takes it, for an agent that asks; None takes the command's.
        layout: In which of its layouts it is told the game; None takes the game's own.
    """

    name: str
    agent: str
    model: str | None = None
    layout: str | None = None


class Budget(_Table, frozen=True, kw_only=True):
    """When enough was played.

    Attributes:
        matches: Counted matches.
        tokens: Read and reused, of counted matches.
        minutes: Of one run of the command; after them no further match is begun.
    """

    matches: Count | None = None
    tokens: Count | None = None
    minutes: Seconds | None = None


class Plan(_Table, frozen=True, kw_only=True):
    """A tournament's file.

    Attributes:
        seats: How many play a match; None takes the fewest that the game takes.
        format: Every agent against every other, or the first against every other.
        seeds: How many times every pairing is played in all its seatings.
    """

    game: str
    agents: tuple[Contestant, ...]
    format: Literal["round_robin", "gauntlet"] = "round_robin"
    seeds: Count = 10
    seed: int = 1
    seats: Count | None = None
    concurrency: Count = 16
    deadline_s: Seconds = 30.0
    fallback: Literal["random", "pass", "previous"] = "random"
    budget: Budget = Budget()
    sprt: Sprt | None = None


class Fixture(NamedTuple):
    """One match of the schedule; `players` are indices of agents, seat by seat."""

    number: int
    players: tuple[int, ...]
    seed: int


def read_plan(path: Path) -> tuple[Plan, Game]:
    """Read a tournament's file and load its game.

    Raises:
        BadInput: It cannot be read, has a key or a value that is none, or an impossible pairing.
        GamesError: The game is not known here.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name a tournament's file") from error
    except (ValueError, RecursionError) as error:  # also for numbers and nesting beyond Python's
        raise BadInput(f"{path}: not TOML: {error}; see docs/tournaments.md") from error
    _check_keys(path, values)
    try:
        plan = msgspec.convert(values, Plan)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {str(error).replace('`$.', '`')}; mend the file") from error
    try:
        game = load_game(plan.game)
    except GamesError as error:
        raise BadInput(f"{path}: game: {error}") from error
    _check(path, plan, game)
    return plan, game


def fixtures(plan: Plan, seats: int) -> Iterator[Fixture]:
    """Give the matches in order."""
    number = 0
    for repeat in range(plan.seeds):
        seed = match_seed(plan.seed, repeat)
        for pairing in pairings(plan, seats):
            for turn in range(seats):
                yield Fixture(number, pairing[turn:] + pairing[:turn], seed)
                number += 1


def pairings(plan: Plan, seats: int) -> Iterator[tuple[int, ...]]:
    """Give who meets whom."""
    for pairing in combinations(range(len(plan.agents)), seats):
        if plan.format == "round_robin" or 0 in pairing:
            yield pairing


def seats_of(plan: Plan, game: Game) -> int:
    """Give how many play a match."""
    return plan.seats or game.facts.min_seats


def prefix_of(plan: Plan, game: Game, hashes: tuple[str | None, ...]) -> str:
    """Give how the ids of a tournament's matches start: the same for whatever leaves them the same.

    Args:
        plan: The file.
        game: Its game.
        hashes: Of each agent's model, None for one that asks none.
    """
    agents = [
        (each.name, each.agent, *([each.layout] if each.layout else [])) for each in plan.agents
    ]
    what = [game.facts.id, agents, hashes, plan.format, plan.seed, seats_of(plan, game)]
    digest = hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:8]
    return f"{_NOT_IN_ID.sub('_', game.facts.id).strip('_')}-{digest}-"


def game_of(plan: Plan, game: Game, players: tuple[int, ...]) -> Game:
    """Give the game as it is told to the players of a match, seat by seat."""
    if all(plan.agents[player].layout is None for player in players):
        return game
    assert isinstance(game, LaidOut)  # `read_plan` has loaded it with a layout
    names = [plan.agents[player].layout or game.layout.name for player in players]
    return load_game(laid_out(plan.game, names))


def _check_keys(path: Path, values: dict[str, Any]) -> None:
    """Name an unknown key and the one that may have been meant."""
    places: list[tuple[str, Any, type[msgspec.Struct]]] = [("", values, Plan)]
    places += [
        (f"{name}.", values[name], kind)
        for name, kind in (("budget", Budget), ("sprt", Sprt))
        if isinstance(values.get(name), dict)
    ]
    agents = values.get("agents")
    if isinstance(agents, list):
        places += [
            (f"agents[{number}].", agent, Contestant)
            for number, agent in enumerate(agents)
            if isinstance(agent, dict)
        ]
    for place, table, kind in places:
        known = kind.__struct_fields__
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise BadInput(f"{path}: {place}{name} is no key of a tournament; {hint}")


def _check(path: Path, plan: Plan, game: Game) -> None:
    facts, seats, agents = game.facts, seats_of(plan, game), plan.agents
    names = [agent.name for agent in agents]
    if not agents:
        raise BadInput(f"{path}: no agents; add an [[agents]] table for each")
    if len(set(names)) < len(names) or not all(name.isprintable() and name for name in names):
        raise BadInput(f"{path}: agents need printable names that differ, not {names}")
    if not facts.min_seats <= seats <= facts.max_seats:
        raise BadInput(f"{path}: {facts.id} has {facts.seats}, not {seats}; mend `seats`")
    if len(agents) < seats:
        raise BadInput(
            f"{path}: {len(agents)} of {seats} seats of {facts.id} have an agent;"
            " add agents, or name the same one twice under two names"
        )
    for number, agent in enumerate(agents):
        try:
            check_seats(game, [Seat(agent.agent, make_agent(agent.agent))] * seats)
        except (UnknownAgent, CannotPlay) as error:
            raise BadInput(f"{path}: agents[{number}].agent: {error}") from error
        if agent.layout is not None:
            try:
                load_game(laid_out(plan.game, [agent.layout]))
            except BadGameParameters as error:
                raise BadInput(f"{path}: agents[{number}].layout: {error}") from error
    test = plan.sprt
    if test is None:
        return
    if len(agents) != 2 or seats != 2:
        raise BadInput(f"{path}: sprt compares two agents in a game of two seats; drop [sprt]")
    if not -MOST_ELO <= test.elo0 < test.elo1 <= MOST_ELO:
        raise BadInput(
            f"{path}: sprt.elo0 has to be below sprt.elo1, both from -{MOST_ELO} to {MOST_ELO}"
        )
    if not (0 < test.alpha < 1 and 0 < test.beta < 1 and test.alpha + test.beta < 1):
        raise BadInput(f"{path}: sprt.alpha and sprt.beta are above 0 and sum to less than 1")
