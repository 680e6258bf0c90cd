"""Appends for test_crash and test_disk, as a process that may be killed or run out of disk.

It says what was acknowledged, one `MATCH NEXT_VERSION` a line.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio

from store.errors import LogUnavailable
from store.sqlite import SqliteLog, open_log
from store.testing import started, turn


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def append(log: SqliteLog, match: str, *, until: float = math.inf) -> None:
    """Continue a match from where it stands, up to a version."""
    version = next((one.next_version for one in log.matches() if one.match == match), 0)
    if version == 0:
        version = await log.append(match, [started()], expected=0)
    while version < until:
        events = [turn(version % 10) for _ in range(1 + version % 3)]
        version = await log.append(match, events, expected=version)
        say(f"{match} {version}")


async def append_until_killed(path: Path) -> None:
    log = open_log(path)
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(append, log, f"m{number}")


def append_some(path: Path) -> None:
    """Continue eight matches by forty appends each."""
    asyncio.run(_append_some(path))


async def _append_some(path: Path) -> None:
    log = open_log(path)

    async def one(match: str) -> None:
        version = await log.append(match, [started()], expected=0)
        say(f"{match} {version}")
        for number in range(40):
            version = await log.append(match, [turn(number % 10)] * 20, expected=version)
            say(f"{match} {version}")

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, f"m{number}")
    await log.close()


def serve_kills() -> None:
    """Start an appender for each path on stdin; a fork has everything imported already."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(append_until_killed(Path(line.strip())))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


async def fill(path: Path, make_room: Callable[[], None]) -> None:
    """Append until the disk is full, make room, and append once more."""
    log = open_log(path)
    try:
        await append(log, "m")
    except LogUnavailable as error:
        say(f"error {error}")
    version = next(one.next_version for one in log.matches())
    make_room()
    version = await log.append("m", [turn(0)], expected=version)
    say(f"m {version}")
    await log.close()


def fill_limited(path: Path) -> None:
    """Let no file grow beyond a limit, for a time."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    asyncio.run(fill(path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))))


def fill_small_disk(path: Path) -> None:
    """Fill a disk that another file has most of, then remove that file."""
    other = path.with_name("other")
    other.write_bytes(bytes(1_000_000))
    asyncio.run(fill(path, other.unlink))


def fill_remounted(path: Path) -> None:
    """Append until the file system, which has met an error, is made read-only."""

    async def run() -> None:
        log = open_log(path)
        try:
            async with asyncio.timeout(100):
                await append(log, "m", until=100)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(append(log, "m"))
                    await asyncio.sleep(0)
                    subprocess.run(["mount", "-o", "remount,abort", path.parent], check=True)
        except* LogUnavailable as group:
            say(f"error {group.exceptions[0]}")
        await log.close()

    asyncio.run(run())


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {
        "kills": serve_kills,
        "some": append_some,
        "limited": fill_limited,
        "small": fill_small_disk,
        "remounted": fill_remounted,
    }[command](*map(Path, paths))
