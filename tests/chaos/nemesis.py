"""A run of matches with two workers, somebody who breaks things, and what must hold after it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio

from engine.broker import RunningBroker, broker
from engine.embedded import keep_broker
from engine.models import open_model
from engine.streams import ANSWERS
from runtime.replay import replay_file
from store.events import (
    AnswerDiscarded,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    MatchEnded,
)
from store.sqlite import open_log
from tests.support.proxy import Proxy, proxy
from tests.support.queues import alive, raw, redeliver_after, send

MODEL = "mock:seed=1,delay_ms=100"
GAME = "tictactoe"
MATCHES = 16
FAULTS = 20
ACTORS = Path(__file__).with_name("actors.py")

Victim = Literal["server", "worker", "runtime"]


class Actors:
    """Starts processes by forking; module-wide, so that everything is imported once."""

    def __init__(self, folder: Path) -> None:
        self._words = folder / "words"
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.actors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, kind: str, **arguments: Any) -> int:
        """Start a process and give its id."""
        assert self._forker.stdin
        assert self._forker.stdout
        asked = {"kind": kind, "arguments": arguments, "words": str(self._words)}
        self._forker.stdin.write(json.dumps(asked) + "\n")
        self._forker.stdin.flush()
        return int(self._forker.stdout.readline())

    def words(self) -> str:
        """Give what they wrote to their standard outputs."""
        return self._words.read_text()[-3000:] if self._words.exists() else ""

    def close(self) -> None:
        """End all of them."""
        self._forker.kill()
        self._forker.communicate()


class Stage:
    """One broker behind a proxy, two workers, one runtime; what dies is started again."""

    def __init__(
        self, actors: Actors, running: RunningBroker, wire: Proxy, log: Path, *, matches: int
    ) -> None:
        self.running = running
        self.wire = wire
        self.log = log
        self.seed = 0
        self._actors = actors
        self._matches = matches
        self._url = running.url.replace(f":{running.info.port}", f":{wire.port}")
        self._workers = [0, 0]
        self._runtime = 0

    async def keep(self) -> None:
        """Start what is not there, as a supervisor does; the runtime goes on with its log."""
        while True:
            for place, pid in enumerate(self._workers):
                if not alive(pid):
                    self._workers[place] = self._actors.start("worker", url=self._url, model=MODEL)
            if not alive(self._runtime):
                self._runtime = await self._play()
            await anyio.sleep(0.02)

    async def _play(self) -> int:
        """Take the next run if the one before it is whole, so that there is always work."""
        if self.log.exists():
            log = open_log(self.log, read_only=True)
            whole = sum(1 for _ in log.matches(ended=True))
            await log.close()
            self.seed = whole // self._matches
        return self._actors.start(
            "runtime",
            url=self._url,
            model=MODEL,
            log=str(self.log),
            game=GAME,
            matches=self._matches,
            seed=self.seed,
            deadline_s=30.0,
        )

    def pid(self, victim: Victim, source: random.Random) -> int:
        """Give the process that is to suffer."""
        if victim == "server":
            return self.running.child.pid
        return source.choice(self._workers) if victim == "worker" else self._runtime

    async def finish(self, *, within_s: float) -> None:
        """Wait until the run that is under way is whole."""
        last = self.seed
        deadline = time.monotonic() + within_s
        while self.seed <= last:
            assert time.monotonic() < deadline, f"not finished\n{self._actors.words()}"
            await anyio.sleep(0.02)


async def break_things(stage: Stage, source: random.Random, *, stops_s: float) -> Counter[str]:
    """Do `FAULTS` things that must not matter, in no particular order."""
    done: Counter[str] = Counter()
    while sum(done.values()) < FAULTS:
        await anyio.sleep(source.uniform(0.02, 0.25))
        how = source.choice(("kill", "kill", "stop", "cut"))
        if how == "cut":
            done["cut"] += bool(stage.wire.cut())
            continue
        victim: Victim = source.choice(("server", "worker", "runtime"))
        pid = stage.pid(victim, source)
        if not alive(pid):
            continue
        if how == "kill":
            if not send(pid, signal.SIGKILL):
                continue
        else:
            if not send(pid, signal.SIGSTOP):
                continue
            await anyio.sleep(source.uniform(0.1, stops_s))
            send(pid, signal.SIGCONT)
        done[f"{how} {victim}"] += 1
    return done


@asynccontextmanager
async def stage(actors: Actors, folder: Path, *, matches: int = MATCHES) -> AsyncIterator[Stage]:
    """Set the stage up and have it kept."""
    async with broker(folder / "broker") as running, proxy(running.info.port) as wire:
        await redeliver_after(running.url, open_model(MODEL), 1.0)
        on = Stage(actors, running, wire, folder / "log.db", matches=matches)
        async with anyio.create_task_group() as group:
            group.start_soon(keep_broker, running)
            group.start_soon(on.keep)
            try:
                yield on
            finally:
                group.cancel_scope.cancel()
                for pid in {*on._workers, on._runtime}:
                    send(pid, signal.SIGKILL)


async def check(stage: Stage) -> Counter[str]:
    """Read the whole log: each decision has one outcome, in order, and only what was asked."""
    # The runtime goes on, so the answers are read first: what they answer is in the log by then.
    async with raw(stage.running.url) as client:
        info = await client.jetstream().stream_info(ANSWERS, subjects_filter="answers.>")
    answered = {subject.split(".")[2] for subject in info.state.subjects or {}}
    counts: Counter[str] = Counter()
    requested: set[str] = set()
    log = open_log(stage.log, read_only=True)
    for recorded in log.scan():  # checks the chain: no gap, nothing altered
        open_: set[str] = set()
        asked: set[str] = set()
        for each in recorded:
            match each.event:
                case DecisionRequested(decision=decision):
                    assert not open_, f"{decision} was asked while {open_} waited"
                    assert decision not in asked
                    asked.add(decision)
                    open_.add(decision)
                case DecisionAnswered(decision=decision) | DecisionFailed(decision=decision):
                    open_.remove(decision)  # asked, and not ended before
                    counts[type(each.event).__name__] += 1
                case AnswerDiscarded(decision=decision):
                    assert decision in asked, f"{decision} was answered and never asked"
                    counts["AnswerDiscarded"] += 1
                case _:
                    pass
        if any(isinstance(each.event, MatchEnded) for each in recorded):  # not of the next run
            assert not open_
        requested |= asked
    await log.close()
    replayed = await replay_file(stage.log)
    assert replayed.identical, replayed.differences
    assert answered <= requested
    return counts
