"""The whole path with the mock model: command line, log file, queue, worker process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from games import load_game
from runtime.replay import replay_file
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.engines import DirectEngine
from tests.support.matches import events_of, seat, timeless
from tests.support.runs import KeptRun as Run

MODEL = "mock:seed=1,delay_ms=10"
AGENTS = ("decision:temperature=0.9", "random")
MATCHES = 8


def command(log: Path) -> list[str]:
    seats = [word for agent in AGENTS for word in ("--seat", agent)]
    play = ["play", "tictactoe", *seats, "--matches", str(MATCHES), "--seed", "1"]
    start = "from runtime.cli import main; main()"
    return [sys.executable, "-c", start, *play, "--log", str(log), "--model", MODEL, "--json"]


def count(log: Path) -> int:
    if not log.exists():
        return 0
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("select count(*) from events").fetchone()[0]
        except sqlite3.OperationalError:  # the table is not there yet
            return 0


async def test_run_that_was_killed_goes_on_and_comes_out_the_same(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    environment = os.environ | {"OSTINATO_HOME": str(tmp_path / "home")}
    with subprocess.Popen(command(log), env=environment, stdout=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 60
        while count(log) < 40:
            assert child.poll() is None
            assert time.monotonic() < deadline
        child.send_signal(signal.SIGKILL)
    done = subprocess.run(command(log), env=environment, stdout=subprocess.PIPE, check=True)
    document = json.loads(done.stdout)

    undisturbed = MemoryLog()
    seats = [seat(agent) for agent in AGENTS]
    run = Run(undisturbed, load_game("tictactoe"), seats, matches=MATCHES, seed=1)
    report = await run.play(DirectEngine(MODEL))
    assert [match["id"] for match in document["matches"]] == [m.match for m in report.matches]

    stored = open_log(log, read_only=True)
    for result in report.matches:
        expected = timeless(events_of(undisturbed, result.match))
        assert timeless(events_of(stored, result.match)) == expected
    await stored.close()
    assert (await replay_file(log)).identical
