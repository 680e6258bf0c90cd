"""Poker hands in PHH files as matches of hold'em, by way of pokerkit.

PHH is the Poker Hand History file format of J. Kim (arXiv 2312.11753): a TOML table a hand. Taken
over are hands of no-limit hold'em whose cards are all known and whose blinds our game can post.
Amounts with decimals are counted in their smallest unit, so that all are whole chips.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from operator import gt
from typing import NamedTuple

import msgspec

from games.adapters.holdem import SIZES, HoldemState, load
from games.adapters.poker_table import DECK
from games.base import CHANCE, State
from games.errors import BadGameParameters, BadRecord
from games.records import Record
from games.registry import load_game

_SECTION = re.compile(r"\s*\[\s*(?:[\w-]+|\"[^\"]*\"|'[^']*')\s*\]\s*(?:#.*)?")
TOLD = ("event", "venue", "hand", "table", "level", "currency", "day", "month", "year")

Amount = int | Decimal

UNKNOWN = "??"
MOST, FINEST = Decimal(10) ** 12, Decimal("0.000001")
_AMOUNT = re.compile(r"\d{1,13}(?:\.\d{1,6})?")


class _Hand(msgspec.Struct, kw_only=True):
    """The fields of a hand that matter here; a file may have more."""

    variant: str
    antes: list[Amount]
    blinds_or_straddles: list[Amount] = []
    min_bet: Amount = 0
    starting_stacks: list[Amount]
    actions: list[str]
    ante_trimming_status: bool = False
    players: list[str] | None = None
    finishing_stacks: list[Amount] | None = None


class Step(NamedTuple):
    """One card (`seat` is `CHANCE`) or action.

    Attributes:
        place: Its number among the file's actions, from 1.
        holder: Who gets a hole card.
    """

    seat: int
    what: str
    amount: Amount
    place: int
    holder: int | None = None


class PokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One hand of a PHH file; seat 0 is player 1."""

    number: int
    game: str
    names: tuple[str, ...]
    tags: Mapping[str, str]
    steps: tuple[Step, ...]
    hand: _Hand
    """In whole chips."""
    unit: Decimal
    """What a chip is in the file's amounts."""
    format: str = "phh"

    def label(self, state: State, turn: int) -> str | None:
        """Give the next card, or the option that an action stands for."""
        if turn == len(self.steps):
            return None
        step = self.steps[turn]
        if state.actor is None:
            raise self._wrong(step, "the hand has ended before it")
        if state.actor != step.seat:
            due = "a card is" if state.actor == CHANCE else f"player {state.actor + 1} is"
            raise self._wrong(step, f"{due} due here")
        if step.seat == CHANCE:
            legal = {each.id for each in state.outcomes()}
            wanted = {step.what}
        else:
            legal = {each.id for each in state.options()}
            wanted = _LABELS[step.what](step.amount)
        found = sorted(legal & wanted)
        if not found:
            raise self._wrong(step, "it is not legal here")
        return found[0]

    def finish(self, state: State) -> str:
        """Hold what everyone won against the file, and against pokerkit's own playback of it."""
        finishing = self.hand.finishing_stacks
        if state.actor is not None:
            if finishing is not None:
                raise BadRecord(self.number, "actions", "they end before the hand does")
            return "the recorded hand ends here"
        starting = self.hand.starting_stacks
        found = [int(a) + int(b) for a, b in zip(starting, state.returns(), strict=True)]
        for whose, stacks in (("the file", finishing), ("pokerkit", self._played_back(state))):
            if stacks is not None and list(stacks) != found:
                text = f"{whose} ends with {_listed(stacks)}, the rules with {_listed(found)}"
                raise BadRecord(self.number, "stacks", text)
        return ""

    def _played_back(self, state: State) -> list[int]:
        """Give the stacks to which pokerkit comes, which heeds who mucks and tells no cards else.

        Cards of a showdown that the file leaves out are those that were dealt.
        """
        from pokerkit import HandHistory, HoleCardsShowingOrMucking

        assert isinstance(state, HoldemState)
        hand = self.hand
        said = {action.split()[0] for action in hand.actions if action.split()[1:2] == ["sm"]}
        due = {
            each.player_index: "".join(s.what for s in self.steps if s.holder == each.player_index)
            for each in state.table.operations
            if isinstance(each, HoleCardsShowingOrMucking)
        }
        showdown = [
            f"p{seat + 1} sm {cards}" for seat, cards in due.items() if f"p{seat + 1}" not in said
        ]
        history = HandHistory(
            variant=hand.variant,
            antes=[*map(int, hand.antes)],
            blinds_or_straddles=[*map(int, hand.blinds_or_straddles)],
            min_bet=int(hand.min_bet),
            starting_stacks=[*map(int, hand.starting_stacks)],
            actions=[*hand.actions, *showdown],
            ante_trimming_status=hand.ante_trimming_status,
            parse_value=lambda text: int(Decimal(text) / self.unit),
        )
        try:
            *_, last = history
        except ValueError as error:
            raise BadRecord(self.number, "actions", f"pokerkit refuses them: {error}") from error
        return list(last.stacks)

    def _wrong(self, step: Step, what: str) -> BadRecord:
        who = "card" if step.seat == CHANCE else f"player {step.seat + 1}"
        amount = f" {step.amount}" if step.what == "cbr" else ""
        return BadRecord(self.number, f"action {step.place}, {who} {step.what}{amount}", what)


_LABELS = {
    "f": lambda _: {"fold"},
    "cc": lambda _: {"check", "call"},
    "cbr": lambda amount: {f"bet {amount}", f"raise to {amount}"},
}


def read_hands(text: str) -> Iterator[Record | BadRecord]:
    """Give the hands of a PHH file; for each that cannot be taken over, why not.

    Args:
        text: One hand, or several under a heading each (`.phhs`).
    """
    load()  # says which extra has pokerkit, where it is missing
    for number, part in enumerate(_parts(text), start=1):
        try:
            yield _record(number, part)
        except BadRecord as fault:
            yield fault


def _parts(text: str) -> Iterator[str]:
    """Give the hands of a file one by one, so that one that is no TOML spoils no other."""
    part: list[str] = []
    headed = False
    for line in text.split("\n"):
        if _SECTION.fullmatch(line):
            if headed or any(each.strip() for each in part):
                yield "\n".join(part)
            part, headed = [], True
        else:
            part.append(line)
    yield "\n".join(part)


def _record(number: int, text: str) -> PokerRecord:
    try:
        table = tomllib.loads(text, parse_float=Decimal)
        hand = msgspec.convert(table, _Hand)
    except (ValueError, RecursionError) as error:  # also for numbers and nesting beyond Python's
        raise BadRecord(number, "", f"it is no hand of PHH: {error}") from error
    if hand.variant != "NT":
        raise BadRecord(number, "variant", f"{hand.variant!r} is not NT, no-limit hold'em")
    seats = len(hand.starting_stacks)
    names = tuple(hand.players or (f"p{seat + 1}" for seat in range(seats)))
    if {len(names), len(hand.antes), len(hand.blinds_or_straddles)} != {seats}:
        raise BadRecord(number, "", "stacks, antes, blinds and players are not equally many")
    steps = _steps(number, hand, seats)
    unit = _unit(number, (*_amounts(hand), *(step.amount for step in steps)))
    hand = _in_chips(hand, unit)
    steps = tuple(step._replace(amount=int(step.amount / unit)) for step in steps)
    return PokerRecord(
        number=number,
        game=_game_of(number, hand, {step.amount for step in steps if step.what == "cbr"}),
        names=names,
        tags={name: str(table[name]) for name in TOLD if name in table}
        | ({} if unit == 1 else {"unit": str(unit)}),
        steps=steps,
        hand=hand,
        unit=unit,
    )


def _amounts(hand: _Hand) -> list[Amount]:
    return [
        *hand.antes,
        *hand.blinds_or_straddles,
        hand.min_bet,
        *hand.starting_stacks,
        *(hand.finishing_stacks or ()),
    ]


def _unit(number: int, amounts: Sequence[Amount]) -> Decimal:
    """Give the power of ten in which all amounts are whole."""
    exponent = 0
    for amount in map(Decimal, amounts):
        if not amount.is_finite() or not -MOST <= amount <= MOST or amount % FINEST:
            raise BadRecord(number, "", f"an amount is {amount}; chips are counted exactly")
        least = amount.normalize().as_tuple().exponent
        exponent = min(exponent, int(least))
    return Decimal(1).scaleb(exponent)


def _in_chips(hand: _Hand, unit: Decimal) -> _Hand:
    def whole(amounts: Sequence[Amount]) -> list[Amount]:
        return [int(amount / unit) for amount in amounts]

    return msgspec.structs.replace(
        hand,
        antes=whole(hand.antes),
        blinds_or_straddles=whole(hand.blinds_or_straddles),
        min_bet=int(hand.min_bet / unit),
        starting_stacks=whole(hand.starting_stacks),
        finishing_stacks=hand.finishing_stacks and whole(hand.finishing_stacks),
    )


def _steps(number: int, hand: _Hand, seats: int) -> tuple[Step, ...]:
    holes: list[list[Step]] = [[] for _ in range(seats)]
    shown: dict[int, list[str]] = {}
    rest: list[Step] = []
    for place, action in enumerate(hand.actions, start=1):
        words = action.partition("#")[0].split()

        def wrong(what: str, place: str = f"action {place} {action!r}") -> BadRecord:
            return BadRecord(number, place, what)

        def seat_of(player: str, wrong: Callable[[str], BadRecord] = wrong) -> int:
            known = {f"p{seat + 1}": seat for seat in range(seats)}
            if player not in known:
                raise wrong(f"{player!r} is none of {', '.join(known)}")
            return known[player]

        match words:
            case []:
                continue
            case ["d", "dh", player, cards]:
                if rest:
                    raise wrong("hole cards are dealt before everything else")
                seat = seat_of(player)
                dealt = _cards(cards, wrong)
                holes[seat] += (Step(CHANCE, card, 0, place, seat) for card in dealt)
            case ["d", "db", cards]:
                rest += (Step(CHANCE, card, 0, place) for card in _cards(cards, wrong))
            case [player, "f" | "cc" as what]:
                rest.append(Step(seat_of(player), what, 0, place))
            case [player, "cbr", amount] if _AMOUNT.fullmatch(amount):
                rest.append(Step(seat_of(player), "cbr", Decimal(amount), place))
            case [player, "sm"] | [player, "sm", "-"]:
                seat_of(player)
            case [player, "sm", cards]:
                shown[seat_of(player)] = _cards(cards, wrong)
            case _:
                raise wrong("it is no action of hold'em")
    known = [_known(number, seat, cards, shown.get(seat)) for seat, cards in enumerate(holes)]
    in_turn = (card for cards in zip_longest(*known) for card in cards if card is not None)
    return (*in_turn, *rest)


def _known(number: int, seat: int, dealt: list[Step], shown: list[str] | None) -> list[Step]:
    """Give a player's hole cards, from the showdown where the deal does not tell them."""
    cards = [step.what for step in dealt]
    if shown is not None and len(shown) == len(cards) and UNKNOWN in cards:
        dealt = [step._replace(what=card) for step, card in zip(dealt, shown, strict=True)]
    if any(step.what == UNKNOWN for step in dealt):
        raise BadRecord(number, f"player {seat + 1}", "the hole cards are not known")
    return dealt


def _cards(text: str, wrong: Callable[[str], BadRecord]) -> list[str]:
    cards = [text[at : at + 2] for at in range(0, len(text), 2)]
    for card in cards:
        if card not in DECK and card != UNKNOWN:
            raise wrong(f"{card!r} is no card")
    return cards


def _game_of(number: int, hand: _Hand, amounts: set[Amount]) -> str:
    blinds = [int(blind) for blind in hand.blinds_or_straddles]
    while blinds and not blinds[-1]:
        blinds.pop()
    if not blinds or min(blinds) < 1:
        text = f"{_listed(hand.blinds_or_straddles)} are not posted by the first players in turn"
        raise BadRecord(number, "blinds_or_straddles", text)
    antes = [int(ante) for ante in hand.antes]
    uneven = len(set(antes)) > 1 or any(map(gt, antes, hand.starting_stacks))
    if uneven and not hand.ante_trimming_status:
        raise BadRecord(number, "antes", "they differ, and here what others cannot match goes back")
    given = {
        "ante": antes if len(set(antes)) > 1 else antes[:1],
        "bet": [int(hand.min_bet)],
        "blinds": blinds,
        "sizes": [*SIZES, *sorted(amounts)],
        "stack": hand.starting_stacks,
    }
    listed = ",".join(f"{name}={'/'.join(map(str, values))}" for name, values in given.items())
    try:
        game = load_game(f"holdem({listed})")
        game.start(seats=len(antes), seed=0)
    except BadGameParameters as error:
        raise BadRecord(number, "", str(error)) from error
    return game.facts.id


def _listed(amounts: Sequence[Amount]) -> str:
    return "/".join(map(str, amounts))
