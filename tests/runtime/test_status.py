from __future__ import annotations

import json
import socket
import urllib.request
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from engine.broker import broker
from engine.client import connect_engine
from engine.queue import Queue
from engine.server import Server
from engine.streams import PARTITIONS
from runtime.cli.app import run
from runtime.cli.status import _show
from runtime.errors import BadInput
from runtime.metrics import figures_of_run, figures_of_worker, metrics
from runtime.signals import Signals
from runtime.status import status_of
from runtime.tally import Decisions
from store.writer import WriterStats
from tests.support.queues import MODEL, Gate, request, until, working


async def test_status_tells_what_waits_and_who_works(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        broker(tmp_path) as running,
        connect_engine(running.url, MODEL, source="log1") as engine,
        working(running.url, gate) as worker,
    ):
        queue = await Queue.connect(running.url)
        await until(lambda: len(worker.describe().partitions) == PARTITIONS)
        await queue.publish_request(MODEL.hash, request())
        await until(lambda: gate.asked)
        status = await status_of(queue)
        assert (status.queue.waiting, len(status.queue.partitions)) == (1, PARTITIONS)
        assert sum(each.in_work for each in status.queue.partitions) == 1
        assert status.queue.oldest_s is not None
        [info] = status.workers
        assert (info.bundle, info.in_flight) == (MODEL.hash, 1)
        gate.opened.set()
        await engine.decide(request("d2"))
        await until(lambda: worker.describe().answered == 2)
        # acknowledged a moment after the answer, and the broker tells nobody
        while (empty := (await status_of(queue)).queue).waiting:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert empty.oldest_s is None
        await queue.close()
    assert worker.describe().tokens_read > 0


def test_status_finds_the_broker_of_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSTINATO_HOME", str(tmp_path))
    assert run(["status"]) == 1
    assert "no broker runs in" in capsys.readouterr().err


async def test_the_command_shows_a_table_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSTINATO_HOME", str(tmp_path))
    async with broker(tmp_path / "run" / "1") as running, working(running.url, Gate()):
        name = f"127.0.0.1:{running.info.port}"
        assert await anyio.to_thread.run_sync(run, ["status", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found[name]["queue"]["waiting"] == 0
        assert found[name]["workers"][0]["bundle"] == MODEL.hash
        assert await anyio.to_thread.run_sync(run, ["status"]) == 0
        assert f"{name}: 0 of 20,000 waiting" in capsys.readouterr().out


async def test_it_looks_again_until_it_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    async with broker(tmp_path) as running, anyio.create_task_group() as group:
        group.start_soon(
            partial(_show, {"here": Server(url=running.url)}, None, watch=True, json=True)
        )
        with anyio.fail_after(60):
            while said.count("\n") < 2:
                await anyio.sleep(0.01)
                said += capsys.readouterr().out
        group.cancel_scope.cancel()
    assert [json.loads(line)["here"]["queue"]["waiting"] for line in said.splitlines()] == [0, 0]


async def test_figures_are_there_for_prometheus(tmp_path: Path) -> None:
    async with broker(tmp_path) as running, working(running.url, Gate()) as worker:
        read = figures_of_worker(worker.describe())
    both = {**read, **figures_of_run(Decisions(asked=3), WriterStats(events=7), Signals())}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"metrics_port {port}"), metrics(port, lambda: both):
            raise AssertionError
    url = f"http://127.0.0.1:{port}/metrics"
    with metrics(port, lambda: both), urllib.request.urlopen(url) as answer:  # noqa: ASYNC210
        text = answer.read().decode()
    assert "# TYPE ostinato_decisions_asked_total counter" in text
    assert "ostinato_decisions_asked_total 3.0" in text
    assert "ostinato_log_events_total 7.0" in text
    assert "ostinato_agents_stuck_total 0.0" in text
    assert "# TYPE ostinato_worker_in_flight gauge" in text
    with metrics(None, lambda: both):
        pass
