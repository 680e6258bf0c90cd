"""Our hold'em beside OpenSpiel's universal_poker: the same hands, stepped in both at once.

All amounts are multiples of six chips, because universal_poker shares an odd chip as halves or
thirds of one, and at our table, as at any, the first seat that won gets it.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pyspiel
import pytest

from games import CHANCE, Game, State, load_game
from games.adapters.poker_table import DECK

STACK = 240
SIZES = "min/30/48/72/120/180/all-in"
UNEQUAL = [(240, 96, 60), (60, 240, 120), (36, 240, 240), (96, 240)]


def theirs_of(stacks: tuple[int, ...]) -> Any:
    """With two seats the second has the button, in both."""
    two = len(stacks) == 2
    blinds, first = ("12 6", "2 1 1 1") if two else ("6 12" + " 0" * (len(stacks) - 2), "3 1 1 1")
    return pyspiel.load_game(
        f"universal_poker(betting=nolimit,numPlayers={len(stacks)},numRounds=4,blind={blinds},"
        f"firstPlayer={first},numSuits=4,numRanks=13,numHoleCards=2,numBoardCards=0 3 1 1,"
        f"stack={' '.join(map(str, stacks))},bettingAbstraction=fullgame)"
    )


class Hand:
    """One hand in both; the cards are drawn before, because the two deal in different orders."""

    def __init__(self, ours: Game, theirs: Any, stacks: tuple[int, ...], seed: int) -> None:
        self.source = random.Random(seed)
        self.stacks = stacks
        self.ours: State = ours.start(seats=len(stacks), seed=seed)
        self.theirs = theirs.new_initial_state()
        seats = len(stacks)
        cards = self.source.sample(range(52), 2 * seats + 5)
        self.holes, self.board = cards[: 2 * seats], cards[2 * seats :]
        rounds = [self.holes[2 * seat + card] for card in (0, 1) for seat in range(seats)]
        self.dealt_ours = iter([*rounds, *self.board])
        self.dealt_theirs = iter([*self.holes, *self.board])

    def play(self) -> int:
        """Play at random to the end; give the number of decisions."""
        decisions = 0
        while True:
            while self.ours.actor == CHANCE:
                card = DECK[next(self.dealt_ours)]
                assert card in {outcome.id for outcome in self.ours.outcomes()}
                self.ours = self.ours.apply(card)
            while self.theirs.is_chance_node():
                self.theirs.apply_action(next(self.dealt_theirs))
            if self.theirs.is_terminal():
                assert self.ours.actor is None
                assert self.ours.returns() == tuple(self.theirs.returns())
                return decisions
            self._decide()
            decisions += 1

    def _decide(self) -> None:
        assert self.ours.actor == self.theirs.current_player()
        spent = self._spent()
        assert sum(spent) == self._number("Pot")
        earlier = self._behind_and_bets(spent)
        legal: list[int] = self.theirs.legal_actions()
        numbers: dict[str, int] = {}
        for option in self.ours.options():
            kind, amount = option.id.partition(" ")[0], option.id.rpartition(" ")[2]
            numbers[option.id] = {"fold": 0, "check": 1, "call": 1}.get(
                kind, earlier + int(amount) if amount.isdecimal() else -1
            )
        found = sorted(numbers.values())
        raises = [number for number in legal if number > 1]
        assert [number for number in found if number < 2] == [n for n in legal if n < 2]
        ours = [number for number in found if number > 1]
        assert set(ours) <= set(raises)
        if len(set(self.stacks)) == 1:
            assert bool(ours) == bool(raises)
            assert not ours or (ours[0], ours[-1]) == (raises[0], raises[-1])
        action = self.source.choice(list(numbers))
        self.ours = self.ours.apply(action)
        self.theirs.apply_action(numbers[action])

    def _spent(self) -> list[int]:
        found = re.search(r"Spent: \[(.*)\]", str(self.theirs))
        assert found is not None
        return [int(number) for number in re.findall(r": (\d+)", found[1])]

    def _number(self, name: str) -> int:
        found = re.search(rf"^{name}: (\d+)$", self.ours.view(0).private, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def _behind_and_bets(self, spent: list[int]) -> int:
        """Check the chips behind; give what the seat to act put in before this round."""
        behind = self._chips("Chips behind")
        assert behind == [stack - put for stack, put in zip(self.stacks, spent, strict=True)]
        actor = self.ours.actor or 0
        bets = self._chips("Bets in this round")
        return spent[actor] - (bets[actor] if bets else 0)

    def _chips(self, name: str) -> list[int]:
        found = re.search(rf"^{name}: (.*)$", self.ours.view(0).private, re.MULTILINE)
        return [int(n) for n in re.findall(r"player \d (\d+)", found[1])] if found else []


def play(stacks: tuple[int, ...], hands: int) -> int:
    ours = load_game(f"holdem(blinds=6/12,sizes={SIZES},stack={'/'.join(map(str, stacks))})")
    theirs = theirs_of(stacks)
    return sum(Hand(ours, theirs, stacks, seed).play() for seed in range(hands))


@pytest.mark.parametrize("seats", [2, 3])
def test_500_random_hands_agree(seats: int):
    assert play((STACK,) * seats, 500) > 1000


@pytest.mark.parametrize("stacks", UNEQUAL)
def test_side_pots_agree(stacks: tuple[int, ...]):
    """An all-in of less than a whole raise opens the betting anew there, and here it does not."""
    play(stacks, 60)


@pytest.mark.long
@pytest.mark.parametrize("stacks", UNEQUAL)
def test_side_pots_agree_in_many_hands(stacks: tuple[int, ...]):
    play(stacks, 2_000)


@pytest.mark.long
@pytest.mark.parametrize("seats", [2, 3])
def test_10_000_random_hands_agree(seats: int):
    play((STACK,) * seats, 10_000)
