"""Laws that every state of every game keeps, and what a broken one is reported with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from games.base import CHANCE, MAX_OPTIONS, GameFacts, Outcome, State, View
from games.errors import ConformanceError
from games.questions import Option, Question

ROUNDING = 1e-6
"""Payoffs may be this far outside their bounds, or from summing to zero."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a check something is found."""

    game: str
    seed: int
    turn: int = 0
    action: str | None = None

    def next(self, action: str | None) -> Place:
        """Give the place one turn later."""
        return msgspec.structs.replace(self, turn=self.turn + 1, action=action)

    def broken(self, law: str, difference: str) -> ConformanceError:
        """Make the error that names law, seed, turn and difference."""
        after = "" if self.action is None else f" after {self.action!r}"
        return ConformanceError(
            f"{self.game} breaks the law {law!r}, seed {self.seed}, turn {self.turn}{after}:"
            f" {difference}"
        )


class Shown(msgspec.Struct, frozen=True):
    """All that a state shows of itself."""

    actor: int | None
    options: tuple[Option, ...]
    outcomes: tuple[Outcome, ...]
    questions: tuple[Question, ...]
    returns: tuple[float, ...]
    encode: bytes
    views: tuple[View, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Legal actions or outcomes."""
        return tuple(each.id for each in self.options or self.outcomes)


def show(state: State, seats: int) -> Shown:
    """Ask a state for everything."""
    return Shown(
        state.actor,
        state.options(),
        state.outcomes(),
        state.questions(),
        state.returns(),
        state.encode(),
        tuple(state.view(seat) for seat in range(seats)),
    )


def require_same(law: str, expected: Shown, found: Shown, place: Place) -> None:
    """Raise ConformanceError for the first thing that two states show differently."""
    if expected == found:
        return
    for field in Shown.__struct_fields__:
        was, is_ = getattr(expected, field), getattr(found, field)
        if was != is_:
            raise place.broken(law, f"{field} {contrast(was, is_)}")


def contrast(was: object, is_: object) -> str:
    """Say where two values part, with a little of what surrounds it."""
    a, b = (value if isinstance(value, str) else repr(value) for value in (was, is_))
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    start = max(0, at - 20)
    return f"was {_short(a[start:])}, is {_short(b[start:])} (from character {start})"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def require_sound(facts: GameFacts) -> None:
    """Raise ConformanceError for facts that no game can have."""
    place = Place(game=facts.id, seed=0)
    if not 1 <= facts.min_seats <= facts.max_seats:
        raise place.broken("facts", f"seats from {facts.min_seats} to {facts.max_seats}")
    if facts.max_options < 1:
        raise place.broken("facts", f"max_options is {facts.max_options}")
    if not facts.min_return <= facts.max_return:
        raise place.broken("facts", f"returns from {facts.min_return} to {facts.max_return}")


def require_lawful(shown: Shown, facts: GameFacts, place: Place) -> None:
    """Raise ConformanceError for the first law that a state by itself breaks."""
    _text(shown, place)
    _actor(shown, facts, place)
    _labels("options", shown.options, place)
    _labels("outcomes", shown.outcomes, place)
    _options(shown, facts, place)
    _weights(shown, place)
    _questions(shown, facts, place)
    _returns(shown, facts, place)
    _public(shown, place)


def require_growth(before: Shown, after: Shown, place: Place) -> None:
    """Raise ConformanceError unless a turn only adds to the public text."""
    old, new = before.views[0], after.views[0]
    if new.epoch != old.epoch:
        raise place.broken(
            "growth", f"a turn changed the epoch from {old.epoch} to {new.epoch}; only rebase may"
        )
    if not new.public.startswith(old.public):
        part = contrast(old.public, new.public[: len(old.public)])
        raise place.broken("growth", f"the public text {part}; it may only grow at its end")


def require_rebase(state: State, shown: Shown, facts: GameFacts, place: Place) -> None:
    """Raise ConformanceError unless a rebase changes the public text and the epoch alone."""
    rebased = show(state.rebase(), len(shown.views))
    if facts.overflow == "stop":
        require_same("rebase", shown, rebased, place)
        return
    public = rebased.views[0].public
    moved = tuple(View(public, view.private, view.epoch + 1) for view in shown.views)
    require_same("rebase", msgspec.structs.replace(shown, views=moved), rebased, place)


def _actor(shown: Shown, facts: GameFacts, place: Place) -> None:
    actor, seats = shown.actor, len(shown.views)
    if actor is not None and actor != CHANCE and not 0 <= actor < seats:
        raise place.broken("actor", f"{actor!r} is no seat of {seats}")
    if actor == CHANCE and not facts.chance:
        raise place.broken("actor", "chance is to act, and facts.chance is False")
    expected = {None: (False, False), CHANCE: (False, True)}.get(actor, (True, False))
    found = bool(shown.options), bool(shown.outcomes)
    if found != expected:
        raise place.broken(
            "actor",
            f"actor {actor} has {len(shown.options)} options and {len(shown.outcomes)} outcomes;"
            " a seat has options alone, chance outcomes alone, the end neither",
        )


def _labels(law: str, labelled: Sequence[Option] | Sequence[Outcome], place: Place) -> None:
    seen: set[str] = set()
    for each in labelled:
        if each.id in seen:
            raise place.broken(law, f"the label {each.id!r} comes twice")
        if not each.id.strip():
            raise place.broken(law, f"the label {each.id!r} is blank")
        seen.add(each.id)


def _options(shown: Shown, facts: GameFacts, place: Place) -> None:
    options, factors = shown.options, facts.factors
    if len(options) > facts.max_options:
        raise place.broken(
            "options", f"{len(options)} options, and facts.max_options is {facts.max_options}"
        )
    for option in options:
        if len(option.parts) != len(factors):
            raise place.broken(
                "options", f"{option.id!r} has parts {option.parts}; facts.factors is {factors}"
            )
    if not factors:
        return
    if len({option.parts for option in options}) != len(options):
        raise place.broken("options", "two options have the same parts")
    for index, factor in enumerate(factors):
        count = len({option.parts[index] for option in options})
        if count > MAX_OPTIONS:
            raise place.broken(
                "options", f"{count} labels of the part {factor!r}, a question takes {MAX_OPTIONS}"
            )


def _weights(shown: Shown, place: Place) -> None:
    for outcome in shown.outcomes:
        if not 0 < outcome.weight < math.inf:
            raise place.broken("outcomes", f"{outcome.id!r} has the weight {outcome.weight}")


def _questions(shown: Shown, facts: GameFacts, place: Place) -> None:
    law, questions = "questions", shown.questions
    if not shown.options:
        if questions:
            raise place.broken(law, "questions are asked where no seat is to act")
        return
    if not questions or questions[0].type != "choice":
        raise place.broken(law, "the first question has to be a choice")
    if questions[0].options != shown.options:
        part = contrast(shown.options, questions[0].options)
        raise place.broken(law, f"options() and the options of the first question differ: {part}")
    if len({question.id for question in questions}) != len(questions):
        raise place.broken(law, "two questions have one id")
    for number, question in enumerate(questions):
        _labels(law, question.options, place)
        if not question.id.strip() or not question.instructions.strip():
            raise place.broken(law, f"question {number} has a blank id or blank instructions")
        above = facts.max_options > MAX_OPTIONS and number == 0
        if not question.options or (len(question.options) > MAX_OPTIONS and not above):
            raise place.broken(
                law,
                f"{question.id!r} has {len(question.options)} options, from 1 to {MAX_OPTIONS} are"
                " possible",
            )


def _returns(shown: Shown, facts: GameFacts, place: Place) -> None:
    law, returns, seats = "returns", shown.returns, len(shown.views)
    if len(returns) != seats or not all(map(math.isfinite, returns)):
        raise place.broken(law, f"{returns} is not one finite number for each of {seats} seats")
    if shown.actor is not None:
        return
    low, high = facts.min_return - ROUNDING, facts.max_return + ROUNDING
    if not all(low <= value <= high for value in returns):
        raise place.broken(law, f"{returns} is not within {facts.min_return} to {facts.max_return}")
    if facts.zero_sum and abs(sum(returns)) > ROUNDING:
        raise place.broken(law, f"{returns} does not sum to zero, and facts.zero_sum is True")


def _public(shown: Shown, place: Place) -> None:
    first = shown.views[0]
    for seat, view in enumerate(shown.views):
        if view.public != first.public:
            part = contrast(first.public, view.public)
            raise place.broken("public", f"the public text of seats 0 and {seat} differs: {part}")
        if view.epoch != first.epoch:
            raise place.broken("public", f"the epochs of seats 0 and {seat} differ")


def _text(shown: Shown, place: Place) -> None:
    for text in _texts(shown):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise place.broken("text", f"a lone surrogate in {_short(text)}") from None


def _texts(shown: Shown) -> Iterable[str]:
    yield shown.views[0].public
    yield from (view.private for view in shown.views)
    yield from (outcome.id for outcome in shown.outcomes)
    yield from (
        text for question in shown.questions for text in (question.id, question.instructions)
    )
    options = chain(shown.options, *(question.options for question in shown.questions[1:]))
    yield from (text for o in options for text in (o.id, o.description or "", *o.parts))
