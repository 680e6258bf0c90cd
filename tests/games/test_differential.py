"""Our games beside OpenSpiel's own: the same matches, stepped in both at once."""

from __future__ import annotations

import random
from typing import Any

import pyspiel
import pytest

from games import CHANCE, State, load_game
from games.kuhn_poker import CARDS
from games.tictactoe import CELLS

LABELS = {
    ("tictactoe", "seat"): CELLS,
    ("kuhn_poker", "seat"): ("pass", "bet"),
    ("kuhn_poker", "chance"): CARDS,
}
OTHERS = {"tictactoe": "tic_tac_toe", "kuhn_poker": "kuhn_poker"}


def compare(game: str, ours: State, other: Any) -> dict[str, int]:
    """Check that two states agree; give OpenSpiel's number of each of our labels."""
    assert ours.returns() == tuple(other.returns())
    if other.is_terminal():
        assert ours.actor is None
        return {}
    assert ours.actor == (CHANCE if other.is_chance_node() else other.current_player())
    kind = "chance" if ours.actor == CHANCE else "seat"
    numbers = {label: number for number, label in enumerate(LABELS[game, kind])}
    legal = {each.id: numbers[each.id] for each in ours.options() or ours.outcomes()}
    assert sorted(legal.values()) == other.legal_actions()
    if kind == "chance":
        total = sum(outcome.weight for outcome in ours.outcomes())
        weights = {numbers[each.id]: each.weight / total for each in ours.outcomes()}
        assert weights == pytest.approx(dict(other.chance_outcomes()))
    return legal


def play(game: str, matches: int) -> None:
    rules, theirs = load_game(game), pyspiel.load_game(OTHERS[game])
    for seed in range(matches):
        source = random.Random(seed)
        ours, other = rules.start(seats=2, seed=seed), theirs.new_initial_state()
        while legal := compare(game, ours, other):
            label = source.choice(list(legal))
            ours = ours.apply(label)
            other.apply_action(legal[label])


@pytest.mark.parametrize("game", OTHERS)
def test_500_random_matches_agree(game: str):
    play(game, 500)


@pytest.mark.long
@pytest.mark.parametrize("game", OTHERS)
def test_10_000_random_matches_agree(game: str):
    play(game, 10_000)


def test_every_hand_of_kuhn_poker_agrees():
    def walk(ours: State, other: Any) -> int:
        legal = compare("kuhn_poker", ours, other)
        return 1 + sum(walk(ours.apply(a), other.child(n)) for a, n in legal.items())

    start = load_game("kuhn_poker").start(seats=2, seed=0)
    assert walk(start, pyspiel.load_game("kuhn_poker").new_initial_state()) == 58


def test_information_sets_of_kuhn_poker_are_the_same():
    pairs: set[tuple[tuple[int, str], tuple[int, str]]] = set()

    def walk(ours: State, other: Any) -> None:
        seat = ours.actor
        if seat not in (None, CHANCE):
            pairs.add(((seat, ours.view(seat).text), (seat, other.information_state_string(seat))))
        for label, number in compare("kuhn_poker", ours, other).items():
            walk(ours.apply(label), other.child(number))

    start = load_game("kuhn_poker").start(seats=2, seed=0)
    walk(start, pyspiel.load_game("kuhn_poker").new_initial_state())
    assert len(pairs) == len({ours for ours, _ in pairs}) == len({theirs for _, theirs in pairs})
    assert len(pairs) == 12
