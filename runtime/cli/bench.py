"""`ostinato bench`: figures of this machine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.table import Table

from engine.figures import GROWTH, NUMBERS, Figure, Measured, number_of_figures
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
from runtime.cli.show import TASK, out, print_json, progress
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
    repeats: Annotated[int, typer.Option(min=1, help="Every figure is a median of so many.")] = 3,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the figures into this file; needs matplotlib.", metavar="FILE.svg"),
    ] = None,
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

    with progress("starting", number_of_figures(numbers), quiet=json) as bar:

        def report(what: str, done: int) -> None:
            bar.update(TASK, description=what, completed=done)

        async def run() -> Measured:
            return await measure(bundle, worker, sizes=numbers, repeats=repeats, report=report)

        found = anyio.run(run)
    if draw:
        draw(found.figures)
    if json:
        print_json(found)
    else:
        _show(found, worker.dtype)
    return 0


def _numbers(sizes: str) -> list[int]:
    try:
        numbers = sorted({int(size) for size in sizes.split(",")})
    except ValueError as error:
        raise BadInput(f"--sizes {sizes}: write numbers with commas between") from error
    if numbers[0] < 50:
        raise BadInput(f"--sizes {sizes}: 50 tokens at least")
    return numbers


def _by_size(figures: list[Figure]) -> dict[int, dict[tuple[str, str], Figure]]:
    found: dict[int, dict[tuple[str, str], Figure]] = defaultdict(dict)
    for figure in figures:
        found[figure.tokens][figure.way, figure.kind] = figure
    return found


def _show(found: Measured, dtype: str) -> None:
    sizes = _by_size(found.figures)
    table = Table(title=f"One question, ms (tokens read); {dtype}")
    for column in (
        "state",
        "known",
        f"grown by {GROWTH}",
        "new",
        "",
        "known",
        "grown",
        "",
        "known",
    ):
        table.add_column(column, justify="right")
    for tokens, row in sizes.items():

        def cell(way: str, kind: str) -> str:
            figure = row[way, kind]  # noqa: B023
            return f"{figure.ms:,.0f} ({figure.read:,})"

        table.add_row(
            f"{tokens:,}",
            *(cell("ostinato", kind) for kind in ("known", "grown", "new")),
            "whole blocks:",
            *(cell("whole blocks", kind) for kind in ("known", "grown")),
            "nothing reused:",
            cell("nothing reused", "known"),
        )
    out.print(table)
    table = Table(title="Questions at once on a known state, ms")
    many = max(NUMBERS)
    for column in (
        "state",
        *map(str, NUMBERS),
        f"{many} in turn",
        f"{many} : 1",
        f"{many} : in turn",
    ):
        table.add_column(column, justify="right")
    for way in ("whole blocks", "nothing reused"):
        table.add_column(f"{many}, {way}", justify="right")
    for tokens, row in sizes.items():
        times = [row["ostinato", f"{number} at once"].ms for number in NUMBERS]
        turns = row["ostinato", f"{many} in turn"].ms
        others = [row[way, f"{many} at once"].ms for way in ("whole blocks", "nothing reused")]
        table.add_row(
            f"{tokens:,}",
            *(f"{ms:,.0f}" for ms in (*times, turns)),
            f"{times[-1] / times[0]:.1f}",
            f"{times[-1] / turns:.2f}",
            *(f"{ms:,.0f}" for ms in others),
        )
    out.print(table)
    memory = found.features
    out.print(
        f"Head features: {memory.slots:,} slots x {memory.width} numbers x {memory.bytes_each} "
        f"bytes = {memory.total:,} bytes.",
        highlight=False,
    )


def _drawing(path: Path):
    """Give what draws the figures; refuses before anything is measured."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise BadInput("--plot needs matplotlib: pip install matplotlib") from error
    if path.suffix != ".svg":
        raise BadInput(f"--plot {path}: the file's name must end with .svg")

    def draw(figures: list[Figure]) -> None:
        sizes = _by_size(figures)
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
            one.plot(list(sizes), [row[way, kind].ms for row in sizes.values()], line, label=label)
        one.set(xlabel="tokens of the state", ylabel="ms", title="One question")
        for tokens, row in sizes.items():
            times = [row["ostinato", f"{number} at once"].ms for number in NUMBERS]
            many.plot(NUMBERS, times, "o-", label=f"{tokens:,} tokens")
        many.set(xlabel="questions at once", title="Questions on a known state", xticks=NUMBERS)
        for axes in (one, many):
            axes.set_yscale("log")
            axes.legend()
        one.set_xscale("log")
        canvas.savefig(path, metadata={"Date": None})

    return draw
