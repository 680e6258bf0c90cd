"""A client's requests as the events of a match; see `games/systemone.py`."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from msgspec.structs import replace

from engine.contract import Ask, DecisionReply
from engine.models import Model
from games.questions import Answer, Option, Question
from games.systemone import ID, SystemOne, Told
from runtime.fold import state_hash, view_hashes
from runtime.requests import decision_id, request_of
from store.events import DecisionAnswered, DecisionRequested, Event, MatchStarted, TurnTaken

_SEATS: Final = 1
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


def match_of(caller: str, session: str) -> str:
    """Give the match of a session; it can stand in a subject of the queue."""
    plain = _PLAIN.fullmatch(session)
    name = session if plain else hashlib.sha256(session.encode()).hexdigest()[:32]
    return f"{ID}:{caller}:{name}"


def started(session: str, model: Model, *, deadline_s: float) -> MatchStarted:
    """Begin a session; it is named if its client did."""
    game = SystemOne()
    state = game.start(seats=_SEATS, seed=0)
    return MatchStarted(
        game=ID,
        rules_version=game.facts.rules_version,
        layout_version=game.facts.layout_version,
        seats=(f"client:{session}" if session else "client",),
        seed=0,
        fallback="pause",
        overflow="stop",
        deadline_s=deadline_s,
        window=model.window,
        state_hash=state_hash(state),
        views=view_hashes(state, _SEATS),
    )


def turn(
    told: Told, ask: Ask, *, match: str, version: int, model: Model, deadline_s: float
) -> tuple[Told, list[Event]]:
    """Give what is told now, and the two events that say so and what is asked.

    Args:
        told: What the session told before.
        ask: The request.
        match: The session's.
        version: Of the first event.
        model: Who is asked.
        deadline_s: Of the answer.
    """
    action = told.action_to(ask.state, ask.public_end)
    told = told.apply(action)
    questions, texts = questions_of(ask)
    # the salt names the caller to the caches and changes no answer
    request = request_of(replace(ask, salt=""))
    return told, [
        TurnTaken(
            seat=0,
            action=action,
            how="agent",
            state_hash=state_hash(told),
            views=view_hashes(told, _SEATS),
        ),
        DecisionRequested(
            decision=decision_id(match, version + 1),
            seat=0,
            part=0,
            questions=questions,
            form=ask.form,
            record=ask.record,
            public_end=ask.public_end,
            length=request.length,
            sha256=request.sha256,
            deadline_s=deadline_s,
            fallback="pause",
            bundle=model.hash,
            option_texts=texts,
            max_length=ask.max_length,
        ),
    ]


def answered(
    decision: str, reply: DecisionReply, answers: tuple[Answer, ...], *, total_ms: float
) -> DecisionAnswered:
    """Give the event of an answer."""
    return DecisionAnswered(
        decision=decision,
        attempt=reply.attempt,
        answers=answers,
        tokens_read=reply.tokens_read,
        tokens_reused=reply.tokens_reused,
        queue_ms=reply.queue_ms,
        engine_ms=reply.engine_ms,
        total_ms=total_ms,
        fingerprint=reply.fingerprint,
    )


def questions_of(ask: Ask) -> tuple[tuple[Question, ...], tuple[tuple[str, ...], ...]]:
    """Give an ask's fields as questions, and the texts of all options if questions lose them."""
    questions = tuple(
        Question(
            id=field.id,
            type=field.type,
            instructions=field.instruction,
            options=tuple(map(_option, field.option_ids, field.option_texts)),
        )
        for field in ask.fields
    )
    whole = all(map(_is_text, (text for field in ask.fields for text in field.option_texts)))
    return questions, () if whole else tuple(field.option_texts for field in ask.fields)


def _option(id: str, text: str) -> Option:
    description = json.loads(text).get("description")
    if description is None or isinstance(description, str):
        return Option(id, description)
    return Option(id, json.dumps(description, ensure_ascii=False))


def _is_text(option: str) -> bool:
    return isinstance(json.loads(option).get("description", ""), str)
