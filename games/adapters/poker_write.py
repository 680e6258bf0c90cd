"""Matches of hold'em as hands of PHH, by way of pokerkit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from games.adapters.holdem import HoldemState
from games.adapters.poker_record import TOLD
from games.base import State

if TYPE_CHECKING:
    from pokerkit import State as Table

_NUMBERS = frozenset({"day", "month", "year", "level"})
_STREET_ENDS = frozenset({3, 4, 5})


def write_hand(state: State, names: Sequence[str], tags: Mapping[str, str]) -> str:
    """Give a match of hold'em as one hand of PHH.

    Args:
        state: The last of the match.
        names: Who played, by seat.
        tags: What else is known of it; PHH's own fields of that kind are written.
    """
    from pokerkit import HandHistory

    assert isinstance(state, HoldemState)
    table, stakes = state.table, state.stakes
    seats = table.player_count
    antes = list(stakes.antes) * (seats if len(stakes.antes) == 1 else 1)
    more: dict[str, Any] = {
        name: int(value) if name in _NUMBERS and value.isdecimal() else _plain(value)
        for name, value in tags.items()
        if name in TOLD
    }
    history = HandHistory(
        variant="NT",
        ante_trimming_status=len(set(antes)) > 1,
        antes=antes,
        blinds_or_straddles=[*stakes.blinds, *[0] * (seats - len(stakes.blinds))],
        min_bet=stakes.bet,
        starting_stacks=list(table.starting_stacks),
        actions=list(_actions(table)),
        players=[_plain(name) for name in names],
        finishing_stacks=None if table.status else list(table.stacks),
        **more,
    )
    return f"{history.dumps()}\n"


def _actions(table: Table) -> Iterator[str]:
    """Give what was done; cards of one player, or of one street, together."""
    from pokerkit import (
        BoardDealing,
        CheckingOrCalling,
        CompletionBettingOrRaisingTo,
        Folding,
        HoleCardsShowingOrMucking,
        HoleDealing,
    )

    holes: dict[int, str] = {}
    board, dealt = "", 0
    for done in table.operations:
        match done:
            case HoleDealing():
                holes[done.player_index] = holes.get(done.player_index, "") + _cards(done.cards)
                continue
            case BoardDealing():
                board, dealt = board + _cards(done.cards), dealt + len(done.cards)
                if dealt in _STREET_ENDS:
                    yield f"d db {board}"
                    board = ""
                continue
            case Folding():
                action = f"p{done.player_index + 1} f"
            case CheckingOrCalling():
                action = f"p{done.player_index + 1} cc"
            case CompletionBettingOrRaisingTo():
                action = f"p{done.player_index + 1} cbr {done.amount}"
            case HoleCardsShowingOrMucking():
                action = f"p{done.player_index + 1} sm {_cards(done.hole_cards)}".strip()
            case _:
                continue
        yield from _dealt(holes)
        yield action
    yield from _dealt(holes)
    if board:
        yield f"d db {board}"


def _dealt(holes: dict[int, str]) -> Iterator[str]:
    yield from (f"d dh p{seat + 1} {cards}" for seat, cards in sorted(holes.items()))
    holes.clear()


def _cards(cards: Any) -> str:
    return "".join(f"{card.rank.value}{card.suit.value}" for card in cards)


def _plain(text: str) -> str:
    """Give text that pokerkit's strings, which escape nothing, can hold."""
    kept = "".join(c if c.isprintable() else " " for c in text)
    return kept.replace("'''", "'")
