"""Who may connect, and what a worker may see."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from engine import connection
from engine.broker import find_server
from engine.client import connect_engine
from engine.errors import QueueUnavailable
from engine.queue import Queue
from engine.server import Server
from engine.streams import PARTITIONS
from engine.worker import Worker
from tests.support.queues import MODEL, Scripted, raw, request, until, working

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "nats.conf"


@asynccontextmanager
async def server(folder: Path, configuration: str) -> AsyncIterator[tuple[int, int]]:
    """Run nats-server with a configuration; gives its ports for clients and for monitoring."""
    folder.mkdir(exist_ok=True)
    file = folder / "nats.conf"
    ports = json.dumps(str(folder))
    file.write_text(
        f'host: "127.0.0.1"\nport: -1\nhttp: "127.0.0.1:-1"\nports_file_dir: {ports}\n'
        f"{configuration}\n"
    )
    passwords = {"NATS_RUNTIME_PASSWORD": "r-secret", "NATS_WORKER_PASSWORD": "w-secret"}
    command = [find_server(), "--config", file, "--log", folder / "log"]
    with subprocess.Popen(command, env={**os.environ, **passwords}) as process:
        try:
            await until(lambda: list(folder.glob("*.ports")))
            (described,) = folder.glob("*.ports")
            await until(lambda: described.read_text())
            said = json.loads(described.read_text())
            yield tuple(int(said[name][0].rpartition(":")[2]) for name in ("nats", "monitoring"))
        finally:
            process.terminate()


def example(folder: Path) -> str:
    text = EXAMPLE.read_text()
    text = re.sub(r"^port: 4222$", "", text, flags=re.M)
    return text.replace("/var/lib/nats", str(folder / "jetstream"))


async def test_a_worker_with_the_examples_permissions_works_and_sees_nothing_else(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, example(tmp_path)) as (port, monitoring):
        runtime = f"nats://runtime:r-secret@127.0.0.1:{port}"
        worker = f"nats://worker:w-secret@127.0.0.1:{port}"
        queue = await Queue.connect(worker)
        works = Worker(queue, MODEL, Scripted())
        async with (
            connect_engine(runtime, MODEL, source="log1") as engine,
            anyio.create_task_group() as group,
        ):
            group.start_soon(works.run)
            await until(lambda: len(works.describe().partitions) == PARTITIONS)
            assert (await engine.decide(request())).id == "d1"
            assert [info.pid for info in await engine._queue.all_workers()] == [os.getpid()]
            url = f"http://127.0.0.1:{monitoring}/connz?subs=1&auth=1"
            with urllib.request.urlopen(url) as answer:  # noqa: ASYNC210
                connections = json.load(answer)["connections"]
            group.cancel_scope.cancel()
        await queue.close()
        (subscribed,) = (
            each["subscriptions_list"]
            for each in connections
            if each["authorized_user"] == "worker"
        )
        allowed = ("workers", "cancel.", "chats.", "prime.", "_INBOX.", "$JS.EVENT.ADVISORY.")
        assert all(subject.startswith(allowed) for subject in subscribed), subscribed
        refused: list[Exception] = []

        async def on_error(error: Exception) -> None:
            refused.append(error)

        async with raw(worker, error_cb=on_error) as client:
            await client.subscribe("answers.>")
            await client.subscribe("decide.>")
            await until(lambda: len(refused) == 2)
        assert all("permissions violation" in str(error).lower() for error in refused)
    log = (tmp_path / "log").read_text()
    assert log.count("Violation") == 2, log


async def test_a_token_opens_and_its_absence_does_not(tmp_path: Path) -> None:
    store = json.dumps(str(tmp_path / "jetstream"))
    configuration = f"authorization {{ token: t-secret }}\njetstream {{ store_dir: {store} }}"
    async with server(tmp_path, configuration) as (port, _):
        queue = await Queue.connect(f"nats://t-secret@127.0.0.1:{port}")
        await queue.close()
        with pytest.raises(QueueUnavailable, match="credential"):
            await Queue.connect(f"nats://127.0.0.1:{port}")


def certificates(folder: Path) -> None:
    """Make an authority, and certificates of a server and a client that it signed."""

    def openssl(*arguments: object) -> None:
        command = ["openssl", *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)

    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2)
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    for name in ("server", "client"):
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        openssl(*new, *files, *signed, "-addext", "basicConstraints=critical,CA:FALSE")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_tls_with_certificates_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates(tmp_path)
    pem, key, ca = (json.dumps(str(tmp_path / f)) for f in ("server.pem", "server.key", "ca.pem"))
    configuration = (
        f"tls {{ cert_file: {pem}, key_file: {key}, ca_file: {ca}, verify: true }}\n"
        f"jetstream {{ store_dir: {json.dumps(str(tmp_path / 'jetstream'))} }}"
    )
    async with server(tmp_path / "run", configuration) as (port, _):
        url = f"tls://127.0.0.1:{port}"
        mutual = Server(
            url=url,
            ca=tmp_path / "ca.pem",
            certificate=tmp_path / "client.pem",
            key=tmp_path / "client.key",
        )
        async with (
            connect_engine(mutual, MODEL, source="log1") as engine,
            working(mutual, Scripted()),
        ):
            assert (await engine.decide(request())).id == "d1"
        monkeypatch.setattr(connection, "TIMEOUT_S", 1.0)
        for unknown in (Server(url=url, ca=tmp_path / "ca.pem"), Server(url=url)):
            with pytest.raises(QueueUnavailable, match="no NATS server takes this connection"):
                await Queue.connect(unknown)
        with pytest.raises(QueueUnavailable, match=r"none\.pem .*name readable PEM files"):
            await Queue.connect(Server(url=url, ca=tmp_path / "none.pem"))
