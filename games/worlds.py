"""The law that a state drawn for a search is made of what its seat may see, and of nothing else."""

from __future__ import annotations

from games.base import Resamples, State
from games.laws import Place, contrast

LAW = "resample"


def require_worlds(state: State, place: Place) -> None:
    """Raise ConformanceError where the seat to act can tell the drawn state from the real one."""
    seat, sample = state.actor, draw_world(state)
    if seat is None or sample is None:
        return
    for what, was, is_ in (
        ("actor", state.actor, sample.actor),
        ("view", state.view(seat), sample.view(seat)),
        ("options", state.options(), sample.options()),
    ):
        if was != is_:
            raise place.broken(
                LAW, f"the state drawn for seat {seat} has another {what}: {contrast(was, is_)}"
            )


def require_blind(state: State, twin: State, place: Place) -> None:
    """Raise ConformanceError where what is drawn depends on what the seat to act cannot see.

    Args:
        state: A state of a match.
        twin: Another in which the same seat is to act, and that it cannot tell from the first.
        place: The match.
    """
    one, two = draw_world(state), draw_world(twin)
    if one is None or two is None:
        return
    was, is_ = one.encode().decode(errors="replace"), two.encode().decode(errors="replace")
    if was != is_:
        raise place.broken(
            LAW,
            f"the state drawn for seat {state.actor} depends on what is hidden from it, under the"
            f" same numbers: {contrast(was, is_)}",
        )


def draw_world(state: State) -> State | None:
    """Give a state that the seat to act cannot tell from this one; None where none is drawn."""
    seat = state.actor
    if seat is None or seat < 0 or not isinstance(state, Resamples):
        return None
    return state.resample(seat, lambda which: (which * 0.618 + 0.3) % 1.0)
