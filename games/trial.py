"""A game made to try agents: seats take cells in turn, with options as awkward as games may have.

It is no game that anybody plays, so no name leads to it; `ostinato check-agent` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from games.base import MAX_OPTIONS, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.questions import Option, Question, choice, noul, score

TURNS: Final = 6

_ODD: Final = (
    *("2", "1", "0", "-1", "true", "None", "pass", "Pass", "PASS", "a", "ab", "a: b", "a,b", "a=b"),
    *("'a'", '"a"', "[a]", "{a}", "\\", "\\n", "%s", "{0}", "<a>", "é", "e\u0301", "日本", "🙂"),
    *("\u202eab", "a\u00a0b", "x" * 200),
)
"""Labels that look like one another, like numbers of others, or like syntax."""


def _many() -> tuple[Option, ...]:
    return tuple(Option(f"cell {number}", f"worth {number % 7}") for number in range(MAX_OPTIONS))


def _parts() -> tuple[Option, ...]:
    return tuple(
        Option(f"{row}/{column}", parts=(f"row {row}", f"column {column}"))
        for row in range(20)
        for column in range(20)
    )


TRIALS: Final[Mapping[str, tuple[Option, ...]]] = {
    "trial:many": _many(),
    "trial:parts": _parts(),
    "trial:labels": tuple(map(Option, _ODD)),
}
"""The cells of each: as many as a question takes, factored, and with odd labels."""


class TrialState(msgspec.Struct, frozen=True):
    """Cells that are taken, in order."""

    cells: tuple[Option, ...]
    taken: tuple[str, ...] = ()

    @property
    def actor(self) -> int | None:
        """Two seats in turn."""
        return None if len(self.taken) == TURNS else len(self.taken) % 2

    def options(self) -> tuple[Option, ...]:
        """Give the cells that are left."""
        if self.actor is None:
            return ()
        return tuple(cell for cell in self.cells if cell.id not in self.taken)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Chance has no part in it."""
        return ()

    def apply(self, action: str) -> TrialState:
        """Take a cell; raises IllegalAction."""
        legal = tuple(option.id for option in self.options())
        if action not in legal:
            raise IllegalAction(action, legal)
        return TrialState(self.cells, (*self.taken, action))

    def view(self, seat: int) -> View:
        """Give the cells taken so far."""
        lines = "".join(f"{cell}\n" for cell in self.taken)
        return View(f"TRIAL\nTake a cell.\n\nTAKEN\n{lines}", f"\nYou are player {seat}.\n")

    def questions(self) -> tuple[Question, ...]:
        """Ask for a cell, and two read-outs."""
        if self.actor is None:
            return ()
        return (
            choice("cell", "Which cell do you take?", self.options()),
            noul("early", "Are fewer than half of the turns over?"),
            score("calm", "How calm is it?", ("calm", "lively", "wild")),
        )

    def returns(self) -> tuple[float, ...]:
        """Nobody wins."""
        return (0.0, 0.0)

    def encode(self) -> bytes:
        """Give the cells taken."""
        return msgspec.json.encode(self.taken)

    def rebase(self) -> TrialState:
        """Its text never outgrows a window."""
        return self


class Trial:
    """One of `TRIALS`."""

    def __init__(self, name: str) -> None:
        self._cells = TRIALS[name]
        self.facts = GameFacts(
            id=name,
            title="Trial",
            rules_version=1,
            layout_version=1,
            min_seats=2,
            max_seats=2,
            max_options=len(self._cells),
            max_turns=TURNS,
            chance=False,
            hidden=False,
            min_return=0.0,
            max_return=0.0,
            zero_sum=True,
            factors=("row", "column") if self._cells[0].parts else (),
        )

    def start(self, *, seats: int, seed: int) -> TrialState:
        """Give the state in which no cell is taken."""
        if seats != 2:
            raise BadGameParameters(f"{self.facts.id} has 2 seats, not {seats}")
        return TrialState(self._cells)
