"""A no-limit hold'em table on pokerkit, as values: each action gives a new table.

pokerkit shuffles a deck with the process's random generator and burns from it. Here cards are dealt
by name, so its deck is filled only after it was set up, and nothing is burned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from pokerkit import Card, State

DECK = tuple(f"{rank}{suit}" for rank in "23456789TJQKA" for suit in "cdhs")
BOARDS = (0, 3, 1, 1)
"""Cards that the board gets before each round of betting."""


CONTAINERS = (list, deque, set)
NESTED = (
    "board_cards",
    "hole_cards",
    "hole_card_statuses",
    "discarded_cards",
    "hole_dealing_statuses",
)


class Stakes(msgspec.Struct, frozen=True):
    """What is played for, in chips; one number for each seat, or one for all.

    Attributes:
        blinds: From seat 0 on; more than two are straddles. With two seats the first is the big
            blind's, as pokerkit has it: seat 1 has the button, posts the small one, acts first.
        bet: The smallest bet, and the least by which a raise goes over a bet.
    """

    stacks: tuple[int, ...]
    blinds: tuple[int, ...]
    antes: tuple[int, ...]
    bet: int


def set_up(stakes: Stakes, seats: int) -> State:
    """Give a table with antes and blinds posted and no card dealt; raises ValueError."""
    from pokerkit import (
        Automation,
        BettingStructure,
        Deck,
        Opening,
        StandardHighHand,
        State,
        Street,
    )

    streets = tuple(
        Street(
            False,
            (False, False) if not cards else (),
            cards,
            False,
            Opening.POSITION,
            stakes.bet,
            None,
        )
        for cards in BOARDS
    )
    # Posting is left out, so that pokerkit waits until the deck is there.
    automations = (
        Automation.BET_COLLECTION,
        Automation.HOLE_CARDS_SHOWING_OR_MUCKING,
        Automation.HAND_KILLING,
        Automation.CHIPS_PUSHING,
        Automation.CHIPS_PULLING,
    )
    state = State(
        automations,
        cast("Deck", ()),
        (StandardHighHand,),
        streets,
        BettingStructure.NO_LIMIT,
        True,
        _each(stakes.antes, seats),
        stakes.blinds,
        0,
        _each(stakes.stacks, seats),
        seats,
    )
    state.deck_cards.extend(Deck.STANDARD)
    while state.can_post_ante():
        state.post_ante()
    while state.can_post_blind_or_straddle():
        state.post_blind_or_straddle()
    return state


def copy_of(state: State) -> State:
    """Give a table that can be acted on without a change of this one.

    A small part of what `copy.deepcopy` takes: pokerkit changes nothing in place but containers,
    and containers in them.
    """
    new = object.__new__(type(state))
    new.__dict__.update(
        (name, value.copy() if isinstance(value, CONTAINERS) else value)
        for name, value in vars(state).items()
    )
    for name in NESTED:
        vars(new)[name] = [each.copy() for each in vars(state)[name]]
    return new


def next_to_be_dealt(state: State) -> int | None:
    """Give the seat that gets the next card, -1 for the board, or None when none is dealt now."""
    if any(state.hole_dealing_statuses):
        return state.hole_dealee_index
    return -1 if any(state.board_dealing_counts) else None


def undealt(state: State) -> list[str]:
    """Give the cards that are still in the deck, in the order of `DECK`."""
    gone = set(map(name_of, _dealt(state)))
    return [card for card in DECK if card not in gone]


def deal(state: State, card: str) -> State:
    """Give the table with one more card on it."""
    new = copy_of(state)
    if next_to_be_dealt(state) == -1:
        new.deal_board(card)
    else:
        new.deal_hole(card)
    return new


def redealt(state: State, seat: int, draw: Callable[[int], float]) -> tuple[State, dict[str, str]]:
    """Give the table with other cards where a seat sees none, and what became of each of them.

    Which cards they become follows from what the seat sees and from the numbers drawn alone.

    Args:
        state: A table at which the hand goes on.
        seat: Whose own cards stay; the board, and what was shown, stay too.
        draw: Gives a number in [0, 1) for each whole number from 0.
    """
    from pokerkit import HoleCardsShowingOrMucking, HoleDealing

    shown = {
        name_of(card)
        for done in state.operations
        if isinstance(done, HoleCardsShowingOrMucking)
        for card in done.hole_cards
    }
    hidden = [
        name
        for done in state.operations
        if isinstance(done, HoleDealing) and done.player_index != seat
        for name in map(name_of, done.cards)
        if name not in shown
    ]
    covered = {*undealt(state), *hidden}
    unseen = [card for card in DECK if card in covered]
    became = {
        name: unseen.pop(int(draw(number) * len(unseen))) for number, name in enumerate(hidden)
    }
    return _replaced(state, became, unseen), became


def name_of(card: Card) -> str:
    """Give a card's name, as in `DECK`."""
    return f"{card.rank.value}{card.suit.value}"


def raises(state: State) -> range:
    """Give the amounts to which the seat to act may bet or raise; empty when it may not."""
    low = state.min_completion_betting_or_raising_to_amount
    high = state.max_completion_betting_or_raising_to_amount
    return range(0) if low is None or high is None else range(low, high + 1)


def act(state: State, kind: str, amount: int) -> State:
    """Give the table after `fold`, `check`, `call`, or else a bet or raise to `amount`."""
    new = copy_of(state)
    if kind == "fold":
        new.fold()
    elif kind in ("check", "call"):
        new.check_or_call()
    else:
        new.complete_bet_or_raise_to(amount)
    return new


def _dealt(state: State) -> Iterator[Card]:
    yield from chain(*state.hole_cards, *state.board_cards, state.mucked_cards)


def _replaced(state: State, became: dict[str, str], deck: list[str]) -> State:
    """Give the table with other cards, wherever pokerkit keeps them."""
    from pokerkit import HoleDealing

    def renamed(cards: Iterable[Card]) -> list[Card]:
        return [_card(became.get(name, name)) for name in map(name_of, cards)]

    new = copy_of(state)
    new.hole_cards[:] = map(renamed, state.hole_cards)
    new.mucked_cards[:] = renamed(state.mucked_cards)
    new.deck_cards.clear()
    new.deck_cards.extend(map(_card, deck))
    new.operations[:] = [
        replace(done, cards=tuple(renamed(done.cards))) if isinstance(done, HoleDealing) else done
        for done in state.operations
    ]
    return new


@cache
def _card(name: str) -> Card:
    from pokerkit import Card

    [card] = Card.parse(name)
    return card


def _each(values: tuple[int, ...], seats: int) -> tuple[int, ...]:
    return values * seats if len(values) == 1 else values
