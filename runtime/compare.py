"""What one recorded event has to agree with, given everything before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import msgspec

from engine.errors import EngineError
from games.base import CHANCE, State
from games.errors import IllegalAction
from games.questions import Option
from runtime.agents.registry import policy_of, split_spec
from runtime.draws import uniform
from runtime.fold import Asked, Fold, advance, state_hash, view_hashes
from runtime.lots import chance_lot, fallback_lot, seat_draw
from runtime.policy import Policy
from runtime.requests import action_of, complete, decision_id, derive_again, questions_of
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

Pair = tuple[str, Any, Any]
"""The name of a field, what is recorded, and what there is now."""


def compare_event(
    fold: Fold, event: Event, *, factors: tuple[str, ...]
) -> tuple[Fold | None, list[Pair]]:
    """Give the fold after an event and what differs; no fold where the event cannot come."""
    misplaced = _misplaced(fold, event)
    if misplaced is not None:
        return None, [misplaced]
    try:
        after = advance(fold, event)
    except IllegalAction as error:
        return None, [("action", error.action, str(error))]
    pairs = _content(fold, event, after, factors)
    return after, [pair for pair in pairs if pair[1] != pair[2]]


def compare_truth(
    state: State, event: MatchStarted | TurnTaken | ChanceDrawn | EpochStarted, seats: int
) -> Iterator[Pair]:
    """Compare the state's hash and every seat's view with an event that recorded them."""
    yield "state_hash", event.state_hash, state_hash(state)
    views = view_hashes(state, seats)
    if views != event.views:
        for seat, pair in enumerate(zip_longest(event.views, views)):
            yield f"views[{seat}]", *pair


def _misplaced(fold: Fold, event: Event) -> Pair | None:
    """Give a difference if the event cannot come at this point at all."""
    actor = fold.state.actor
    kind = str(event.__struct_config__.tag)
    if fold.ended is not None and not isinstance(event, AnswerDiscarded):
        return "event", kind, "the match has ended"
    match event:
        case TurnTaken() | DecisionRequested() | ActionRefused() if event.seat != actor:
            return "seat", event.seat, _who(actor)
        case ChanceDrawn() if actor != CHANCE:
            return "event", kind, f"to act: {_who(actor)}"
        case DecisionRequested() if _open(fold) is not None:
            return "event", kind, "the decision before it has no answer"
        case DecisionAnswered() | DecisionFailed():
            waiting = _open(fold)
            found = None if waiting is None else waiting.request.decision
            return None if found == event.decision else ("decision", event.decision, found)
        case MatchStarted():
            return "event", kind, "the match has started"
        case _:
            return None


def _content(fold: Fold, event: Event, after: Fold, factors: tuple[str, ...]) -> Iterator[Pair]:
    match event:
        case TurnTaken():
            yield from _turn(fold, event)
            yield from compare_truth(after.state, event, len(fold.previous))
        case ChanceDrawn():
            yield from _chance(fold, event)
            yield from compare_truth(after.state, event, len(fold.previous))
        case DecisionRequested():
            yield "decision", event.decision, decision_id(fold.match, fold.next_version)
            yield from _request(fold, event, factors)
        case DecisionAnswered():
            asked = fold.asked[-1].request.questions
            sizes = [(answer.question, len(answer.probabilities)) for answer in event.answers]
            yield "answers", sizes, [(each.id, len(each.options)) for each in asked]
        case EpochStarted():
            yield "epoch", event.epoch, fold.epoch + 1
            yield from compare_truth(after.state, event, len(fold.previous))
        case MatchEnded():
            over = fold.state.actor is None
            yield "end", event.end, "terminated" if over else "truncated"
            yield "returns", event.returns, fold.state.returns()
        case ActionRefused():
            legal = any(option.id == event.action for option in fold.state.options())
            yield "action", f"{event.action} is illegal", f"{event.action} is {_legal(legal)}"
        case DecisionFailed() | AnswerDiscarded() | MatchPaused() | MatchStarted():
            pass


def _chance(fold: Fold, event: ChanceDrawn) -> Iterator[Pair]:
    """Compare what chance did; of an imported match, and of forks of it, that is as recorded."""
    started = fold.started
    inherited = started.parent is not None and fold.turn < started.parent.turns
    if event.draw is None and (started.source is not None or inherited):
        return
    outcome, draw = chance_lot(fold)
    yield "draw", event.draw, draw
    yield "outcome", event.outcome, outcome


def _turn(fold: Fold, event: TurnTaken) -> Iterator[Pair]:
    """Compare who chose and what; an agent that is not of this project is taken at its word."""
    options = fold.state.options()
    agent = _name(fold.started.seats[event.seat])
    parent = fold.started.parent
    inherited = parent is not None and fold.turn < parent.turns
    if inherited or event.how == "parent":
        yield "how", event.how, "parent" if inherited else "the parent's turns are over"
    elif event.how == "forced":
        yield "how", "forced", "forced" if len(options) == 1 else f"{len(options)} legal actions"
    elif event.how == "fallback":
        lot = fallback_lot(fold, options)
        yield "action", event.action, None if lot is None else lot.label
        yield "draw", event.draw, None if lot is None else lot.draw
    elif event.how == "decision":
        last = fold.asked[-1] if fold.asked else None
        answered = None if last is None or last.answer is None else last.request.decision
        yield "decision", event.decision, answered
        if agent == "decision" and answered is not None:
            chosen, draw = _settled(fold, options)
            yield "draw", event.draw, draw
            yield "action", event.action, action_of(options, chosen)
    elif agent == "random":
        draw = seat_draw(fold)
        yield "draw", event.draw, draw
        yield "action", event.action, options[uniform(draw, len(options))].id


def _request(fold: Fold, event: DecisionRequested, factors: tuple[str, ...]) -> Iterator[Pair]:
    if _name(fold.started.seats[event.seat]) == "decision":
        state, options = fold.state, fold.state.options()
        chosen, draw = _settled(fold, options)
        questions = questions_of(state.questions(), options, factors=factors, chosen=chosen)
        yield "part", event.part, len(chosen)
        yield "chosen", event.chosen, chosen
        yield "draw", event.draw, draw
        if questions != event.questions:
            yield "questions", _json(event.questions), _json(questions)
    view = fold.state.view(event.seat)
    try:
        request = derive_again(view, event)
    except EngineError as error:
        yield "sha256", event.sha256, str(error)
        return
    yield "public_end", event.public_end, len(view.public)
    yield "length", event.length, request.length
    yield "sha256", event.sha256, request.sha256


def _settled(fold: Fold, options: Sequence[Option]) -> tuple[tuple[str, ...], float | None]:
    """Give the parts that a decision agent has settled in this turn, and its last draw."""
    last = fold.asked[-1] if fold.asked else None
    if last is None or last.answer is None:
        return complete(options, ()), None
    policy = _policy(fold.started.seats[last.request.seat])
    draw = seat_draw(fold, last.request.part) if policy.draws else None
    index = policy.choose(last.answer.answers[0].probabilities, draw)
    label = last.request.questions[0].options[index].id
    return complete(options, (*last.request.chosen, label)), draw


def _open(fold: Fold) -> Asked | None:
    """Give the decision that waits for its answer."""
    return fold.asked[-1] if fold.asked and fold.asked[-1].open else None


@lru_cache(maxsize=64)
def _name(spec: str) -> str:
    return split_spec(spec)[0]


@lru_cache(maxsize=64)
def _policy(spec: str) -> Policy:
    return policy_of(spec)


def _who(actor: int | None) -> str:
    return "nobody" if actor is None else "chance" if actor == CHANCE else f"{actor}"


def _legal(legal: bool) -> str:
    return "legal" if legal else "illegal"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
