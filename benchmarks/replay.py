"""Replay against play with the mock engine, and a long match opened at any version.

python -m benchmarks.replay [--matches 1000]
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe
from engine.embedded import embedded
from engine.models import open_model
from games.registry import load_game
from runtime.agents.registry import make_agent
from runtime.match import MatchResult
from runtime.play import Run
from runtime.recordings import open_recordings
from runtime.replay import replay_file, replay_match
from runtime.snapshots import _files
from runtime.table import Seat
from runtime.travel import open_moment
from store.sqlite import open_log

GAME = "tictactoe"
LONG = "openspiel:pig(winscore=650,horizon=3000)"
LONG_SEATS = ("random", "random")
REPEATS = 5


async def play(path: Path, matches: int, at_once: int) -> float:
    """Decide every move on a mock without delay; give turns a second."""
    log = open_log(path)
    seats = [Seat("decision", make_agent("decision"))] * 2
    run = Run(log, load_game(GAME), seats, matches=matches, seed=1, concurrency=at_once)
    async with embedded(open_model("mock:seed=1"), home=path.parent, source=log.log_id) as engine:
        started = time.perf_counter()
        report = await run.play(engine)
        took_s = time.perf_counter() - started
    await log.close()
    return report.results.turns / took_s


async def replayed(path: Path, processes: int) -> float:
    """Give turns a second."""
    started = time.perf_counter()
    report = await replay_file(path, processes=processes)
    assert report.identical
    return report.turns / (time.perf_counter() - started)


def repeated(work: Callable[[], float]) -> float:
    """Give the median of several times."""
    return statistics.median(work() for _ in range(REPEATS))


def timed_ms(work: Callable[[], object]) -> float:
    """Give a call's processor time, which neighbours disturb less."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


async def travel(folder: Path, console: Console) -> None:
    """Open a match of a thousand turns at many versions."""
    path = folder / "long.db"
    log = open_log(path)
    game = load_game(LONG)
    seats = [Seat(name, make_agent(name)) for name in LONG_SEATS]
    results: list[MatchResult] = []
    run = Run(log, game, seats, matches=1, seed=1, home=folder, on_result=results.append)
    await run.play()
    await log.close()
    [match] = results

    async def first_ms(version: int, home: Path) -> float:
        """Open the file and look, as a process that has just started."""
        _files.cache_clear()
        async with open_recordings(path) as recordings:
            return timed_ms(lambda: open_moment(recordings, match.match, version, home=home))

    async with open_recordings(path) as recordings:
        events = len(recordings.read(match.match))
        versions = range(0, events, max(1, events // 100))

        def look(version: int) -> float:
            return timed_ms(lambda: open_moment(recordings, match.match, version, home=folder))

        full = repeated(
            lambda: timed_ms(lambda: replay_match(recordings.read(match.match), game=game))
        )
        looks = [repeated(lambda version=version: look(version)) for version in versions]
    first = [
        statistics.median([await first_ms(version, folder) for _ in range(REPEATS)])
        for version in versions
    ]
    elsewhere = [await first_ms(events - 1, folder / str(number)) for number in range(REPEATS)]
    size = sum(file.stat().st_size for file in (folder / "snapshots").rglob("*") if file.is_file())
    table = Table(
        "full replay",
        "look, median",
        "worst",
        "first look, median",
        "worst",
        "without snapshots",
        "snapshots",
        title=f"{LONG}, {match.turns:,} turns, opened at {len(versions)} versions; processor time",
    )
    table.add_row(
        f"{full:.1f} ms",
        f"{statistics.median(looks):.1f} ms",
        f"{max(looks):.1f} ms",
        f"{statistics.median(first):.1f} ms",
        f"{max(first):.1f} ms",
        f"{statistics.median(elsewhere):.0f} ms",
        f"{size / 1024:,.0f} KiB",
    )
    console.print(table)


async def main(matches: int = 1000) -> None:
    """Print both tables."""
    logging.getLogger("runtime.signals").setLevel(logging.ERROR)  # random agents repeat themselves
    console = Console(width=110)
    console.print(machine_line(), soft_wrap=True, highlight=False)
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        table = Table(
            "at once",
            "probe",
            "played turns/s",
            "replayed, 1 process",
            f"{cores} processes",
            "replay : play",
            title=f"{matches} matches of {GAME}, both seats deciding on the mock engine",
        )
        for at_once in (1, 16, 64):
            path = folder / f"{at_once}.db"
            probe_ms = fdatasync_probe(folder)
            played = await play(path, matches, at_once)
            one, several = await replayed(path, 1), await replayed(path, cores)
            table.add_row(
                str(at_once),
                f"{probe_ms:.2f} ms",
                f"{played:,.0f}",
                f"{one:,.0f}",
                f"{several:,.0f}",
                f"{max(one, several) / played:.0f}",
            )
        console.print(table)
        await travel(folder, console)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matches", type=int, default=1000)
    anyio.run(main, parser.parse_args().matches)
