"""`ostinato doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from engine.checkup import Check
from runtime.cli.show import TASK, Table, out, print_json, progress
from runtime.doctor import examine
from runtime.settings import load_settings

MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "error": "[red]error[/]"}


def doctor(
    model: Annotated[
        Path | None,
        typer.Option(help="A bundle to check, with the hashes of all its files.", metavar="BUNDLE"),
    ] = None,
    load: Annotated[
        bool | None,
        typer.Option(
            "--load/--no-load",
            help="Load the bundle as a worker does, for its kernels and 20 seconds of speed checks."
            " Default: where there is a GPU.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Check what this machine has: Python, SQLite, nats-server, vLLM, packages, and a model.

    Of a model: its files' hashes, head, adapter and tokenizer against the base, whether it is the
    real release, and the room for it. On a GPU also which kernels vLLM chose, which of them are
    fallbacks, and whether the card is as fast as it should be. Every line that is not ok says what
    to do. Exit code 1 if a line is an error.

    Example: ostinato doctor --model clef-bundle
    """
    settings = load_settings()
    default = settings.home / "bundle"
    found = examine(
        home=settings.home,
        model=model or (default if default.exists() else None),
        settings=settings.worker,
        load=load,
    )
    with progress("looking", None, quiet=json) as bar:
        checks: list[Check] = []
        for check in found:
            checks.append(check)
            bar.update(TASK, completed=len(checks), note=check.name)
    failed = any(check.status == "error" for check in checks)
    if json:
        print_json({"checks": checks, "ok": not failed})
        return int(failed)
    table = Table("", "check", "found", "remedy", box=None, pad_edge=False)
    for check in checks:
        texts = map(escape, (check.name, check.detail, check.remedy))  # `ostinato[cpu]` is no style
        table.add_row(MARKS[check.status], *texts)
    out.print(table)
    return int(failed)
