"""Tic-tac-toe: perfect information, small enough for all play to be checked."""

from __future__ import annotations

from functools import lru_cache

from games.base import GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.questions import Option, Question, choice

CELLS = (
    "top-left",
    "top",
    "top-right",
    "left",
    "centre",
    "right",
    "bottom-left",
    "bottom",
    "bottom-right",
)
LINES = (
    (0, 1, 2),
    (3, 4, 5),
    (6, 7, 8),
    (0, 3, 6),
    (1, 4, 7),
    (2, 5, 8),
    (0, 4, 8),
    (2, 4, 6),
)
MARKS = "XO"
EMPTY = "."

_INDEX = {label: index for index, label in enumerate(CELLS)}
_RULES = """\
TIC-TAC-TOE
Two players take turns on a board of three rows and three columns. X moves first, then O.
On a turn a player puts their mark into one empty cell.
Three equal marks in a row, a column or a diagonal win at once. A full board without them is a draw.
A win counts 1, a draw 0, a loss -1.

MOVES
"""


@lru_cache(maxsize=6000)
def winner(cells: str) -> int | None:
    """Give the seat that has three in a line, or None; `cells` has nine of X, O and a dot."""
    for a, b, c in LINES:
        if cells[a] != EMPTY and cells[a] == cells[b] == cells[c]:
            return MARKS.index(cells[a])
    return None


def _completes(cells: str, cell: int, mark: str) -> bool:
    return any(
        cell in line and all(cells[other] == mark for other in line if other != cell)
        for line in LINES
    )


@lru_cache(maxsize=6000)
def _options(cells: str, seat: int) -> tuple[Option, ...]:
    mark, other = MARKS[seat], MARKS[1 - seat]
    options: list[Option] = []
    for index, label in enumerate(CELLS):
        if cells[index] != EMPTY:
            continue
        facts: list[str] = []
        if _completes(cells, index, mark):
            facts.append("wins at once")
        if _completes(cells, index, other):
            facts.append(f"stops three {other}")
        options.append(Option(label, "; ".join(facts) or None))
    return tuple(options)


class TicTacToeState:
    """A position with the moves that led to it."""

    __slots__ = ("_public", "actor", "cells")

    def __init__(self, cells: str, turn: int, public: str) -> None:
        self.cells = cells
        self._public = public
        over = winner(cells) is not None or turn == len(CELLS)
        self.actor: int | None = None if over else turn % 2

    def options(self) -> tuple[Option, ...]:
        """Give the empty cells, row by row."""
        return () if self.actor is None else _options(self.cells, self.actor)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Chance has no part in it."""
        return ()

    def apply(self, action: str) -> TicTacToeState:
        """Put the mark of the seat to act into a cell."""
        index = _INDEX.get(action)
        if self.actor is None or index is None or self.cells[index] != EMPTY:
            raise IllegalAction(action, tuple(option.id for option in self.options()))
        cells = f"{self.cells[:index]}{MARKS[self.actor]}{self.cells[index + 1 :]}"
        turn = len(CELLS) - cells.count(EMPTY)
        return TicTacToeState(cells, turn, f"{self._public}{MARKS[self.actor]}: {action}\n")

    def view(self, seat: int) -> View:
        """Rules and moves for both, then the board and whose marks are whose."""
        rows = "\n".join(" ".join(self.cells[row : row + 3]) for row in (0, 3, 6))
        return View(self._public, f"\nBOARD\n{rows}\nYou play {MARKS[seat]}.\n")

    def questions(self) -> tuple[Question, ...]:
        """Ask for a cell."""
        if self.actor is None:
            return ()
        text = f"Where should {MARKS[self.actor]} play now?"
        return (choice("move", text, self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Give 1 and -1 to winner and loser, else 0."""
        won = winner(self.cells)
        return (0.0, 0.0) if won is None else ((1.0, -1.0) if won == 0 else (-1.0, 1.0))

    def encode(self) -> bytes:
        """Give the board; it says who is to act."""
        return self.cells.encode()

    def rebase(self) -> TicTacToeState:
        """Its text never outgrows a window."""
        return self


class TicTacToe:
    """The rules."""

    facts = GameFacts(
        id="tictactoe",
        title="Tic-tac-toe",
        rules_version=1,
        layout_version=1,
        min_seats=2,
        max_seats=2,
        max_options=9,
        max_turns=9,
        chance=False,
        hidden=False,
        min_return=-1.0,
        max_return=1.0,
        zero_sum=True,
    )

    def start(self, *, seats: int, seed: int) -> TicTacToeState:
        """Give the empty board; nothing depends on the seed."""
        if seats != 2:
            raise BadGameParameters(f"tictactoe has 2 seats, not {seats}")
        return TicTacToeState(EMPTY * len(CELLS), 0, _RULES)


def load(**parameters: str) -> TicTacToe:
    """Make the game; it takes no parameters."""
    if parameters:
        raise BadGameParameters(f"tictactoe takes no parameters, not {', '.join(parameters)}")
    return TicTacToe()
