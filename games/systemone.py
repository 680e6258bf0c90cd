"""What a client of the System One API told, request after request, recorded like a match.

There are no rules: the one seat's action says what the state's text is now. A game's text mostly
grows at its end, so an action holds what changed behind the part that stays, and the text follows
from the actions alone. Such a match can be replayed and asked again, not played.
"""

from __future__ import annotations

import msgspec

from games.base import GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.questions import Option, Question

ID = "systemone"

_FACTS = GameFacts(
    id=ID,
    title="Requests of a System One client",
    rules_version=1,
    layout_version=1,
    min_seats=1,
    max_seats=1,
    max_options=0,
    max_turns=None,
    chance=False,
    hidden=False,
    min_return=0.0,
    max_return=0.0,
    zero_sum=False,
)


class Told(msgspec.Struct, frozen=True):
    """The text that was told last; `shared_end` is where what other requests share of it ends."""

    text: str = ""
    shared_end: int = 0

    @property
    def actor(self) -> int | None:
        """The client, always: it may ask again whenever it likes."""
        return 0

    def options(self) -> tuple[Option, ...]:
        """None: what a client tells is not one of a few things."""
        return ()

    def outcomes(self) -> tuple[Outcome, ...]:
        """None."""
        return ()

    def apply(self, action: str) -> Told:
        """Give the state after an action that `action_to` made."""
        kept, _, rest = action.partition(" ")
        end, space, added = rest.partition(" ")
        if not (space and kept.isdecimal() and end.isdecimal() and int(kept) <= len(self.text)):
            raise IllegalAction(action[:100], ("KEPT SHARED_END TEXT",))
        text = self.text[: int(kept)] + added
        if int(end) > len(text):
            raise IllegalAction(action[:100], (f"a SHARED_END up to {len(text)}",))
        return Told(text, int(end))

    def action_to(self, text: str, shared_end: int) -> str:
        """Name the action that leads to a text: how much stays, where the shared part ends, more.

        Args:
            text: The whole text of the request's state.
            shared_end: In characters.
        """
        kept = _common(self.text, text)
        return f"{kept} {shared_end} {text[kept:]}"

    def view(self, seat: int) -> View:
        """Give the text."""
        return View(self.text[: self.shared_end], self.text[self.shared_end :])

    def questions(self) -> tuple[Question, ...]:
        """None: they came with each request, and stand in its event."""
        return ()

    def returns(self) -> tuple[float, ...]:
        """Nothing is won."""
        return (0.0,)

    def encode(self) -> bytes:
        """Give the text and where its shared part ends."""
        return f"{self.shared_end} {self.text}".encode()

    def rebase(self) -> Told:
        """Give itself."""
        return self


class SystemOne:
    """The game whose matches are the sessions of clients."""

    @property
    def facts(self) -> GameFacts:
        """What generic code needs to know."""
        return _FACTS

    def start(self, *, seats: int, seed: int) -> Told:
        """Give the state in which nothing was told."""
        return Told()


def load(**parameters: str) -> SystemOne:
    """Give the game; it takes no parameters."""
    if parameters:
        raise BadGameParameters(f"{ID} takes no parameters, not {', '.join(parameters)}")
    return SystemOne()


def _common(one: str, two: str) -> int:
    """Count the characters that both begin with."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
