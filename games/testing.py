"""The conformance kit: `check(game)` plays a game and raises where it breaks a law.

    from games.testing import check

    check(MyGame())

`python -m games.testing GAME` checks a game by name and prints a digest of all that it showed. Two
runs under different values of PYTHONHASHSEED have to print the same: nothing inside one process
catches code that goes through a set in the set's own order. `ostinato check GAME` makes these runs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from games.base import Game, State
from games.errors import BadGameParameters, ConformanceError, GamesError, IllegalAction
from games.knowledge import Knowledge, Knows
from games.laws import (
    Place,
    Shown,
    require_growth,
    require_lawful,
    require_rebase,
    require_same,
    require_sound,
    show,
)
from games.layouts import Mixed, laid_out
from games.leaks import (
    Step,
    conceals,
    keeps_log,
    require_blind_draws,
    require_secret_kept,
    swaps_of,
)
from games.registry import load_game
from games.worlds import draw_world, require_worlds

FOREIGN = ("", "no such action", "\ud800")
"""Labels that no game may accept."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check went through.

    Attributes:
        matches, turns: Random play; chance turns count.
        unfinished: Matches that were cut at `most_turns`.
        positions: How many there are in all play; None when there are more than the limit.
        information_sets: Different views of seats that were to act.
        most_options: The most at once.
        longest: The most turns of a match.
        followed: Turns that were taken differently to find leaks; 0 where `games.leaks` cannot.
        digest: SHA-256 of everything that random play showed.
    """

    game: str
    matches: int
    turns: int
    unfinished: int
    positions: int | None
    information_sets: int
    most_options: int
    longest: int
    followed: int
    digest: str


def check(
    game: Game,
    *,
    seeds: int = 20,
    seats: int | None = None,
    limit: int = 2_000,
    most_turns: int = 1_000,
    knows: Knows | None = None,
) -> Report:
    """Play a game at random, and through all positions where they are few; check every law.

    Args:
        game: The game.
        seeds: Number of random matches; their seeds are 0 and upwards.
        seats: Seats of every match; by default the most and the fewest, by turns.
        limit: All play of seed 0 is gone through when it has at most so many positions.
        most_turns: Where a random match is cut.
        knows: Gives what a seat may know at a state. Equal knowledge then has to give equal views,
            which finds every leak. Without it `games.leaks` says what is found.

    Raises:
        ConformanceError: A law is broken; names the law, the seed, the turn and the difference.
        BadGameParameters: Its seats are told it in different layouts.
    """
    if isinstance(game, Mixed):
        each = " and ".join(laid_out(game.facts.id, [name]) for name in game.names)
        raise BadGameParameters(f"{game.facts.id} tells seats different texts; check {each}")
    require_sound(game.facts)
    checker = _Checker(game, most_turns=most_turns, knows=knows)
    counts = (game.facts.max_seats, game.facts.min_seats) if seats is None else (seats,)
    for seed in range(seeds):
        checker.play(counts[seed % len(counts)], seed)
    checker.require_a_turn()
    positions = checker.play_all(counts[0], limit)
    return checker.report(positions)


class _Checker:
    """Plays and counts."""

    def __init__(self, game: Game, *, most_turns: int, knows: Knows | None) -> None:
        self._game = game
        self._facts = game.facts
        self._most_turns = most_turns
        self._knows = knows
        self._knowledge = Knowledge(self._facts, knows)
        self._digest = hashlib.sha256()
        self._matches = self._turns = self._unfinished = 0
        self._most_options = self._longest = 0
        self._followed = 0
        self._drawn: Step | None = None

    def play(self, seats: int, seed: int) -> None:
        """Play one match at random, then the same match again."""
        place = Place(game=self._facts.id, seed=seed)
        steps = self._walk(seats, place)
        turns = len(steps) - 1
        last = steps[-1].shown
        if self._drawn is None:
            self._drawn = next((step for step in steps if step.shown.outcomes), None)
        self._matches += 1
        self._turns += turns
        self._longest = max(self._longest, turns)
        self._unfinished += last.actor is not None
        with _no_crash(place):
            self._refuse_other_seats(place)
            self._replay(steps, seats, place)
            if self._facts.hidden:
                self._look_for_leaks(steps, place)

    def require_a_turn(self) -> None:
        """Raise ConformanceError where every match ended before anybody could act."""
        if not self._turns:
            difference = "nobody is to act, and so it is under every seed; a match has turns"
            raise Place(game=self._facts.id, seed=0).broken("actor", difference)

    def play_all(self, seats: int, limit: int) -> int | None:
        """Go through every position of seed 0; give their number, or None above the limit."""
        place = Place(game=self._facts.id, seed=0)
        with _no_crash(place):
            first = self._game.start(seats=seats, seed=0)
            layer = [(first, show(first, seats))]
        found = {first.encode()}
        while layer:
            after: list[tuple[State, Shown]] = []
            for state, shown in layer:
                self._visit(state, shown, place)
                for action in shown.labels:
                    following = self._turn(state, shown, action, place)
                    key = following[1].encode
                    if key not in found:
                        found.add(key)
                        after.append(following)
                    if len(found) > limit:
                        return None
            layer, place = after, place.next(None)
        return len(found)

    def report(self, positions: int | None) -> Report:
        """Sum up, and check what only all of it can tell."""
        facts, drawn = self._facts, self._drawn
        concealed = self._knowledge.concealed or (drawn is not None and conceals(drawn))
        if facts.hidden and facts.max_seats > 1 and not concealed:
            raise Place(game=facts.id, seed=0).broken(
                "hidden", "facts.hidden is True, and in no play was anything hidden from a seat"
            )
        return Report(
            game=self._facts.id,
            matches=self._matches,
            turns=self._turns,
            unfinished=self._unfinished,
            positions=positions,
            information_sets=self._knowledge.information_sets,
            most_options=self._most_options,
            longest=self._longest,
            followed=self._followed,
            digest=self._digest.hexdigest(),
        )

    def _walk(self, seats: int, place: Place) -> list[Step]:
        with _no_crash(place):
            state = self._game.start(seats=seats, seed=place.seed)
            shown = show(state, seats)
        steps: list[Step] = []
        while True:
            former = steps[-1].action if steps else None
            self._visit(state, shown, place, () if former is None else (former,))
            self._digest.update(msgspec.msgpack.encode(shown))
            if shown.actor is None or len(steps) == self._most_turns:
                return [*steps, Step(state, shown, None)]
            action = shown.labels[_pick(place.seed, place.turn, len(shown.labels))]
            steps.append(Step(state, shown, action))
            state, shown = self._turn(state, shown, action, place)
            place = place.next(action)

    def _visit(
        self, state: State, shown: Shown, place: Place, former: tuple[str, ...] = ()
    ) -> None:
        """Check a state by itself; `former` are actions that may have become illegal."""
        with _no_crash(place):
            require_lawful(shown, self._facts, place)
            require_same("repeatable", shown, show(state, len(shown.views)), place)
            require_rebase(state, shown, self._facts, place)
            if self._facts.hidden:
                require_worlds(state, place)
            self._knowledge.note(state, shown, place)
            self._most_options = max(self._most_options, len(shown.options))
            for action in (*FOREIGN, *former):
                if action not in shown.labels:
                    _refuse(state, action, place)
            require_same("illegal", shown, show(state, len(shown.views)), place)

    def _turn(self, state: State, shown: Shown, action: str, place: Place) -> tuple[State, Shown]:
        seats, most = len(shown.views), self._facts.max_turns
        if most is not None and place.turn == most:
            raise place.broken("turns", f"it goes on, and facts.max_turns is {most}")
        with _no_crash(place):
            after = state.apply(action)
            there = show(after, seats)
            require_same("immutable", shown, show(state, seats), place.next(action))
            require_growth(shown, there, place.next(action))
        return after, there

    def _replay(self, steps: list[Step], seats: int, place: Place) -> None:
        state = self._game.start(seats=seats, seed=place.seed)
        for step in steps:
            require_same("replay", step.shown, show(state, seats), place)
            if step.action is not None:
                state = state.apply(step.action)
                place = place.next(step.action)

    def _look_for_leaks(self, steps: list[Step], place: Place) -> None:
        several = len(steps[0].shown.views) > 1
        follow = several and self._knows is None and keeps_log(steps)
        draws = any(draw_world(step.state) is not None for step in steps)
        for swap in swaps_of(steps, lambda what, count: _pick(place.seed, what, count)):
            self._knowledge.concealed |= bool(swap.blind)
            if draws:
                require_blind_draws(steps, swap, place)
            if follow:
                require_secret_kept(steps, swap, place)
                self._followed += 1

    def _refuse_other_seats(self, place: Place) -> None:
        for seats in (self._facts.min_seats - 1, self._facts.max_seats + 1):
            try:
                self._game.start(seats=seats, seed=place.seed)
            except GamesError:
                continue
            raise place.broken("seats", f"a match of {seats} seats starts; facts exclude it")


def _refuse(state: State, action: str, place: Place) -> None:
    try:
        state.apply(action)
    except IllegalAction:
        return
    raise place.broken("illegal", f"the illegal action {action!r} is accepted")


@contextmanager
def _no_crash(place: Place) -> Iterator[None]:
    try:
        yield
    except ConformanceError:
        raise
    except Exception as error:
        raise place.broken("play", f"the game raised {error!r}") from error


def _pick(seed: int, turn: int, count: int) -> int:
    """Give a number below `count`, always the same one; uniform enough for play."""
    digest = hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def main(arguments: list[str]) -> int:
    """Check the game of the arguments and print its digest, or a document; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m games.testing", description=__doc__)
    parser.add_argument("game")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seats", type=int)
    parser.add_argument("--limit", type=int, default=2_000)
    parser.add_argument("--most-turns", type=int, default=1_000)
    parser.add_argument("--json", action="store_true", help="print a report, or an error, as JSON")
    given = vars(parser.parse_args(arguments))
    name, as_json = given.pop("game"), given.pop("json")
    try:
        report = check(load_game(name), **given)
    except GamesError as error:
        if as_json:
            document = {"error": {"code": error.code, "message": str(error)}}
            sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        else:
            sys.stderr.write(f"error: {error} [{error.code}]\n")
        return 1
    text = msgspec.json.encode(report).decode() if as_json else report.digest
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
