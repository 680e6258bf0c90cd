"""Kuhn poker: three cards, one bet, hidden information and chance in their smallest form.

H. W. Kuhn, "A simplified two-person poker", Contributions to the Theory of Games I, 1950.
"""

from __future__ import annotations

from games.base import CHANCE, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.questions import Option, Question, choice

CARDS = ("Jack", "Queen", "King")
PASS, BET = "pass", "bet"
ENDINGS = ("pp", "pbp", "pbb", "bp", "bb")
"""Betting, one letter an action, after which the hand is over."""

_RULES = """\
KUHN POKER
Two players. The deck has three cards: Jack, Queen, King; the King is highest.
Each player puts one chip into the pot and is dealt one card, which only that player sees.
Player 0 acts first. A player may pass or bet one more chip.
After a bet the other player may pass, and so give up the pot, or bet, and so call.
If both pass, or a bet is called, the cards are shown and the higher card takes the pot.

PLAY
"""


class KuhnState:
    """Cards dealt so far and the betting."""

    __slots__ = ("_bets", "_cards", "_public", "actor")

    def __init__(self, cards: tuple[int, ...], bets: str, public: str) -> None:
        self._cards = cards
        self._bets = bets
        self._public = public
        self.actor: int | None = len(bets) % 2
        if len(cards) < 2:
            self.actor = CHANCE
        elif bets in ENDINGS:
            self.actor = None

    def options(self) -> tuple[Option, ...]:
        """Give pass and bet, with what they mean here."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        if self._bets.endswith("b"):
            return (Option(PASS, "give up the pot"), Option(BET, "call for one more chip"))
        return (Option(PASS, "put in nothing"), Option(BET, "bet one more chip"))

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give the cards that are left in the deck."""
        if self.actor != CHANCE:
            return ()
        return tuple(Outcome(name) for card, name in enumerate(CARDS) if card not in self._cards)

    def apply(self, action: str) -> KuhnState:
        """Deal a card, or act."""
        if self.actor == CHANCE:
            legal = tuple(outcome.id for outcome in self.outcomes())
            if action not in legal:
                raise IllegalAction(action, legal)
            line = f"Player {len(self._cards)} is dealt a card.\n"
            cards = (*self._cards, CARDS.index(action))
            return KuhnState(cards, self._bets, self._public + line)
        if self.actor is None or action not in (PASS, BET):
            raise IllegalAction(action, tuple(option.id for option in self.options()))
        line = f"Player {self.actor}: {action}\n"
        return KuhnState(self._cards, self._bets + action[0], self._public + line)

    def view(self, seat: int) -> View:
        """Rules and betting for both, then the own card; both cards once they are shown."""
        lines = [f"\nYou are player {seat}."]
        if seat < len(self._cards):
            lines.append(f"Your card is the {CARDS[self._cards[seat]]}.")
        if self._shown:
            lines.append(f"Player {1 - seat} shows the {CARDS[self._cards[1 - seat]]}.")
        return View(self._public, "\n".join(lines) + "\n")

    def questions(self) -> tuple[Question, ...]:
        """Ask whether to pass or to bet."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        return (choice("action", f"What should player {self.actor} do now?", self.options()),)

    @property
    def _shown(self) -> bool:
        """Whether the hand ended with the cards on the table, not by giving up."""
        return self._bets in ("pp", "pbb", "bb")

    def returns(self) -> tuple[float, ...]:
        """Give the chips won or lost, the ante included."""
        if self.actor is not None:
            return (0.0, 0.0)
        stake = 2.0 if self._bets.endswith("bb") else 1.0
        if self._shown:
            won = self._cards[0] > self._cards[1]
        else:
            won = self._bets == "bp"  # the seat that bet last takes what the other gave up
        return (stake, -stake) if won else (-stake, stake)

    def encode(self) -> bytes:
        """Give cards and betting; they say who is to act."""
        cards = "".join(CARDS[card][0] for card in self._cards)
        return f"{cards}|{self._bets}".encode()

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
        min_seats=2,
        max_seats=2,
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
        if seats != 2:
            raise BadGameParameters(f"kuhn_poker has 2 seats, not {seats}")
        return KuhnState((), "", _RULES)


def load(**parameters: str) -> KuhnPoker:
    """Make the game; it takes no parameters."""
    if parameters:
        raise BadGameParameters(f"kuhn_poker takes no parameters, not {', '.join(parameters)}")
    return KuhnPoker()
