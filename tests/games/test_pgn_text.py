from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.records.pgn_text import (
    RESULTS,
    WIDTH,
    PgnGame,
    read_pgn,
    split_lines,
    write_pgn,
)


def read(text: str) -> list[PgnGame]:
    return list(read_pgn(split_lines(text)))


def words(game: PgnGame) -> list[str]:
    return [move.text for move in game.moves]


def only(text: str) -> PgnGame:
    [game] = read(text)
    return game


def test_a_game_of_a_tournament():
    game = only(
        '[Event "Cup"]\n[White "A, B"]\n[Result "1-0"]\n\n'
        "1. e4 {the {best} e5 (1... c5 2. Nf3 (2. c3 {Alapin ( }) d6) ; not now )\n"
        "2. Nf3 $1 Nc6!? 3.Bb5 a6 4 . Ba4 Nf6 5. O-O b5?! 6.Bb3\n"
        "%an escaped line e4 e5\n"
        "6...Na5 7. exd5 e.p. 1-0 {White won}\n"
    )
    assert game.fault is None
    assert game.tags == {"Event": "Cup", "White": "A, B", "Result": "1-0"}
    assert words(game) == [
        "e4",
        "e5",
        "Nf3",
        "Nc6",
        "Bb5",
        "a6",
        "Ba4",
        "Nf6",
        "O-O",
        "b5",
        "Bb3",
        "Na5",
        "exd5",
    ]
    assert [move.number for move in game.moves if move.number] == [1, 2, 3, 4, 5, 6, 6, 7]
    assert (game.number, game.line, game.result) == (1, 1, "1-0")
    assert [move.line for move in game.moves][::6] == [5, 6, 8]


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ('[Opening "St. George (Baker) defense"]', {"Opening": "St. George (Baker) defense"}),
        (r'[Event "the \"Big\" one \\ two"]', {"Event": 'the "Big" one \\ two'}),
        ('[Event "the "Big" one"]', {"Event": 'the "Big" one'}),
        ('[Event "a"][Site "b"] [Round "1.2"]', {"Event": "a", "Site": "b", "Round": "1.2"}),
        ('  [ Event  "" ]', {"Event": ""}),
        ('\ufeff[Event "a"]', {"Event": "a"}),
        ('[Event "a"]\n\n\n[Site "b"]', {"Event": "a", "Site": "b"}),
    ],
)
def test_tags(line: str, tags: dict[str, str]):
    game = only(f"{line}\n1. e4 *")
    assert (game.tags, words(game), game.fault) == (tags, ["e4"], None)


@pytest.mark.parametrize(
    "text",
    [
        '[Event "a"]\n1. e4 e5 1-0\n[Event "b"]\n1. d4 d5 0-1\n',
        '[Event "a"]\n\n1. e4 e5 1-0 [Event "b"] 1. d4 d5 0-1',
        '\ufeff[Event "a"]\n\n1. e4 e5\n1-0\n\n\n\ufeff[Event "b"]\n\n1. d4\n\nd5 0-1',
        '[Event "a"]\r\n\r\n1. e4 e5 1-0\r\n\r\n[Event "b"]\r\n\r\n1. d4 d5 0-1\r\n',
        '[Event "a"]\r1. e4 e5 1-0\r[Event "b"]\r1. d4 d5 0-1',
    ],
)
def test_games_are_told_apart_whatever_stands_between_them(text: str):
    one, two = read(text)
    assert (one.tags, words(one), one.result) == ({"Event": "a"}, ["e4", "e5"], "1-0")
    assert (two.tags, words(two), two.result) == ({"Event": "b"}, ["d4", "d5"], "0-1")
    assert one.fault is two.fault is None
    assert (one.number, two.number) == (1, 2)


def test_a_missing_result_is_none_and_no_fault():
    one, two = read('[Event "a"]\n\n1. e4 e5\n\n[Event "b"]\n\n1. d4')
    assert (one.result, two.result, one.fault, two.fault) == (None, None, None, None)


def test_games_without_moves_are_games():
    games = read('[Event "a"]\n[Result "1-0"]\n\n[Event "b"]\n[Event "c"]\n\n1-0\n')
    assert [game.tags["Event"] for game in games] == ["a", "b", "c"]
    assert [game.result for game in games] == [None, None, "1-0"]


def test_moves_without_tags_are_games():
    games = read("1. e4 e5 1-0 1. d4 *\n1. c4")
    assert [words(game) for game in games] == [["e4", "e5"], ["d4"], ["c4"]]


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", "{nothing} ; at all\n% e4", " \t\r\n"])
def test_nothing_is_no_game(text: str):
    assert read(text) == []


FAULTS = {
    "comment": ("1. e4 { oops\ne5 *", "line 2", "comment opened in line 1 is not closed"),
    "nested": ("1. e4 {a {b} c} e5 *", "line 1", "'}' closes no comment; comments do not nest"),
    "variation": ("1. e4 (1. d4\n1... e5 *", "line 2", "variation opened in line 1"),
    "parenthesis": ("1. e4 )\n e5 *", "line 1", "')' closes no variation"),
    "tag": ('[Event "a]\n1. e4 *', "line 1", "'[Event \"a]' is no tag pair"),
    "twice": ('[Round "1"]\n[Round "2"]\n1. e4 *', "line 2", "the tag Round comes twice"),
    "bracket": ("1. e4 [%clk 1] e5 *", "line 1", "'[' is no part of movetext"),
}


@pytest.mark.parametrize(("text", "line", "what"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_of_its_game_alone(text: str, line: str, what: str):
    good = '[Event "b"]\n\n1. d4 {so} d5 (1... f5) 1/2-1/2'
    for between in ("\n", "\n\n"):
        bad, *rest = read(f"{text}{between}{good}")
        assert bad.fault is not None
        assert what in bad.fault.what
        assert f"line {bad.fault.line}" == line or bad.fault.line > text.count("\n")
        [kept] = [game for game in rest if game.fault is None]
        assert (words(kept), kept.result, kept.tags) == (["d4", "d5"], "1/2-1/2", {"Event": "b"})


def test_a_comment_that_is_never_closed_swallows_no_other_game():
    text = '[Event "a"]\n1. e4 {oops\n\n[Event "b"]\n1. d4 *\n\n[Event "c"]\n1. c4 {fine} *'
    a, b, c = read(text)
    assert a.fault is not None
    assert (a.fault.line, a.fault.after) == (4, 1)
    assert (words(b), words(c), b.fault, c.fault) == (["d4"], ["c4"], None, None)


# Any text, and text that looks like a game more often.
SIGNS = ("{", "}", "(", ")", ";", "[", "]", "%", '"', "\\", "\n", "\r\n", "\r", " ", "\ufeff")
PIECES = ("e4", "Nf3", "O-O", "1.", "12...", "$1", "!?", "1-0", "*", '[Event "a"]', '[FEN "')
SCRAPS = st.one_of(st.text(max_size=8), st.sampled_from((*SIGNS, *PIECES)))
TEXTS = st.lists(SCRAPS, max_size=40).map("".join)


@given(TEXTS)
def test_any_text_is_read_to_its_end(text: str):
    games = read(text)
    assert [game.number for game in games] == list(range(1, len(games) + 1))
    lines = len(split_lines(text))
    assert all(1 <= game.line <= lines for game in games)
    assert all(game.result in (None, *RESULTS) for game in games)
    for game in games:
        for move in game.moves:
            assert move.text in text
            assert not set(move.text) & set(" \n\r{}()[];$!?")


@given(TEXTS)
def test_line_ends_make_no_difference(text: str):
    lines = split_lines(text)
    assert read("\r\n".join(lines)) == read("\n".join(lines)) == read("\r".join(lines))


@given(TEXTS)
def test_whatever_comes_first_a_game_with_its_tags_is_found(text: str):
    good = '\n[Event "the last"]\n[Site "b"]\n\n1. d4 {so} d5 2. c4 *'
    *_, last = read(text + good)
    assert words(last) == ["d4", "d5", "c4"]
    assert last.tags["Site"] == "b"


MOVES = st.sampled_from(
    ["e4", "e5", "Nf3", "Nbd7", "O-O", "O-O-O", "exd8=Q+", "R1xa3#", "Qh4xe1", "0-0"]
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8"), max_size=100)
NOTES = st.one_of(
    st.text(st.characters(exclude_characters="}\r\n["), max_size=12).map("{{{}}}".format),
    st.text(st.characters(exclude_characters="\r\n"), max_size=9).map(" ;{}\n".format),
    st.sampled_from(["$14", "!", " ?! ", "(1. d4 (1. c4 {x)} 1-0) e5 *)", "\n", "\n% ) }\n", "\t"]),
)


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.lists(MOVES, max_size=60),
    st.sampled_from(RESULTS),
    st.integers(1, 200),
    st.booleans(),
)
def test_what_is_written_is_read(
    tags: dict[str, str], moves: list[str], result: str, first: int, black: bool
):
    text = write_pgn(tags, moves, result, first=first, black=black)
    game = only(text)
    assert (words(game), game.result, game.fault) == (moves, result, None)
    for name, value in tags.items():
        plain = value if value.isprintable() else " ".join(value.split())
        assert game.tags[name] == plain
    numbers = [move.number for move in game.moves]
    expected = [first + (index + black) // 2 for index in range(len(moves))]
    assert all(number in (None, due) for number, due in zip(numbers, expected, strict=True))
    assert all(len(line) <= WIDTH for line in text.split("\n\n")[-2].split("\n"))


@given(st.lists(st.tuples(MOVES, NOTES), max_size=20), st.sampled_from(RESULTS), st.data())
def test_what_stands_between_the_moves_changes_nothing(
    notes: list[tuple[str, str]], result: str, data: Any
):
    text = "".join(f"{move} {note} " for move, note in notes) + result
    game = only(text)
    assert (words(game), game.result, game.fault) == ([move for move, _ in notes], result, None)
    twice = read(f"{text}\n{text}")
    assert [words(each) for each in twice] == [words(game)] * 2


def test_one_game_is_held_at_a_time():
    lines = iter(['[Event "a"]', "1. e4 *", '[Event "b"]', "1. d4 *"])
    games = read_pgn(lines)
    assert words(next(games)) == ["e4"]
    assert next(lines) == '[Event "b"]'
