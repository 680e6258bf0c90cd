"""The API's description, from the types of its messages."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Annotated, Any, Literal

import msgspec

from runtime.http.systemone import LONGEST

Text = str | dict[str, Any] | list[Any]
"""Prose, or JSON that the model reads as it is."""

Options = Annotated[
    dict[str, Text | None],
    msgspec.Meta(
        min_length=1, max_length=255, description="Label to description; the reply has the labels."
    ),
]
Levels = Annotated[
    list[Text | None],
    msgspec.Meta(min_length=1, max_length=10, description="Descriptions of the levels from 0."),
]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class NoulCriteria(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What yes and no mean."""

    true: Text | None = None
    false: Text | None = None


class Noul(msgspec.Struct, tag_field="type", tag="noul", omit_defaults=True):
    """A question of yes or no."""

    instructions: Text | None = None
    criteria: NoulCriteria | None = None


class Choice(msgspec.Struct, tag_field="type", tag="choice", omit_defaults=True):
    """One of several options."""

    criteria: Options
    instructions: Text | None = None


class Score(msgspec.Struct, tag_field="type", tag="score", omit_defaults=True):
    """A level from 0."""

    criteria: Levels
    instructions: Text | None = None


class SystemOneRequest(msgspec.Struct, omit_defaults=True):
    """A state, and questions about it. Absent is as null; unknown fields are ignored."""

    model: str
    state: Text
    questions: Annotated[
        dict[Annotated[str, msgspec.Meta(min_length=1)], Noul | Choice | Score],
        msgspec.Meta(min_length=1, max_length=512),
    ]
    x_form: Literal["independent", "joint"] = "independent"
    x_record: Literal["neutral", "release"] = "neutral"
    x_session: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    x_max_length: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)] | None = None


class NoulAnswer(msgspec.Struct, tag_field="type", tag="noul"):
    """The probability of yes."""

    noul: Probability


class ChoiceAnswer(msgspec.Struct, tag_field="type", tag="choice"):
    """The most probable option, and all of them."""

    choice: str
    probabilities: dict[str, Probability]
    confidence: Probability


class ScoreAnswer(msgspec.Struct, tag_field="type", tag="score"):
    """The expected level."""

    score: float
    legend: dict[str, Text]
    probabilities: dict[str, Probability]
    confidence: Probability


class Usage(msgspec.Struct):
    """Tokens of all records, and none that were written."""

    input_tokens: int
    output_tokens: int


class SystemOneReply(msgspec.Struct, omit_defaults=True):
    """One answer for each question."""

    model: str
    answers: dict[str, NoulAnswer | ChoiceAnswer | ScoreAnswer]
    usage: Usage
    x_form: str
    x_record: str
    x_tokens_read: int
    x_tokens_reused: int
    x_queue_ms: float
    x_engine_ms: float
    x_fingerprint: str
    x_truncated: int = 0


class Fault(msgspec.Struct):
    """One fault of a request and where it is."""

    loc: list[str | int]
    msg: str
    type: str


class Invalid(msgspec.Struct):
    """Why a request is refused."""

    detail: list[Fault]


class Said(msgspec.Struct):
    """The kind of an error, and a sentence."""

    error_type: str
    message: str


class Refused(msgspec.Struct):
    """Any other error."""

    detail: Said


EXAMPLE = {
    "model": "clef",
    "state": "The server room is on fire.",
    "questions": {
        "act": {
            "type": "choice",
            "instructions": "What now?",
            "criteria": {"run": "Leave the building", "wait": "Stay"},
        },
        "alarm": {"type": "noul", "instructions": "Is this urgent?"},
        "heat": {"type": "score", "criteria": ["cold", "warm", "hot"]},
    },
}

_REFUSALS = {
    "400": "A broken body.",
    "401": "An unknown key.",
    "403": "No key.",
    "404": "An unknown model.",
    "408": "The body did not arrive.",
    "413": "More bytes or tokens than are read here.",
    "415": "Another content type or encoding.",
    "429": "A key's limit; retry-after says how long.",
    "503": "No worker, a full queue, or no time; retry-after says when to ask again.",
}


def document(models: Iterable[str]) -> dict[str, Any]:
    """Give the OpenAPI 3.1 document of a server that serves these names."""
    types = (SystemOneRequest, SystemOneReply, Invalid, Refused)
    shapes, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    request, reply, invalid, refused = ({"application/json": {"schema": s}} for s in shapes)
    names = sorted(models)
    request["application/json"]["example"] = EXAMPLE
    bad = {"description": "The request is at fault.", "content": invalid}
    others = {
        status: {"description": text, "content": refused} for status, text in _REFUSALS.items()
    }
    plain = {"description": "Done.", "content": {"application/json": {"schema": {}}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ostinato",
            "version": "1",
            "description": "Decisions by the System One API. Models: " + ", ".join(names),
        },
        "paths": {
            "/v1/systemone": {
                "post": {
                    "summary": "Answer questions about a state.",
                    "operationId": "systemone",
                    "requestBody": {"required": True, "content": request},
                    "responses": {
                        "200": {"description": "The answers.", "content": reply},
                        "422": bad,
                        **others,
                    },
                }
            },
            **{
                path: {"get": {"summary": text, "responses": {"200": plain, **extra}}}
                for path, text, extra in (
                    (
                        "/v1/models",
                        "List the names of the model.",
                        {status: others[status] for status in ("401", "403")},
                    ),
                    (
                        "/health",
                        "Whether decisions are answered now.",
                        {"503": {**plain, "description": "They are not."}},
                    ),
                    ("/health/live", "Whether the server runs.", {}),
                )
            },
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def page(models: Iterable[str], base_url: str) -> str:
    """Give the description as a page to read, with a request to copy."""
    described = document(models)
    example = msgspec.json.format(msgspec.json.encode(EXAMPLE), indent=2).decode()
    schemas = msgspec.json.format(
        msgspec.json.encode(described["components"]["schemas"]), indent=2
    ).decode()
    paths = "".join(
        f"<h2>{method.upper()} {path}</h2><p>{escape(operation['summary'])}</p>"
        + "".join(
            f"<p><b>{status}</b> {escape(response['description'])}</p>"
            for status, response in operation["responses"].items()
        )
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    )
    command = f"curl {base_url}v1/systemone -H 'content-type: application/json' -d '{example}'"
    return (
        "<!doctype html><meta charset=utf-8><title>Ostinato</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "pre{background:#f4f4f4;padding:1em;overflow:auto}p{margin:.2em 0}</style>"
        f"<h1>Ostinato</h1><p>{escape(described['info']['description'])}</p>"
        f"<pre>{escape(command)}</pre>{paths}<h2>Messages</h2><pre>{escape(schemas)}</pre>"
        "<p><a href='openapi.json'>openapi.json</a></p>"
    )
