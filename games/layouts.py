"""How a game is told, as data: its rules, its turns, and what its options say of themselves.

A layout changes texts and nothing else: the labels of options, the questions' ids and all that the
rules do stay the same. So two layouts of a game can be compared by experiment, even in one match:
`tictactoe(layout=plain+bare)` tells the game to the first seat in one and to the second in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from games.base import CHANCE, Game, GameFacts, Outcome, Resamples, State, View
from games.errors import BadGameParameters
from games.questions import Option, Question

PARAMETER = "layout"
"""The parameter of a game's id that names one, or one for each seat."""

SEPARATOR = "+"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One way to tell a game.

    Attributes:
        name: As the parameter `layout` takes it.
        version: Rises when any of the texts changes; a match records it.
        rules: With which the public text starts; an adapter that serves many games names what it
            fills in, as in `{title}`.
        turns: The line that a turn adds to the public text, by the kind of turn.
        options: What an option says of itself, by the fact; a fact without a text is not told.
    """

    name: str
    version: int
    rules: str
    turns: Mapping[str, str]
    options: Mapping[str, str]

    def turn(self, kind: str, **values: object) -> str:
        """Give the line of a turn."""
        return self.turns[kind].format_map(values)

    def describe(self, facts: Sequence[str], **values: object) -> str | None:
        """Give an option's description from the facts that hold; None if there is none to tell."""
        told = [self.options[fact].format_map(values) for fact in facts if fact in self.options]
        return "; ".join(told) or None


@runtime_checkable
class LaidOut(Protocol):
    """A game that has layouts."""

    @property
    def layout(self) -> Layout:
        """The one that it is told in."""
        ...

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """All that there are, by name."""
        ...


def find_layout(game: str, name: str, layouts: Mapping[str, Layout]) -> Layout:
    """Give a layout by its name; raises BadGameParameters where the game has none of it."""
    found = layouts.get(name)
    if found is None:
        raise BadGameParameters(f"{game} has no layout {name!r}; it has {', '.join(layouts)}")
    return found


def laid_out(id: str, names: Sequence[str]) -> str:
    """Give a game's id with the layout of each seat, or the one that all seats have."""
    name, bracket, rest = split_layouts(id)[0].partition("(")
    value = names[0] if len(set(names)) == 1 else SEPARATOR.join(names)
    others = f"{rest.removesuffix(')')}," if bracket else ""
    return f"{name}({others}{PARAMETER}={value})"


def split_layouts(id: str) -> tuple[str, tuple[str, ...]]:
    """Take the layouts out of a game's id, which leaves the id of the game as it is by itself.

    Args:
        id: `go(board_size=9,layout=plain+bare)` gives `go(board_size=9)`, `plain` and `bare`. A
            parameter of a parameter, `outer(game=inner(layout=bare))`, is left where it is.

    Raises:
        BadGameParameters: It names layouts twice.
    """
    name, bracket, rest = id.partition("(")
    if not bracket or not rest.endswith(")"):
        return id, ()
    parts, depth = [""], 0
    for sign in rest[:-1]:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    start = f"{PARAMETER}="
    found = [part.strip() for part in parts if part.strip().startswith(start)]
    if not found:
        return id, ()
    if len(found) > 1:
        raise BadGameParameters(f"{id}: {PARAMETER} comes twice; for two seats write a+b")
    others = ",".join(part for part in parts if part.strip() != found[0])
    names = found[0].removeprefix(start).split(SEPARATOR)
    return f"{name}({others})" if others else name, tuple(names)


class MixedState:
    """One point of a match in which seats are told the game in different layouts.

    Each layout has a state of its own, and all of them take every turn. The public text is the same
    for the seats of one layout; nothing that a layout tells is hidden in another.
    """

    __slots__ = ("_by_seat", "_states")

    def __init__(self, states: Mapping[str, State], by_seat: tuple[str, ...]) -> None:
        self._states = dict(states)
        self._by_seat = by_seat

    @property
    def actor(self) -> int | None:
        """The seat to act, `CHANCE`, or None at the end."""
        return self._any.actor

    @property
    def acting(self) -> State:
        """The state in the layout of the seat to act, or in any where no seat is."""
        actor = self._any.actor
        return self._any if actor is None or actor == CHANCE else self._states[self._by_seat[actor]]

    def options(self) -> tuple[Option, ...]:
        """Give the options as the seat to act is told of them."""
        return self.acting.options()

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give what chance may do."""
        return self._any.outcomes()

    def apply(self, action: str) -> MixedState:
        """Take a turn in every layout; raises IllegalAction."""
        return self._moved(lambda state: state.apply(action))

    def view(self, seat: int) -> View:
        """Give what a seat sees, in its layout."""
        return self._states[self._by_seat[seat]].view(seat)

    def questions(self) -> tuple[Question, ...]:
        """Ask as the layout of the seat to act does."""
        return self.acting.questions()

    def returns(self) -> tuple[float, ...]:
        """Give the payoffs."""
        return self._any.returns()

    def encode(self) -> bytes:
        """Give the truth, which no layout changes."""
        return self._any.encode()

    def rebase(self) -> MixedState:
        """Start every layout's text anew."""
        return self._moved(lambda state: state.rebase())

    def resample(self, seat: int, draw: Callable[[int], float]) -> MixedState | None:
        """Give a state that a seat cannot tell from this one, where the game can."""
        states: dict[str, State] = {}
        for name, state in self._states.items():
            sample = state.resample(seat, draw) if isinstance(state, Resamples) else None
            if sample is None:
                return None
            states[name] = sample
        return MixedState(states, self._by_seat)

    @property
    def _any(self) -> State:
        return self._states[self._by_seat[0]]

    def _moved(self, move: Callable[[State], State]) -> MixedState:
        moved = {name: move(state) for name, state in self._states.items()}
        return MixedState(moved, self._by_seat)


class Mixed:
    """A game with a layout for each seat; its layout's version is the sum of all seats'.

    Attributes:
        names: Of the layouts that any seat has.
    """

    def __init__(self, games: Mapping[str, Game], by_seat: tuple[str, ...]) -> None:
        """Take the game in each layout, and the layout of each seat.

        Raises:
            BadGameParameters: There are more or fewer layouts than seats can be.
        """
        first = games[by_seat[0]]
        facts, seats = first.facts, len(by_seat)
        if not facts.min_seats <= seats <= facts.max_seats:
            raise BadGameParameters(
                f"{facts.id} has {facts.seats}, not {seats} as"
                f" {PARAMETER}={SEPARATOR.join(by_seat)} has; name one layout, or one for each seat"
            )
        self.names = tuple(games)
        self._games = games
        self._by_seat = by_seat
        self.facts: GameFacts = msgspec.structs.replace(
            facts,
            id=laid_out(facts.id, by_seat),
            layout_version=sum(games[name].facts.layout_version for name in by_seat),
            min_seats=seats,
            max_seats=seats,
        )

    def start(self, *, seats: int, seed: int) -> MixedState:
        """Give the first state; raises BadGameParameters for another number of seats."""
        if seats != len(self._by_seat):
            raise BadGameParameters(f"{self.facts.id} has {len(self._by_seat)} seats, not {seats}")
        states = {name: game.start(seats=seats, seed=seed) for name, game in self._games.items()}
        return MixedState(states, self._by_seat)
