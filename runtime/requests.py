"""What a decision asks, derived from the state alone, so that it can be derived again.

A factored action is asked part by part: each question offers the labels that a part can still
have, and says what was chosen before. Parts that leave no choice are not asked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from engine.contract import Ask, DecisionReply, Form, RecordKind, encode_ask
from engine.errors import EngineFailed
from engine.records import ask_from_questions
from games.base import MAX_OPTIONS, View
from games.questions import Answer, Option, Question
from games.questions import choice as choice_question
from runtime.errors import CannotPlay
from store.events import DecisionRequested

FORM: Form = "independent"
RECORD: RecordKind = "neutral"


class Request(msgspec.Struct, frozen=True):
    """An ask with what the log keeps of it: the length and SHA-256 of its bytes."""

    ask: Ask
    length: int
    sha256: str


def derive(
    view: View, questions: Sequence[Question], *, form: Form = FORM, record: RecordKind = RECORD
) -> Request:
    """Make the request for questions about a view.

    Raises:
        BadRequest: A text cannot be sent, such as one with a lone surrogate.
    """
    ask = ask_from_questions(
        state=view.text,
        public_end=len(view.public),
        questions=questions,
        form=form,
        record=record,
    )
    return request_of(ask)


def derive_again(view: View, asked: DecisionRequested) -> Request:
    """Make the request that an event recorded, from what its seat sees; raises what `derive` does.

    It is the recorded one if its hash is.
    """
    request = derive(view, asked.questions, form=asked.form, record=asked.record)
    if not asked.option_texts and asked.max_length is None:
        return request
    ask = request.ask
    if asked.option_texts:
        pairs = zip(ask.fields, asked.option_texts, strict=False)
        fields = tuple(replace(field, option_texts=texts) for field, texts in pairs)
        ask = replace(ask, fields=fields)
    return request_of(replace(ask, max_length=asked.max_length))


def request_of(ask: Ask) -> Request:
    """Measure an ask."""
    data = encode_ask(ask)
    return Request(ask, len(data), hashlib.sha256(data).hexdigest())


def decision_id(match: str, version: int) -> str:
    """Name the decision that the event at `version` asks for; safe inside a subject's token."""
    return f"{match}-{version}"


def match_of(decision: str) -> str:
    """Give the match of a decision's id."""
    return decision.rpartition("-")[0]


def parts_of(option: Option) -> tuple[str, ...]:
    """Give an option's parts; an option that is not factored is its own only part."""
    return option.parts or (option.id,)


def complete(options: Sequence[Option], chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Extend `chosen` by the parts that leave no choice."""
    left = _compatible(options, chosen)
    while left and len(chosen) < len(parts_of(left[0])):
        labels = {parts_of(option)[len(chosen)] for option in left}
        if len(labels) > 1:
            break
        chosen += tuple(labels)
    return chosen


def action_of(options: Sequence[Option], chosen: tuple[str, ...]) -> str | None:
    """Give the action whose parts are `chosen`, or None while parts are missing."""
    for option in options:
        if parts_of(option) == chosen:
            return option.id
    return None


def questions_of(
    questions: tuple[Question, ...],
    options: Sequence[Option],
    *,
    factors: tuple[str, ...],
    chosen: tuple[str, ...] = (),
) -> tuple[Question, ...]:
    """Give what to ask next: a state's questions as they are, or for one part of its action.

    Args:
        questions: `State.questions()`; the first chooses the action.
        options: `State.options()`.
        factors: Names of the parts, empty when an action has none.
        chosen: Labels of the parts that are settled. Read-outs are asked with the first question
            of a turn, once.

    Raises:
        CannotPlay: There are more labels than a question can have.
    """
    question = questions[0]
    if factors:
        labels = dict.fromkeys(
            parts_of(option)[len(chosen)] for option in _compatible(options, chosen)
        )
        settled = f"Already chosen: {', '.join(chosen)}. " if chosen else ""
        factor = factors[len(chosen)]
        question = choice_question(
            f"{question.id}_{factor}",
            f"{question.instructions}\n{settled}Now choose only the {factor}.",
            tuple(map(Option, labels)),
        )
    if len(question.options) > MAX_OPTIONS:
        raise CannotPlay(
            f"question {question.id!r} has {len(question.options)} options,"
            f" a decision takes {MAX_OPTIONS}; the game has to factor its actions"
        )
    if factors and chosen != complete(options, ()):
        return (question,)
    return (question, *questions[1:])


def answers_of(questions: Sequence[Question], reply: DecisionReply) -> tuple[Answer, ...]:
    """Give a reply's probabilities in the order of the questions and of their options.

    Raises:
        EngineFailed: The reply does not fit the questions, or is not made of probabilities.
    """
    if len(reply.answers) != len(questions):
        raise EngineFailed(
            f"decision {reply.id}: {len(reply.answers)} answers to {len(questions)} questions"
        )
    answers: list[Answer] = []
    for question, field in zip(questions, reply.answers, strict=True):
        found = dict(zip(field.option_ids, field.probabilities, strict=False))
        probabilities = tuple(found.get(option.id, math.nan) for option in question.options)
        if len(found) != len(probabilities) or not _are_probabilities(probabilities):
            raise EngineFailed(
                f"decision {reply.id}: the answer to {question.id!r} is not one probability"
                f" for each of its {len(probabilities)} options"
            )
        answers.append(Answer(question.id, probabilities))
    return tuple(answers)


def _are_probabilities(values: Sequence[float]) -> bool:
    return all(0 <= value <= 1 for value in values) and math.isclose(sum(values), 1, abs_tol=1e-3)


def _compatible(options: Sequence[Option], chosen: tuple[str, ...]) -> list[Option]:
    return [option for option in options if parts_of(option)[: len(chosen)] == chosen]
