"""Chess as people read it: the side by its colour, the board as a diagram, any start position.

Moves are in standard algebraic notation already; OpenSpiel's player 0 is Black, who moves second.
Forsyth-Edwards Notation is that of the PGN standard of 1994, section 16.1, with the letters of
rooks' files for the castling of Chess960.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyspiel

SIDES = ("Black", "White")

_START = re.compile(r"chess\((?P<before>(?:[^()]*,)?) *fen=(?P<fen>[^,()]*)(?P<after>[^()]*)\)")
_FIELDS = re.compile(r"\S+ [wb] (?:-|[A-Ha-hKQkq]{1,4}) (?:-|[a-h][36]) \d{1,4} \d{1,4}")


def split_start(text: str) -> tuple[str, str | None]:
    """Take the position out of `chess(fen=...)`; OpenSpiel itself has no such parameter."""
    found = _START.fullmatch(text)
    if found is None:
        return text, None
    others = f"{found['before']}{found['after']}".replace(",,", ",").strip(",")
    return f"chess({others})" if others else "chess", found["fen"].strip()


def require_position(game: pyspiel.Game, fen: str) -> None:
    """Raise ValueError for a position that OpenSpiel cannot play from.

    It is looked at first: OpenSpiel ends the process over some texts that are none.
    """
    if not _FIELDS.fullmatch(fen):
        raise ValueError(f"fen={fen!r} is not six fields: ranks, w or b, castling, square, 0, 1")
    ranks = fen.split()[0].split("/")
    squares = [sum(int(c) if c.isdecimal() else 1 for c in rank) for rank in ranks]
    if squares != [8] * 8 or not set("".join(ranks)) <= set("pnbrqkPNBRQK12345678"):
        raise ValueError(f"fen={fen!r} has not eight ranks of eight squares")
    if any(fen.split()[0].count(king) != 1 for king in "kK"):
        raise ValueError(f"fen={fen!r} has not one king on each side")
    state = game.new_initial_state(fen)
    for action in state.legal_actions():  # naming them all shows a king that could be taken
        state.action_to_string(action)
    if not state.legal_actions():
        raise ValueError(f"fen={fen!r} leaves no legal move")


def picture(fen: str) -> str:
    """Draw a position: a diagram with ranks and files, then the position in full."""
    rows: list[str] = []
    for number, rank in zip(range(8, 0, -1), fen.split()[0].split("/"), strict=True):
        squares = "".join("." * int(c) if c.isdecimal() else c for c in rank)
        rows.append(f"{number} {' '.join(squares)}")
    return "\n".join((*rows, "  a b c d e f g h", f"FEN: {fen}"))
