"""What HTTP and the queue add to the engine's time: `ostinato serve` with the mock engine.

Sixteen connections each send the next request when the last is answered. The overhead is the time
at the client without the reply's `x_engine_ms`. With an engine that takes no time the connections
keep the server busy all the time and wait for one another; with one that takes as long as a model,
the overhead is what a client notices. Processor time is that of a request in the server, its worker
and its broker: neighbours on a shared machine disturb it little.
"""

from __future__ import annotations

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

import anyio
import anyio.abc
import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe

CONNECTIONS = 16
RUN_S = 4.0
WARM_UP_S = 1.0
STATE = 4_000  # characters
DELAYS_MS = (0, 20, 100)
PARTS = ("server", "worker", "broker")


class Figure(msgspec.Struct, frozen=True):
    """What one run came to."""

    delay_ms: int
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


def request(number: int) -> bytes:
    """Give one request; the states differ, so that none is shared."""
    body = msgspec.json.encode(
        {
            "model": "clef",
            "state": f"{'a step north; ' * (STATE // 14)}turn {number:07d}",
            "questions": {"step": {"type": "choice", "criteria": {"left": None, "right": None}}},
        }
    )
    head = f"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + body


async def read_reply(stream: anyio.abc.ByteReceiveStream) -> bytes:
    """Read one reply's body; anything but 200 ends the run."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), data
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    while len(body) < int(length[1]):
        body += await stream.receive()
    return body


def cpu_seconds(server: psutil.Process) -> dict[str, float]:
    """Give the processor time so far of the server and of what it started."""
    names = {server.pid: "server"}
    for child in server.children():
        names[child.pid] = "broker" if "nats" in child.name() else "worker"
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for pid, name in names.items()}


async def measure(port: int, delay_ms: int, server: psutil.Process) -> Figure:
    """Keep the connections busy until the time is over."""
    times: list[float] = []
    overheads: list[float] = []
    begin = time.perf_counter() + WARM_UP_S
    numbers = iter(range(10**9))

    cpu_before: dict[str, float] = {}

    async def connection() -> None:
        now = 0.0
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            while now < begin + RUN_S:
                data = request(next(numbers))
                sent = time.perf_counter()
                await stream.send(data)
                body = await read_reply(stream)
                now = time.perf_counter()
                if sent > begin:
                    if not cpu_before:
                        cpu_before.update(cpu_seconds(server))
                    times.append((now - sent) * 1000)
                    overheads.append(times[-1] - msgspec.json.decode(body)["x_engine_ms"])

    async with anyio.create_task_group() as group:
        for _ in range(CONNECTIONS):
            group.start_soon(connection)
    cpu = {
        name: 1000 * (seconds - cpu_before[name]) / len(times)
        for name, seconds in cpu_seconds(server).items()
    }
    total, overhead = statistics.quantiles(times, n=100), statistics.quantiles(overheads, n=100)
    rate = len(times) / RUN_S
    return Figure(delay_ms, rate, total[49], total[98], overhead[49], overhead[98], cpu)


def main() -> None:
    """Run all and print the table."""
    table = Table(
        title=f"HTTP and queue around the mock engine, {CONNECTIONS} connections, 4 KB states",
        caption=machine_line(),
    )
    columns = ("engine ms", "requests/s", "p50 ms", "p99 ms", "overhead p50", "overhead p99")
    for column in (*columns, *(f"{name} CPU" for name in PARTS), "load", "probe"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for delay_ms in DELAYS_MS:
            with serving(Path(name), f"mock:delay_ms={delay_ms}") as (port, server):
                figure = anyio.run(
                    measure, port, delay_ms, server, backend_options={"use_uvloop": True}
                )
            table.add_row(
                str(figure.delay_ms),
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
