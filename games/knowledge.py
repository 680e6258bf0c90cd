"""Laws between the states of many matches: what a seat sees decides what it is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable

import msgspec

from games.base import GameFacts, State, View
from games.laws import Place, Shown, contrast

Knows = Callable[[State, int], Hashable]
"""Gives what a seat may know at a state, such as its own cards and all public turns."""


class Knowledge:
    """Keeps what has to agree wherever a seat sees, or may know, the same.

    Attributes:
        concealed: Whether one seat has seen the same while another saw different things.
    """

    def __init__(self, facts: GameFacts, knows: Knows | None) -> None:
        self._facts = facts
        self._knows = knows
        self.concealed = False
        self._asked: dict[tuple[int, int, bytes], bytes] = {}
        self._others: dict[tuple[int, int, bytes], bytes] = {}
        self._truths: dict[tuple[int, bytes], bytes] = {}
        self._views: dict[tuple[int, int, Hashable], View] = {}

    @property
    def information_sets(self) -> int:
        """How many different views seats had when they were to act."""
        return len(self._asked)

    def note(self, state: State, shown: Shown, place: Place) -> None:
        """Compare a state with all those before; raises ConformanceError."""
        views = [_digest(view) for view in shown.views]
        if shown.options and shown.actor is not None:
            asked = _digest(shown.questions)
            key = (len(views), shown.actor, views[shown.actor])
            if self._asked.setdefault(key, asked) != asked:
                raise place.broken(
                    "information",
                    f"seat {shown.actor} has seen the same before and was asked something else or"
                    " offered other options; its view has to tell all that these depend on",
                )
        truth = _digest((shown.actor, shown.options, shown.outcomes, shown.returns))
        if self._truths.setdefault((len(views), shown.encode), truth) != truth:
            raise place.broken(
                "encode",
                "encode() gave the same bytes before where the seat to act, options, outcomes or"
                " returns were others; it has to tell all that these depend on",
            )
        self._compare_seats(views, place)
        if self._knows is not None:
            self._compare_known(self._knows, state, shown, place)

    def _compare_seats(self, views: list[bytes], place: Place) -> None:
        together = _digest(views)
        for seat, view in enumerate(views):
            if self._others.setdefault((len(views), seat, view), together) == together:
                continue
            if not self._facts.hidden:
                raise place.broken(
                    "hidden",
                    f"seat {seat} has seen the same before while another seat saw something else,"
                    " and facts.hidden is False",
                )
            self.concealed = True

    def _compare_known(self, knows: Knows, state: State, shown: Shown, place: Place) -> None:
        for seat, view in enumerate(shown.views):
            key = (len(shown.views), seat, knows(state, seat))
            before = self._views.setdefault(key, view)
            if before != view:
                raise place.broken(
                    "leak",
                    f"seat {seat} may not know more than before, and its view"
                    f" {contrast(before.text, view.text)}",
                )


def _digest(value: object) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(value), digest_size=16).digest()
