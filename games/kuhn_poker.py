"""Kuhn poker: three cards, one bet, hidden information and chance in their smallest form.

H. W. Kuhn, "A simplified two-person poker", Contributions to the Theory of Games I, 1950.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from games.base import CHANCE, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.layouts import Layout, find_layout, laid_out
from games.questions import Option, Question, choice

CARDS = ("Jack", "Queen", "King")
PASS, BET = "pass", "bet"
SEATS = 2
SHOWDOWNS = ("pp", "pbb", "bb")
"""Betting, one letter an action, after which the cards are shown."""

ENDINGS = (*SHOWDOWNS, "pbp", "bp")
"""Betting after which the hand is over."""

RULES = """\
KUHN POKER
Two players. The deck has three cards: Jack, Queen, King; the King is highest.
Each player puts one chip into the pot and is dealt one card, which only that player sees.
Player 0 acts first. A player may pass or bet one more chip.
After a bet the other player may pass, and so give up the pot, or bet, and so call.
If both pass, or a bet is called, the cards are shown and the higher card takes the pot.

PLAY
"""

PLAIN = Layout(
    name="plain",
    version=1,
    rules=RULES,
    turns={
        "deal": "Player {player} is dealt a card.\n",
        "act": "Player {player}: {action}\n",
        "show": "Player {player}: {action}; player 0 shows the {first}, player 1 the {second}\n",
    },
    options={
        "check": "put in nothing",
        "bet": "bet one more chip",
        "fold": "give up the pot",
        "call": "call for one more chip",
    },
)
BARE = msgspec.structs.replace(PLAIN, name="bare", options={})
LAYOUTS = {layout.name: layout for layout in (PLAIN, BARE)}
"""`bare` leaves it to the reader what passing and betting come to."""


@cache
def _options(layout: str, answering: bool) -> tuple[Option, ...]:
    facts = ("fold", "call") if answering else ("check", "bet")
    return tuple(
        Option(label, LAYOUTS[layout].describe([fact]))
        for label, fact in zip((PASS, BET), facts, strict=True)
    )


class KuhnState(msgspec.Struct, frozen=True):
    """A hand under way.

    Attributes:
        cards: Indices of the dealt cards, by player.
        bets: The actions, one letter each.
        play: The public text: the rules, then a line for each turn.
        layout: The name of the layout that it is told in.
    """

    cards: tuple[int, ...]
    bets: str
    play: str
    layout: str = PLAIN.name

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
        return _options(self.layout, self.bets.endswith("b"))

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
        cards, bets, layout = self.cards, self.bets, LAYOUTS[self.layout]
        if self.actor == CHANCE:
            line = layout.turn("deal", player=len(cards))
            cards = (*cards, CARDS.index(action))
        else:
            bets += action[0]
            shown = bets in SHOWDOWNS
            first, second = (CARDS[card] for card in cards)
            line = layout.turn(
                "show" if shown else "act",
                player=self.actor,
                action=action,
                first=first if shown else "",
                second=second if shown else "",
            )
        return KuhnState(cards, bets, self.play + line, self.layout)

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

    layouts = LAYOUTS

    def __init__(self, layout: Layout = PLAIN) -> None:
        """Take the layout that it is told in."""
        self.layout = layout
        self.facts = GameFacts(
            id="kuhn_poker" if layout.name == PLAIN.name else laid_out("kuhn_poker", [layout.name]),
            title="Kuhn poker",
            rules_version=1,
            layout_version=layout.version,
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
        return KuhnState((), "", self.layout.rules, self.layout.name)


def load(layout: str = PLAIN.name) -> KuhnPoker:
    """Make the game in one of its `LAYOUTS`; raises BadGameParameters."""
    return KuhnPoker(find_layout("kuhn_poker", layout, LAYOUTS))
