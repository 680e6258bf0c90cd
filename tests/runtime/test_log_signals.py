"""Signals as a log tells them, to whoever looks while a run goes on and after it."""

from __future__ import annotations

import json
from pathlib import Path

import anyio.to_thread
import msgspec
import pytest

from engine.errors import DecisionExpired
from games.base import Game
from runtime import log_signals
from runtime.agents.base import Act, Agent, Turn
from runtime.cli.app import run
from runtime.log_signals import LogSignals
from runtime.match import Match
from runtime.signals import SignalReport
from runtime.table import Terms
from store.events import MatchStarted
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.engines import FailingEngine
from tests.support.matches import MATCH, cut, events_of, play_one, seat, table
from tests.support.runs import KeptRun
from tests.support.toys import Diary

DIARY = Diary(days=8, width=10)


class Walks(Agent):
    """Does the same every day."""

    async def act(self, turn: Turn) -> Act:
        return Act("walk")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log's game be found; it is in no package."""

    def load(id: str) -> Game:
        return DIARY

    monkeypatch.setattr(log_signals, "load_recorded", load)


@pytest.mark.usefixtures("known")
async def test_a_log_tells_what_its_run_saw() -> None:
    log = MemoryLog()
    engine = FailingEngine(DecisionExpired("too slow"), lambda number: number % 2 == 0)
    terms = Terms(fallback="random")
    for number, agent in enumerate((seat(Walks()), seat("decision"))):
        run = KeptRun(log, DIARY, [agent], matches=number + 2, seed=1, terms=terms)
        saw = (await run.play(engine)).signals
        assert saw.agents
    status = LogSignals(log).look()
    assert (status.matches, status.under_way, status.unread) == (log.count(), 0, 0)
    assert set(saw.agents) <= set(status.signals.agents)
    assert set(saw.matches) <= set(status.signals.matches)
    assert sum(each.stuck for each in status.signals.agents) >= 2


@pytest.mark.usefixtures("known")
async def test_a_match_under_way_is_followed_as_it_grows() -> None:
    whole, _ = await play_one(DIARY, [Walks()])
    growing = await cut(whole, 3)
    looked = LogSignals(growing)
    first = looked.look()
    assert (first.matches, first.under_way, first.signals) == (1, 1, SignalReport())
    await growing.restore(MATCH, whole.stored(MATCH)[3:5])
    assert [each.stuck for each in looked.look().signals.matches] == [1]
    await growing.restore(MATCH, whole.stored(MATCH)[5:])
    last = looked.look()
    assert (last.under_way, last.signals) == (0, LogSignals(whole).look().signals)
    assert looked.look() == last


async def test_a_match_of_a_game_that_is_not_known_here_is_counted_as_such() -> None:
    log, _ = await play_one(DIARY, [Walks()])
    started = events_of(log)[0]
    assert isinstance(started, MatchStarted)
    other = MemoryLog()
    await other.append("m-2", [msgspec.structs.replace(started, game="nowhere")], expected=0)
    status = LogSignals(other).look()
    assert (status.matches, status.under_way, status.unread) == (1, 0, 1)


async def test_status_shows_the_agents_of_a_log_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSTINATO_HOME", str(tmp_path))
    log = open_log(tmp_path / "games.db")
    try:
        engine = FailingEngine(DecisionExpired("too slow"))
        rules = log_signals.load_recorded("tictactoe")
        at = table(
            *(log, rules, ["decision", "random"]), engine=engine, terms=Terms(fallback="random")
        )
        await Match.new(at, MATCH, seed=1).run()
        [saw] = at.tally.signals.report().matches
        command = ["status", "--log", "games.db"]
        assert await anyio.to_thread.run_sync(run, [*command, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["log"]
        assert told["signals"]["matches"] == [msgspec.to_builtins(saw)]
        assert told["signals"]["agents"][0]["fallback"] == saw.fallback > 0
        assert await anyio.to_thread.run_sync(run, command) == 0
        shown = capsys.readouterr().out
        assert "games.db: 1 matches, 0 under way" in shown
        assert f"see {MATCH}" in shown
    finally:
        await log.close()
    assert await anyio.to_thread.run_sync(run, ["status", "--log", "none.db"]) == 1
    assert "none.db is not there; name an existing log" in capsys.readouterr().err
