"""What the events of a match add up to.

The live loop, resumption and replay all hold a `Fold` and move it with `advance`, so that a match
is in the same place in all three. Everything here is pure.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from games.base import State
from store.events import (
    ActionRefused,
    AnswerDiscarded,
    ChanceDrawn,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    EpochStarted,
    Event,
    MatchEnded,
    MatchPaused,
    MatchStarted,
    TurnTaken,
)


class Asked(msgspec.Struct, frozen=True):
    """A decision asked for in the turn that is going on, and what became of it, once known."""

    request: DecisionRequested
    answer: DecisionAnswered | None = None
    failure: DecisionFailed | None = None

    @property
    def open(self) -> bool:
        """Whether an answer is still waited for."""
        return self.answer is None and self.failure is None


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """A match after some of its events.

    Attributes:
        next_version: The version that the next event will have.
        turn: How many turns, chance included, were taken; draws are made from it.
        epoch: How often the text was started anew.
        previous: Each seat's last action.
        choices: How often each seat chose; forced actions and those of a parent do not count.
        asked: Decisions of the turn that is going on, in order; a factored action has several.
        refused: Why each illegal action named in this turn is illegal.
        rebased: Whether the text was started anew since the last turn.
    """

    match: str
    started: MatchStarted
    state: State
    next_version: int
    turn: int
    epoch: int
    previous: tuple[str | None, ...]
    choices: tuple[int, ...]
    asked: tuple[Asked, ...] = ()
    refused: tuple[str, ...] = ()
    rebased: bool = False
    ended: MatchEnded | None = None


def begin(match: str, started: MatchStarted, state: State) -> Fold:
    """Give the fold after version 0; `state` is the game's first for the event's seed."""
    seats = len(started.seats)
    return Fold(
        match=match,
        started=started,
        state=state,
        next_version=1,
        turn=0,
        epoch=0,
        previous=(None,) * seats,
        choices=(0,) * seats,
    )


def successor(state: State, event: Event) -> State:
    """Give the state that an event leads to; raises IllegalAction where the rules forbid it."""
    if isinstance(event, TurnTaken):
        return state.apply(event.action)
    if isinstance(event, ChanceDrawn):
        return state.apply(event.outcome)
    if isinstance(event, EpochStarted):
        return state.rebase()
    return state


def advance(fold: Fold, event: Event, state: State | None = None) -> Fold:
    """Give the fold after one more event.

    Args:
        fold: Everything before the event.
        event: The next one. Whether it is what the rules and agents lead to is not checked here;
            `runtime/replay.py` does that.
        state: `successor(fold.state, event)`, where the caller has it already.

    Raises:
        IllegalAction: The rules do not allow the event's action or outcome.
    """
    version = fold.next_version + 1
    match event:
        case TurnTaken() | ChanceDrawn() | EpochStarted():
            state = successor(fold.state, event) if state is None else state
            return _moved(fold, event, state, version)
        case DecisionRequested():
            asked = (*fold.asked, Asked(event))
            return replace(fold, next_version=version, asked=asked)
        case DecisionAnswered():
            return replace(fold, next_version=version, asked=_closed(fold, answer=event))
        case DecisionFailed():
            return replace(fold, next_version=version, asked=_closed(fold, failure=event))
        case ActionRefused():  # the agent chooses anew, so what it asked before no longer counts
            refused = (*fold.refused, event.message)
            return replace(fold, next_version=version, asked=(), refused=refused)
        case AnswerDiscarded():
            return replace(fold, next_version=version)
        case MatchPaused():
            return replace(fold, next_version=version, asked=(), refused=())
        case MatchEnded():
            return replace(fold, next_version=version, ended=event)
        case MatchStarted():
            raise ValueError("a match starts once; `begin` takes its first event")


def _closed(
    fold: Fold, *, answer: DecisionAnswered | None = None, failure: DecisionFailed | None = None
) -> tuple[Asked, ...]:
    """Give the turn's decisions with the last one closed; only the last can be open."""
    return (*fold.asked[:-1], Asked(fold.asked[-1].request, answer, failure))


def _moved(
    fold: Fold, event: TurnTaken | ChanceDrawn | EpochStarted, state: State, version: int
) -> Fold:
    epoch, turn, previous, choices = fold.epoch, fold.turn + 1, fold.previous, fold.choices
    if isinstance(event, EpochStarted):
        epoch, turn = event.epoch, fold.turn
    elif isinstance(event, TurnTaken):
        seat = event.seat
        previous = (*previous[:seat], event.action, *previous[seat + 1 :])
        if event.how not in ("forced", "parent"):
            choices = (*choices[:seat], choices[seat] + 1, *choices[seat + 1 :])
    return Fold(
        match=fold.match,
        started=fold.started,
        state=state,
        next_version=version,
        turn=turn,
        epoch=epoch,
        previous=previous,
        choices=choices,
        rebased=isinstance(event, EpochStarted),
    )


def state_hash(state: State) -> str:
    """Give the SHA-256 of a state's canonical bytes, as hex."""
    return hashlib.sha256(state.encode()).hexdigest()


def view_hashes(state: State, seats: int) -> tuple[str, ...]:
    """Give one SHA-256 for each seat over its view: epoch, public part, private part.

    The public part is the long one and every seat has the same: it is hashed once.
    """
    hashes: list[str] = []
    public: str | None = None
    shared = hashlib.sha256()
    for seat in range(seats):
        view = state.view(seat)
        if view.public != public:
            public = view.public
            # A view with a lone surrogate can be hashed; the request made of it is refused.
            data = public.encode("utf-8", "surrogatepass")
            shared = hashlib.sha256(b"%d %d\n" % (view.epoch, len(data)))
            shared.update(data)
        own = shared.copy()
        own.update(view.private.encode("utf-8", "surrogatepass"))
        hashes.append(own.hexdigest())
    return tuple(hashes)
