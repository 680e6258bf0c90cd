from __future__ import annotations

import builtins
import pickle
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyspiel
import pytest

from games import (
    CHANCE,
    BadGameParameters,
    ConformanceError,
    Game,
    IllegalAction,
    Option,
    State,
    UnknownGame,
    UnsupportedGame,
    load_game,
)
from games.adapters import openspiel
from games.adapters.openspiel import parts
from games.testing import check


def start(game: Game) -> State:
    return game.start(seats=game.facts.min_seats, seed=0)


def labels(state: State) -> list[str]:
    return [each.id for each in state.options() or state.outcomes()]


def walk(game: Game, seed: int) -> list[State]:
    source, states = random.Random(seed), [start(game)]
    while labels(states[-1]):
        states.append(states[-1].apply(source.choice(labels(states[-1]))))
    return states


def test_a_match_of_connect_four():
    game = load_game("openspiel:connect_four")
    state = start(game)
    for action in ("x3", "o2", "x3", "o2", "x3", "o2"):
        state = state.apply(action)
    assert state.questions()[0].options == tuple(Option(f"x{column}") for column in range(7))
    assert state.view(0).public == state.view(1).public
    assert state.view(0).public.endswith("PLAY\n" + "Player 0: x3\nPlayer 1: o2\n" * 3)
    assert state.view(1).private == (
        "\nYou are player 1.\n.......\n.......\n.......\n..ox...\n..ox...\n..ox...\n"
    )
    won = state.apply("x3")
    assert (won.actor, won.returns()) == (None, (1.0, -1.0))
    assert won.options() == won.questions() == ()


def test_facts_are_those_of_openspiel():
    facts = load_game("openspiel:leduc_poker").facts
    assert (facts.id, facts.title) == ("openspiel:leduc_poker", "Leduc Poker")
    assert (facts.min_seats, facts.max_seats, facts.max_options) == (2, 2, 3)
    assert (facts.min_return, facts.max_return, facts.zero_sum) == (-13.0, 13.0, True)
    assert (facts.chance, facts.hidden, facts.max_turns) == (True, True, 11)
    assert not load_game("openspiel:connect_four").facts.hidden
    assert load_game("openspiel:kuhn_poker(players=4)").facts.max_seats == 4


@pytest.mark.parametrize(
    "game",
    ["connect_four", "go(board_size=9)", "misere(game=tic_tac_toe())", "kuhn_poker(players=3)"],
)
def test_the_id_loads_the_same_game(game: str):
    facts = load_game(f"openspiel:{game}").facts
    assert facts.id == f"openspiel:{game}"
    assert load_game(facts.id).facts == facts


def test_chance_keeps_its_weights():
    state = start(load_game("openspiel:backgammon"))
    assert state.actor == CHANCE
    assert sum(outcome.weight for outcome in state.outcomes()) == pytest.approx(1)
    after = state.apply(state.outcomes()[0].id)
    assert after.view(0).public.count("Chance: chance outcome") == 1


def test_a_seat_asked_at_a_chance_turn_is_refused_and_the_match_goes_on():
    state = start(load_game("openspiel:backgammon"))
    assert state.actor == CHANCE
    assert state.options() == state.questions() == ()
    assert state.view(0).public == state.view(1).public
    assert "Dice" in state.view(0).private
    before = state.encode()
    with pytest.raises(IllegalAction):
        state.apply("24/23 8/6")
    assert state.encode() == before
    rolled = state.apply(state.outcomes()[0].id)
    assert rolled.actor in (0, 1)
    assert rolled.apply(rolled.options()[0].id).encode() != rolled.encode()


def test_hidden_outcomes_are_not_public():
    game = load_game("openspiel:leduc_poker")
    deal = start(game)
    one, two = (deal.apply(outcome.id) for outcome in deal.outcomes()[:2])
    assert one.view(1) == two.view(1)
    assert one.view(0).public == two.view(0).public
    assert one.view(0).private != two.view(0).private


def test_hidden_actions_are_not_public():
    states = walk(load_game("openspiel:phantom_ttt"), 3)
    first = states[0].view(0).public
    assert {state.view(seat).public for state in states for seat in (0, 1)} == {first}
    assert states[1].view(1) == states[0].apply("x(2,2)").view(1)


def test_public_actions_of_a_hidden_game_are_public():
    state = start(load_game("openspiel:kuhn_poker"))
    for action in (labels(state)[0], "Deal:2", "Bet", "Pass"):
        state = state.apply(action)
    assert state.view(0).public.endswith("Deal to player 0\nDeal to player 1\nBet\nPass\n")


def test_a_large_board_is_asked_row_then_column():
    game = load_game("openspiel:go")
    assert (game.facts.max_options, game.facts.factors) == (362, ("row", "column"))
    options = {option.id: option.parts for option in start(game).options()}
    assert len(options) == len(set(options.values())) == 362
    assert options["B c14"] == ("row 14", "column c")
    assert options["B PASS"] == ("B PASS", "B PASS")
    assert len({row for row, _ in options.values()}) == 20


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("a1", ("row 1", "column a")),
        ("W t19", ("row 19", "column t")),
        ("x(3,12)", ("row 3", "column 12")),
        ("7,0", ("row 7", "column 0")),
        ("Pass", ("Pass", "Pass")),
        ("a1b2", ("a1b2", "a1b2")),
    ],
)
def test_parts_of_a_label(label: str, expected: tuple[str, str]):
    assert parts(label) == expected


@pytest.mark.parametrize(
    ("game", "most"), [("breakthrough", 768), ("backgammon", 1352), ("xiangqi", 8100)]
)
def test_other_large_games_say_how_many_options_there_may_be(game: str, most: int):
    facts = load_game(f"openspiel:{game}").facts
    assert (facts.max_options, facts.factors) == (most, ())


def test_chess_never_has_more_than_218_moves():
    assert load_game("openspiel:chess").facts.max_options == 218


def test_names_that_openspiel_repeats_are_told_apart():
    game = load_game("openspiel:repeated_leduc_poker")
    for state in walk(game, 1):
        assert len(set(labels(state))) == len(labels(state))


def test_an_earlier_state_stays_as_it_was():
    states = walk(load_game("openspiel:oware"), 5)
    shown = [(state.encode(), state.view(0), state.options()) for state in states]
    again = [start(load_game("openspiel:oware"))]
    for before, after in pairwise(states):
        action = next(a for a in labels(before) if before.apply(a).encode() == after.encode())
        again.append(again[-1].apply(action))
    assert [(state.encode(), state.view(0), state.options()) for state in again] == shown


@pytest.mark.parametrize("name", ["leduc_poker", "pig", "python_kuhn_poker", "goofspiel"])
def test_a_state_that_was_kept_goes_on_as_it_was(name: str):
    for state in walk(load_game(f"openspiel:{name}"), 3)[:-1]:
        again = pickle.loads(pickle.dumps(state))
        action = labels(state)[-1]
        for one, other in ((state, again), (state.apply(action), again.apply(action))):
            assert one.encode() == other.encode()
            assert one.view(0) == other.view(0)
            assert one.view(1) == other.view(1)
            assert labels(one) == labels(other)


def test_the_player_to_act_is_part_of_the_state():
    for state in walk(load_game("openspiel:dots_and_boxes"), 2):
        assert state.encode().endswith(f" {state.actor}".encode())


def test_matches_agree_with_openspiel():
    for name in ("connect_four", "hex(board_size=4)", "leduc_poker", "pig"):
        game, theirs = load_game(f"openspiel:{name}"), pyspiel.load_game(name)
        for seed in range(5):
            source = random.Random(seed)
            ours, other = start(game), theirs.new_initial_state()
            while not other.is_terminal():
                number = source.choice(other.legal_actions())
                label = other.action_to_string(other.current_player(), number)
                assert len(labels(ours)) == len(other.legal_actions())
                ours = ours.apply(label)
                other.apply_action(number)
            assert (ours.actor, ours.returns()) == (None, tuple(other.returns()))


@pytest.mark.parametrize(
    ("game", "kind", "message"),
    [
        ("python_liars_poker", UnsupportedGame, "tells the cards of others"),
        ("python_iterated_prisoners_dilemma", UnsupportedGame, "no text of what a player knows"),
        ("mfg_garnet", UnsupportedGame, "mean-field"),
        ("stones_and_gems", UnsupportedGame, "could not be replayed"),
        ("morpion_solitaire", UnsupportedGame, "could not be replayed"),
        ("crazy_eights(players=11)", UnsupportedGame, "11 players, and a match has at most 10"),
        ("crossword", UnsupportedGame, "have no numbers"),
        ("connectfour", UnknownGame, "did you mean connect_four"),
        ("", UnknownGame, "no game ''"),
        ("go(x=1)", BadGameParameters, "Unknown parameter 'x'. Available parameters are: board"),
        ("go(board_size=big)", BadGameParameters, "Wrong type for parameter board_size"),
        ("go(board_size=9", BadGameParameters, "Missing closing bracket"),
        ("kuhn_poker(players=11)", BadGameParameters, "max_num_players"),
        ("repeated_poker", BadGameParameters, "Missing parameter"),
        ("nfg_game", BadGameParameters, "map::at"),
        ("checkers(rows=1000)", BadGameParameters, "rows_ <= 99"),
        ("go(board_size=0)", BadGameParameters, "unsupported board size"),
        ("hanabi(colors=0)", BadGameParameters, "ends the process, or never answers"),
        ("universal_poker(numHoleCards=0)", BadGameParameters, "ends the process"),
        ("chess(fen=x)", BadGameParameters, "is not six fields"),
        ("chess(fen=9/8/8/8/8/8/8/8 w - - 0 1)", BadGameParameters, "eight ranks of eight"),
        ("chess(fen=4k3/8/8/8/8/8/8/8 w - - 0 1)", BadGameParameters, "not one king"),
        ("chess(fen=4k2R/8/8/8/8/8/8/4K3 w - - 0 1)", BadGameParameters, "kInvalidSquare"),
        ("chess(fen=4k3/8/8/8/8/8/8/4K3 w KQ - 0 1)", BadGameParameters, "rooks"),
        ("chess(fen=7k/8/6Q1/8/8/8/8/K7 b - - 0 1)", BadGameParameters, "no legal move"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(
    game: str, kind: type[Exception], message: str
):
    with pytest.raises(kind, match=message) as error:
        load_game(f"openspiel:{game}")
    assert "\n" not in str(error.value)


def test_players_who_act_at_once_choose_without_seeing_one_another():
    state = start(load_game("openspiel:goofspiel(num_cards=4)"))
    state = state.apply(labels(state)[0])
    assert "All act at the same time" in state.view(0).public
    one, two = (state.apply(label) for label in labels(state)[:2])
    assert (one.actor, two.actor) == (1, 1)
    assert one.view(1) == two.view(1)
    assert one.view(0) != two.view(0)


def test_legal_actions_are_told_where_the_text_leaves_out_what_they_depend_on():
    state = start(load_game("openspiel:gin_rummy"))
    while state.actor == CHANCE:
        state = state.apply(labels(state)[0])
    assert f"Legal now: {'; '.join(labels(state))}\n" in state.view(state.actor or 0).private
    assert "Legal now" not in state.view(1 - (state.actor or 0)).private


def test_chess_is_in_algebraic_notation_with_a_diagram():
    state = start(load_game("openspiel:chess"))
    for move in ("e4", "e5", "Bc4", "Nc6", "Qh5", "Nf6"):
        state = state.apply(move)
    assert {"Qxf7#", "Bxf7+", "Kf1", "Nf3"} <= set(labels(state))
    assert state.view(1).public.endswith(
        "PLAY\nWhite: e4\nBlack: e5\nWhite: Bc4\nBlack: Nc6\nWhite: Qh5\nBlack: Nf6\n"
    )
    assert state.view(1).private.startswith(
        "\nYou are White.\n8 r . b q k b . r\n7 p p p p . p p p\n6 . . n . . n . .\n"
    )
    assert "  a b c d e f g h\nFEN: r1bqkb1r/pppp1ppp/2n2n2/4p2Q/" in state.view(0).private
    assert state.questions()[0].instructions == "What should White do now?"
    mate = state.apply("Qxf7#")
    assert (mate.actor, mate.returns()) == (None, (-1.0, 1.0))


@pytest.mark.parametrize(
    ("game", "move"),
    [
        ("chess(fen=8/P3k3/8/8/8/8/8/R3K2R w KQ - 0 1)", "O-O-O"),
        (
            "chess(chess960=True,"
            "fen=bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9)",
            "Nf3",
        ),
    ],
)
def test_chess_starts_from_a_position(game: str, move: str):
    rules = load_game(f"openspiel:{game}")
    assert load_game(rules.facts.id).facts == rules.facts
    assert f"White: {move}\n" in start(rules).apply(move).view(0).public


@pytest.mark.parametrize(("depth", "count"), [(1, 20), (2, 400), (3, 8902)])
def test_chess_counts_its_positions_as_everybody_does(depth: int, count: int):
    def walk(state: State, depth: int) -> int:
        moves = labels(state)
        return len(moves) if depth == 1 else sum(walk(state.apply(m), depth - 1) for m in moves)

    assert walk(start(load_game("openspiel:chess")), depth) == count


def test_chess960_draws_its_position():
    game = load_game("openspiel:chess(chess960=true)")
    state = start(game)
    assert (game.facts.chance, state.actor, len(state.outcomes())) == (True, CHANCE, 960)
    assert "Chance: " in state.apply(state.outcomes()[5].id).view(0).public


def test_seats_are_those_of_the_game():
    with pytest.raises(BadGameParameters, match="4 seats, not 2"):
        load_game("openspiel:hearts").start(seats=2, seed=0)


def test_without_openspiel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    load: Callable[..., Any] = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "pyspiel":
            raise ModuleNotFoundError(name)
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UnsupportedGame, match=r"pip install 'ostinato\[openspiel\]'"):
        load_game("openspiel:connect_four")


@pytest.mark.parametrize("name", ["blackjack", "oh_hell"])
def test_no_search_looks_into_games_whose_draws_tell_what_is_hidden(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    game = load_game(f"openspiel:{name}")
    state: Any = next(each for each in walk(game, 0) if each.options())
    assert state.resample(state.actor, lambda which: 0.5) is None
    monkeypatch.setattr(openspiel, "_RESAMPLES", frozenset({name}))
    with pytest.raises(ConformanceError, match=r"'resample'.* depends on what is hidden from it"):
        check(load_game(f"openspiel:{name}"), seeds=4, limit=20, most_turns=60)
