"""What a command starts never outlives it, and what was acknowledged is never lost."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.broker import broker
from engine.client import connect_engine
from engine.models import open_model
from tests.support.command import Command, finished, wait_for
from tests.support.queues import request

SLOW = ("--model", "mock:seed=1,delay_ms=100", "--seed", 1, "--matches", 2)


def play(log: str, *flags: object) -> tuple[object, ...]:
    seats = ("--seat", "decision", "--seat", "random")
    return ("play", "tictactoe", *seats, *(flags or SLOW), "--log", log, "--json")


def answers(log: Path) -> int:
    """Count the answers that a log has, beside its writer."""
    return events(log, "decision_answered")


def events(log: Path, kind: str) -> int:
    """Count the events of a kind that a log has, beside its writer."""
    try:
        with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as database:
            query = "SELECT count(*) FROM events WHERE instr(payload, ?)"
            return database.execute(query, (kind,)).fetchone()[0]
    except sqlite3.OperationalError:
        return 0  # there is none yet


def resumed(ostinato: Command, log: str, *flags: object) -> dict[str, Any]:
    """Check that a log replays, goes on with the same command, and is then whole."""
    before = ostinato("replay", log, "--json")
    assert before.code == 0, before
    assert before.document["unfinished"] > 0
    done = ostinato(*play(log, *flags))
    assert done.code == 0, done
    assert {match["reason"] for match in done.document["matches"]} == {"terminated"}
    after = ostinato("replay", log, "--json").document
    assert after["identical"]
    assert after["unfinished"] == 0
    return done.document


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_and_loses_nothing(ostinato: Command, ending: signal.Signals):
    log = ostinato.folder / "a.db"
    # as a script's background job runs
    before = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh") if ending == signal.SIGTERM else ()
    with ostinato.started(*play("a.db"), before=before) as process:
        wait_for(lambda: answers(log) >= 2)
        assert len(ostinato.running()) == 3  # the command, its broker, its worker
        process.send_signal(ending)
        done = finished(process)
    assert done.code == 130
    assert done.stdout == ""
    assert done.stderr == "interrupted; what was acknowledged is in the log\n"
    assert not ostinato.running()
    assert not list(ostinato.home.glob("run/*/broker.json"))

    whole = ostinato(*play("whole.db")).document
    assert resumed(ostinato, "a.db")["matches"] == whole["matches"]


def test_a_killed_command_takes_its_children_along(ostinato: Command):
    log = ostinato.folder / "a.db"
    with ostinato.started(*play("a.db")) as process:
        wait_for(lambda: answers(log) >= 2)
        process.kill()
        process.wait()
        wait_for(lambda: not ostinato.running(), within_s=10)
    resumed(ostinato, "a.db")


def test_an_interrupt_while_all_starts(ostinato: Command):
    with ostinato.started(*play("a.db")) as process:
        wait_for(lambda: len(ostinato.running()) > 1)
        process.send_signal(signal.SIGINT)
        assert finished(process).code == 130
    assert not ostinato.running()


ENDLESS = {
    "play": ("play", "tictactoe", "--seat", "random", "--seat", "random", "--matches", 10**9),
    "one by one": (
        *("play", "tictactoe", "--seat", "random", "--seat", "random", "--matches", 10**9),
        *("--concurrency", 1),
    ),
    "tournament": ("tournament", "cup.toml"),
}


@pytest.mark.parametrize("command", ENDLESS.values(), ids=ENDLESS)
def test_an_interrupt_ends_matches_that_wait_for_nothing(
    ostinato: Command, command: tuple[object, ...]
):
    agents = "".join(f'[[agents]]\nname = "{name}"\nagent = "random"\n' for name in "ab")
    (ostinato.folder / "cup.toml").write_text(f'game = "tictactoe"\nseeds = 100000\n{agents}')
    log = ostinato.folder / "a.db"
    with ostinato.started(*command, "--log", "a.db") as process:
        wait_for(lambda: events(log, "match_ended") > 0)
        process.send_signal(signal.SIGINT)
        done = finished(process)
    assert (done.code, done.stdout) == (130, "")
    assert done.stderr == "interrupted; what was acknowledged is in the log\n"
    assert ostinato("replay", "a.db", "--json").document["identical"]


def test_an_interrupt_while_the_command_is_imported():
    """What is imported interrupts the process, as a person does who sees the typing error."""
    program = """if True:
        import os, signal, sys
        from runtime.cli import main

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "runtime.cli.app":
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupting())
        main()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "interrupted; what was acknowledged is in the log\n"
    assert done.returncode == 130


def test_two_at_once(ostinato: Command):
    """They share the data folder and have a broker each."""
    with ostinato.started(*play("a.db")) as one, ostinato.started(*play("b.db")) as other:
        wait_for(lambda: len(list(ostinato.home.glob("run/*/broker.json"))) == 2)
        first, second = finished(one), finished(other)
    assert (first.code, second.code) == (0, 0)
    assert first.document["matches"] == second.document["matches"]


def test_the_second_writer_is_told_of_the_first(ostinato: Command):
    endless = play("a.db", "--model", "mock:delay_ms=60000", "--deadline", 60)
    with ostinato.started(*endless) as process:
        wait_for(lambda: len(ostinato.running()) == 3)  # the log is opened before the engine
        message = ostinato(*play("a.db")).refused("store/locked")
        assert f"process {process.pid}" in message
        assert ostinato("replay", "a.db", "--json").document["identical"]  # reading is for all
        process.send_signal(signal.SIGINT)
        assert finished(process).code == 130


async def test_a_worker_alone(ostinato: Command, tmp_path: Path):
    model = open_model("mock:seed=1")
    async with broker(tmp_path / "broker") as running:
        with ostinato.started("worker", "--model", model.spec, OSTINATO_NATS=running.url) as worker:
            async with connect_engine(running.url, model, source="test") as engine:
                reply = await engine.decide(request(source="test"))
            assert reply.fingerprint == "mock-1"
            worker.send_signal(signal.SIGTERM)
            done = finished(worker)
    assert (done.code, done.stdout) == (0, "")
