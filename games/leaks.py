"""The law that no seat sees another seat's secret.

No game writes down what a seat may know, so a leak is found by what it does. After a match some of
its turns are taken differently: another card is dealt, another hidden move is made. Where a seat
cannot tell the two turns apart, the turn is hidden from it. Both matches then go on with the same
actions, and as long as the public text stays the same in both, that seat may see a difference only
by its own action. Where every seat can tell the turns apart and the public text cannot, something
is wrong too: a secret is shown to all, or what all may know is missing from the public text.

In a game that keeps no public log, nothing tells what is laid open from what leaks. There it takes
the `knows` of `games.testing.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from games.base import State, View
from games.laws import Place, Shown, contrast
from games.worlds import require_blind

LAW = "leak"
SWAPS = 48
"""Most turns of one match that are taken differently."""

Pick = Callable[[int, int], int]
"""Gives a number below the second argument; the first says what for."""


class Step(msgspec.Struct, frozen=True):
    """A state of a match, what it shows, and the action taken there (None at the end)."""

    state: State
    shown: Shown
    action: str | None


class Swap(msgspec.Struct, frozen=True):
    """One turn of a match, taken differently.

    Attributes:
        taken, other: What was done at `turn`, and what is done instead, which leads to `state`.
        blind: Seats that cannot tell which it was.
        open: Whether the public text tells it.
    """

    turn: int
    taken: str
    other: str
    state: State
    blind: frozenset[int]
    open: bool


def swaps_of(steps: Sequence[Step], pick: Pick) -> list[Swap]:
    """Take turns of a match differently, twice each where they are few."""
    turns = [turn for turn in range(len(steps) - 1) if len(steps[turn].shown.labels) > 1]
    few = len(turns) <= SWAPS
    swaps: list[Swap] = []
    for number in range(min(SWAPS, 2 * len(turns))):
        turn = turns[number % len(turns) if few else pick(number, len(turns))]
        others = [label for label in steps[turn].shown.labels if label != steps[turn].action]
        swaps.append(_swap(steps, turn, others[pick(SWAPS + number, len(others))]))
    return swaps


def conceals(step: Step) -> bool:
    """Whether some seat cannot tell two outcomes of a chance turn apart that another can.

    Random swaps seldom meet such a pair where a draw has hundreds of outcomes; here all are tried.
    """
    seats = range(len(step.shown.views))
    views = [
        [after.view(seat) for seat in seats]
        for after in map(step.state.apply, (outcome.id for outcome in step.shown.outcomes))
    ]
    for seat in seats:
        seen: dict[View, list[View]] = {}
        if any(seen.setdefault(each[seat], each) != each for each in views):
            return True
    return False


def keeps_log(steps: Sequence[Step]) -> bool:
    """Whether the public text grew in a match."""
    return steps[0].shown.views[0].public != steps[-1].shown.views[0].public


def require_secret_kept(steps: Sequence[Step], swap: Swap, place: Place) -> None:
    """Raise ConformanceError where a view tells what the public text keeps back.

    Args:
        steps: A match that keeps a public log.
        swap: One turn of it, taken differently.
        place: The match.
    """
    if swap.open:
        return
    if not swap.blind:
        raise _at(place, swap.turn, swap.taken).broken(
            LAW,
            f"every seat can tell it from {swap.other!r} and the public text cannot; what all may"
            " know belongs there, and the rest is for those who may know it",
        )
    state, blind = swap.state, swap.blind
    for turn in range(swap.turn + 1, len(steps) - 1):
        step, after = steps[turn], steps[turn + 1].shown.views
        if state.actor != step.shown.actor or step.action not in _labels(state):
            return
        state = state.apply(step.action)
        views = {seat: state.view(seat) for seat in blind}
        if any(view.public != after[seat].public for seat, view in views.items()):
            return
        sees = {seat for seat, view in views.items() if view != after[seat]}
        for seat in sees - {step.shown.actor}:
            part = contrast(after[seat].private, views[seat].private)
            raise _at(place, turn, step.action).broken(
                LAW,
                f"the view of seat {seat} tells whether turn {swap.turn} was {swap.taken!r} or"
                f" {swap.other!r}, which was hidden from it: the private text {part}",
            )
        blind -= sees


def require_blind_draws(steps: Sequence[Step], swap: Swap, place: Place) -> None:
    """Raise ConformanceError where a state drawn for a search tells what its seat cannot see.

    It is looked at where a seat that cannot tell the two matches apart is first to act.
    """
    state = swap.state
    for turn in range(swap.turn + 1, len(steps) - 1):
        step = steps[turn]
        actor = step.shown.actor
        if state.actor != actor or step.action not in _labels(state):
            return
        if actor is not None and actor >= 0 and state.view(actor) == step.shown.views[actor]:
            require_blind(step.state, state, _at(place, turn - 1, steps[turn - 1].action or ""))
            return
        state = state.apply(step.action)


def _swap(steps: Sequence[Step], turn: int, other: str) -> Swap:
    state = steps[turn].state.apply(other)
    views = steps[turn + 1].shown.views
    return Swap(
        turn,
        steps[turn].action or "",
        other,
        state,
        frozenset(seat for seat, view in enumerate(views) if state.view(seat) == view),
        state.view(0).public != views[0].public,
    )


def _labels(state: State) -> set[str]:
    return {each.id for each in state.options() or state.outcomes()}


def _at(place: Place, turn: int, action: str) -> Place:
    return msgspec.structs.replace(place, turn=turn + 1, action=action)
