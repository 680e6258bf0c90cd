"""Tic-tac-toe, solved over its full tree."""

from __future__ import annotations

from functools import lru_cache

from games.questions import Option
from games.solved.judged import (
    Judged,
    Position,
    evenly,
    is_test,
    judged_choice,
    judged_noul,
    judged_score,
)
from games.tictactoe import CELLS, EMPTY, MARKS, TicTacToeState, winner

GAME = "tictactoe"
_OPENING = 2
"""Positions of so few marks are never tested: there are too few of them to do without."""

_RESULTS = ("The player to move loses.", "It is a draw.", "The player to move wins.")
_FIRST = tuple(Option(mark, f"the player of {mark}") for mark in MARKS)


@lru_cache(maxsize=6000)
def value(cells: str, seat: int) -> float:
    """Give the result of best play for the seat to move: near 1, 0 or near -1.

    A win counts a little less for each move that it takes, and a loss a little less badly.
    """
    won = winner(cells)
    if won is not None:
        return 1.0 if won == seat else -1.0
    if EMPTY not in cells:
        return 0.0
    return max(_values(cells, seat))


@lru_cache(maxsize=6000)
def _values(cells: str, seat: int) -> tuple[float, ...]:
    return tuple(-0.99 * value(after, 1 - seat) for after in _after(cells, seat))


def _after(cells: str, seat: int) -> list[str]:
    return [
        f"{cells[:cell]}{MARKS[seat]}{cells[cell + 1 :]}"
        for cell in range(len(CELLS))
        if cells[cell] == EMPTY
    ]


def result(cells: str, seat: int) -> int:
    """Give 1, 0 or -1 for the seat to move under best play."""
    exact = value(cells, seat)
    return (exact > 0) - (exact < 0)


def reachable() -> set[tuple[str, int]]:
    """Give all positions that play can reach, with the seat whose turn it would be."""
    layer, found = {EMPTY * len(CELLS)}, {(EMPTY * len(CELLS), 0)}
    for ply in range(len(CELLS)):
        seat = ply % 2
        layer = {after for cells in layer if winner(cells) is None for after in _after(cells, seat)}
        found |= {(cells, 1 - seat) for cells in layer}
    return found


def best_action(state: TicTacToeState) -> str:
    """Give the first of the best moves."""
    assert state.actor is not None
    values = _values(state.cells, state.actor)
    return state.options()[values.index(max(values))].id


def key(state: TicTacToeState) -> str:
    """Name the position."""
    return f"{GAME} {state.cells} {state.actor}"


def position(state: TicTacToeState) -> Position:
    """Judge a state in which a seat is to move."""
    assert state.actor is not None
    marks = len(CELLS) - state.cells.count(EMPTY)
    return Position(
        game=GAME,
        key=key(state),
        test=marks > _OPENING and is_test(key(state)),
        view=state.view(state.actor),
        judged=_judged(state, state.actor, marks),
    )


def _judged(state: TicTacToeState, seat: int, marks: int) -> tuple[Judged, ...]:
    [question] = state.questions()
    cells, mark, other = state.cells, MARKS[seat], MARKS[1 - seat]
    exact = _values(cells, seat)
    rounded = tuple(float((each > 0) - (each < 0)) for each in exact)
    ends = result(cells, seat)
    wins = any(winner(after) == seat for after in _after(cells, seat))
    threat = any(winner(after) == 1 - seat for after in _after(cells, 1 - seat))
    corner = [label for label in ("top-left", "bottom-right") if cells[CELLS.index(label)] == EMPTY]
    return (
        Judged(question=question, target=evenly(exact), values=rounded),
        judged_noul("wins_now", f"Can {mark} make three in a line with this move?", wins),
        judged_noul("threat", f"Would {other} win at once if it were {other}'s turn now?", threat),
        judged_noul("drawn", "Does the match end in a draw if both play their best?", ends == 0),
        judged_noul(
            "corners", "Are the top-left and the bottom-right cell both empty?", len(corner) == 2
        ),
        judged_score(
            "result", "How does the match end if both play their best?", _RESULTS, 1 + ends
        ),
        judged_score(
            "marks",
            "How many marks are on the board?",
            tuple(f"{number} marks" for number in range(len(CELLS))),
            marks,
        ),
        judged_choice("turn", "Whose turn is it?", _FIRST, (mark,)),
    )
