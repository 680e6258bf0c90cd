from __future__ import annotations

import random
from collections.abc import Sequence
from io import StringIO

import pytest

from games.adapters.chess_record import read_games, write_game
from games.base import State
from games.errors import BadRecord
from games.records import Record
from games.records.pgn_text import split_lines
from games.registry import load_game
from tests.support.game_records import fault_of, played

pytest.importorskip("pyspiel", reason="chess needs OpenSpiel")

OPERA = (
    "1.e4 e5 2.Nf3 d6 3.d4 Bg4 4.dxe5 Bxf3 5.Qxf3 dxe5 6.Bc4 Nf6 7.Qb3 Qe7 8.Nc3 c6 9.Bg5 b5"
    " 10.Nxb5 cxb5 11.Bxb5+ Nbd7 12.O-O-O Rd8 13.Rxd7 Rxd7 14.Rd1 Qe6 15.Bxd7+ Nxd7 16.Qb8+ Nxb8"
    " 17.Rd8#"
)
"""Morphy against two, Paris 1858."""

SET_UP = '[SetUp "1"]\n[FEN "{}"]\n\n'


def records(text: str) -> list[Record | BadRecord]:
    return list(read_games(split_lines(text)))


def one(text: str) -> tuple[list[str], str, State]:
    [record] = records(text)
    return played(record)


def fault(text: str) -> BadRecord:
    return fault_of(records(text))


def test_a_game_ends_by_the_rules():
    [record] = records(f'[White "Morphy"]\n[Black "Two"]\n[Result "1-0"]\n\n{OPERA} 1-0')
    labels, reason, state = played(record)
    assert (len(labels), labels[-1], reason) == (33, "Rd8#", "")
    assert (state.actor, state.returns()) == (None, (-1.0, 1.0))
    assert not isinstance(record, BadRecord)
    assert record.names == ("Two", "Morphy")  # Black's seat is the first
    assert record.game == "openspiel:chess"


@pytest.mark.parametrize(
    ("tag", "mark", "result"),
    [
        ('[Result "1/2-1/2"]', "1/2-1/2", "1/2-1/2"),
        ('[Result "1-0"]', "*", "1-0"),
        ('[Result "*"]', "0-1", "0-1"),
        ('[Result "0-1"]', "", "0-1"),
        ("", "1-0", "1-0"),
        ("", "", "*"),
    ],
)
def test_a_game_that_was_broken_off_keeps_its_result(tag: str, mark: str, result: str):
    _, reason, state = one(f"{tag}\n\n1. e4 e5 2. Nf3 {mark}")
    assert reason == f"recorded result {result}"
    assert state.returns() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("Ng1f3", "Nf3"),
        ("Ngf3", "Nf3"),
        ("N1f3", "Nf3"),
        ("Ng1-f3", "Nf3"),
        ("Nf3+", "Nf3"),
        ("e2e4", "e4"),
        ("e2-e4", "e4"),
        ("Pe4", "e4"),
    ],
)
def test_more_than_is_needed_may_be_written(written: str, label: str):
    assert one(f"1. {written} *")[0] == [label]


@pytest.mark.parametrize(
    ("fen", "written", "label"),
    [
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "0-0", "O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "o-o-o", "O-O-O"),
        ("8/P6k/8/8/8/8/8/K7 w - - 0 1", "a8Q", "a8=Q"),
        ("8/P6k/8/8/8/8/8/K7 w - - 0 1", "a8=n", "a8=N"),
        ("8/8/8/3pP3/8/8/k7/4K3 w - d6 0 1", "ed6", "exd6"),
        ("8/8/8/3pP3/8/8/k7/4K3 w - d6 0 1", "exd6 e.p.", "exd6"),
        ("8/8/8/3pP3/8/8/k7/4K3 w - d6 0 1", "e5:d6", "exd6"),
    ],
)
def test_older_ways_to_write_a_move(fen: str, written: str, label: str):
    assert one(SET_UP.format(fen) + f"{written} *")[0] == [label]


FAULTS = {
    "illegal": ("1. e4 e5 2. Ke3 *", "move 2. Ke3, line 1", "it is no legal move"),
    "king to castle": (
        SET_UP.format("4k3/8/8/8/8/8/8/4K2R w K - 0 1") + "Kg1 *",
        "Kg1",
        "no legal",
    ),
    "ambiguous": ("1. Nc3 a6 2. Nf3 a5 3. Nd4 a4 4. Nb5 *", "move 4. Nb5", "it may be"),
    "no capture": ("1. e4 e5 2. Nxf3 *", "move 2. Nxf3", "it is no legal move"),
    "null move": ("1. e4 -- 2. d4 *", "move 1... --", "it is no legal move"),
    "word": ("1. e4 e5 2. resigns 1-0", "move 2. resigns", "it is no legal move"),
    "number": ("1. e4 e5 3. Nf3 *", "move 2. Nf3", "it has number 3"),
    "missing half": ("1. e4 2. Nf3 *", "move 1... Nf3", "it has number 2"),
    "after mate": ("1. f3 e5 2. g4 Qh4# 3. a3 0-1", "move 3. a3", "ended before it: by mate"),
    "third time": (
        "1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 5. e4 *",
        "move 5. e4",
        "the third time of a position",
    ),
    "other result": ("1. f3 e5 2. g4 Qh4# 1-0", "result", "the moves end 0-1, the result is 1-0"),
    "two results": (
        '[Result "1-0"]\n\n1. e4 0-1',
        "result",
        "the tag has 1-0, the moves end with 0-1",
    ),
    "no result": ('[Result "won"]\n\n1. e4 *', "tag Result", "'won' is none of 1-0, 0-1"),
    "text": ("1. e4 {never", "line 1 after 1 half-moves", "the comment opened in line 1"),
    "variant": ('[Variant "Atomic"]\n\n1. e4 *', "tag Variant", "neither chess nor Chess960"),
    "960 of what": ('[Variant "Chess960"]\n\n1. e4 *', "tags", "add the tag FEN"),
    "set up how": ('[SetUp "1"]\n\n1. e4 *', "tags", "add the tag FEN"),
    "four fields": (SET_UP.format("8/8/8/8/8/8/k6K/8 w - -") + "*", "tag FEN", "is not six fields"),
    "no kings": (SET_UP.format("8/8/8/8/8/8/8/8 w - - 0 1") + "*", "tag FEN", "one king"),
    "seven ranks": (SET_UP.format("8/8/8/8/8/k6K/8 w - - 0 1") + "*", "tag FEN", "eight ranks"),
    "comma": (SET_UP.format("8/8/8/8/8/8/k6K/8 w - - 0 1,a") + "*", "tag FEN", "six fields"),
}


@pytest.mark.parametrize(("text", "place", "what"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_by_move(text: str, place: str, what: str):
    found = fault(text)
    assert found.number == 1
    assert place in found.place
    assert what in found.what


def test_sound_games_around_faults_are_played():
    text = f'{OPERA} 1-0\n\n1. e4 Ke4 *\n\n1. d4 {{open\n[Event]\n[Event "x"]\n\n1. c4 *'
    first, second, third, fourth = records(text)
    assert played(first)[0][-1] == "Rd8#"
    with pytest.raises(BadRecord, match=r"match 2, move 1\.\.\. Ke4, line 3: it is no legal move"):
        played(second)
    assert isinstance(third, BadRecord)
    assert third.number == 3
    assert played(fourth)[0] == ["c4"]


def test_black_may_move_first():
    fen = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 12"
    labels, _, _ = one(SET_UP.format(fen) + "12... e5 13. Nf3 Nc6 *")
    assert labels == ["e5", "Nf3", "Nc6"]
    assert "it has number 12" in fault(SET_UP.format(fen) + "12... e5 12. Nf3 *").what


CHESS960 = "1r3k1r/pppppppp/8/8/8/8/PPPPPPPP/1R3K1R w {} - 0 1"


@pytest.mark.parametrize("rights", ["HBhb", "KQkq"])
@pytest.mark.parametrize("variant", ["Chess960", "Fischerandom", "chess 960", None])
@pytest.mark.parametrize("castling", ["O-O", "O-O-O"])
def test_chess960_castles(rights: str, variant: str | None, castling: str):
    """Without the tag, rights that no ordinary game has can mean nothing else."""
    tag = "" if variant is None else f'[Variant "{variant}"]\n'
    text = f'{tag}[FEN "{CHESS960.format(rights)}"]\n\n1. {castling} O-O *'
    [record] = records(text)
    assert not isinstance(record, BadRecord)
    assert "chess960=true" in record.game.lower()
    labels, _, state = played(record)
    assert labels == [castling, "O-O"]
    rank = {"O-O": "1R3RK1", "O-O-O": "2KR3R"}[castling]
    assert f"/PPPPPPPP/{rank} w" in state.view(0).text


@pytest.mark.parametrize(
    "start",
    [
        "",
        "fen=rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 12",
        "chess960=true,fen=bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9",
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_written_is_read_again(start: str, seed: int):
    source = random.Random(seed)
    game = load_game(f"openspiel:chess({start})" if start else "openspiel:chess")
    state = first = game.start(seats=2, seed=0)
    labels: list[str] = []
    while state.actor is not None and len(labels) < 80:
        labels.append(source.choice(state.options()).id)
        state = state.apply(labels[-1])
    text = write_game(first, labels, ("Black", 'W "x"'), {"Event": "e", "ECO": "C44"}, "*")
    [record] = records(text)
    assert not isinstance(record, BadRecord)
    assert (record.names, record.tags["ECO"]) == (("Black", 'W "x"'), "C44")
    again, _, last = played(record)
    assert (again, last.encode()) == (labels, state.encode())
    check_with_python_chess(text, labels)


def check_with_python_chess(text: str, labels: Sequence[str]) -> None:
    """Where python-chess is installed, it has to read the same moves."""
    try:
        import chess.pgn
    except ImportError:  # its licence keeps it out of the test environment
        return
    game = chess.pgn.read_game(StringIO(text))
    assert game is not None
    assert not game.errors
    board = game.board()
    moves: list[str] = []
    for move in game.mainline_moves():
        moves.append(board.san(move))
        board.push(move)
    assert moves == list(labels)
