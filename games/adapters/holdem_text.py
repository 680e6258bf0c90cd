"""What a table of hold'em shows: the public log, each seat's own text, the options' facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from games.adapters.poker_table import raises
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


def told(table: State, since: int) -> str:
    """Give the public lines of what was done from operation number `since` on."""
    lines = [_line(table, index) for index in range(since, len(table.operations))]
    if not table.status:
        won = (f"player {seat} {chips:+d}" for seat, chips in enumerate(table.payoffs))
        lines.append(f"Result: {', '.join(won)}.")
    return "".join(f"{line}\n" for line in lines if line)


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


def call_facts(table: State) -> Option:
    """Give the option to check or call, with what it costs."""
    amount = table.checking_or_calling_amount or 0
    if not amount:
        return Option("check", "put in nothing")
    all_in = ", all that is left" if amount == table.stacks[table.actor_index or 0] else ""
    return Option("call", f"put in {amount} for a pot of {table.total_pot_amount + amount}{all_in}")


def raise_facts(table: State, amount: int) -> Option:
    """Give the option to bet or raise to an amount, with what it costs."""
    seat = table.actor_index or 0
    costs = amount - table.bets[seat]
    all_in = ", all that is left" if costs == table.stacks[seat] else ""
    verb = "raise to" if max(table.bets) else "bet"
    return Option(
        f"{verb} {amount}", f"put in {costs} into a pot of {table.total_pot_amount}{all_in}"
    )


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


def _line(table: State, index: int) -> str | None:
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
        case AntePosting():
            return f"Player {done.player_index} posts an ante of {done.amount}."
        case BlindOrStraddlePosting():
            return f"Player {done.player_index} posts a blind of {done.amount}."
        case HoleDealing():
            return f"Player {done.player_index} is dealt a card."
        case BoardDealing():
            return f"The board gets {_cards(done.cards)}."
        case Folding():
            return f"Player {done.player_index}: fold"
        case CheckingOrCalling():
            called = f"call {done.amount}" if done.amount else "check"
            return f"Player {done.player_index}: {called}"
        case CompletionBettingOrRaisingTo():
            return f"Player {done.player_index}: to {done.amount}"
        case HoleCardsShowingOrMucking():
            shown = f"shows {_cards(done.hole_cards)}" if done.hole_cards else "shows nothing"
            return f"Player {done.player_index} {shown}."
        case _:  # chips collected and pushed: the result tells
            return None


def _cards(cards: Iterable[Any]) -> str:
    return " ".join(map(repr, cards))
