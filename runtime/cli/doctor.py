"""`ostinato doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from runtime.cli.show import out, print_json
from runtime.doctor import examine
from runtime.settings import load_settings

MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "error": "[red]error[/]"}


def doctor(
    model: Annotated[
        Path | None,
        typer.Option(help="A bundle to check, with the hashes of all its files.", metavar="BUNDLE"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Check what this machine has: Python, SQLite, nats-server, vLLM, packages, model files.

    Every line that is not ok says what to do. Exit code 1 if a line is an error.
    """
    home = load_settings().home
    default = home / "bundle"
    checks = list(examine(home=home, model=model or (default if default.exists() else None)))
    failed = any(check.status == "error" for check in checks)
    if json:
        print_json({"checks": checks, "ok": not failed})
        return int(failed)
    table = Table("", "check", "found", "remedy", box=None, pad_edge=False)
    for check in checks:
        table.add_row(MARKS[check.status], check.name, check.detail, check.remedy)
    out.print(table)
    return int(failed)
