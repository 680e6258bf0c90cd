"""Games that are one thing only: a real game with one law broken."""

from __future__ import annotations

from typing import Any

import msgspec

from games import Game, GameFacts, Option, Outcome, Question, State, View


class Odd:
    """A state that shows what another shows; a subclass changes one thing."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def actor(self) -> int | None:
        return self.state.actor

    def options(self) -> tuple[Option, ...]:
        return self.state.options()

    def outcomes(self) -> tuple[Outcome, ...]:
        return self.state.outcomes()

    def apply(self, action: str) -> State:
        return type(self)(self.state.apply(action))

    def view(self, seat: int) -> View:
        return self.state.view(seat)

    def questions(self) -> tuple[Question, ...]:
        asked = self.state.questions()
        return tuple(
            msgspec.structs.replace(each, options=self.options()) if number == 0 else each
            for number, each in enumerate(asked)
        )

    def returns(self) -> tuple[float, ...]:
        return self.state.returns()

    def encode(self) -> bytes:
        return self.state.encode()

    def rebase(self) -> State:
        return self


class OddGame:
    """A game whose states are odd, and whose facts may be."""

    def __init__(self, game: Game, odd: type[Odd] = Odd, **facts: Any) -> None:
        self._game = game
        self._odd = odd
        self.facts: GameFacts = msgspec.structs.replace(game.facts, **facts)

    def start(self, *, seats: int, seed: int) -> State:
        return self._odd(self._game.start(seats=seats, seed=seed))
