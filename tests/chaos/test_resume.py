"""A run that is killed again and again comes to what an undisturbed one comes to."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from engine.mock import MockBackend, parse_mock
from engine.models import open_model
from games.registry import load_game
from runtime.play import Run
from runtime.replay import replay_file
from store.events import AnswerDiscarded, MatchEnded, TurnTaken
from store.log import EventLog
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.chaos.nemesis import GAME, MODEL, Actors, Stage, stage
from tests.support.engines import DirectEngine
from tests.support.matches import seat
from tests.support.queues import alive, send

MATCHES = 64


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    actors = Actors(tmp_path_factory.mktemp("actors"))
    yield actors
    actors.close()


Standing = dict[str, tuple[tuple[float, ...], tuple[str, ...]]]


def standings(log: EventLog) -> Standing:
    """Give each match's returns and actions; nothing may follow its end but discarded answers."""
    found: Standing = {}
    for recorded in log.scan():
        events = [each.event for each in recorded]
        if not any(isinstance(event, MatchEnded) for event in events):
            continue  # of the next run, which keeps the stage busy
        (end,) = (number for number, event in enumerate(events) if isinstance(event, MatchEnded))
        assert all(isinstance(event, AnswerDiscarded) for event in events[end + 1 :])
        ended = events[end]
        assert isinstance(ended, MatchEnded)
        actions = tuple(event.action for event in events if isinstance(event, TurnTaken))
        found[recorded[0].match] = ended.returns, actions
    return found


async def undisturbed() -> Standing:
    engine = DirectEngine()
    engine.model = open_model(MODEL)  # it names the matches
    engine._backend = MockBackend(parse_mock("mock:seed=1"))
    log = MemoryLog()
    agents = [seat("decision"), seat("decision")]
    await Run(log, load_game(GAME), agents, matches=MATCHES, seed=0).play(engine)
    return standings(log)


async def kill_again_and_again(on: Stage, source: random.Random, kills: int) -> None:
    done = 0
    while done < kills:
        await anyio.sleep(source.uniform(0.05, 0.5))
        pid = on.pid("runtime", source)
        if alive(pid) and send(pid, signal.SIGKILL):
            done += 1


@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
async def test_a_run_that_was_killed_has_the_same_standings(
    actors: Actors, tmp_path: Path, kills: int
) -> None:
    async with stage(actors, tmp_path, matches=MATCHES) as on:
        await kill_again_and_again(on, random.Random(kills), kills)
        await on.finish(within_s=120)
        log = open_log(on.log, read_only=True)
        whole = standings(log)
        await log.close()
    expected = await undisturbed()
    assert {match: whole[match] for match in expected} == expected
    assert (await replay_file(tmp_path / "log.db")).identical
