"""`ostinato replay --fork VERSION`: play on from a recorded moment as a new match."""

from __future__ import annotations

import hashlib
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec

from engine.client import Engine
from engine.models import Model
from games.registry import load_game
from runtime.agents.registry import make_agent
from runtime.cli.common import engine_of, model_of
from runtime.cli.show import print_json, say
from runtime.errors import BadInput
from runtime.live import recorded_of
from runtime.match import Match, MatchResult
from runtime.recordings import open_recordings
from runtime.settings import Settings
from runtime.table import Seat, Table, Terms, check_seats
from runtime.tally import Tally
from store.events import MatchStarted
from store.sqlite import open_log

PARTLY = 3


def play_on(
    file: Path,
    match: str,
    version: int,
    agents: list[str],
    settings: Settings,
    *,
    model: str | None,
    log_file: Path,
    json: bool,
) -> int:
    """Play, or go on with, the fork that these arguments name."""
    seats = tuple(Seat(name, make_agent(name)) for name in agents)
    opened = model_of(model, settings) if any(seat.agent.asks for seat in seats) else None
    result = anyio.run(lambda: _play_on(file, match, version, seats, settings, opened, log_file))
    if json:
        print_json(
            {
                "id": result.match,
                "parent": {"match": match, "version": version},
                "returns": result.returns,
                "reason": result.reason or result.end,
                "turns": result.turns,
                "log": str(log_file),
            }
        )
    else:
        returns = ", ".join(
            f"{name} {value:+g}" for name, value in zip(agents, result.returns, strict=True)
        )
        say(
            f"{result.match}: {result.reason or result.end} after {result.turns} turns: {returns}\n"
            f"It goes on from {match}, version {version}. Log: {log_file}"
        )
    return PARTLY if result.end == "paused" else 0


async def _play_on(
    file: Path,
    match: str,
    version: int,
    seats: tuple[Seat, ...],
    settings: Settings,
    model: Model | None,
    log_file: Path,
) -> MatchResult:
    async with open_recordings(file) as recordings:
        parent = recordings.read(match, stop=version + 1)
    if parent[-1].version != version:
        raise BadInput(
            f"match {match} has versions 0 to {parent[-1].version}, not {version};"
            " name one of these"
        )
    started = parent[0].event
    assert isinstance(started, MatchStarted)  # no log and no file takes another first event
    game = load_game(started.game)
    check_seats(game, seats)
    what = [match, parent[-1].hash.hex(), [seat.name for seat in seats], model and model.hash]
    name = f"fork-{hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:12]}"
    async with AsyncExitStack() as stack:
        log = open_log(log_file, synchronous=settings.synchronous)
        stack.push_async_callback(log.close)
        engine: Engine | None = None
        if model is not None:
            engine = await stack.enter_async_context(engine_of(model, settings, source=log.log_id))
        table = Table(
            log=log,
            game=game,
            seats=seats,
            engine=engine,
            terms=Terms(fallback=settings.fallback, deadline_s=settings.deadline_s),
            tally=Tally(home=settings.home),
        )
        known = recorded_of(log, name)
        live = Match.resume(table, known) if known else Match.fork(table, name, parent)
        return await live.run()
