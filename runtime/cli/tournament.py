"""`ostinato tournament FILE.toml`: many matches between several agents."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from engine.client import Engine
from engine.embedded import embedded
from engine.models import Model
from games.base import Game
from runtime.cli.common import ConfigFlag, JsonFlag, ModelFlag, model_of, settings_of
from runtime.cli.show import Table, err, out, plain_table, print_json, say, show_signals
from runtime.plots import new_figure
from runtime.settings import Settings
from runtime.tournament.plan import Plan, pairings, read_plan, seats_of
from runtime.tournament.report import (
    figures,
    final_table,
    pair_elo,
    summary,
    tests,
    unit,
    write_report,
)
from runtime.tournament.run import Outcome, Tournament
from runtime.tournament.standings import Standings
from runtime.tournament.stats import Elo
from store.sqlite import open_log


def tournament(
    file: Annotated[
        Path, typer.Argument(help="The tournament, see docs/tournaments.md.", metavar="FILE.toml")
    ],
    log: Annotated[
        Path | None,
        typer.Option(help="The log to write or go on with; default FILE.db.", metavar="FILE.db"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="The report's folder; default FILE-report.", metavar="FOLDER"),
    ] = None,
    model: ModelFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> int:
    """Play a tournament and rate its agents.

    Contestants differ by agent, by model, or by the layout in which they are told the game.

    The same command goes on where it was stopped, at any moment and as often as it is; the final
    table is that of a tournament that ran through.

    Example: ostinato tournament cup.toml
    """
    plan, game = read_plan(file)
    new_figure(1, 1)  # a missing library is said before the first match, not after the last
    settings = settings_of(config)
    folder = report or file.with_name(f"{file.stem}-report")
    outcome = anyio.run(
        lambda: _play(plan, game, log or file.with_suffix(".db"), model, settings, quiet=json)
    )
    write_report(outcome, folder)
    if json:
        print_json(
            {
                "stop": outcome.stop,
                "matches": outcome.standings.matches,
                "table": final_table(outcome),
                "seats": outcome.standings.seats,
                "pairs": outcome.standings.pairs.get((0, 1)),
                "elo": _finite(pair_elo(outcome)),
                "signals": outcome.signals,
                "report": str(folder),
            }
        )
    else:
        _show(outcome)
        show_signals(outcome.signals)
        say(f"Report: {folder / 'report.md'}")
    return 0


def _show(outcome: Outcome) -> None:
    out.print(summary(outcome), highlight=False, soft_wrap=True)
    table = plain_table()
    columns = figures(outcome)
    left_out = {"mean return", "fallbacks"} - {unit(outcome)}  # the report has them
    shown = [heading for heading in columns if heading not in left_out]
    for heading in shown:
        if heading == "agent":
            table.add_column(heading)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for cells in zip(*(columns[heading] for heading in shown), strict=True):
        table.add_row(*map(escape, cells))
    out.print(table)
    for line in (
        "Asked, tokens and GPU seconds are for each match.",
        *filter(None, tests(outcome)),
    ):
        out.print(line, markup=False, highlight=False)


def _finite(elo: Elo | None) -> dict[str, float | None] | None:
    """JSON has no infinity, which the difference is where one side won everything."""
    if elo is None:
        return None
    values = msgspec.structs.asdict(elo)
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


async def _play(
    plan: Plan, game: Game, log_file: Path, default: str | None, settings: Settings, *, quiet: bool
) -> Outcome:
    async with AsyncExitStack() as stack:
        show = stack.enter_context(_Progress(plan, game, quiet=quiet))
        log = None
        try:
            log = open_log(log_file, synchronous=settings.synchronous)
            played = Tournament(plan, game, log, home=settings.home, on_counted=show.counted)
            wanted = {number: plan.agents[number].model or default for number in played.asking}
            models = {spec: model_of(spec, settings) for spec in set(wanted.values())}
            engines = {
                spec: await _engine(stack, model, settings, log.log_id, played)
                for spec, model in models.items()
            }
            asked = [
                engines[wanted[number]] if number in wanted else None
                for number in range(len(plan.agents))
            ]
            return await played.play(asked)
        finally:
            if log is not None:
                await log.close()


async def _engine(
    stack: AsyncExitStack, model: Model, settings: Settings, source: str, played: Tournament
) -> Engine:
    return await stack.enter_async_context(
        embedded(
            model,
            home=settings.home,
            source=source,
            settings=settings.worker,
            on_stray=played.live.on_stray,
        )
    )


class _Progress:
    """Progress and standings on a terminal, while it runs."""

    def __init__(self, plan: Plan, game: Game, *, quiet: bool) -> None:
        self._plan = plan
        seats = seats_of(plan, game)
        total = plan.seeds * seats * sum(1 for _ in pairings(plan, seats))
        if plan.budget.matches is not None:
            total = min(total, plan.budget.matches)
        self._progress = Progress(
            TextColumn(escape(plan.game)), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._task = self._progress.add_task("", total=total)
        self._standings: Standings | None = None
        self._live = (
            None
            if quiet or not err.is_terminal
            else Live(console=err, get_renderable=self._render, refresh_per_second=4)
        )

    def __enter__(self) -> _Progress:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*raised)

    def counted(self, standings: Standings) -> None:
        """Take the standings after one more match."""
        self._standings = standings
        self._progress.update(self._task, completed=standings.matches)

    def _render(self) -> Group:
        table = Table("agent", "matches", "won", "drawn", "lost", "mean return")
        lines = self._standings.lines if self._standings is not None else []
        ranked = sorted(
            zip(self._plan.agents, lines, strict=False),
            key=lambda each: -each[1].returned / max(1, each[1].matches),
        )
        for agent, line in ranked:
            mean = line.returned / max(1, line.matches)
            counts = map(str, (line.matches, line.won, line.drawn, line.lost))
            table.add_row(escape(agent.name), *counts, f"{mean:+.3f}")
        test = self._plan.sprt
        pairs = self._standings.pairs.get((0, 1)) if self._standings is not None else None
        if test is not None and pairs is not None:
            lower, upper = test.bounds
            table.caption = f"LLR {test.ratio(pairs):.2f} ({lower:.2f}, {upper:.2f})"
        return Group(self._progress, table)
