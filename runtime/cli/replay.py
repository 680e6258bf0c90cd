"""`ostinato replay`: recorded matches again, from their events alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.markup import escape
from rich.table import Table

from runtime.cli import fork, moment, redecide
from runtime.cli.common import JsonFlag, ModelFlag, check_match, settings_of
from runtime.cli.show import TASK, out, print_json, progress
from runtime.recordings import open_recordings
from runtime.replay import ReplayReport, replay_file
from store.export import SUFFIXES

REPLAY_DIFFERS = 4
SHOWN = 20
SMALL = 32 << 20
"""Bytes up to which one process is faster than several, which have to start first."""


def replay(
    file: Annotated[
        Path, typer.Argument(help="A log, or an exported file.", metavar="FILE.db|FILE.jsonl[.zst]")
    ],
    match: Annotated[
        str | None, typer.Option(help="Only this match.", metavar="ID", parser=check_match)
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="How many share the work; default: one for each core."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --match: show state, views and request after this event.",
            metavar="VERSION",
        ),
    ] = None,
    redecided: Annotated[
        str | None,
        typer.Option(
            "--redecide",
            help="Ask another model the recorded decisions and compare its answers.",
            metavar="MODEL",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="With --redecide: draw the comparison.", metavar="FILE.svg"),
    ] = None,
    forked: Annotated[
        int | None,
        typer.Option(
            "--fork",
            min=0,
            help="With --match: play on from this event as a new match.",
            metavar="VERSION",
        ),
    ] = None,
    seat: Annotated[
        list[str] | None,
        typer.Option("--seat", help="With --fork: the agent of each seat.", metavar="AGENT"),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="With --fork: where the new match goes; default FILE.", metavar="FILE.db"
        ),
    ] = None,
    model: ModelFlag = None,
    json: JsonFlag = False,
) -> int:
    """Replay matches and compare every version with what was recorded.

    State, each seat's view, each request's bytes, legality, the policy's choice: all are derived
    again and compared. No model is asked. Exit code 0 only if every match is identical, else 4.

    Examples:
    ostinato replay games.db;
    ostinato replay games.db --match ID --at 17;
    ostinato replay games.db --redecide BUNDLE --plot change.svg;
    ostinato replay games.db --match ID --fork 17 --seat decision --seat random
    """
    _check_flags(
        match=match, at=at, redecided=redecided, plot=plot, forked=forked, seat=seat, log=log
    )
    settings = settings_of(None)
    if at is not None:
        assert match is not None
        return moment.show(file, match, at, home=settings.home, json=json)
    if redecided is not None:
        return redecide.compare(file, redecided, settings, match=match, plot=plot, json=json)
    if forked is not None:
        assert match is not None
        if log is None and file.name.endswith(SUFFIXES):
            raise typer.BadParameter(f"{file} takes no new match; name a log with --log.")
        return fork.play_on(
            file, match, forked, seat or [], settings, model=model, log_file=log or file, json=json
        )
    return _replay(file, match, processes, json=json)


def _check_flags(**given: object) -> None:
    """Refuse flags that say nothing together."""
    modes = [name for name in ("at", "redecided", "forked") if given[name] is not None]
    names = {"redecided": "--redecide", "forked": "--fork", "at": "--at"}
    if len(modes) > 1:
        raise typer.BadParameter(f"take one of {' and '.join(names[mode] for mode in modes)}.")
    absent = (None, [])
    for flag, needs in (
        ("at", "match"),
        ("forked", "match"),
        ("forked", "seat"),
        ("plot", "redecided"),
        ("seat", "forked"),
        ("log", "forked"),
    ):
        if given[flag] not in absent and given[needs] in absent:
            name, other = (names.get(each, f"--{each}") for each in (flag, needs))
            raise typer.BadParameter(f"{name} needs {other}.")


def _useful_processes(file: Path) -> int:
    return 1 if file.stat().st_size <= SMALL else os.cpu_count() or 1


def _replay(file: Path, match: str | None, processes: int | None, *, json: bool) -> int:
    async def run() -> ReplayReport:
        count = shared = 1
        if match is None:
            async with open_recordings(file) as recordings:
                count = recordings.count()
            shared = processes or _useful_processes(file)
        bar.update(TASK, total=count)
        return await replay_file(
            file,
            match=match,
            processes=shared,
            on_replayed=lambda some: bar.update(TASK, advance=some),
        )

    with progress("replaying", None, quiet=json) as bar:
        report = anyio.run(run)
    if json:
        print_json(
            {
                "identical": report.identical,
                "matches": report.matches,
                "turns": report.turns,
                "unfinished": report.unfinished,
                "sessions": report.sessions,
                "differences": report.differences,
            }
        )
    elif report.identical:
        out.print(
            f"{report.matches} matches, {report.turns} turns: [green]identical[/]"
            + (f" ({report.unfinished} unfinished)" if report.unfinished else "")
            + (f" (sessions of HTTP clients: {report.sessions})" if report.sessions else "")
        )
    else:
        table = Table()
        for heading in ("match", "version", "field", "recorded", "found now"):
            table.add_column(heading, overflow="fold")  # cut, an id or a hash would be of no use
        for each in report.differences[:SHOWN]:
            cells = (each.match, str(each.version), each.field, each.expected, each.found)
            table.add_row(*map(escape, cells))
        out.print(table)
        out.print(
            f"[red]{len(report.differences)} differences[/] in {report.matches} matches;"
            " replay with the code that recorded them, or restore the file"
        )
    return 0 if report.identical else REPLAY_DIFFERS
