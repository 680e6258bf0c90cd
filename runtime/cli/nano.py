"""`ostinato bench nano`: how well a model decides in the games that can be solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import msgspec
import typer
from rich.table import Table

from engine.models import Model
from engine.settings import WorkerSettings
from games.layouts import split_layouts
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
from runtime.exam.exam import GAMES, Exam, Options, difference, run


def nano(
    model: ModelFlag = None,
    games: Annotated[
        str,
        typer.Option(
            help=f"Of {', '.join(split_layouts(game)[0] for game in GAMES)}.",
            show_default="all",
            metavar="GAME,...",
        ),
    ] = ",".join(GAMES),
    positions: Annotated[int, typer.Option(min=1, help="To ask about, of each game.")] = 100,
    matches: Annotated[int, typer.Option(min=1, help="Against each player, of each seat.")] = 50,
    maps: Annotated[int, typer.Option(min=0, help="Of expedition, to cross.")] = 10,
    rules: Annotated[
        Literal["full", "short"], typer.Option(help="Expedition's rulebook.")
    ] = "full",
    seed: Annotated[int, typer.Option(help="Another one: other positions and matches.")] = 1,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Once in float32 and once in bfloat16, and the difference."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw reliability into this file; needs Matplotlib.", metavar="FILE.svg"),
    ] = None,
    dtype: DtypeFlag = None,
    kv_cache_memory: CacheFlag = None,
    device: DeviceFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> int:
    """Hold a model's answers against solvers, and play against known players.

    Positions are ones that the small model was not trained on; any bundle can be examined, or
    mock:seed=1 to see what guessing gets. Nothing here is asked of a solver while the model plays.

    Example: ostinato bench nano --games tictactoe,kuhn_poker --matches 100 --plot nano.svg
    """
    options = Options(
        games=_games(games),
        positions=positions,
        matches=matches,
        maps=maps,
        rules=rules,
        seed=seed,
    )
    draw = _drawing(plot) if plot else None
    settings = settings_of(config, dtype=dtype, kv_cache_memory=kv_cache_memory, device=device)
    opened = model_of(model, settings)
    formats = ("float32", "bfloat16") if compare else (settings.worker.dtype,)
    exams: list[Exam] = []
    with progress("starting", None, quiet=json) as bar:

        def report(what: str, done: int, total: int) -> None:
            bar.update(TASK, description=what, completed=done, total=total)

        for each in formats:
            worker = msgspec.structs.replace(settings.worker, dtype=each)
            exams.append(anyio.run(_examine, opened, worker, options, report))
    found = exams[0]
    numbers = difference(*exams) if compare else None
    if draw:
        draw(found)
    if json:
        print_json(
            {
                "model": opened.name,
                "hash": opened.hash,
                "dtype": formats[0],
                "questions": _records(found.questions),
                "invariance": [
                    {"game": game} | row
                    for game, each in found.invariance.items()
                    for row in _records(each)
                ],
                "matches": _records(found.matches),
                "kuhn_poker": [found.kuhn] if found.kuhn else [],
                "journeys": _records(found.journeys),
                "reliability": found.reliability,
                "formats": _records([numbers]) if numbers else [],
            }
        )
        return 0
    _show(found)
    if numbers:
        out.print(
            f"{numbers.what}: {numbers.pairs:,} answers, at most {numbers.largest:.4f} apart, the "
            f"same choice in {numbers.same:.1%}",
            highlight=False,
            soft_wrap=True,
        )
    if opened.arbitrary:
        out.print("[yellow]This model's choices are arbitrary[/]: it has random weights.")
    return 0


async def _examine(
    model: Model,
    settings: WorkerSettings,
    options: Options,
    report: Callable[[str, int, int], None],
) -> Exam:
    from engine.worker import open_backend

    backend = await open_backend(model, settings)
    try:
        return await run(backend, options, report)
    finally:
        with anyio.CancelScope(shield=True):
            await backend.close()


def _games(names: str) -> tuple[str, ...]:
    known = {split_layouts(game)[0]: game for game in GAMES} | {game: game for game in GAMES}
    chosen = names.split(",")
    for name in chosen:
        if name not in known:
            raise BadInput(f"--games {names}: {name} has no solver; take of {', '.join(GAMES)}")
    return tuple(known[name] for name in chosen)


def _records(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]


def _show(found: Exam) -> None:
    table = Table(title="Questions on positions for tests")
    for column in ("question", "type"):
        table.add_column(column)
    for column in ("tests", "right", "loss", "Brier", "ECE"):
        table.add_column(column, justify="right")
    for row in found.questions:
        loss = "" if row.loss is None else f"{row.loss:.3f}"
        table.add_row(
            _short(row.question),
            row.type,
            f"{row.tests:,}",
            f"{row.right:.1%}",
            loss,
            f"{row.brier:.3f}",
            f"{row.ece:.3f}",
        )
    out.print(table)
    table = Table(title="What should change no answer")
    table.add_column("game")
    table.add_column("changed")
    for column in ("pairs", "largest", "same choice"):
        table.add_column(column, justify="right")
    for game, rows in found.invariance.items():
        for row in rows:
            table.add_row(
                _short(game), row.what, f"{row.pairs}", f"{row.largest:.4f}", f"{row.same:.1%}"
            )
    out.print(table)
    if found.matches:
        out.print(_matches(found))
    if found.kuhn is not None:
        out.print(
            f"Kuhn poker, by its probabilities: exploitable by {found.kuhn.exploitability:.3f} "
            f"chips a hand; who bets half the time, by {found.kuhn.even:.3f}",
            highlight=False,
            soft_wrap=True,
        )
    for each in found.journeys:
        out.print(
            f"Expedition, {each.rules} rulebook, {each.maps} maps: {each.returned:.3f} of the "
            f"points; best play expects {each.best:.3f}, of which this is {each.share:.1%}; random "
            f"steps {each.chance:.3f}",
            highlight=False,
            soft_wrap=True,
        )


def _short(name: str) -> str:
    game, colon, question = name.removeprefix("openspiel:").partition(": ")
    return split_layouts(game)[0] + colon + question


def _matches(found: Exam) -> Table:
    table = Table(title="Matches, the most probable option chosen")
    for column in ("game", "against", "moves"):
        table.add_column(column)
    for column in ("played", "won", "drawn", "lost", "won, 95 %", "return"):
        table.add_column(column, justify="right")
    for row in found.matches:
        table.add_row(
            _short(row.game),
            row.against,
            row.seat,
            f"{row.matches}",
            f"{row.won}",
            f"{row.drawn}",
            f"{row.lost}",
            f"{row.low:.0%}-{row.high:.0%}",
            f"{row.returned:+.2f}",
        )
    return table


def _drawing(path: Path) -> Callable[[Exam], None]:
    """Give what draws reliability; refuses before anything is measured."""
    from runtime.plots import new_figure, save

    if path.suffix != ".svg":
        raise BadInput(f"--plot {path}: the file's name must end with .svg")
    figure = new_figure(6.0, 5.0)

    def draw(found: Exam) -> None:
        axes: Any = figure.subplots()
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        actions = [row.question for row in found.questions if row.loss is not None]
        for name in actions:
            bins = found.reliability[name]
            axes.plot([b.confidence for b in bins], [b.right for b in bins], "o-", label=name)
        axes.set(
            xlabel="probability of the most probable option",
            ylabel="share in which it is right",
            xlim=(0, 1),
            ylim=(0, 1),
            title="Reliability",
        )
        axes.legend()
        save(figure, path)

    return draw
