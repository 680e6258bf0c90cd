"""`ostinato decide`: a file of System One requests, answered without any game."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.markup import escape

from engine.models import Model
from runtime.cli.common import DtypeFlag, ModelFlag, WindowFlag, engine_of, model_of, settings_of
from runtime.cli.show import err, out, print_json, say
from runtime.decide import Line, Outcome, as_record, decide_lines, read_lines
from runtime.settings import Settings

PARTLY_REFUSED = 3


def decide(
    requests: Annotated[
        Path,
        typer.Option(
            help='JSON lines: System One requests, or {"name": ..., "request": {...}}.',
            metavar="FILE.jsonl",
        ),
    ],
    model: ModelFlag = None,
    logits: Annotated[
        bool, typer.Option("--logits", help="Add token ids, spans and logits (with --json).")
    ] = False,
    dtype: DtypeFlag = "float32",
    window: WindowFlag = None,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds to wait for each answer.")
    ] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> int:
    """Answer a file of System One requests, in the file's order.

    Records are made exactly as the release makes them (all questions of a request in one record).
    A line that cannot be answered gives an error on its own line; the rest are answered (exit
    code 3). A line's "max_length" asks for the state's end to be cut to fit, which the answer
    then says as x_truncated; without it a record longer than the window is an error.
    """
    settings = settings_of(None, window=window, dtype=dtype, deadline_s=deadline_s)
    opened = model_of(model, settings)
    lines = list(read_lines(requests))
    refused = 0

    def emit(outcome: Outcome) -> None:
        nonlocal refused
        refused += outcome.error is not None
        record = as_record(outcome, explain=logits)
        if json:
            print_json(record)
        else:
            _show(record)

    anyio.run(lambda: _decide(opened, settings, lines, emit, logits))
    if not json:
        err.print(f"{len(lines) - refused} answered, {refused} refused")
        if opened.arbitrary:
            err.print("[yellow]This model's choices are arbitrary[/]: it has random weights.")
    return PARTLY_REFUSED if refused else 0


def _show(record: dict[str, Any]) -> None:
    """Print one line for each answer of a request."""
    name = record["name"]
    if "error" in record:
        said = escape(record["error"]["message"])
        out.print(f"{escape(name)}: [red]{record['error']['code']}[/] {said}")
        return
    for question, answer in record["response"]["answers"].items():
        if answer["type"] == "noul":
            text = f"{answer['noul']:.4f} true"
        else:
            text = f"{answer[answer['type']]} (confidence {answer['confidence']:.4f})"
        say(f"{name}: {question}: {text}")


async def _decide(
    model: Model,
    settings: Settings,
    lines: list[Line],
    emit: Callable[[Outcome], None],
    logits: bool,
) -> None:
    source = uuid.uuid4().hex[:12]
    async with engine_of(model, settings, source=source) as engine:
        await decide_lines(
            engine,
            lines,
            emit,
            source=source,
            form="joint",
            record="release",
            deadline_s=settings.deadline_s,
            explain=logits,
        )
