"""System One requests: what is accepted, and the reply.

Beyond the API there are fields of our own. In a request: `x_form` (`independent` or `joint`),
`x_record` (`neutral` or `release`), `x_session` (requests of one session go to one worker),
`x_max_length` (cut the state's end to so many tokens). In a reply all that begins with `x_`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from engine.contract import Ask, DecisionReply
from engine.errors import BadRequest
from engine.records import ask_from_system_one, parse_json
from runtime.http.answers import Confidence, answer
from runtime.http.problems import Problem, invalid, of_engine, problem

MAX_QUESTIONS: Final = 512
MAX_OPTIONS: Final = 255
MAX_LEVELS: Final = 10
LONGEST: Final = 2**31 - 1  # tokens; beyond every window, and within what messages hold
_SHARED: Final = 2048  # characters of the state that tell one caller's sessions apart
_ENDS: Final = '"]} \n'  # what closes a JSON state, and stands elsewhere when it has grown
_OTHER_NAMES: Final = {  # what other vendors call the three types
    "boolean": "noul",
    "predicate": "noul",
    "bernoulli": "noul",
    "bool": "noul",
    "number": "score",
    "scale": "score",
    "enum": "choice",
}


class Asked(msgspec.Struct, frozen=True):
    """One request, read.

    Attributes:
        request: The JSON object as it came.
        ask: What is asked of the engine.
        affinity: Requests with the same one go to one worker.
        session: The caller's `x_session`; empty if there is none.
        start: What else tells the caller's sessions apart: a hash of the state's start.
    """

    request: dict[str, Any]
    ask: Ask
    affinity: str
    session: str
    start: str


def read(data: bytes, *, models: Collection[str], caller: str) -> Asked:
    """Read a request.

    Args:
        data: Its JSON text.
        models: The names that are served here.
        caller: The name of the caller's key; keeps its reuse apart from that of others.

    Raises:
        Problem: 422 with the place of the fault, or 404 for an unknown model.
    """
    try:
        request = parse_json(data)
    except BadRequest as error:
        raise invalid(str(error), kind="json_invalid") from error
    if not isinstance(request, dict):
        raise invalid("the body must be a JSON object", kind="dict_type")
    _check_shape(request)
    model = request.get("model")
    if isinstance(model, str) and model not in models:
        raise _unknown_model(model, models)
    try:
        ask = ask_from_system_one(
            request,
            form=request.get("x_form", "independent"),
            record=request.get("x_record", "neutral"),
            max_length=request.get("x_max_length"),
        )
    except BadRequest as error:
        raise of_engine(error) from error
    ask = msgspec.structs.replace(ask, public_end=len(ask.state.rstrip(_ENDS)), salt=caller)
    session = request.get("x_session") or ""
    start = hashlib.sha256(ask.state[:_SHARED].encode()).hexdigest()
    affinity = f"{caller}/{session or start}"
    return Asked(request, ask, affinity=affinity, session=session, start=start)


def reply_to(
    asked: Asked, reply: DecisionReply, *, model: str, confidence: Confidence
) -> dict[str, Any]:
    """Give the reply's document."""
    answers = {
        each.id: dict(zip(each.option_ids, each.probabilities, strict=True))
        for each in reply.answers
    }
    document: dict[str, Any] = {
        "model": model,
        "answers": {
            id: answer(question, answers[id], confidence=confidence)
            for id, question in asked.request["questions"].items()
        },
        "usage": {"input_tokens": reply.tokens, "output_tokens": 0},
        "x_form": asked.ask.form,
        "x_record": asked.ask.record,
        "x_tokens_read": reply.tokens_read,
        "x_tokens_reused": reply.tokens_reused,
        "x_queue_ms": round(reply.queue_ms, 3),
        "x_engine_ms": round(reply.engine_ms, 3),
        "x_fingerprint": reply.fingerprint,
    }
    if reply.truncated:
        document["x_truncated"] = reply.truncated
    return document


def _check_shape(request: dict[str, Any]) -> None:
    """Refuse what the API has no answer to, beyond what no record can hold."""
    for name in ("assets", "images", "videos"):
        if request.get(name):
            raise invalid(
                f"{name}: this model reads text only; describe what they show in the state", (name,)
            )
    if "state" in request and not isinstance(request["state"], str | dict | list):
        raise invalid("state must be a string, an object or an array", ("state",))
    _check_ours(request)
    questions = request.get("questions")
    if not isinstance(questions, dict):
        return  # the engine's reading says what is missing
    if len(questions) > MAX_QUESTIONS:
        raise invalid(
            f"{len(questions)} questions; a request may have {MAX_QUESTIONS}", ("questions",)
        )
    for id, question in questions.items():
        if not id:
            raise invalid("a question's id must not be empty", ("questions", id))
        if isinstance(question, dict):
            _check_question(question, ("questions", id))


def _check_ours(request: dict[str, Any]) -> None:
    for name, values in {
        "x_form": ("independent", "joint"),
        "x_record": ("neutral", "release"),
    }.items():
        if name in request and request[name] not in values:
            raise invalid(f"{name} must be {' or '.join(values)}", (name,), "enum")
    session = request.get("x_session")
    if session is not None and (not isinstance(session, str) or len(session) > 200):
        raise invalid("x_session must be a string of at most 200 characters", ("x_session",))
    length = request.get("x_max_length")
    if length is not None and (type(length) is not int or not 0 < length <= LONGEST):
        raise invalid(f"x_max_length must be an integer from 1 to {LONGEST}", ("x_max_length",))


def _check_question(question: dict[str, Any], place: tuple[str, str]) -> None:
    kind, criteria = question.get("type"), question.get("criteria")
    if kind == "box":
        raise invalid("box needs an image, and this model reads text only", (*place, "type"))
    if isinstance(kind, str) and kind in _OTHER_NAMES:
        right = _OTHER_NAMES[kind]
        raise invalid(f"there is no type {kind!r} here; it is {right!r}", (*place, "type"))
    instructions = question.get("instructions")
    if not isinstance(instructions, str | dict | list | None):
        raise invalid(
            "instructions must be a string, an object or an array", (*place, "instructions")
        )
    if isinstance(criteria, dict | list):
        most = {"choice": MAX_OPTIONS, "score": MAX_LEVELS}.get(str(kind))
        if most is not None and len(criteria) > most:
            what = "options" if kind == "choice" else "levels"
            raise invalid(f"{len(criteria)} {what}; a {kind} may have {most}", (*place, "criteria"))
        if kind == "noul" and isinstance(criteria, dict) and set(criteria) - {"true", "false"}:
            raise invalid("criteria of noul are true and false", (*place, "criteria"))
        each = criteria.items() if isinstance(criteria, dict) else enumerate(criteria)
        for key, text in each:
            if not isinstance(text, str | dict | list | None):
                raise invalid(
                    "a description must be a string, an object or an array",
                    (*place, "criteria", key),
                )


def _unknown_model(model: str, models: Collection[str]) -> Problem:
    shown = model[:100].encode("utf-8", "backslashreplace").decode()
    return problem(404, "not_found", f"no model {shown!r} here; there are {', '.join(models)}")
