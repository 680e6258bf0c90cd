"""Kuhn poker: three cards, one bet, hidden information and chance in their smallest form.

H. W. Kuhn, "A simplified two-person poker", Contributions to the Theory of Games I, 1950.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from games.base import CHANCE, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.questions import Option, Question, choice

CARDS = ("Jack", "Queen", "King")
PASS, BET = "pass", "bet"
SEATS = 2
SHOWDOWNS = ("pp", "pbb", "bb")
"""Betting, one letter an action, after which the cards are shown."""

ENDINGS = (*SHOWDOWNS, "pbp", "bp")
"""Betting after which the hand is over."""

_OPENINGS = (Option(PASS, "put in nothing"), Option(BET, "bet one more chip"))
_ANSWERS = (Option(PASS, "give up the pot"), Option(BET, "call for one more chip"))

_RULES = """\
KUHN POKER
Two players. The deck has three cards: Jack, Queen, King; the King is highest.
Each player puts one chip into the pot and is dealt one card, which only that player sees.
Player 0 acts first. A player may pass or bet one more chip.
After a bet the other player may pass, and so give up the pot, or bet, and so call.
If both pass, or a bet is called, the cards are shown and the higher card takes the pot.

PLAY
"""


class KuhnState(msgspec.Struct, frozen=True):
    """A hand under way.

    Attributes:
        cards: Indices of the dealt cards, by player.
        bets: The actions, one letter each.
        play: The public text: the rules, then a line for each turn.
    """

    cards: tuple[int, ...]
    bets: str
    play: str

    @property
    def actor(self) -> int | None:
        """Chance deals two cards, then the players act in turn."""
        if len(self.cards) < SEATS:
            return CHANCE
        return None if self.bets in ENDINGS else len(self.bets) % SEATS

    def options(self) -> tuple[Option, ...]:
        """Give pass and bet, with what they mean here."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        return _ANSWERS if self.bets.endswith("b") else _OPENINGS

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give the cards that are left in the deck."""
        if self.actor != CHANCE:
            return ()
        return tuple(Outcome(name) for card, name in enumerate(CARDS) if card not in self.cards)

    def apply(self, action: str) -> KuhnState:
        """Deal a card, or act; raises IllegalAction."""
        legal = tuple(each.id for each in self.options() or self.outcomes())
        if action not in legal:
            raise IllegalAction(action, legal)
        if self.actor == CHANCE:
            line = f"Player {len(self.cards)} is dealt a card.\n"
            return KuhnState((*self.cards, CARDS.index(action)), self.bets, self.play + line)
        bets = self.bets + action[0]
        line = f"Player {self.actor}: {action}{self._showdown(bets)}\n"
        return KuhnState(self.cards, bets, self.play + line)

    def _showdown(self, bets: str) -> str:
        if bets not in SHOWDOWNS:
            return ""
        first, second = (CARDS[card] for card in self.cards)
        return f"; player 0 shows the {first}, player 1 the {second}"

    def resample(self, seat: int, draw: Callable[[int], float]) -> KuhnState | None:
        """Give the other player one of the two cards that this one does not have."""
        if len(self.cards) < SEATS or self.actor is None:
            return self  # a card is still to be dealt, or both may lie open
        others = [card for card in range(len(CARDS)) if card != self.cards[seat]]
        cards = list(self.cards)
        cards[1 - seat] = others[int(draw(0) * len(others))]
        return msgspec.structs.replace(self, cards=tuple(cards))

    def view(self, seat: int) -> View:
        """Rules and turns for both, then the own card."""
        card = ""
        if seat < len(self.cards):
            card = f"Your card is the {CARDS[self.cards[seat]]}.\n"
        return View(self.play, f"\nYou are player {seat}.\n{card}")

    def questions(self) -> tuple[Question, ...]:
        """Ask whether to pass or to bet."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        return (choice("action", f"What should player {self.actor} do now?", self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Give the chips won or lost, the ante included."""
        if self.actor is not None:
            return (0.0, 0.0)
        stake = 2.0 if self.bets.endswith("bb") else 1.0
        higher = self.cards[0] > self.cards[1]
        first_wins = higher if self.bets in SHOWDOWNS else self.bets == "bp"
        return (stake, -stake) if first_wins else (-stake, stake)

    def encode(self) -> bytes:
        """Give cards, betting and who is to act."""
        cards = "".join(CARDS[card][0] for card in self.cards)
        return f"{cards} {self.bets} {self.actor}".encode()

    def rebase(self) -> KuhnState:
        """Its text never outgrows a window."""
        return self


class KuhnPoker:
    """The rules."""

    facts = GameFacts(
        id="kuhn_poker",
        title="Kuhn poker",
        rules_version=1,
        layout_version=1,
        min_seats=SEATS,
        max_seats=SEATS,
        max_options=2,
        max_turns=5,
        chance=True,
        hidden=True,
        min_return=-2.0,
        max_return=2.0,
        zero_sum=True,
    )

    def start(self, *, seats: int, seed: int) -> KuhnState:
        """Give the state before the deal; nothing depends on the seed."""
        if seats != SEATS:
            raise BadGameParameters(f"kuhn_poker has 2 seats, not {seats}")
        return KuhnState((), "", _RULES)


def load(**parameters: str) -> KuhnPoker:
    """Make the game; it takes no parameters."""
    if parameters:
        raise BadGameParameters(f"kuhn_poker takes no parameters, not {', '.join(parameters)}")
    return KuhnPoker()
