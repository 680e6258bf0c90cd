"""Tic-tac-toe: perfect information, small enough for all play to be checked."""

from __future__ import annotations

from functools import lru_cache

import msgspec

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
    empty = [cell for cell in range(len(CELLS)) if cells[cell] == EMPTY]
    threats = {cell for cell in empty if _completes(cells, cell, other)}
    options: list[Option] = []
    for cell in empty:
        facts: list[str] = []
        if _completes(cells, cell, mark):
            facts.append("wins at once")
        if cell in threats:
            facts.append(f"stops three {other}")
        if not facts and threats:
            facts.append(f"lets {other} win at once")
        options.append(Option(CELLS[cell], "; ".join(facts) or None))
    return tuple(options)


@lru_cache(maxsize=12000)
def _board(cells: str, seat: int) -> str:
    rows = "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))
    return f"\nBOARD\n{rows}\nYou play {MARKS[seat]}.\n"


class TicTacToeState(msgspec.Struct, frozen=True):
    """A position with the moves that led to it.

    Attributes:
        cells: Nine of X, O and a dot, row by row.
        moves: The public text: the rules, then a line for each move.
    """

    cells: str
    actor: int | None
    moves: str

    def options(self) -> tuple[Option, ...]:
        """Give the empty cells, row by row."""
        return () if self.actor is None else _options(self.cells, self.actor)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Chance has no part in it."""
        return ()

    def apply(self, action: str) -> TicTacToeState:
        """Put the mark of the seat to act into a cell; raises IllegalAction."""
        index = _INDEX.get(action)
        if self.actor is None or index is None or self.cells[index] != EMPTY:
            raise IllegalAction(action, tuple(option.id for option in self.options()))
        mark = MARKS[self.actor]
        cells = f"{self.cells[:index]}{mark}{self.cells[index + 1 :]}"
        over = EMPTY not in cells or winner(cells) is not None
        return TicTacToeState(
            cells, None if over else 1 - self.actor, f"{self.moves}{mark}: {action}\n"
        )

    def view(self, seat: int) -> View:
        """Rules and moves for both, then the board and whose marks are whose."""
        return View(self.moves, _board(self.cells, seat))

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
        """Give the board and who is to act."""
        return f"{self.cells} {self.actor}".encode()

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
