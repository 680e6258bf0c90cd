"""`ostinato bench`: figures of this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer

from engine.figures import GROWTH, NUMBERS, FeatureMemory, Figure, Measured, number_of_states
from runtime.cli.common import (
    CacheFlag,
    ConfigFlag,
    DeviceFlag,
    DtypeFlag,
    JsonFlag,
    ModelFlag,
    model_of,
    settings_of,
)
from runtime.cli.show import TASK, Table, out, print_json, progress
from runtime.errors import BadInput

bench = typer.Typer(
    name="bench", help="Measure this machine.", no_args_is_help=True, add_completion=False
)


@bench.callback()
def options() -> None:
    """Measure this machine."""


@bench.command()
def engine(
    model: ModelFlag = None,
    sizes: Annotated[
        str, typer.Option(help="Tokens of the states, with commas between.", metavar="N,N,...")
    ] = "300,2000,8000,16000",
    repeats: Annotated[int, typer.Option(min=1, help="Every figure is the median of so many.")] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the figures into this file; needs matplotlib.", metavar="FILE.svg"),
    ] = None,
    cpu_time: Annotated[
        bool,
        typer.Option(
            "--cpu-time",
            help="Show processor time instead of elapsed time: for a machine shared with others.",
        ),
    ] = False,
    dtype: DtypeFlag = None,
    kv_cache_memory: CacheFlag = None,
    device: DeviceFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> int:
    """Measure a decision on a known, a grown and a new state, and many questions on one.

    Compared with the same engine that reuses nothing, so that every question reads its own record,
    and with reuse in whole blocks as vLLM's own scheduler has it. The engine is started twice.

    Example: ostinato bench engine --sizes 300,2000 --plot engine.svg
    """
    numbers = _numbers(sizes)
    draw = _drawing(plot) if plot else None
    settings = settings_of(config, dtype=dtype, kv_cache_memory=kv_cache_memory, device=device)
    opened = model_of(model, settings)
    if opened.bundle is None:
        raise BadInput(f"--model {opened.spec}: it has no engine to measure; name a bundle")
    longest = max(numbers) + 400  # with what was added and the question
    if longest > opened.window:
        raise BadInput(
            f"--sizes {sizes}: with its question the longest record has about {longest} tokens, the"
            f" window is {opened.window}; leave it out"
        )
    bundle, worker = opened.bundle, settings.worker
    from engine.llm.bench import measure

    with progress("starting", number_of_states(numbers, repeats), quiet=json) as bar:

        def report(what: str, done: int) -> None:
            bar.update(TASK, description=what, completed=done)

        async def run() -> Measured:
            return await measure(bundle, worker, sizes=numbers, repeats=repeats, report=report)

        found = anyio.run(run)
    times = _times(found.figures, cpu=cpu_time)
    if draw:
        draw(times)
    if json:
        print_json(found)
    else:
        unit = "ms of processor time" if cpu_time else "ms"
        _show(times, unit, worker.dtype)
        _show_memory(found.features)
    return 0


def _numbers(sizes: str) -> list[int]:
    try:
        numbers = sorted({int(size) for size in sizes.split(",")})
    except ValueError as error:
        raise BadInput(f"--sizes {sizes}: write numbers with commas between") from error
    if numbers[0] < 50:
        raise BadInput(f"--sizes {sizes}: 50 tokens at least")
    return numbers


class Times(msgspec.Struct, frozen=True):
    """Milliseconds and tokens read, by size of the state, way of reuse and kind."""

    of: dict[int, dict[tuple[str, str], tuple[float, int]]]

    def ms(self, tokens: int, way: str, kind: str) -> float:
        """Give the time of one figure."""
        return self.of[tokens][way, kind][0]


def _times(figures: list[Figure], *, cpu: bool) -> Times:
    found: dict[int, dict[tuple[str, str], tuple[float, int]]] = defaultdict(dict)
    for figure in figures:
        ms = figure.cpu_ms if cpu else figure.ms
        found[figure.tokens][figure.way, figure.kind] = ms, figure.read
    return Times(dict(found))


def _show(times: Times, unit: str, dtype: str) -> None:
    table = Table(title=f"One question: {unit} (tokens read), {dtype}")
    table.add_column("state of", justify="right")
    for column in ("known", ": shortest", f"grown by {GROWTH}", "new"):
        table.add_column(column, justify="right")
    for column in ("known, whole blocks", "grown, whole blocks", "nothing reused"):
        table.add_column(column, justify="right")
    for tokens, row in times.of.items():
        keys = [("ostinato", kind) for kind in ("known", "grown", "new")]
        keys += [("whole blocks", "known"), ("whole blocks", "grown"), ("nothing reused", "known")]
        cells = [f"{row[key][0]:,.0f} ({row[key][1]:,})" for key in keys]
        longer = row["ostinato", "known"][0] / times.ms(min(times.of), "ostinato", "known")
        table.add_row(f"{tokens:,}", cells[0], f"{longer:.1f}", *cells[1:])
    out.print(table)
    table = Table(title=f"Questions at once on a known state: {unit}")
    many = max(NUMBERS)
    columns = [f"{many} in turn", f"{many} joint", f"{many} : 1", f"{many} : in turn"]
    columns += [f"{many}, whole blocks", f"{many}, nothing reused"]
    for column in ("state of", *map(str, NUMBERS), *columns):
        table.add_column(column, justify="right")
    for tokens in times.of:
        ours = [times.ms(tokens, "ostinato", f"{number} at once") for number in NUMBERS]
        turns = times.ms(tokens, "ostinato", f"{many} in turn")
        joint = times.ms(tokens, "ostinato", f"{many} joint")
        others = [
            times.ms(tokens, way, f"{many} at once") for way in ("whole blocks", "nothing reused")
        ]
        table.add_row(
            f"{tokens:,}",
            *(f"{ms:,.0f}" for ms in (*ours, turns, joint)),
            f"{ours[-1] / ours[0]:.1f}",
            f"{ours[-1] / turns:.2f}",
            *(f"{ms:,.0f}" for ms in others),
        )
    out.print(table)


def _show_memory(memory: FeatureMemory) -> None:
    out.print(
        f"Head features: {memory.slots:,} slots x {memory.width} numbers x {memory.bytes_each} "
        f"bytes = {memory.total:,} bytes.",
        highlight=False,
    )


def _drawing(path: Path) -> Callable[[Times], None]:
    """Give what draws the figures; refuses before anything is measured."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise BadInput("--plot needs matplotlib: pip install matplotlib") from error
    if path.suffix != ".svg":
        raise BadInput(f"--plot {path}: the file's name must end with .svg")

    def draw(times: Times) -> None:
        canvas = Canvas(figsize=(10, 4.2), layout="constrained")
        one, many = canvas.subplots(1, 2)
        for way, kind, line in (
            ("ostinato", "known", "o-"),
            ("ostinato", "grown", "s-"),
            ("whole blocks", "known", "o--"),
            ("whole blocks", "grown", "s--"),
            ("nothing reused", "known", "k:"),
        ):
            label = way if way == "nothing reused" else f"{way}, {kind}"
            one.plot(list(times.of), [times.ms(n, way, kind) for n in times.of], line, label=label)
        one.set(xlabel="tokens of the state", ylabel="ms", title="One question")
        for tokens in times.of:
            ours = [times.ms(tokens, "ostinato", f"{number} at once") for number in NUMBERS]
            many.plot(NUMBERS, ours, "o-", label=f"{tokens:,} tokens")
        many.set(xlabel="questions at once", title="Questions on a known state", xticks=NUMBERS)
        for axes in (one, many):
            axes.set_yscale("log")
            axes.legend()
        one.set_xscale("log")
        canvas.savefig(path, metadata={"Date": None})

    return draw
