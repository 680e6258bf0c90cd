"""What a match's seed decides at a point of the match; the loop casts these, replay casts again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from games.questions import Option
from runtime.draws import draw, pick, uniform
from runtime.fold import Fold

PASS = "pass"


class Lot(NamedTuple):
    """An action, and the number in [0, 1) that chose it, if one did."""

    label: str
    draw: float | None


def seat_draw(fold: Fold, part: int = 0) -> float:
    """Give the number for the seat to act, in this turn and for one part of its action."""
    return draw(fold.started.seed, "seat", fold.state.actor or 0, fold.turn, part)


def chance_lot(fold: Fold) -> tuple[str, float]:
    """Give the outcome of a chance turn and the number in [0, 1) that chose it."""
    number = draw(fold.started.seed, "chance", fold.turn)
    outcomes = fold.state.outcomes()
    return outcomes[pick([outcome.weight for outcome in outcomes], number)].id, number


def fallback_lot(fold: Fold, options: Sequence[Option]) -> Lot | None:
    """Give the action that the match falls back on; None if there is none, so that it pauses."""
    actor = fold.state.actor or 0
    match fold.started.fallback:
        case "random":
            number = draw(fold.started.seed, "fallback", actor, fold.turn)
            return Lot(options[uniform(number, len(options))].id, number)
        case "pass":
            label = PASS
        case "previous":
            label = fold.previous[actor]
        case "pause":
            return None
    return Lot(label, None) if label in {option.id for option in options} else None
