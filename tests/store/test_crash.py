"""kill -9 at any moment: what was acknowledged is in the log, and the log is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import pytest

from store.sqlite import open_log

APPENDER = Path(__file__).with_name("appender.py")


@pytest.mark.parametrize(
    "rounds",
    [
        50,
        pytest.param(2_000, marks=pytest.mark.long),
    ],
)
async def test_an_acknowledged_append_survives_kill_9(tmp_path: Path, rounds: int) -> None:
    source = random.Random(rounds)
    longest_s = 0.1 if rounds == 50 else 0.3
    acknowledged: dict[str, int] = {}
    total = 0
    with subprocess.Popen(
        [sys.executable, APPENDER, "kills"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as appender:
        for number in range(rounds):
            path = tmp_path / f"{number // 4}.db"  # each file is made, and continued three times
            if number % 4 == 0:
                acknowledged.clear()
            total += kill_one(
                appender,
                path,
                acknowledged,
                after_s=source.uniform(0.0, longest_s),
                since="an append" if number % 4 == 3 else "the start",
            )
            log = open_log(path)
            stored = {one.match: one.next_version for one in log.matches()}
            assert [len(records) for records in log.scan()] == list(stored.values())
            assert acknowledged.keys() <= stored.keys()
            assert all(stored[match] >= version for match, version in acknowledged.items())
            await log.close()
        assert appender.stdin
        appender.stdin.close()
    assert total > 0
    print(f"{rounds} kills, {total} appends acknowledged, none lost")


def kill_one(
    appender: subprocess.Popen[str],
    path: Path,
    acknowledged: dict[str, int],
    *,
    after_s: float,
    since: Literal["the start", "an append"],
) -> int:
    """Let an appender work for a while, kill it, and note what it had acknowledged."""
    assert appender.stdin
    assert appender.stdout
    appender.stdin.write(f"{path}\n")
    appender.stdin.flush()
    count = pid = 0
    for line in appender.stdout:
        if line == "dead\n":
            break
        name, value = line.split()
        if name == "pid":
            pid = int(value)
        else:
            acknowledged[name] = int(value)
            count += 1
        begins = count == 1 and name != "pid" if since == "an append" else name == "pid"
        if begins:
            threading.Timer(after_s, os.kill, (pid, signal.SIGKILL)).start()
    return count
