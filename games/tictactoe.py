"""Tic-tac-toe: perfect information, small enough for all play to be checked."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from games.base import GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.layouts import Layout, find_layout, laid_out
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
RULES = """\
TIC-TAC-TOE
Two players take turns on a board of three rows and three columns. X moves first, then O.
On a turn a player puts their mark into one empty cell.
Three equal marks in a row, a column or a diagonal win at once. A full board without them is a draw.
A win counts 1, a draw 0, a loss -1.

MOVES
"""

PLAIN = Layout(
    name="plain",
    version=1,
    rules=RULES,
    turns={"move": "{mark}: {cell}\n"},
    options={
        "wins": "wins at once",
        "stops": "stops three {other}",
        "lets": "lets {other} win at once",
    },
)
BARE = msgspec.structs.replace(PLAIN, name="bare", options={})
LAYOUTS = {layout.name: layout for layout in (PLAIN, BARE)}
"""`bare` leaves it to the reader to see what a move does."""


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
def _options(cells: str, seat: int, layout: str) -> tuple[Option, ...]:
    mark, other = MARKS[seat], MARKS[1 - seat]
    empty = [cell for cell in range(len(CELLS)) if cells[cell] == EMPTY]
    threats = {cell for cell in empty if _completes(cells, cell, other)}
    options: list[Option] = []
    for cell in empty:
        facts: list[str] = []
        if _completes(cells, cell, mark):
            facts.append("wins")
        if cell in threats:
            facts.append("stops")
        if not facts and threats:
            facts.append("lets")
        options.append(Option(CELLS[cell], LAYOUTS[layout].describe(facts, other=other)))
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
        layout: The name of the layout that it is told in.
    """

    cells: str
    actor: int | None
    moves: str
    layout: str = PLAIN.name

    def options(self) -> tuple[Option, ...]:
        """Give the empty cells, row by row."""
        return () if self.actor is None else _options(self.cells, self.actor, self.layout)

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
        line = LAYOUTS[self.layout].turn("move", mark=mark, cell=action)
        return TicTacToeState(
            cells, None if over else 1 - self.actor, self.moves + line, self.layout
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

    layouts = LAYOUTS

    def __init__(self, layout: Layout = PLAIN) -> None:
        """Take the layout that it is told in."""
        self.layout = layout
        self.facts = GameFacts(
            id="tictactoe" if layout.name == PLAIN.name else laid_out("tictactoe", [layout.name]),
            title="Tic-tac-toe",
            rules_version=1,
            layout_version=layout.version,
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
        return TicTacToeState(EMPTY * len(CELLS), 0, self.layout.rules, self.layout.name)


def load(layout: str = PLAIN.name) -> TicTacToe:
    """Make the game in one of its `LAYOUTS`; raises BadGameParameters."""
    return TicTacToe(find_layout("tictactoe", layout, LAYOUTS))
