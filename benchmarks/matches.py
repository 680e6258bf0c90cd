"""Matches a minute, the log's share of it, replay against play, what surrounds a decision.

python -m benchmarks.matches [--matches 1000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe
from engine.embedded import embedded
from engine.models import open_model
from games.registry import load_game
from runtime.agents.registry import make_agent
from runtime.play import Run, RunReport
from runtime.replay import replay_file
from runtime.table import Seat
from store.database import Synchronous
from store.sqlite import open_log

GAME = "tictactoe"
AT_ONCE = 64
RUNS: tuple[tuple[int, Synchronous], ...] = ((1, "FULL"), (AT_ONCE, "FULL"), (AT_ONCE, "NORMAL"))


class Played(msgspec.Struct, frozen=True):
    """Random against random into a log, and the same log replayed; `probe_ms` is of that minute."""

    synchronous: Synchronous
    at_once: int
    probe_ms: float
    matches_a_minute: float
    log_share: float
    turns_a_second: float
    replayed_a_second: float
    identical: bool


async def play_and_replay(
    folder: Path, matches: int, at_once: int, synchronous: Synchronous
) -> Played:
    """Play, then replay."""
    probe_ms = fdatasync_probe(folder)
    path = folder / f"{synchronous}-{at_once}.db"
    log = open_log(path, synchronous=synchronous)
    seats = [Seat("random", make_agent("random"))] * 2
    run = Run(log, load_game(GAME), seats, matches=matches, seed=1, concurrency=at_once)
    started = time.perf_counter()
    report = await run.play()
    play_s = time.perf_counter() - started
    busy_s = log.stats.busy_s
    await log.close()
    started = time.perf_counter()
    replayed = await replay_file(path)
    replay_s = time.perf_counter() - started
    turns = report.results.turns
    return Played(
        synchronous=synchronous,
        at_once=at_once,
        probe_ms=probe_ms,
        matches_a_minute=60 * matches / play_s,
        log_share=busy_s / play_s,
        turns_a_second=turns / play_s,
        replayed_a_second=replayed.turns / replay_s,
        identical=replayed.identical,
    )


async def decide(folder: Path, at_once: int, matches: int) -> tuple[float, RunReport]:
    """Decide every move of both seats on a mock without delay; the time is all overhead."""
    probe_ms = fdatasync_probe(folder)
    log = open_log(folder / f"decide-{at_once}.db")
    seats = [Seat("decision", make_agent("decision"))] * 2
    run = Run(log, load_game(GAME), seats, matches=matches, seed=1, concurrency=at_once)
    async with embedded(open_model("mock:seed=1"), home=folder, source=log.log_id) as engine:
        report = await run.play(engine)
    await log.close()
    return probe_ms, report


async def main(matches: int = 1000) -> None:
    """Print both tables."""
    console = Console()
    console.print(machine_line(), soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        table = Table(
            "synchronous",
            "at once",
            "probe",
            "matches/min",
            "turns/s",
            "writer busy",
            "replayed turns/s",
            "replay : play",
            title=f"{matches} matches of {GAME}, random against random",
        )
        for at_once, synchronous in RUNS:
            row = await play_and_replay(folder, matches, at_once, synchronous)
            table.add_row(
                row.synchronous,
                str(row.at_once),
                f"{row.probe_ms:.2f} ms",
                f"{row.matches_a_minute:,.0f}",
                f"{row.turns_a_second:,.0f}",
                f"{row.log_share:.0%}",
                f"{row.replayed_a_second:,.0f}",
                f"{row.replayed_a_second / row.turns_a_second:.1f}",
            )
            assert row.identical
        console.print(table)
        table = Table(
            "matches at once",
            "4 KiB + fdatasync, p50",
            "decisions",
            "p50",
            "p95",
            title="Around the engine: queue, log and match loop (mock engine without delay)",
        )
        for at_once in (1, AT_ONCE):
            probe_ms, report = await decide(folder, at_once, 60 if at_once == 1 else 300)
            counts = report.decisions
            table.add_row(
                str(at_once),
                f"{probe_ms:.2f} ms",
                f"{counts.answered:,}",
                f"{counts.p50_ms:.2f} ms",
                f"{counts.p95_ms:.2f} ms",
            )
        console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matches", type=int, default=1000)
    anyio.run(main, parser.parse_args().matches)
