"""`ostinato export` and `ostinato import`: between a log and files of other kinds."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.markup import escape
from rich.table import Table

from runtime.cli.common import JsonFlag, check_match
from runtime.cli.show import TASK, out, print_json, progress, say
from runtime.exports import Format, Written, export_records, format_of
from runtime.imports import Imported, import_records, read_records
from store.export import export_matches, import_matches, read_export
from store.sqlite import open_log

PARTLY = 3
SHOWN = 20

LogFile = Annotated[Path, typer.Argument(help="The log.", metavar="FILE.db")]


def export(
    log: LogFile,
    file: Annotated[
        Path,
        typer.Argument(
            help="A portable match file (.jsonl, .jsonl.zst), chess (.pgn), or hold'em (.phh,"
            " or .phhs for several hands).",
            metavar="FILE",
        ),
    ],
    match: Annotated[
        list[str] | None,
        typer.Option(help="Only this match; may be repeated.", metavar="ID", parser=check_match),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="pgn or phh; default: as FILE's name says.")
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Write matches of a log to a file: a portable one that verifies itself, or PGN, or PHH.

    Examples: ostinato export games.db games.jsonl.zst; ostinato export games.db chess.pgn
    """
    written = anyio.run(lambda: _export(log, file, format or format_of(file), match or None))
    if json:
        print_json({"exported": written.exported, "to": str(file)})
    else:
        rest = f"; {written.others} of other games left out" if written.others else ""
        say(f"exported {written.exported} matches to {file}{rest}")
    return 0


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="A portable match file (.jsonl, .jsonl.zst), chess games (.pgn) or hold'em hands"
            " (.phh, .phhs).",
            metavar="FILE",
        ),
    ],
    log: LogFile,
    json: JsonFlag = False,
) -> int:
    """Add the matches of a file to a log; those that it has already are left alone.

    A portable file is verified whole before anything is written. Of PGN and PHH each game is played
    by the rules; one with a fault is named and left out, with exit code 3, and the others are
    imported.

    Examples: ostinato import games.jsonl.zst games.db; ostinato import cup.pgn games.db
    """
    if format_of(file) is not None:
        return _records(file, log, json=json)
    if not log.exists():  # a file that does not verify makes no new log either
        deque(read_export(file), maxlen=0)
    count = anyio.run(lambda: _import(file, log))
    if json:
        print_json({"imported": count, "to": str(log)})
    else:
        say(f"imported {count} matches to {log}")
    return 0


async def _export(
    log_file: Path, file: Path, format: Format | None, match: list[str] | None
) -> Written:
    log = open_log(log_file, read_only=True)
    try:
        if format is None:
            return Written(export_matches(log, file, match), 0)
        return export_records(log, file, format, match)
    finally:
        await log.close()


async def _import(file: Path, log_file: Path) -> int:
    log = open_log(log_file)
    try:
        return await import_matches(log, file)
    finally:
        await log.close()


def _records(file: Path, log_file: Path, *, json: bool) -> int:
    async def run() -> Imported:
        log = open_log(log_file)
        try:
            return await import_records(log, file, on_match=lambda: bar.update(TASK, advance=1))
        finally:
            await log.close()

    with closing(read_records(file)) as records:  # what cannot be read makes no new log
        next(records)
    with progress(file.name, None, quiet=json) as bar:
        done = anyio.run(run)
    if json:
        faults = [
            {"match": each.number, "place": each.place, "what": each.what} for each in done.faults
        ]
        print_json(
            {
                "imported": done.imported,
                "present": done.present,
                "faults": faults,
                "to": str(log_file),
            }
        )
    else:
        there = f" ({done.present} were there already)" if done.present else ""
        say(f"imported {done.imported} matches to {log_file}{there}")
        if done.faults:
            _show_faults(done)
    return PARTLY if done.faults else 0


def _show_faults(done: Imported) -> None:
    table = Table("match", "place", "why it was left out")
    for each in done.faults[:SHOWN]:
        table.add_row(str(each.number), escape(each.place), escape(each.what))
    out.print(table)
    if len(done.faults) > SHOWN:
        out.print(f"and {len(done.faults) - SHOWN} more; --json lists all")
