"""Appends one by one and of 64 matches at once, durable and not; and reading them back.

Compare the rows of one run only: disks change their pace from minute to minute.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe
from store.database import Synchronous
from store.sqlite import SqliteLog, open_log
from store.testing import started, turn

RUN_S = 2.0
TURNS = 10  # events of a match


class Figure(msgspec.Struct, frozen=True):
    """What one run came to. `probe_ms` is of right before it."""

    synchronous: Synchronous
    lanes: int
    appends_per_s: float
    p50_ms: float
    p99_ms: float
    events_per_commit: float
    probe_ms: float
    read_per_s: float


async def measure(folder: Path, synchronous: Synchronous, lanes: int) -> Figure:
    """Let `lanes` matches append one event at a time, each after its last was acknowledged."""
    probe_ms = fdatasync_probe(folder)
    log = open_log(folder / f"{synchronous}-{lanes}.db", synchronous=synchronous)
    times: list[float] = []
    begin = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for lane in range(lanes):
            tasks.start_soon(play, log, f"lane {lane}", begin + RUN_S, times)
    took = time.perf_counter() - begin
    begin = time.perf_counter()
    events = sum(len(records) for records in log.scan())
    read_took = time.perf_counter() - begin
    stats = log.stats
    await log.close()
    cuts = statistics.quantiles(times, n=100)
    return Figure(
        synchronous,
        lanes,
        len(times) / took,
        cuts[49] * 1000,
        cuts[98] * 1000,
        stats.events / stats.commits,
        probe_ms,
        events / read_took,
    )


async def play(log: SqliteLog, lane: str, end: float, times: list[float]) -> None:
    """Append match after match until the time is over."""
    number = 0
    now = time.perf_counter()
    while now < end:
        number += 1
        for version in range(TURNS):
            event = turn(version) if version else started(seed=number)
            await log.append(f"{lane} match {number}", [event], expected=version)
            before, now = now, time.perf_counter()
            times.append(now - before)


def main() -> None:
    """Run all four and print the table."""
    table = Table(title="Appends to the log", caption=machine_line())
    for column in ("synchronous", "matches at once", "appends/s", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    for column in ("events/commit", "disk probe ms", "read back/s", "gain"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for synchronous in ("FULL", "NORMAL"):
            alone = 0.0
            for lanes in (1, 64):
                figure = asyncio.run(measure(Path(name), synchronous, lanes))
                alone = alone or figure.appends_per_s
                table.add_row(
                    figure.synchronous,
                    str(figure.lanes),
                    f"{figure.appends_per_s:,.0f}",
                    f"{figure.p50_ms:.2f}",
                    f"{figure.p99_ms:.2f}",
                    f"{figure.events_per_commit:.1f}",
                    f"{figure.probe_ms:.2f}",
                    f"{figure.read_per_s:,.0f}",
                    f"{figure.appends_per_s / alone:.1f}x",
                )
    Console().print(table)


if __name__ == "__main__":
    main()
