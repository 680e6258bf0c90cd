"""`ostinato replay`: recorded matches again, from their events alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.table import Table

from runtime.cli.common import JsonFlag, check_match, settings_of
from runtime.cli.show import TASK, out, print_json, progress
from runtime.replay import replay_file

REPLAY_DIFFERS = 4
SHOWN = 20


def replay(
    file: Annotated[
        Path, typer.Argument(help="A log, or an exported file.", metavar="FILE.db|FILE.jsonl[.zst]")
    ],
    match: Annotated[
        str | None, typer.Option(help="Only this match.", metavar="ID", parser=check_match)
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Replay matches and compare every version with what was recorded.

    State, each seat's view, each request's bytes, legality, the policy's choice: all are derived
    again and compared. No model is asked. Exit code 0 only if every match is identical, else 4.
    """
    settings_of(None)
    with progress("replaying", None, quiet=json) as bar:
        report = anyio.run(
            lambda: replay_file(
                file, match=match, on_replayed=lambda _: bar.update(TASK, advance=1)
            )
        )
    if json:
        print_json(
            {
                "identical": report.identical,
                "matches": report.matches,
                "turns": report.turns,
                "unfinished": report.unfinished,
                "differences": report.differences,
            }
        )
    elif report.identical:
        out.print(
            f"{report.matches} matches, {report.turns} turns: [green]identical[/]"
            + (f" ({report.unfinished} unfinished)" if report.unfinished else "")
        )
    else:
        table = Table("match", "version", "field", "recorded", "found now")
        for each in report.differences[:SHOWN]:
            table.add_row(each.match, str(each.version), each.field, each.expected, each.found)
        out.print(table)
        out.print(
            f"[red]{len(report.differences)} differences[/] in {report.matches} matches;"
            " replay with the code that recorded them, or restore the file"
        )
    return 0 if report.identical else REPLAY_DIFFERS
