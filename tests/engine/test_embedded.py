from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from engine import embedded as embedded_module
from engine import process
from engine.broker import Broker
from engine.client import Engine
from engine.contract import DecisionReply
from engine.embedded import embedded
from engine.errors import BadRequest, EngineError, EngineFailed, RecordTooLong
from engine.models import open_model
from engine.queue import Queue
from tests.support.queues import MODEL, alive, redeliver_after, request, until

RUNS = """
import signal
import sys
from pathlib import Path
import anyio
from engine.embedded import embedded
from engine.models import open_model

# a shell without job control starts what runs in the background with this signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    async with embedded(open_model("mock"), home=Path(sys.argv[1]), source="log1"):
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def described(home: Path, number: int = 1) -> Broker:
    return msgspec.json.decode(
        (home / "run" / str(number) / "broker.json").read_bytes(), type=Broker
    )


async def worker_pid(home: Path, hash_: str, number: int = 1) -> int:
    queue = await Queue.connect(described(home, number).url)
    try:
        info = await queue.workers(hash_)
        return info.pid if info else 0
    finally:
        await queue.close()


async def all_answered(engine: Engine, prefix: str) -> list[DecisionReply]:
    replies: list[DecisionReply] = []

    async def ask(number: int) -> None:
        replies.append(await engine.decide(request(f"{prefix}{number}")))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(ask, number)
    return replies


async def test_everything_is_there_and_then_gone(tmp_path: Path) -> None:
    async with embedded(MODEL, home=tmp_path, source="log1") as engine:
        assert engine.model is MODEL
        server, worker = described(tmp_path).pid, await worker_pid(tmp_path, MODEL.hash)
        assert alive(server)
        assert alive(worker)
        assert worker != os.getpid()
        assert len(await all_answered(engine, "d")) == 20
    assert not alive(server)
    assert not alive(worker)
    assert not (tmp_path / "run" / "1" / "broker.json").exists()


async def test_two_at_once_share_a_home(tmp_path: Path) -> None:
    async with (
        embedded(MODEL, home=tmp_path, source="log1") as one,
        embedded(MODEL, home=tmp_path, source="log1") as two,
    ):
        assert described(tmp_path, 1).port != described(tmp_path, 2).port
        assert (await one.decide(request())).answers == (await two.decide(request())).answers


@pytest.mark.parametrize("which", ["server", "worker"])
async def test_what_is_killed_is_started_again(tmp_path: Path, which: str) -> None:
    async with embedded(MODEL, home=tmp_path, source="log1") as engine:
        await engine.decide(request())
        await redeliver_after(described(tmp_path).url, MODEL, 0.5)
        before = described(tmp_path).pid, await worker_pid(tmp_path, MODEL.hash)
        os.kill(before[which == "worker"], signal.SIGKILL)
        assert len(await all_answered(engine, "e")) == 20
        after = described(tmp_path).pid, await worker_pid(tmp_path, MODEL.hash)
        assert [one == two for one, two in zip(before, after, strict=True)] == [
            which != "server",
            which != "worker",
        ]


async def test_a_decision_that_crashes_its_worker_is_answered_by_the_next(tmp_path: Path) -> None:
    model = open_model("mock:crash=1")
    async with embedded(model, home=tmp_path, source="log1") as engine:
        await redeliver_after(described(tmp_path).url, model, 0.5)
        reply = await engine.decide(request())
    assert reply.failure is None


async def test_a_worker_that_dies_while_it_starts_again_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[process.Child] = []
    start = process.start

    def note(command: Sequence[str], **options: Any) -> process.Child:
        child = start(command, **options)
        if "engine.worker" in command:
            workers.append(child)
        return child

    monkeypatch.setattr(process, "start", note)
    async with embedded(MODEL, home=tmp_path, source="log1") as engine:
        for number in (1, 2):
            os.kill(workers[-1].pid, signal.SIGKILL)
            await until(lambda number=number: len(workers) > number)
        assert len(await all_answered(engine, "d")) == 20


async def test_a_server_that_dies_while_it_starts_again_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[process.Child] = []
    start = process.start

    def note(command: Sequence[str], **options: Any) -> process.Child:
        child = start(command, **options)
        if "--config" in command:
            servers.append(child)
            if len(servers) in (2, 3):
                os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr(process, "start", note)
    async with embedded(MODEL, home=tmp_path, source="log1") as engine:
        os.kill(servers[0].pid, signal.SIGKILL)
        assert len(await all_answered(engine, "d")) == 20
    assert len(servers) == 4


async def test_the_window_is_the_workers_too(tmp_path: Path) -> None:
    model = open_model("mock", window=10)
    async with embedded(model, home=tmp_path, source="log1") as engine:
        with pytest.raises(RecordTooLong, match="the window 10"):
            await engine.decide(request(state="a state" * 10))


async def test_a_worker_that_dies_time_and_again_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_module, "MAX_RESTARTS", 1)
    with pytest.raises(ExceptionGroup) as ended:
        async with embedded(MODEL, home=tmp_path, source="log1"):
            killed = set[int]()
            while True:
                pid = await worker_pid(tmp_path, MODEL.hash)
                if pid and pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                await anyio.sleep(0.01)
    assert ended.group_contains(EngineFailed, match=r"worker (died 2 times|ended with code -9)")


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("mock:sed=1", BadRequest, "'sed=1' is not a setting"),
        ("/nowhere/bundle", EngineError, "/nowhere/bundle"),
    ],
)
async def test_a_worker_that_refuses_to_start_is_quoted(
    tmp_path: Path, spec: str, kind: type[EngineError], words: str
) -> None:
    model = msgspec.structs.replace(MODEL, spec=spec)
    with pytest.raises(kind, match=words) as refused:
        async with embedded(model, home=tmp_path, source="log1"):
            raise AssertionError
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run" / "1" / "broker.json").exists()


@pytest.mark.parametrize(
    "end", [subprocess.Popen.kill, lambda parent: parent.send_signal(signal.SIGINT)]
)
async def test_nothing_outlives_the_process_that_runs_it(
    tmp_path: Path, end: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", RUNS, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        server = described(tmp_path).pid
        worker = await worker_pid(tmp_path, open_model("mock").hash)
        assert alive(server)
        assert alive(worker)
        end(parent)
    await until(lambda: not alive(server) and not alive(worker))
    async with embedded(MODEL, home=tmp_path, source="log1") as engine:
        await engine.decide(request())
        assert described(tmp_path).pid != server
