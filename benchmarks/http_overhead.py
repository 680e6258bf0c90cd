"""What HTTP and the queue add to the engine's time: `ostinato serve` with the mock engine.

Sixteen connections each send the next request when the last is answered. The overhead is the time
at the client without the reply's `x_engine_ms`. With an engine that takes no time the connections
keep the server busy all the time and wait for one another; with one that takes as long as a model,
the overhead is what a client notices.

Connections that start together stay together: all answers of an engine that always takes as long
come in one burst, as those of one batch do, and so do the next requests; each waits for those
before it. The same is measured with starts that are spread over the engine's time, as clients that
know nothing of one another are.

Processor time is that of a request in the server, its worker, its broker and the measuring client,
which has the same cores: neighbours on a shared machine disturb it little.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe

CONNECTIONS = 16
RUN_S = 5.0
WARM_UP_S = 1.0
STATE = 4_000  # characters
DELAYS_MS = (0, 20, 100)
PARTS = ("server", "worker", "broker", "client")


class Figure(msgspec.Struct, frozen=True):
    """What one run came to."""

    delay_ms: int
    spread: bool
    per_s: float
    p50_ms: float
    p99_ms: float
    overhead_p50_ms: float
    overhead_p99_ms: float
    cpu_ms: dict[str, float]


@contextmanager
def serving(folder: Path, model: str) -> Iterator[tuple[int, psutil.Process]]:
    """Run the server; give its port and process once a worker is ready."""
    command = [Path(sys.executable).with_name("ostinato"), "serve", "--port", "0", "--model", model]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = 0
        for line in process.stderr:
            if found := re.search(r"listening on http://[0-9.]+:(\d+)", line):
                port = int(found[1])
            if "ready:" in line:
                break
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate()


def request() -> bytes:
    """Give a request with a place for a number, so that all states differ and none is shared."""
    body = msgspec.json.encode(
        {
            "model": "clef",
            "state": f"{'a step north; ' * (STATE // 14)}turn NNNNNNN",
            "questions": {"step": {"type": "choice", "criteria": {"left": None, "right": None}}},
        }
    )
    head = f"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    whole = f"{head}content-type: application/json\r\n\r\n".encode() + body
    return whole.replace(b"NNNNNNN", b"%07d")


class Reply(msgspec.Struct, frozen=True):
    """One answer, as it came."""

    sent: float
    came: float
    body: bytes


class Client(asyncio.Protocol):
    """One connection; as little as possible happens between an answer and the next request.

    Args:
        numbers: Of the requests.
        replies: Is given each answer.
        end: No request is sent after it.
    """

    def __init__(self, numbers: Iterator[int], replies: list[Reply], end: float) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._numbers = numbers
        self._replies = replies
        self._end = end
        self._request = request()
        self._data = b""
        self._sent = 0.0
        self._transport: Any = None  # uvloop's is no subclass of asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._transport = transport

    def send(self) -> None:
        """Send the next request."""
        data = self._request % next(self._numbers)
        self._sent = time.perf_counter()
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Read an answer; after anything but 200 the run ends."""
        now = time.perf_counter()
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is None or len(body) < int(length[1]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(ConnectionError(self._data.decode()))
            return
        self._replies.append(Reply(self._sent, now, body))
        self._data = b""
        if now < self._end:
            self.send()
        else:
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the run if the server did this."""
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed a connection"))


def cpu_seconds(server: psutil.Process) -> dict[str, float]:
    """Give the processor time so far of the server and of what it started."""
    names = {server.pid: "server", os.getpid(): "client"}
    for child in server.children():
        names[child.pid] = "broker" if "nats" in child.name() else "worker"
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for pid, name in names.items()}


async def measure(port: int, delay_ms: int, server: psutil.Process, *, spread: bool) -> Figure:
    """Keep the connections busy until the time is over."""
    loop = asyncio.get_running_loop()
    begin = time.perf_counter() + WARM_UP_S
    numbers, replies = iter(range(10**7)), list[Reply]()
    clients: list[Client] = []
    for number in range(CONNECTIONS):
        _, client = await loop.create_connection(
            lambda: Client(numbers, replies, begin + RUN_S), "127.0.0.1", port
        )
        loop.call_later(spread * number * delay_ms / 1000 / CONNECTIONS, client.send)
        clients.append(client)
    await asyncio.sleep(WARM_UP_S)
    before, earlier = cpu_seconds(server), len(replies)
    for client in clients:
        await client.done
    count = len(replies) - earlier
    cpu = {
        name: 1000 * (seconds - before[name]) / count
        for name, seconds in cpu_seconds(server).items()
    }
    measured = [reply for reply in replies if reply.sent > begin]
    times = [1000 * (reply.came - reply.sent) for reply in measured]
    overheads = [
        total - msgspec.json.decode(reply.body)["x_engine_ms"]
        for total, reply in zip(times, measured, strict=True)
    ]
    total, overhead = statistics.quantiles(times, n=100), statistics.quantiles(overheads, n=100)
    return Figure(
        delay_ms,
        spread,
        len(measured) / RUN_S,
        total[49],
        total[98],
        overhead[49],
        overhead[98],
        cpu,
    )


def main() -> None:
    """Run all and print the table."""
    table = Table(
        title=f"HTTP and queue around the mock engine, {CONNECTIONS} connections, 4 KB states",
        caption=machine_line(),
    )
    columns = ("engine ms", "starts", "requests/s", "p50 ms", "p99 ms", "over p50", "over p99")
    for column in (*columns, *(f"{name} CPU" for name in PARTS), "load", "probe"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for delay_ms in DELAYS_MS:
            with serving(Path(name), f"mock:delay_ms={delay_ms}") as (port, server):
                for spread in (False, True) if delay_ms else (False,):
                    figure = uvloop.run(measure(port, delay_ms, server, spread=spread))
                    table.add_row(
                        str(figure.delay_ms),
                        "spread" if figure.spread else "together",
                        f"{figure.per_s:,.0f}",
                        f"{figure.p50_ms:.2f}",
                        f"{figure.p99_ms:.2f}",
                        f"{figure.overhead_p50_ms:.2f}",
                        f"{figure.overhead_p99_ms:.2f}",
                        *(f"{figure.cpu_ms[part]:.2f}" for part in PARTS),
                        f"{os.getloadavg()[0]:.1f}",
                        f"{fdatasync_probe(Path(name)):.2f}",
                    )
    Console().print(table)


if __name__ == "__main__":
    main()
