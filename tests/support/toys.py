"""Small games with one peculiarity each."""

from __future__ import annotations

from typing import Literal

import msgspec

from games.base import GameFacts, Outcome, View
from games.errors import IllegalAction
from games.questions import Option, Question, choice, noul


def _facts(id: str, **changes: object) -> GameFacts:
    facts = GameFacts(
        id=id,
        title=id,
        rules_version=1,
        layout_version=1,
        min_seats=1,
        max_seats=1,
        max_options=2,
        max_turns=100,
        chance=False,
        hidden=False,
        min_return=0.0,
        max_return=100.0,
        zero_sum=False,
    )
    return msgspec.structs.replace(facts, **changes)


class DiaryState(msgspec.Struct, frozen=True):
    """Every turn adds `width` characters to the public text."""

    days: int
    width: int
    done: tuple[str, ...] = ()
    first: int = 0
    epoch: int = 0
    sealed: bool = False

    @property
    def actor(self) -> int | None:
        return None if len(self.done) == self.days else 0

    def options(self) -> tuple[Option, ...]:
        return () if self.actor is None else (Option("rest"), Option("walk"))

    def outcomes(self) -> tuple[Outcome, ...]:
        return ()

    def apply(self, action: str) -> DiaryState:
        if action not in {option.id for option in self.options()}:
            raise IllegalAction(action, ("rest", "walk"))
        return msgspec.structs.replace(self, done=(*self.done, action))

    def view(self, seat: int) -> View:
        lines = {action: f"{action}\n".rjust(self.width, ".") for action in ("rest", "walk")}
        pages = "".join(map(lines.__getitem__, self.done[self.first :]))
        text = f"DIARY\nDays before: {self.first}\n{pages}"
        return View(text, "Today?\n", self.epoch)

    def questions(self) -> tuple[Question, ...]:
        if self.actor is None:
            return ()
        return (choice("today", "What now?", self.options()), noul("tired", "Is it late?"))

    def returns(self) -> tuple[float, ...]:
        return (float(self.done.count("walk")),)

    def encode(self) -> bytes:
        return ",".join(self.done).encode()

    def rebase(self) -> DiaryState:
        if self.sealed:
            return msgspec.structs.replace(self, epoch=self.epoch + 1)
        return msgspec.structs.replace(self, first=len(self.done), epoch=self.epoch + 1)


class Diary:
    """One seat; what its text does when it is full is up to `overflow`."""

    def __init__(
        self,
        *,
        days: int = 6,
        width: int = 100,
        overflow: Literal["stop", "rebase"] = "stop",
        sealed: bool = False,
    ) -> None:
        self.facts = _facts("diary", overflow=overflow)
        self._state = DiaryState(days, width, sealed=sealed)

    def start(self, *, seats: int, seed: int) -> DiaryState:
        return self._state


class GridState(msgspec.Struct, frozen=True):
    """Cells of a square that are taken, in order."""

    size: int
    turns: int
    taken: tuple[tuple[int, int], ...] = ()

    @property
    def actor(self) -> int | None:
        return None if len(self.taken) == self.turns else len(self.taken) % 2

    def options(self) -> tuple[Option, ...]:
        if self.actor is None:
            return ()
        return tuple(
            Option(f"{row}/{column}", parts=(f"row {row}", f"column {column}"))
            for row in range(self.size)
            for column in range(self.size)
            if (row, column) not in self.taken
        )

    def outcomes(self) -> tuple[Outcome, ...]:
        return ()

    def apply(self, action: str) -> GridState:
        labels = tuple(option.id for option in self.options())
        if action not in labels:
            raise IllegalAction(action, labels)
        row, column = map(int, action.split("/"))
        return msgspec.structs.replace(self, taken=(*self.taken, (row, column)))

    def view(self, seat: int) -> View:
        lines = "".join(f"taken: {row}/{column}\n" for row, column in self.taken)
        return View(f"GRID\n{lines}", f"You are {seat}.\n")

    def questions(self) -> tuple[Question, ...]:
        if self.actor is None:
            return ()
        return (choice("cell", "Which cell?", self.options()), noul("ahead", "Are you ahead?"))

    def returns(self) -> tuple[float, ...]:
        return (0.0, 0.0)

    def encode(self) -> bytes:
        return repr(self.taken).encode()

    def rebase(self) -> GridState:
        return self


class Grid:
    """Two seats take cells of a square in turn; an action has a row and a column."""

    def __init__(self, *, size: int = 20, turns: int = 6, factored: bool = True) -> None:
        self.facts = _facts(
            "grid",
            min_seats=2,
            max_seats=2,
            max_options=size * size,
            factors=("row", "column") if factored else (),
        )
        self._state = GridState(size, turns)

    def start(self, *, seats: int, seed: int) -> GridState:
        return self._state
