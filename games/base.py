"""The protocol that every game fulfils.

A game is data (`GameFacts`) and a start state. States are immutable: `apply` gives the next state
and leaves the old one as it was, so that an illegal action changes nothing, a search may branch
where it likes, and any earlier point of a match stays at hand. An action is the label of a legal
option. Chance is a turn of its own (`actor == CHANCE`) whose outcome is drawn outside the game and
recorded; game code has no clock, no global random source and no unordered iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol, runtime_checkable

import msgspec

from games.questions import Option, Question

CHANCE: Final = -1
"""The `actor` of a state in which chance moves."""

MAX_OPTIONS: Final = 255
"""The most options one choice question may have; above it a game must be factored."""


class GameFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What generic code needs to know about a game.

    Attributes:
        id: The name under which it is loaded, parameters included.
        rules_version: Rises when the same actions lead elsewhere than before.
        layout_version: Rises when a view's or a question's text changes.
        max_options: The most options a seat can have at once.
        max_turns: A bound on turns (chance included), or None when there is none.
        hidden: Whether seats see different things.
        min_return, max_return: Bounds of what one seat can get.
        zero_sum: Whether the returns of all seats always sum to zero.
        factors: Names of an option's parts when options are factored, e.g. `("row", "column")`:
            a decision agent asks one question for each part in turn. Empty when one question does.
        overflow: What happens when the text no longer fits the model's window: `stop` truncates
            the match, `rebase` continues from `State.rebase()` in a new text epoch.
    """

    id: str
    title: str
    rules_version: int
    layout_version: int
    min_seats: int
    max_seats: int
    max_options: int
    max_turns: int | None
    chance: bool
    hidden: bool
    min_return: float
    max_return: float
    zero_sum: bool
    factors: tuple[str, ...] = ()
    overflow: Literal["stop", "rebase"] = "stop"

    @property
    def seats(self) -> str:
        """How many seats a match has, in words: `2 seats`, or `2 to 6 seats`."""
        fewest, most = self.min_seats, self.max_seats
        if fewest < most:
            return f"{fewest} to {most} seats"
        return f"{most} seat{'' if most == 1 else 's'}"


class View(msgspec.Struct, frozen=True):
    """What one seat may see, as text.

    Attributes:
        public: Rules, then the public log. The same for every seat, and within one `epoch` each
            version's text starts with the text of the version before.
        private: What only this seat sees, and facts that change from turn to turn.
        epoch: Counts how often the text was started anew.
    """

    public: str
    private: str = ""
    epoch: int = 0

    @property
    def text(self) -> str:
        """The state as a decision model reads it; `len(public)` is where the shared part ends."""
        return self.public + self.private


class Outcome(msgspec.Struct, frozen=True):
    """One way a chance turn can go; weights are relative and positive."""

    id: str
    weight: float = 1.0


class State(Protocol):
    """One point of a match. Immutable."""

    @property
    def actor(self) -> int | None:
        """The seat to act, `CHANCE`, or None when the rules have ended the match."""
        ...

    def options(self) -> tuple[Option, ...]:
        """Legal options of the seat to act, in a fixed order; empty at chance and at the end."""
        ...

    def outcomes(self) -> tuple[Outcome, ...]:
        """What chance may do, in a fixed order; empty where chance is not to act."""
        ...

    def apply(self, action: str) -> State:
        """Give the state after an option or outcome; raises IllegalAction for any other label."""
        ...

    def view(self, seat: int) -> View:
        """Give what `seat` may see, at chance turns and at the end too."""
        ...

    def questions(self) -> tuple[Question, ...]:
        """Give what to ask a decision model for the seat to act.

        The first question chooses the action: its options are `options()`. With factored options
        it is asked part by part, from its instructions. Further questions are read-outs.
        """
        ...

    def returns(self) -> tuple[float, ...]:
        """Give each seat's payoff so far; final when `actor` is None."""
        ...

    def encode(self) -> bytes:
        """Give canonical bytes of the full truth, the seat to act included."""
        ...

    def rebase(self) -> State:
        """Give the same state in a new text epoch, its public text rules + summary.

        Only called on games whose facts say `overflow="rebase"`; others return themselves.
        """
        ...


@runtime_checkable
class Settles(Protocol):
    """A state whose rules settle some of its questions, so that answers can be held against it."""

    def truths(self) -> Mapping[str, str]:
        """Give the label of the right option by the question's id."""
        ...


@runtime_checkable
class Resamples(Protocol):
    """A state of a game with hidden information that can draw others like itself, for searches."""

    def resample(self, seat: int, draw: Callable[[int], float]) -> State | None:
        """Give a state that `seat` cannot tell from this one, what it cannot see drawn anew.

        Args:
            seat: Who looks ahead. Its view and its options stay as they are.
            draw: Gives a number in [0, 1) for each whole number from 0.

        Returns:
            The state, as likely as the rules make it; None where the game cannot tell one.
        """
        ...


class Game(Protocol):
    """The rules."""

    @property
    def facts(self) -> GameFacts:
        """What generic code needs to know."""
        ...

    def start(self, *, seats: int, seed: int) -> State:
        """Give the first state; `seed` sets up what is fixed for a whole match, such as a map."""
        ...
