"""What the queue costs a decision: published, pulled, answered and acknowledged, with no model.

Compare the rows of one run only: disks and neighbours change their pace from minute to minute.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from benchmarks.probe import fdatasync_probe
from engine.client import Engine
from engine.contract import Ask, DecisionRequest, Field
from engine.embedded import embedded
from engine.errors import RequestTooLarge
from engine.models import open_model

RUN_S = 3.0
WARM_UP = 200  # decisions
STATES = (2_000, 60_000)  # characters; the larger one is a long rulebook with its log
OVERSIZE = (20_000_000, 60_000_000)  # characters that compress to half of that
LANES = (1, 64)  # decisions at once
FIELD = Field(
    id="q",
    type="choice",
    instruction="Which step?",
    option_ids=("left", "right"),
    option_texts=('{"option_id":"left"}', '{"option_id":"right"}'),
)


class Figure(msgspec.Struct, frozen=True):
    """What one run came to. `probe_ms` is of right before it."""

    characters: int
    lanes: int
    per_s: float
    p50_ms: float
    p99_ms: float
    queue_p50_ms: float
    """From the publication to the worker's pull."""
    engine_p50_ms: float
    """From the worker's pull to its answer: the mock itself."""
    probe_ms: float


def requests(characters: int) -> Iterator[DecisionRequest]:
    """Give requests whose states differ at their end, as the states of a match do."""
    log = "".join(
        f"turn {number}: a step to the north, energy {number % 97}\n" for number in range(2_000)
    )
    number = 0
    while True:
        number += 1
        state = f"{log[: characters - 12]}turn {number:07d}"
        yield DecisionRequest(
            id=f"{characters}-{number}-{time.monotonic_ns()}",
            attempt=1,
            source="bench",
            affinity=f"match {number % 64}",
            remaining_s=30.0,
            ask=Ask(state=state, fields=(FIELD,)),
        )


async def measure(engine: Engine, characters: int, lanes: int, folder: Path) -> Figure:
    """Keep `lanes` decisions under way until the time is over."""
    source = requests(characters)
    for _ in range(WARM_UP):
        await engine.decide(next(source))
    probe_ms = fdatasync_probe(folder)
    times: list[float] = []
    queue_ms: list[float] = []
    engine_ms: list[float] = []
    begin = time.perf_counter()

    async def lane() -> None:
        now = time.perf_counter()
        while now < begin + RUN_S:
            request = next(source)
            before = time.perf_counter()
            reply = await engine.decide(request)
            now = time.perf_counter()
            times.append((now - before) * 1000)
            queue_ms.append(reply.queue_ms)
            engine_ms.append(reply.engine_ms)

    async with anyio.create_task_group() as tasks:
        for _ in range(lanes):
            tasks.start_soon(lane)
    cuts = statistics.quantiles(times, n=100)
    return Figure(
        characters=characters,
        lanes=lanes,
        per_s=len(times) / (time.perf_counter() - begin),
        p50_ms=cuts[49],
        p99_ms=cuts[98],
        queue_p50_ms=statistics.median(queue_ms),
        engine_p50_ms=statistics.median(engine_ms),
        probe_ms=probe_ms,
    )


async def refuse(engine: Engine) -> dict[int, float]:
    """Give the milliseconds to the refusal of states of so many characters that do not fit."""
    found: dict[int, float] = {}
    for characters in OVERSIZE:
        ask = Ask(state=random.Random(characters).randbytes(characters // 2).hex(), fields=(FIELD,))
        request = msgspec.structs.replace(next(requests(1000)), ask=ask)
        before = time.perf_counter()
        try:
            await engine.decide(request)
        except RequestTooLarge:
            found[characters] = (time.perf_counter() - before) * 1000
    return found


async def run(folder: Path) -> tuple[list[Figure], dict[int, float]]:
    """Measure every size at every number of decisions at once, and what is too large."""
    async with embedded(open_model("mock"), home=folder, source="bench") as engine:
        figures = [
            await measure(engine, characters, lanes, folder)
            for characters in STATES
            for lanes in LANES
        ]
        return figures, await refuse(engine)


def main() -> None:
    """Run all and print the table."""
    table = Table(title="A decision over the queue, mock without delay", caption=machine_line())
    for column in ("state", "at once", "decisions/s", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    for column in ("pulled after ms", "in worker ms", "disk probe ms"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        figures, refused = anyio.run(run, Path(name))
        for figure in figures:
            table.add_row(
                f"{figure.characters / 1000:g} KB",
                str(figure.lanes),
                f"{figure.per_s:,.0f}",
                f"{figure.p50_ms:.2f}",
                f"{figure.p99_ms:.2f}",
                f"{figure.queue_p50_ms:.2f}",
                f"{figure.engine_p50_ms:.2f}",
                f"{figure.probe_ms:.2f}",
            )
    console = Console()
    console.print(table)
    for characters, ms in refused.items():
        console.print(f"a state of {characters / 1e6:g} MB is refused after {ms:.0f} ms")


if __name__ == "__main__":
    main()
