"""Chess games in Portable Game Notation as matches of OpenSpiel's chess, and matches as PGN."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from games.adapters.openspiel import OpenSpielState
from games.base import State
from games.errors import BadGameParameters, BadRecord
from games.records import Record
from games.records.pgn_text import RESULTS, Move, PgnGame, read_pgn, write_pgn
from games.registry import load_game

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
UNKNOWN = "?"
ROSTER = ("Event", "Site", "Date", "Round", "White", "Black", "Result")
"""The tags that every exported game has, in this order (PGN standard, section 8.1.1)."""

_STANDARD = frozenset({"", "standard", "chess", "normal", "from position"})
_CHESS960 = frozenset({"chess960", "chess 960", "fischerandom", "fischer random", "freestyle"})
_RETURNS = {"1-0": (-1.0, 1.0), "0-1": (1.0, -1.0), "1/2-1/2": (0.0, 0.0)}

# Import format: more of the origin than is needed, a hyphen, a promotion without its sign.
_MOVE = re.compile(
    r"(?P<piece>[KQRBNP])?(?P<file>[a-h])?(?P<rank>[1-8])?(?P<takes>[x:-])?(?P<to>[a-h][1-8])"
    r"(?:=?(?P<promotion>[QRBNqrbn]))?"
)
_CASTLING = {"0-0": "O-O", "0-0-0": "O-O-O", "o-o": "O-O", "o-o-o": "O-O-O"}


class ChessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One game of a PGN file. Seat 0 is Black's, as OpenSpiel has it."""

    number: int
    game: str
    names: tuple[str, ...]
    tags: Mapping[str, str]
    moves: tuple[Move, ...]
    first: int
    black: bool
    """Whether the first move is Black's."""
    result: str
    format: str = "pgn"

    def label(self, state: State, turn: int) -> str | None:
        """Give OpenSpiel's name of a move."""
        if turn == len(self.moves):
            return None
        move = self.moves[turn]
        if state.actor is None:
            raise self._wrong(
                turn,
                "the game has ended before it: by mate, stalemate, too little material, the"
                " third time of a position or fifty moves",
            )
        half = turn + int(self.black)
        if move.number not in (None, self.first + half // 2):
            raise self._wrong(turn, f"it has number {move.number}")
        found = _matches(state, move.text)
        if len(found) == 1:
            return found[0]
        if found:
            raise self._wrong(turn, f"it may be {' or '.join(found)}")
        raise self._wrong(turn, "it is no legal move")

    def finish(self, state: State) -> str:
        """Hold the result against the position in which the moves end."""
        if state.actor is not None:
            return f"recorded result {self.result}"
        if self.result != "*" and _RETURNS[self.result] != state.returns():
            text = f"the moves end {result_of(state.returns())}, the result is {self.result}"
            raise BadRecord(self.number, "result", text)
        return ""

    def _wrong(self, turn: int, what: str) -> BadRecord:
        move = self.moves[turn]
        return BadRecord(
            self.number, f"move {self._called(turn)} {move.text}, line {move.line}", what
        )

    def _called(self, turn: int) -> str:
        half = turn + int(self.black)
        return f"{self.first + half // 2}{'...' if half % 2 else '.'}"


def read_games(lines: Iterable[str]) -> Iterator[Record | BadRecord]:
    """Give the games of a PGN file; for each that cannot be taken over, why not.

    Whether its moves are legal shows when they are played.
    """
    for game in read_pgn(lines):
        try:
            yield _record(game)
        except BadRecord as fault:
            yield fault


def write_game(
    start: State, labels: Iterable[str], names: Sequence[str], tags: Mapping[str, str], result: str
) -> str:
    """Give a match of chess as PGN.

    Args:
        start: The position before the first move.
        labels: The moves.
        names: Who played, by seat.
        tags: What else is known of it; what the match itself tells goes before.
        result: One of `RESULTS`.
    """
    assert isinstance(start, OpenSpielState)
    position = str(start.inner)
    told = {"White": names[1], "Black": names[0], "Result": result}
    if position != START:
        told |= {"SetUp": "1", "FEN": position}
    if start.inner.get_game().get_parameters().get("chess960"):
        told["Variant"] = "Chess960"
    kept = {name: value for name, value in tags.items() if name not in ("SetUp", "FEN", "Variant")}
    known = (
        {"Event": UNKNOWN, "Site": UNKNOWN, "Date": "????.??.??", "Round": UNKNOWN} | kept | told
    )
    ordered = {name: known[name] for name in (*ROSTER, *known)}
    first = int(position.split()[5])
    return write_pgn(ordered, labels, result, first=first, black=" b " in position)


def result_of(returns: Sequence[float]) -> str:
    """Give the result of a match that the rules ended, by its returns."""
    return next(result for result, each in _RETURNS.items() if each == tuple(returns))


def _record(game: PgnGame) -> ChessRecord:
    def wrong(place: str, what: str) -> BadRecord:
        return BadRecord(game.number, place, what)

    if game.fault is not None:
        after = f" after {game.fault.after} half-moves" if game.fault.after else ""
        raise wrong(f"line {game.fault.line}{after}", game.fault.what)
    tags = game.tags
    result = tags.get("Result", "*").strip()
    if result not in RESULTS:
        raise wrong("tag Result", f"{result!r} is none of {', '.join(RESULTS)}")
    if game.result is not None and "*" not in (game.result, result) and game.result != result:
        raise wrong("result", f"the tag has {result}, the moves end with {game.result}")
    if result == "*" and game.result is not None:
        result = game.result
    id, start = _game_of(tags, wrong)
    return ChessRecord(
        number=game.number,
        game=id,
        names=(tags.get("Black", UNKNOWN), tags.get("White", UNKNOWN)),
        tags=dict(tags) | {"Result": result},
        moves=game.moves,
        first=int(start.split()[5]),
        black=start.split()[1] == "b",
        result=result,
    )


def _game_of(tags: Mapping[str, str], wrong: Callable[[str, str], BadRecord]) -> tuple[str, str]:
    """Give the game's id and the position in which it starts."""
    variant = " ".join(tags.get("Variant", "").lower().split())
    if variant not in _STANDARD | _CHESS960:
        raise wrong("tag Variant", f"{tags['Variant']!r} is neither chess nor Chess960")
    start = " ".join(tags.get("FEN", "").split())
    if not start:
        if variant in _CHESS960 or tags.get("SetUp") == "1":
            raise wrong("tags", "the position to start from is missing; add the tag FEN")
        start = START
    if len(start.split()) != 6 or not start.split()[5].isdecimal() or set(start) & set(",()"):
        raise wrong(
            "tag FEN", f"{start!r} is not six fields: ranks, w or b, castling, square, 0, 1"
        )
    options = ["chess960=true"] if variant in _CHESS960 or _castles_as_960(start) else []
    if start != START or options:
        options.append(f"fen={start}")
    id = f"openspiel:chess({','.join(options)})" if options else "openspiel:chess"
    try:
        load_game(id)
    except BadGameParameters as error:
        raise wrong("tag FEN", str(error)) from error
    return id, start


def _castles_as_960(start: str) -> bool:
    """Whether a position has a right to castle that no game of ordinary chess can give."""
    ranks, _, rights, *_ = start.split()
    rows = {"w": _squares(ranks.split("/")[-1]), "b": _squares(ranks.split("/")[0]).swapcase()}
    for right in rights.strip("-"):
        row = rows["w" if right.isupper() else "b"]
        wing = {"K": 7, "Q": 0}.get(right.upper())
        if wing is None or row[4:5] != "K" or row[wing : wing + 1] != "R":
            return True
    return False


def _squares(rank: str) -> str:
    return "".join("." * int(c) if c.isdecimal() else c for c in rank)


def _matches(state: State, text: str) -> list[str]:
    """Give the labels of all legal moves that a written move can stand for."""
    assert isinstance(state, OpenSpielState)
    bare = text.rstrip("+#")
    bare = _CASTLING.get(bare, bare)
    labels = [option.id for option in state.options()]
    exact = [label for label in labels if label.rstrip("+#") == bare]
    found = _MOVE.fullmatch(bare)
    if exact or found is None:
        return exact
    return [
        label
        for label, route in zip(labels, _routes(state), strict=True)
        if _fits(found, label, route)
    ]


def _routes(state: OpenSpielState) -> list[str]:
    """Give the squares that each legal move goes from and to, and what a pawn becomes."""
    import pyspiel

    inner = state.inner
    board = inner.board()
    return [
        pyspiel.chess.action_to_move(action, board).to_lan() for action in inner.legal_actions()
    ]


def _fits(found: re.Match[str], label: str, route: str) -> bool:
    piece = label[0] if label[0] in "KQRBN" else "P"
    return (
        not label.startswith("O")
        and piece == (found["piece"] or "P")
        and found["file"] in (None, route[0])
        and found["rank"] in (None, route[1])
        and found["to"] == route[2:4]
        and (found["promotion"] or "").lower() == route[4:]
        and (found["takes"] in (None, "-") or "x" in label)
    )
