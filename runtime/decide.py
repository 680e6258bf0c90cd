"""Answers a file of System One requests, without any game, through the same engine."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

from engine.answers import system_one_response
from engine.client import Engine
from engine.contract import Ask, DecisionReply, DecisionRequest, Form, RecordKind
from engine.errors import BadRequest, EngineError
from engine.records import ask_from_system_one, parse_json
from runtime.errors import BadInput

IN_FLIGHT = 16  # requests; enough to fill a batch, few enough to keep the answers' order cheap
TYPE_CODES = {"noul": 0, "choice": 1, "score": 2}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the file, or why it is none."""

    name: str
    request: dict[str, Any] = {}
    max_length: int | None = None
    error: BadRequest | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one line; exactly one of `reply` and `error` is there."""

    line: Line
    ask: Ask | None = None
    reply: DecisionReply | None = None
    error: EngineError | None = None


def read_lines(path: Path) -> Iterator[Line]:
    """Read one JSON object a line: a System One request, or one wrapped as `request`.

    A wrapper is `{"name": ..., "request": {...}, "max_length": ...}`; the name defaults to
    `line N`. A line that is no such thing becomes a Line with an error.

    Raises:
        BadInput: The file cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a file of JSON lines") from error
    for number, data in enumerate(text.split(b"\n"), start=1):
        if data.strip():
            yield _read_line(data, f"line {number}")


def _read_line(data: bytes, name: str) -> Line:
    try:
        value = parse_json(data)
    except BadRequest as error:
        return Line(name=name, error=error)
    max_length = None
    if isinstance(value, dict) and isinstance(value.get("request"), dict):
        name = value["name"] if isinstance(value.get("name"), str) else name
        max_length = value.get("max_length")
        value = value["request"]
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            return Line(name=name, error=BadRequest("max_length must be a positive integer"))
    if not isinstance(value, dict):
        return Line(name=name, error=BadRequest("a request must be a JSON object"))
    return Line(name=name, request=value, max_length=max_length)


async def decide_lines(
    engine: Engine,
    lines: list[Line],
    emit: Callable[[Outcome], None],
    *,
    source: str,
    form: Form,
    record: RecordKind,
    deadline_s: float,
    explain: bool,
) -> None:
    """Ask for every line, several at a time, and emit the outcomes in the file's order."""
    run = uuid.uuid4().hex[:12]
    waiting: dict[int, Outcome] = {}
    limit = anyio.CapacityLimiter(IN_FLIGHT)
    emitted = 0

    async def answer(index: int, line: Line) -> None:
        nonlocal emitted
        async with limit:
            request = DecisionRequest(
                id=f"{run}-{index}",
                attempt=1,
                source=source,
                affinity=run,
                remaining_s=deadline_s,
                ask=Ask(state="", fields=(), form=form, record=record),
                explain=explain,
            )
            waiting[index] = await _decide(engine, line, request)
        while emitted in waiting:
            emit(waiting.pop(emitted))
            emitted += 1

    async with anyio.create_task_group() as group:
        for index, line in enumerate(lines):
            group.start_soon(answer, index, line)


async def _decide(engine: Engine, line: Line, request: DecisionRequest) -> Outcome:
    if line.error is not None:
        return Outcome(line=line, error=line.error)
    try:
        ask = ask_from_system_one(
            line.request,
            form=request.ask.form,
            record=request.ask.record,
            max_length=line.max_length,
        )
        reply = await engine.decide(msgspec.structs.replace(request, ask=ask))
    except EngineError as error:
        return Outcome(line=line, error=error)
    return Outcome(line=line, ask=ask, reply=reply)


def as_record(outcome: Outcome, *, explain: bool) -> dict[str, Any]:
    """Give the outcome as one JSON object: the response, or the error, by name."""
    record: dict[str, Any] = {"name": outcome.line.name}
    if outcome.error is not None:
        return record | {"error": {"code": outcome.error.code, "message": str(outcome.error)}}
    assert outcome.reply is not None
    assert outcome.ask is not None
    reply = outcome.reply
    if explain:
        types = {field.id: field.type for field in outcome.ask.fields}
        record["input_ids"] = reply.input_ids
        record["questions"] = [
            {
                "id": answer.id,
                "type": TYPE_CODES[types[answer.id]],
                "question_span": answer.question_span,
                "option_spans": answer.option_spans,
                "option_ids": answer.option_ids,
                "logits": answer.logits,
                "probabilities": answer.probabilities,
            }
            for answer in reply.answers
        ]
    response = system_one_response(
        outcome.line.request,
        {
            answer.id: dict(zip(answer.option_ids, answer.probabilities, strict=True))
            for answer in reply.answers
        },
        input_tokens=reply.tokens,
    )
    if reply.truncated:
        response["x_truncated"] = reply.truncated
    return record | {"response": response}
