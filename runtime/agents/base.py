"""What an agent is, and what it is told when its seat is to act."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from games.base import CHANCE, Game, GameFacts, Resamples, State, View
from games.questions import Answer, Option, Question
from runtime.draws import draw
from runtime.errors import CannotPlay
from runtime.fold import Fold
from runtime.lots import seat_draw
from runtime.requests import questions_of
from store.events import ChatCost


class Act(msgspec.Struct, frozen=True):
    """What an agent does: the label of a legal option, and the draw that chose it, if one did.

    Attributes:
        chat: What the answer took that named it, from an agent that chats.
    """

    action: str
    draw: float | None = None
    chat: ChatCost | None = None


class Asker(Protocol):
    """What carries an agent's questions to a model; the match loop gives it."""

    async def __call__(
        self, turn: Turn, questions: Sequence[Question], chosen: tuple[str, ...], draw: float | None
    ) -> tuple[Answer, ...]:
        """Record the request, get the answers; raises EngineError when there are none."""
        ...


class Turn:
    """One seat's turn as its agent sees it: the seat's own view, never the state.

    Attributes:
        options: What is legal, in the game's order; at least two.
        facts: What there is to know about the game.
        number: How many turns the match has had, those of chance and forced ones included.
        index: How often this seat chose before in this match, forced actions not counted.
        refused: Why the action that was named before in this turn is not legal, or None.
    """

    def __init__(
        self,
        fold: Fold,
        options: tuple[Option, ...],
        *,
        facts: GameFacts,
        ask: Asker | None,
    ) -> None:
        actor = fold.state.actor
        assert actor is not None  # the loop makes a turn only where a seat is to act
        self.match = fold.match
        self.seat = actor
        self.options = options
        self.facts = facts
        self.number = fold.turn
        self.index = fold.choices[actor]
        self.refused = fold.refused[-1] if fold.refused else None
        self._fold = fold
        self._ask = ask

    @cached_property
    def view(self) -> View:
        """What the seat may see."""
        return self._fold.state.view(self.seat)

    def questions(self, chosen: tuple[str, ...] = ()) -> tuple[Question, ...]:
        """Give the game's own questions; for a factored action those of the next part."""
        return questions_of(
            self._fold.state.questions(), self.options, factors=self.facts.factors, chosen=chosen
        )

    def draw(self, part: int = 0) -> float:
        """Give this turn's number in [0, 1), or that of one part of it; the same on every call."""
        return seat_draw(self._fold, part)

    def world(self, number: int = 0) -> State:
        """Give a state that a search may look into; states never change.

        Where nothing is hidden it is the match's own. Where something is, it is one of those that
        this seat cannot tell from it: each number has its own, the same on every call.

        Raises:
            CannotPlay: The game hides something and cannot draw such a state.
        """
        seed, turn = self._fold.started.seed, self._fold.turn
        return _world(
            self.facts,
            self._fold.state,
            self.seat,
            lambda which: draw(seed, "world", self.seat, turn, number, which),
        )

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        chosen: tuple[str, ...] = (),
        draw: float | None = None,
    ) -> tuple[Answer, ...]:
        """Ask the match's model about the view, through the log.

        An agent that runs again after a restart has to ask the same again: answers that are in
        the log are given from there.

        Args:
            questions: What to ask.
            chosen: For a factored action, the parts that are settled.
            draw: The number that settled the last of them, if one did.

        Raises:
            EngineError: There is no answer and none will be waited for. It is recorded; unless
                the agent acts all the same, the match's fallback follows.
            CannotPlay: The match has no model, because no agent said that it `asks`.
        """
        if self._ask is None:
            raise CannotPlay(f"seat {self.seat} asks a model; its agent has to declare `asks`")
        return await self._ask(self, questions, chosen, draw)


class Agent(ABC):
    """Chooses for a seat, in any number of matches at once.

    What it keeps from turn to turn is lost when a match is resumed: everything that its choice
    depends on is in the turn.

    Attributes:
        asks: Whether it asks a decision model, so that a match with it needs one.
        quick: Whether it acts at once, so that there is no time to read anything ahead.
        interactive: Whether a person answers, so that one match at a time is enough.
        deadline_s: Seconds that it may think in a turn, waiting for a model not counted; None takes
            the match's deadline of a decision.
    """

    asks: bool = False
    quick: bool = False
    interactive: bool = False
    deadline_s: float | None = None

    def check(self, game: Game) -> None:  # noqa: B027 - most agents play every game
        """Raise CannotPlay for a game that it cannot play, before a match starts."""

    @abstractmethod
    async def act(self, turn: Turn) -> Act:
        """Choose one of `turn.options`.

        An illegal label is recorded and the agent is called once more, `turn.refused` saying why.
        Whatever it raises, or a turn that takes longer than its deadline, is recorded too, and the
        match's fallback follows.
        """


def require_worlds(game: Game) -> None:
    """Raise CannotPlay for a game that gives no `Turn.world`; it is tried at a first turn."""
    state = game.start(seats=game.facts.min_seats, seed=0)
    while state.actor == CHANCE:
        state = state.apply(state.outcomes()[0].id)
    if state.actor is not None:
        _world(game.facts, state, state.actor, lambda which: 0.0)


def _world(facts: GameFacts, state: State, seat: int, draw: Callable[[int], float]) -> State:
    if not facts.hidden:
        return state
    sample = state.resample(seat, draw) if isinstance(state, Resamples) else None
    if sample is None:
        raise CannotPlay(
            f"{facts.id} hides things from its seats and cannot draw a state that a seat may look"
            " into; let an agent play that does not search"
        )
    return sample
