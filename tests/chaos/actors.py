"""Workers and runtimes for the chaos tests, forked from a process that has imported everything.

Reads one JSON object a line: `{"kind": "worker" | "runtime", ...}`; says the process id of each.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import anyio

from engine import claims, streams
from engine.client import connect_engine
from engine.models import open_model
from engine.settings import WorkerSettings
from engine.worker import Worker, serve_worker
from games.registry import load_game
from runtime.agents.registry import make_agent
from runtime.play import Run
from runtime.table import Seat, Terms
from store.sqlite import open_log


async def work(*, url: str, model: str) -> None:
    # leases and deliveries that lapse sooner, so that a kill does not hold a whole run up
    streams.LEASE_S = 1.0  # pyright: ignore[reportConstantRedefinition]
    claims._RENEW_S = 0.25  # pyright: ignore[reportConstantRedefinition]
    Worker.__init__.__kwdefaults__["ack_wait_s"] = 1.0
    await serve_worker(nats=url, model=open_model(model), settings=WorkerSettings())


async def play(
    *, url: str, model: str, log: str, game: str, matches: int, seed: int, deadline_s: float
) -> None:
    file = open_log(Path(log))
    seats = [Seat("decision", make_agent("decision")) for _ in range(2)]
    run = Run(
        file,
        load_game(game),
        seats,
        matches=matches,
        seed=seed,
        terms=Terms(fallback="random", deadline_s=deadline_s),
    )
    async with connect_engine(
        url, open_model(model), source=file.log_id, on_stray=run.on_stray
    ) as engine:
        await run.play(engine)
    await file.close()


def act(kind: str, arguments: dict[str, Any], words: str) -> None:
    """In a fork: be what was asked for, and end with it or with the parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    logging.basicConfig(level=logging.WARNING)
    try:
        function = {"worker": work, "runtime": play}[kind]
        anyio.run(lambda: function(**arguments))
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def main() -> None:
    """Fork for each line until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            act(asked.pop("kind"), asked.pop("arguments"), asked.pop("words"))
        print(child, flush=True)


if __name__ == "__main__":
    main()
