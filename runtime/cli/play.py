"""`ostinato play` and `ostinato demo`: matches, from nothing to a table of results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from engine.client import Engine, Stray
from engine.contract import DecisionReply
from engine.models import Model
from games.base import Game
from games.registry import load_game
from runtime.agents.registry import FORMS, make_agent
from runtime.cli.common import (
    ConfigFlag,
    DtypeFlag,
    JsonFlag,
    ModelFlag,
    NatsFlag,
    WindowFlag,
    engine_of,
    model_of,
    settings_of,
)
from runtime.cli.show import TASK, Spool, out, plain_table, progress, say, show_signals
from runtime.errors import BadInput
from runtime.exam.marks import interval
from runtime.match import MatchResult
from runtime.metrics import figures_of_run, metrics
from runtime.play import Run, RunReport
from runtime.replay import replay_file
from runtime.settings import Settings
from runtime.table import Seat, Terms, check_seats
from store.sqlite import open_log

DEMO = (("tictactoe", 10), ("openspiel:connect_four", 4))
DEMO_SEATS = ("decision", "random")
PARTLY, REPLAY_DIFFERS = 3, 4


class Job(msgspec.Struct, frozen=True):
    """Matches of one game between the same agents."""

    game: str
    seats: tuple[str, ...]
    matches: int


def play(
    game: Annotated[
        str,
        typer.Argument(
            help="tictactoe, kuhn_poker, holdem, expedition, openspiel:NAME, pettingzoo:NAME; with"
            " parameters such as expedition(layout=bare), which tells it another way.",
            metavar="GAME",
        ),
    ],
    seat: Annotated[
        list[str],
        typer.Option(
            "--seat",
            help=f"The agent of a seat; once for each seat, in order: {FORMS}.",
            metavar="AGENT",
        ),
    ],
    log: Annotated[
        Path, typer.Option(help="The log to write, or to go on with.", metavar="FILE.db")
    ],
    matches: Annotated[int, typer.Option(min=1, help="How many matches the log is to have.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same matches; default: drawn.")
    ] = None,
    model: ModelFlag = None,
    config: ConfigFlag = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Matches under way at once; default 16.")
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            help="When a decision cannot be had: pause, pass, random or previous; default pause."
        ),
    ] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", help="Seconds to wait for a decision; default 30.")
    ] = None,
    synchronous: Annotated[
        str | None,
        typer.Option(
            help="FULL, the default, survives a power cut; NORMAL is for throw-away runs."
        ),
    ] = None,
    nats: NatsFlag = None,
    window: WindowFlag = None,
    dtype: DtypeFlag = None,
    json: JsonFlag = False,
) -> int:
    """Play matches of GAME into a log.

    Played again with the same game, agents, model and seed it goes on where it stopped: finished
    matches are not repeated, unfinished ones are resumed. Exit code 3 if a match paused.

    Example: ostinato play tictactoe --seat decision --seat random --matches 10 --seed 1
    --log games.db --model mock:seed=1
    """
    settings = settings_of(
        config,
        concurrency=concurrency,
        fallback=fallback,
        deadline_s=deadline_s,
        synchronous=synchronous,
        nats=nats,
        window=window,
        dtype=dtype,
    )
    job = Job(game, tuple(seat), matches)
    agents = [make_agent(name) for name in job.seats]
    opened = model_of(model, settings) if any(agent.asks for agent in agents) else None
    quiet = json or any(agent.interactive for agent in agents)
    with ExitStack() as stack:
        spool = stack.enter_context(Spool()) if json else None
        keep = spool and (lambda result: spool.add(_document(result)))
        (report,) = anyio.run(
            lambda: _play([job], opened, settings, log, seed, quiet=quiet, keep=keep)
        )
        if spool is not None:
            chats = {"chats": report.chats} if report.chats.answers else {}
            counts = {"decisions": report.decisions, "signals": report.signals}
            after = {**counts, **chats, "log": str(log)}
            spool.print_json({"seed": report.seed}, "matches", after)
    paused = report.results.paused
    if not json:
        _show([(job, report)], opened, log)
        for match in paused:
            say(f"paused: {match.match}: {match.reason}")
        if paused:
            out.print("The same command resumes paused matches.")
    return PARTLY if paused else 0


def _document(result: MatchResult) -> dict[str, Any]:
    return {
        "id": result.match,
        "returns": result.returns,
        "reason": result.reason or result.end,
        "turns": result.turns,
    }


def demo(model: ModelFlag = None, config: ConfigFlag = None) -> int:
    """Play matches through the whole system, replay them, and say what happened.

    This is what `make play` runs: 10 matches of tic-tac-toe and 4 of OpenSpiel's connect four,
    a decision agent against a random one.
    """
    settings = settings_of(config)
    opened = model_of(model, settings)
    logs = settings.home / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{logs}: {error.strerror}; set OSTINATO_HOME to a folder that can be written"
        ) from error
    log = logs / f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.db"
    jobs = [Job(game, DEMO_SEATS, matches) for game, matches in DEMO]
    firsts: list[str] = []

    def keep(result: MatchResult) -> None:
        if not firsts:
            firsts.append(result.match)

    reports = anyio.run(lambda: _play(jobs, opened, settings, log, 1, quiet=False, keep=keep))
    _show(list(zip(jobs, reports, strict=True)), opened, log)
    replayed = anyio.run(lambda: replay_file(log))
    if replayed.identical:
        out.print(
            f"Replayed all {replayed.matches} matches ({replayed.turns} turns) from the log:"
            " [green]identical[/]."
        )
    else:
        out.print(f"[red]{len(replayed.differences)} differences[/] in replay, see below.")
    first = firsts[0]
    out.print(
        "\nTry next:\n"
        f"  .venv/bin/ostinato replay {log} --match {first}\n"
        "  .venv/bin/ostinato play kuhn_poker --seat decision:temperature=0.7 --seat random"
        " --matches 20 --log kuhn.db\n"
        f"  .venv/bin/ostinato export {log} demo.jsonl.zst",
        soft_wrap=True,
        highlight=False,
    )
    return 0 if replayed.identical else REPLAY_DIFFERS


async def _play(
    jobs: list[Job],
    model: Model | None,
    settings: Settings,
    log_file: Path,
    seed: int | None,
    *,
    quiet: bool,
    keep: Callable[[MatchResult], None] | None = None,
) -> list[RunReport]:
    """Play jobs one after the other with one engine, which is started only if a seat asks.

    `keep` is called with each result.
    """
    tables = [_seated(job) for job in jobs]  # a job that cannot be played leaves no log behind
    async with AsyncExitStack() as stack:
        log = open_log(log_file, synchronous=settings.synchronous)
        stack.push_async_callback(log.close)
        total = sum(job.matches for job in jobs)
        bar = stack.enter_context(progress("starting", total, quiet=quiet))

        def on_result(result: MatchResult) -> None:
            bar.update(TASK, advance=1, note=result.match)
            if keep is not None:
                keep(result)

        runs = [
            Run(
                log,
                game,
                seats,
                matches=job.matches,
                seed=seed,
                concurrency=settings.concurrency,
                terms=Terms(fallback=settings.fallback, deadline_s=settings.deadline_s),
                home=settings.home,
                on_result=on_result,
            )
            for job, (game, seats) in zip(jobs, tables, strict=True)
        ]
        current = runs[0]
        stack.enter_context(
            metrics(
                settings.metrics_port,
                lambda: figures_of_run(current.decisions, log.stats, current.signals),
            )
        )

        async def on_stray(reply: DecisionReply, stray: Stray) -> None:
            await current.on_stray(reply, stray)

        engine: Engine | None = None
        if model is not None:
            bar.update(TASK, description=f"loading {model.name}")
            engine = await stack.enter_async_context(
                engine_of(model, settings, source=log.log_id, on_stray=on_stray)
            )
        reports: list[RunReport] = []
        for job, current in zip(jobs, runs, strict=True):
            bar.update(TASK, description=job.game)
            reports.append(await current.play(engine))
        return reports


def _seated(job: Job) -> tuple[Game, list[Seat]]:
    """Give a job's game and agents, which suit one another."""
    game = load_game(job.game)
    seats = [Seat(name, make_agent(name)) for name in job.seats]
    check_seats(game, seats)
    return game, seats


def _show(played: list[tuple[Job, RunReport]], model: Model | None, log: Path) -> None:
    table = plain_table("Matches")
    for heading in ("game", "agent"):
        table.add_column(heading, overflow="fold")
    for heading in ("seat", "return", "won", "95 %", "drawn", "lost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job, report in played:
        results = report.results
        for seat, agent in enumerate(job.seats):
            sums, ended = results.seats[seat], results.ended
            low, high = interval(sums.won, ended)
            lost = ended - sums.won - sums.drawn
            counts = (sums.won, f"{low:.0%}-{high:.0%}", sums.drawn, lost)
            table.add_row(
                escape(f"{job.game} ({ended})") if seat == 0 else "",
                escape(agent),
                str(seat),
                f"{sums.returned / max(1, ended):+.2f}",
                *(map(str, counts) if len(job.seats) > 1 else "----"),
            )
    out.print(table)
    if model is not None:
        table = plain_table(f"Decisions by {model.name}")
        table.add_column("game", overflow="fold")
        for heading in ("asked", "failed", "forced", "read", "reused", "p50 ms", "p95 ms"):
            table.add_column(heading, justify="right", no_wrap=True)
        for job, report in played:
            counts = report.decisions
            numbers = (counts.asked, counts.failed, counts.forced)
            tokens = (counts.tokens_read, counts.tokens_reused)
            table.add_row(
                escape(job.game),
                *(f"{count:,}" for count in (*numbers, *tokens)),
                *("-" if ms is None else f"{ms:.1f}" for ms in (counts.p50_ms, counts.p95_ms)),
            )
        table.caption = "read and reused count tokens of the records"
        out.print(table)
        if model.arbitrary:
            out.print("[yellow]This model's choices are arbitrary[/]: it has random weights.")
    if any(report.chats.answers for _, report in played):
        out.print(_chat_table(played))
    for _, report in played:
        show_signals(report.signals)
    seeds = ", ".join(sorted({str(report.seed) for _, report in played}))
    say(f"Log: {log} (seed {seeds})")


def _chat_table(played: list[tuple[Job, RunReport]]) -> Table:
    table = plain_table("Chat agents")
    for heading in ("game", "answers", "read", "reused", "written", "p50 ms", "p95 ms"):
        table.add_column(heading, justify="left" if heading == "game" else "right")
    for job, report in played:
        chats = report.chats
        counts = (chats.answers, chats.tokens_read, chats.tokens_reused, chats.tokens_written)
        table.add_row(
            escape(job.game),
            *(f"{count:,}" for count in counts),
            *("-" if ms is None else f"{ms:.1f}" for ms in (chats.p50_ms, chats.p95_ms)),
        )
    return table
