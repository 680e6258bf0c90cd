"""`ostinato export` and `ostinato import`: between a log and a portable match file."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Annotated

import anyio
import typer

from runtime.cli.common import JsonFlag, check_match
from runtime.cli.show import out, print_json
from store.export import export_matches, import_matches, read_export
from store.sqlite import open_log

LogFile = Annotated[Path, typer.Argument(help="The log.", metavar="FILE.db")]
MatchFile = Annotated[
    Path,
    typer.Argument(help="The portable file; .zst compresses it.", metavar="FILE.jsonl[.zst]"),
]


def export(
    log: LogFile,
    file: MatchFile,
    match: Annotated[
        list[str] | None,
        typer.Option(help="Only this match; may be repeated.", metavar="ID", parser=check_match),
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Write matches of a log to a portable file that verifies itself.

    Example: ostinato export games.db games.jsonl.zst
    """
    count = anyio.run(lambda: _export(log, file, match))
    _say(json, "exported", count, file)
    return 0


def import_(file: MatchFile, log: LogFile, json: JsonFlag = False) -> int:
    """Add the matches of a portable file to a log; those that it has already are left alone.

    The whole file is verified before anything is written.
    """
    if not log.exists():  # a file that does not verify makes no new log either
        deque(read_export(file), maxlen=0)
    count = anyio.run(lambda: _import(file, log))
    _say(json, "imported", count, log)
    return 0


async def _export(log_file: Path, file: Path, match: list[str] | None) -> int:
    log = open_log(log_file, read_only=True)
    try:
        return export_matches(log, file, match or None)
    finally:
        await log.close()


async def _import(file: Path, log_file: Path) -> int:
    log = open_log(log_file)
    try:
        return await import_matches(log, file)
    finally:
        await log.close()


def _say(json: bool, done: str, count: int, place: Path) -> None:
    if json:
        print_json({done: count, "to": str(place)})
    else:
        out.print(f"{done} {count} matches to {place}", highlight=False)
