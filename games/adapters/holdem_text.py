"""What a table of hold'em shows: the public log, each seat's own text, the options' facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from games.adapters.poker_table import raises
from games.layouts import Layout
from games.questions import Option

if TYPE_CHECKING:
    from pokerkit import State

RULES = """\
NO-LIMIT TEXAS HOLD'EM
Every player is dealt two cards that only that player sees. Up to five cards on the board are for
all. There is betting before the first three, after them, after the fourth and after the fifth.
A player may fold, check where nothing is to be called, call, or bet and raise up to all chips;
a raise is at least as large as the last one. Who has no chips left stays in for the pots that they
paid into. The best five of seven cards win each pot; equal hands share it.
Cards are rank and suit: Ah is the ace of hearts, Tc the ten of clubs.

HAND
"""

PLAIN = Layout(
    name="plain",
    version=1,
    rules=RULES,
    turns={
        "ante": "Player {player} posts an ante of {amount}.\n",
        "blind": "Player {player} posts a blind of {amount}.\n",
        "deal": "Player {player} is dealt a card.\n",
        "board": "The board gets {cards}.\n",
        "fold": "Player {player}: fold\n",
        "check": "Player {player}: check\n",
        "call": "Player {player}: call {amount}\n",
        "bet": "Player {player}: to {amount}\n",
        "show": "Player {player} shows {cards}.\n",
        "muck": "Player {player} shows nothing.\n",
        "result": "Result: {won}.\n",
    },
    options={
        "fold": "give up the pot",
        "check": "put in nothing",
        "call": "put in {amount} for a pot of {pot}",
        "call all": "put in {amount} for a pot of {pot}, all that is left",
        "bet": "put in {amount} into a pot of {pot}",
        "bet all": "put in {amount} into a pot of {pot}, all that is left",
    },
)
BARE = msgspec.structs.replace(PLAIN, name="bare", options={})
LAYOUTS = {layout.name: layout for layout in (PLAIN, BARE)}
"""`bare` leaves it to the reader what an action costs."""


def told(table: State, since: int, layout: Layout) -> str:
    """Give the public lines of what was done from operation number `since` on."""
    lines = [_line(table, index, layout) for index in range(since, len(table.operations))]
    if not table.status:
        won = (f"player {seat} {chips:+d}" for seat, chips in enumerate(table.payoffs))
        lines.append(layout.turn("result", won=", ".join(won)))
    return "".join(lines)


def private_text(table: State, seat: int) -> str:
    """Give a seat's own cards, and the position as far as all know it."""
    cards = _cards(card for card in table.hole_cards[seat] if card) if table.statuses[seat] else ""
    lines = [
        f"You are player {seat}.",
        f"Your cards: {cards or 'none'}",
        f"Board: {_cards(table.get_board_cards(0)) or 'none'}",
        f"Pot: {table.total_pot_amount}",
        f"Chips behind: {_by_player(table.stacks)}",
    ]
    if any(table.bets):
        lines.append(f"Bets in this round: {_by_player(table.bets)}")
    return "\n" + "\n".join(lines) + "\n"


def call_option(table: State, layout: Layout) -> Option:
    """Give the option to check or call, with what it costs."""
    amount = table.checking_or_calling_amount or 0
    if not amount:
        return Option("check", layout.describe(["check"]))
    fact = "call all" if amount == table.stacks[table.actor_index or 0] else "call"
    pot = table.total_pot_amount + amount
    return Option("call", layout.describe([fact], amount=amount, pot=pot))


def raise_option(table: State, amount: int, layout: Layout) -> Option:
    """Give the option to bet or raise to an amount, with what it costs."""
    seat = table.actor_index or 0
    costs = amount - table.bets[seat]
    fact = "bet all" if costs == table.stacks[seat] else "bet"
    verb = "raise to" if max(table.bets) else "bet"
    about = layout.describe([fact], amount=costs, pot=table.total_pot_amount)
    return Option(f"{verb} {amount}", about)


def offer(table: State, size: str) -> int:
    """Give the amount that a size stands for here, before it is brought within what is legal."""
    amounts = raises(table)
    if size in ("min", "all-in"):
        return amounts[0] if size == "min" else amounts[-1]
    if not size.endswith("%"):
        return int(size)
    highest = max(table.bets)
    called = table.total_pot_amount + (table.checking_or_calling_amount or 0)
    return highest + called * int(size[:-1]) // 100


def _by_player(chips: Iterable[int]) -> str:
    return ", ".join(f"player {seat} {count}" for seat, count in enumerate(chips))


def _line(table: State, index: int, layout: Layout) -> str:
    from pokerkit import (
        AntePosting,
        BlindOrStraddlePosting,
        BoardDealing,
        CheckingOrCalling,
        CompletionBettingOrRaisingTo,
        Folding,
        HoleCardsShowingOrMucking,
        HoleDealing,
    )

    done: Any = table.operations[index]
    match done:
        case BoardDealing():
            return layout.turn("board", cards=_cards(done.cards))
        case AntePosting():
            kind, values = "ante", {"amount": done.amount}
        case BlindOrStraddlePosting():
            kind, values = "blind", {"amount": done.amount}
        case HoleDealing():
            kind, values = "deal", {}
        case Folding():
            kind, values = "fold", {}
        case CheckingOrCalling():
            kind, values = "call" if done.amount else "check", {"amount": done.amount}
        case CompletionBettingOrRaisingTo():
            kind, values = "bet", {"amount": done.amount}
        case HoleCardsShowingOrMucking():
            shown = done.hole_cards
            kind, values = "show" if shown else "muck", {"cards": _cards(shown)}
        case _:  # chips collected and pushed: the result tells
            return ""
    return layout.turn(kind, player=done.player_index, **values)


def _cards(cards: Iterable[Any]) -> str:
    return " ".join(map(repr, cards))
