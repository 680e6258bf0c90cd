"""From questions to the texts of a record: System One requests and games' questions.

Values become text as Python's `json` writes them, because the release renders with it: sorted
keys, no spaces, shortest floats, integers of any length. Where the release accepts something only
by accident (levels from an object's keys, say), the request is refused instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from engine.contract import Ask, Field, Form, RecordKind
from engine.errors import BadRequest
from games.questions import FALSE, TRUE, Question, QuestionType

_TYPES: Final = ("noul", "choice", "score")
_to_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_SHOWN: Final = 200  # characters of the caller's text in a message


def parse_json(text: str | bytes) -> Any:
    """Read one JSON text: of a repeated key the last counts, integers stay exact.

    As in the release's parser, `NaN` and lone surrogates are read; `ask_from_system_one` refuses
    them and can then say where they stand.

    Raises:
        BadRequest: It is not UTF-8, not JSON, nested too deep, or has an absurdly long number.
    """
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise BadRequest(f"not UTF-8 at byte {error.start}; send UTF-8") from error
    except RecursionError as error:
        raise BadRequest("the JSON text is nested too deep; flatten it") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}") from error
    except ValueError as error:  # Python reads no integer of more than 4,300 digits
        raise BadRequest("a number has more than 4300 digits; send it as a string") from error


def render(value: Any) -> str:
    """Give a JSON value as the record shows it; a string is used as it is.

    Raises:
        BadRequest: It is nested too deep.
    """
    if isinstance(value, str):
        return value
    try:
        return _to_json(value)
    except RecursionError as error:
        raise BadRequest("a value is nested too deep; flatten it") from error


def ask_from_system_one(
    request: dict[str, Any],
    *,
    form: Form = "independent",
    record: RecordKind = "neutral",
    max_length: int | None = None,
) -> Ask:
    """Make the ask of a System One request, rendered exactly as the release does.

    Args:
        request: A JSON object, read with `parse_json`.
        form: One record for each question, or one for all.
        record: How independent questions are named.
        max_length: The caller's wish to have the state's end cut.

    Raises:
        BadRequest: Names the question, or the place of a value that no record can hold.
    """
    _check_values(request)
    for name in ("model", "state"):
        if name not in request or (name == "model" and not isinstance(request[name], str)):
            raise BadRequest("model and state are required", (name,))
    questions = request.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise BadRequest("at least one question is required", ("questions",))
    fields = tuple(_field(id, question) for id, question in questions.items())
    for name in ("images", "videos"):
        if request.get(name):
            raise BadRequest(
                "images and videos are not read here; describe them in the state", (name,)
            )
    return Ask(
        state=render(request["state"]),
        fields=fields,
        form=form,
        record=record,
        max_length=max_length,
    )


def ask_from_questions(
    *,
    state: str,
    public_end: int = 0,
    questions: Sequence[Question],
    form: Form = "independent",
    record: RecordKind = "neutral",
) -> Ask:
    """Make the ask of a game's questions.

    Options of a choice are put in model order (by code point); those of other types have theirs.

    Raises:
        BadRequest: Ids repeat, a question has no options, or a text holds a lone surrogate.
    """
    if not questions:
        raise BadRequest("at least one question is required")
    ids = [question.id for question in questions]
    if len(set(ids)) < len(ids):
        raise BadRequest(f"question ids must differ: {ids}")
    _check_text(state, "state")
    return Ask(
        state=state,
        fields=tuple(map(_field_of_question, questions)),
        form=form,
        record=record,
        public_end=public_end,
    )


def _field_of_question(question: Question) -> Field:
    options = {option.id: option.description for option in question.options}
    if not options or len(options) < len(question.options):
        raise BadRequest(
            f"{_show_id(question.id)}: options must have ids that differ, one at least"
        )
    field = _render_field(question.id, question.type, question.instructions, options)
    for text in (field.id, field.instruction, *field.option_texts):
        _check_text(text, f"question {_short(repr(field.id))}")
    return field


def _field(id: str, question: Any) -> Field:
    name, place = _show_id(id), ("questions", id)
    if not isinstance(question, dict):
        raise BadRequest(f"{name}: a question must be an object with a type", place)
    type_, criteria = question.get("type"), question.get("criteria")
    if not isinstance(type_, str) or type_ not in _TYPES:
        raise BadRequest(f"{name}: type must be noul, choice, or score", (*place, "type"))
    place = (*place, "criteria")
    if type_ == "noul":
        if criteria and not isinstance(criteria, dict):
            raise BadRequest(
                f"{name}: criteria of noul must be an object with true and false", place
            )
        given = criteria or {}
        options = {"true": given.get("true", TRUE), "false": given.get("false", FALSE)}
    elif not criteria:
        raise BadRequest(f"{name}: criteria must not be empty", place)
    elif type_ == "choice":
        if not isinstance(criteria, dict):
            raise BadRequest(
                f"{name}: criteria of choice must be an object, id to description", place
            )
        options = criteria
    else:
        if not isinstance(criteria, list):
            raise BadRequest(f"{name}: criteria of score must be an array of descriptions", place)
        options = {str(level): description for level, description in enumerate(criteria)}
    return _render_field(id, type_, question.get("instructions"), options)


def _render_field(
    id: str, type_: QuestionType, instructions: Any, options: dict[str, Any]
) -> Field:
    """Render one field; `options` go from id to description, in the caller's order."""
    instruction = id if instructions is None or instructions == "" else render(instructions)
    if not instruction:
        raise BadRequest(
            "a question with the id '' needs instructions: there is nothing to read",
            ("questions", id),
        )
    ids = sorted(options) if type_ == "choice" else list(options)
    return Field(
        id=id,
        type=type_,
        instruction=instruction,
        option_ids=tuple(ids),
        option_texts=tuple(_render_option(id, options[id]) for id in ids),
    )


def _render_option(id: str, description: Any) -> str:
    if description is None or isinstance(description, str):
        return _render_text_option(id, description)
    return render({"option_id": id, "description": description})


@lru_cache(maxsize=4096)
def _render_text_option(id: str, description: str | None) -> str:
    """A game offers the same options turn after turn."""
    if description is None:
        return render({"option_id": id})
    return render({"option_id": id, "description": description})


_Place = tuple["_Place", str | int] | None


def _check_values(request: dict[str, Any]) -> None:
    """Refuse what JSON text may hold but a record or an answer cannot, and say where it stands."""
    pending: list[tuple[_Place, Any]] = [(None, request)]
    while pending:
        place, value = pending.pop()
        match value:
            case str():
                _check_text(value, place)
            case float():
                if not math.isfinite(value):
                    raise BadRequest(
                        f"{_show_place(place)}: {value} is no finite number; send null or text",
                        _keys(place),
                    )
            case list():
                pending.extend(((place, index), item) for index, item in enumerate(value))
            case dict():
                for key, item in value.items():
                    _check_text(key, place)
                    pending.append(((place, key), item))


def _keys(place: _Place) -> tuple[str | int, ...]:
    keys: list[str | int] = []
    while place is not None:
        place, key = place
        keys.append(key)
    return tuple(reversed(keys))


def _show_place(place: _Place) -> str:
    shown = (
        f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
        for key in _keys(place)
    )
    return _short("request" + "".join(shown))


def _show_id(id: str) -> str:
    """Give an id as a message can hold it: as it is if that is one short line."""
    return _short(id if id.isprintable() else repr(id))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_text(text: str, place: _Place | str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        where = place if isinstance(place, str) else _show_place(place)
        raise BadRequest(
            f"{where}: a lone surrogate at character {error.start}; send valid Unicode",
            () if isinstance(place, str) else _keys(place),
        ) from error
