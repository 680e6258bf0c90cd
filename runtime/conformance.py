"""A game held to every law, in processes of its own, and how fast it is.

Two processes whose sets and dictionaries are hashed by different seeds check the same matches and
have to see the same. A game that ends its process takes nothing else along.
"""

from __future__ import annotations

import sys
import time

import msgspec

from games.base import Game
from games.errors import ConformanceError, GamesError
from games.registry import load_game
from games.testing import Report
from runtime.children import HASH_SEEDS, Ended, run_under_hash_seeds
from runtime.draws import uniform
from runtime.errors import BadInput

PACE_S = 0.5  # for how long turns are counted


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A game that keeps every law.

    Attributes:
        turns_per_s: Random play, options and legality of each turn included.
        views_per_s: Views written, one for each seat and turn.
    """

    report: Report
    turns_per_s: float
    views_per_s: float


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Said(msgspec.Struct, frozen=True):
    error: _Fault


def check_in_processes(
    game: str, *, seeds: int, seats: int | None, limit: int, most_turns: int
) -> Checked:
    """Check a game twice, then count its turns.

    Args:
        game: Its id.
        seeds: Number of random matches.
        seats: Seats of every match; None for the most and the fewest.
        limit: All play is gone through when it has at most so many positions.
        most_turns: Where a random match is cut.

    Raises:
        ConformanceError: A law is broken; names the law, the seed, the turn and the difference.
        GamesError: The game cannot be loaded.
        BadInput: It has no match of so many seats.
    """
    arguments = [game, "--json", f"--seeds={seeds}", f"--limit={limit}"]
    arguments += [f"--most-turns={most_turns}", *([f"--seats={seats}"] if seats else [])]
    rules = load_game(game)
    facts = rules.facts
    if seats is not None and not facts.min_seats <= seats <= facts.max_seats:
        raise BadInput(f"{facts.id} has {facts.seats}, not {seats}; give --seats as many")
    command = [sys.executable, "-m", "games.testing", *arguments]
    first, second = [_report(game, ended) for ended in run_under_hash_seeds(command)]
    if first.digest != second.digest:
        raise ConformanceError(
            f"{game} breaks the law 'hash seed', seeds 0 to {seeds - 1}, some turn: what it shows"
            f" under PYTHONHASHSEED={HASH_SEEDS[0]} and {HASH_SEEDS[1]} differs; something goes"
            " through a set, or a hash, in its own order"
        )
    turns, views = pace(rules, seats=seats or rules.facts.min_seats)
    return Checked(report=first, turns_per_s=turns, views_per_s=views)


def pace(game: Game, *, seats: int) -> tuple[float, float]:
    """Give turns and views a second of random play."""
    turns = views = 0
    spent, viewing = 0.0, 0.0
    seed = 0
    while spent + viewing < PACE_S:
        state, seed = game.start(seats=seats, seed=seed), seed + 1
        while state.actor is not None and spent + viewing < PACE_S:
            started = time.perf_counter()
            labels = state.options() or state.outcomes()
            state = state.apply(labels[uniform(turns * 0.618 % 1, len(labels))].id)
            moved = time.perf_counter()
            for seat in range(seats):
                state.view(seat)
            spent, viewing = spent + moved - started, viewing + time.perf_counter() - moved
            turns, views = turns + 1, views + seats
    return turns / spent, views / viewing


def _report(game: str, ended: Ended) -> Report:
    if ended.code == 0:
        return msgspec.json.decode(ended.said, type=Report)
    if ended.code == 1 and ended.said:
        fault = msgspec.json.decode(ended.said, type=_Said).error
        raise _kinds().get(fault.code, GamesError)(fault.message)
    raise ConformanceError(
        f"{game} breaks the law 'play', some seed and turn: its process ended with {ended.how};"
        " run python -X faulthandler -m games.testing to see where"
    )


def _kinds() -> dict[str, type[GamesError]]:
    """Errors that a message alone makes, by their code."""
    return {kind.code: kind for kind in GamesError.__subclasses__() if "__init__" not in vars(kind)}
