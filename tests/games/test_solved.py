"""Solvers against what is known of their games."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.base import CHANCE
from games.expedition.solver import Solver
from games.registry import load_game
from games.solved import Position, connect_four, expedition, kuhn_poker, tictactoe
from games.solved.judged import is_test, softly
from games.tictactoe import TicTacToeState


def test_tictactoe_has_5478_positions_and_is_a_draw():
    positions = tictactoe.reachable()
    assert len(positions) == 5478
    assert tictactoe.result("." * 9, 0) == 0
    # a corner opening is answered by the centre alone
    [right] = [
        cell
        for cell in range(1, 9)
        if tictactoe.result(f"X{'.' * (cell - 1)}O{'.' * (8 - cell)}", 0) == 0
    ]
    assert right == 4


def test_perfect_tictactoe_never_loses_to_any_play():
    def lost(state, perfect: int) -> int:
        if state.actor is None:
            return int(state.returns()[perfect] < 0)
        if state.actor == perfect:
            return lost(state.apply(tictactoe.best_action(state)), perfect)
        return sum(lost(state.apply(option.id), perfect) for option in state.options())

    start = load_game("tictactoe").start(seats=2, seed=0)
    assert [lost(start, seat) for seat in (0, 1)] == [0, 0]


def test_kuhn_equilibrium_has_the_known_value_and_cannot_be_exploited():
    equal = kuhn_poker.equilibrium
    assert kuhn_poker.expected(equal, equal) == pytest.approx(-1 / 18)
    assert kuhn_poker.best_response(equal, 1) == pytest.approx(1 / 18)
    assert kuhn_poker.exploitability(equal) == pytest.approx(0)
    # who always passes lets every bet take the pot
    assert kuhn_poker.exploitability(lambda card, bets: 0.0) == pytest.approx(1.0)
    assert len(kuhn_poker.information_sets()) == 12


def test_kuhn_actions_of_an_equilibrium_are_best_where_both_are_played():
    for card, bets in kuhn_poker.information_sets():
        passes, bet = kuhn_poker._values(card, bets, len(bets) % 2)
        share = kuhn_poker.equilibrium(card, bets)
        if 0 < share < 1:
            assert passes == pytest.approx(bet)
        else:
            assert (bet > passes) == (share == 1) or bet == pytest.approx(passes)


def _plain(own: int, mask: int, depth: int) -> int:
    """The same search without bounds, memory or order."""
    places = connect_four.playable(mask)
    if not places:
        return 0
    each = [places & column for column in connect_four._COLUMN if places & column]
    if any(connect_four.won(own | place) for place in each):
        return connect_four._WIN - mask.bit_count() - 1
    threats = connect_four.winning_places(own ^ mask, mask)
    forced = [place for place in each if place & threats]
    if len(forced) > 1:
        return -connect_four._WIN + mask.bit_count() + 2
    if depth <= 0:
        return connect_four._estimate(own, mask, threats)
    return max(-_plain(own ^ mask, mask | place, depth - 1) for place in forced or each)


def _four(columns: list[int]) -> tuple[int, int]:
    own = other = 0
    for column in columns:
        mask = own | other
        place = connect_four.playable(mask) & connect_four._COLUMN[column]
        if not place or connect_four.won(own | place):
            continue
        own, other = other, own | place
    return own, own | other


@given(st.lists(st.integers(0, 6), max_size=36))
@settings(max_examples=60, deadline=None)
def test_connect_four_search_gives_what_a_plain_one_gives(columns: list[int]):
    own, mask = _four(columns)
    found = connect_four.Searcher(3).values(own, mask)
    for column, value in found.items():
        place = connect_four.playable(mask) & connect_four._COLUMN[column]
        if connect_four.won(own | place):
            assert value == 1.0
        else:
            assert value == connect_four._scaled(-_plain(own ^ mask, mask | place, 2))


@given(st.lists(st.integers(0, 6), max_size=40))
@settings(max_examples=60, deadline=None)
def test_winning_places_are_those_that_complete_four(columns: list[int]):
    own, mask = _four(columns)
    empty = [1 << bit for bit in range(49) if connect_four._FULL >> bit & 1 and not mask >> bit & 1]
    right = sum(place for place in empty if connect_four.won(own | place))
    assert connect_four.winning_places(own, mask) == right


@pytest.fixture(scope="module")
def four():
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    return load_game(connect_four.GAME)


def test_connect_four_reads_openspiel_and_beats_random(four):
    source, searcher, won = random.Random(3), connect_four.Searcher(2), 0
    for seat in (0, 1, 0, 1):
        state = four.start(seats=2, seed=0)
        while state.actor is not None:
            own, mask = connect_four.board(state)
            assert mask.bit_count() == len(state.encode().decode().split(",")) - 1
            assert own.bit_count() == mask.bit_count() // 2
            labels = {connect_four.column_of(option.id) for option in state.options()}
            assert labels == set(searcher.values(own, mask))
            ours = state.actor == seat
            state = state.apply(
                connect_four.best_action(state, searcher)
                if ours
                else source.choice(state.options()).id
            )
        won += state.returns()[seat] > 0
    assert won == 4


def test_a_mirror_image_has_the_same_key(four):
    keys = []
    for moves in ("x0 o1 x3 o3 x5", "x6 o5 x3 o3 x1"):
        state = four.start(seats=2, seed=0)
        for move in moves.split():
            state = state.apply(move)
        keys.append(connect_four.position(state, connect_four.Searcher(1)).key)
    assert keys[0] == keys[1]


def test_expedition_targets_follow_the_values_of_the_game_itself():
    state = load_game("expedition(size=tiny,rules=short)").start(seats=1, seed=1)
    state = state.apply(state.outcomes()[0].id)
    solver = Solver()
    found = expedition.position(state, solver)
    steps = found.judged[0]
    assert steps.values is not None
    assert max(steps.values) == pytest.approx(solver.value(state))
    best = steps.question.options[max(range(6), key=steps.target.__getitem__)].id
    assert best == solver.best_action(state)


def _positions() -> list[Position]:
    found: list[Position] = []
    for cells, seat in islice(sorted(tictactoe.reachable()), 0, None, 7):
        state = TicTacToeState(cells, seat, "")
        if "." in cells and tictactoe.winner(cells) is None:
            found.append(tictactoe.position(state))
    for first in ("Jack", "Queen", "King"):
        state = load_game("kuhn_poker").start(seats=2, seed=0)
        while state.actor == CHANCE:
            state = state.apply(first if not state.cards else state.outcomes()[0].id)
        found.append(kuhn_poker.position(state))
        found.append(kuhn_poker.position(state.apply("bet")))
    return found


def test_every_target_is_a_distribution_over_the_options_of_its_question():
    for position in _positions():
        ids = [each.question.id for each in position.judged]
        assert len(set(ids)) == len(ids)
        for each in position.judged:
            assert len(each.target) == len(each.question.options)
            assert sum(each.target) == pytest.approx(1)
            assert min(each.target) >= 0
            assert each.values is None or len(each.values) == len(each.target)


def test_a_fixed_share_of_positions_is_for_tests_alone():
    share = sum(is_test(f"key {number}") for number in range(5000)) / 5000
    assert 0.1 < share < 0.14
    tested = [each for each in _positions() if each.test]
    assert tested
    assert all(each.game == "tictactoe" for each in tested)


def test_nearly_equal_values_get_nearly_the_same_share():
    near, far = softly((0.5, 0.499), 0.01), softly((0.5, 0.4), 0.01)
    assert 0.5 < near[0] < 0.55
    assert far[0] > 0.999
