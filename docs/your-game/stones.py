"""Stones: a heap of stones; two players take one to three in turn; who takes the last one wins."""

from __future__ import annotations

import msgspec

from games import BadGameParameters, GameFacts, IllegalAction, Option, Question, View, choice

RULES = "STONES\nTake one to three stones from the heap. Who takes the last one wins.\n\nPLAY\n"


class StonesState(msgspec.Struct, frozen=True):
    left: int
    turn: int = 0
    public: str = RULES

    @property
    def actor(self) -> int | None:
        return self.turn % 2 if self.left else None

    def options(self) -> tuple[Option, ...]:
        most = min(3, self.left)
        return tuple(Option(f"take {n}", f"leaves {self.left - n}") for n in range(1, most + 1))

    def outcomes(self) -> tuple[()]:
        return ()

    def apply(self, action: str) -> StonesState:
        legal = tuple(option.id for option in self.options())
        if action not in legal:
            raise IllegalAction(action, legal)
        left = self.left - legal.index(action) - 1
        return StonesState(left, self.turn + 1, f"{self.public}Player {self.actor}: {action}\n")

    def view(self, seat: int) -> View:
        return View(self.public, f"\nYou are player {seat}. Stones left: {self.left}\n")

    def questions(self) -> tuple[Question, ...]:
        options = self.options()
        return (choice("action", "How many stones do you take?", options),) if options else ()

    def returns(self) -> tuple[float, ...]:
        if self.left:
            return (0.0, 0.0)
        return (1.0, -1.0) if self.turn % 2 else (-1.0, 1.0)

    def encode(self) -> bytes:
        return f"{self.left} {self.turn % 2}".encode()

    def rebase(self) -> StonesState:
        return self


class Stones:
    def __init__(self, heap: int) -> None:
        self._heap = heap
        self.facts = GameFacts(
            id=f"stones(heap={heap})", title="Stones", rules_version=1, layout_version=1,
            min_seats=2, max_seats=2, max_options=3, max_turns=heap, chance=False, hidden=False,
            min_return=-1.0, max_return=1.0, zero_sum=True,
        )  # fmt: skip

    def start(self, *, seats: int, seed: int) -> StonesState:
        if seats != 2:
            raise BadGameParameters(f"stones has 2 seats, not {seats}")
        return StonesState(self._heap)


def load(heap: str = "11") -> Stones:
    return Stones(int(heap))
