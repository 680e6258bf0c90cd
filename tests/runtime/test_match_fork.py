from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from engine.errors import NoWorker
from games import load_game
from games.base import Game
from runtime.errors import CannotPlay, ReplayDiffers
from runtime.match import Match, MatchResult
from runtime.replay import replay_match
from store.events import ChanceDrawn, MatchStarted, TurnTaken
from store.log import Recorded
from store.memory import MemoryLog
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import MATCH, events_of, play_one, table, turns
from tests.support.toys import Diary

KUHN = load_game("kuhn_poker")
TICTACTOE = load_game("tictactoe")


async def fork(
    parent: Sequence[Recorded], agents: Sequence[str], game: Game = TICTACTOE
) -> tuple[MemoryLog, MatchResult]:
    log = MemoryLog()
    at = table(log, game, agents, engine=DirectEngine())
    return log, await Match.fork(at, "fork-1", parent).run()


async def test_fork_goes_on_from_every_version_and_replays_alone() -> None:
    for game in (TICTACTOE, KUHN):
        log, _ = await play_one(game, ["decision", "random"], engine=DirectEngine())
        recorded = log.read(MATCH)
        for length in range(1, len(recorded) - 1):
            parent = recorded[:length]
            forked, result = await fork(parent, ["random", "decision:temperature=1"], game)
            events = events_of(forked, "fork-1")
            started = events[0]
            assert isinstance(started, MatchStarted)
            assert started.parent is not None
            assert started.parent.match == MATCH
            assert started.parent.version == length - 1
            assert started.parent.hash == recorded[length - 1].hash.hex()
            assert result.end == "terminated"
            common = [e.state_hash for e in events if isinstance(e, TurnTaken | ChanceDrawn)]
            before = [
                each.event.state_hash
                for each in parent
                if isinstance(each.event, TurnTaken | ChanceDrawn)
            ]
            assert common[: len(before)] == before
            assert not replay_match(forked.read("fork-1")).differences


async def test_the_same_agents_go_the_same_way() -> None:
    log, result = await play_one(KUHN, ["random", "random"])
    forked, again = await fork(log.read(MATCH)[:2], ["random", "random"], KUHN)
    assert again.returns == result.returns
    states = [
        [turn.state_hash for turn in turns(events_of(each, name))]
        for each, name in ((log, MATCH), (forked, "fork-1"))
    ]
    assert states[0] == states[1]


async def test_fork_resumes_anywhere() -> None:
    log, _ = await play_one(TICTACTOE, ["random", "random"], seed=3)
    forked, result = await fork(log.read(MATCH)[:4], ["decision", "random"])
    for length in range(5, len(forked.read("fork-1"))):
        part = MemoryLog()
        await part.restore("fork-1", forked.stored("fork-1")[:length])
        at = table(part, TICTACTOE, ["decision", "random"], engine=DirectEngine())
        again = await Match.resume(at, part.read("fork-1")).run()
        assert (again.returns, again.turns) == (result.returns, result.turns)


async def test_turns_of_a_parent_are_counted_and_found_missing() -> None:
    log, _ = await play_one(TICTACTOE, ["random", "random"])
    forked, _ = await fork(log.read(MATCH)[:3], ["random", "random"])
    recorded = forked.read("fork-1")
    for version, how in ((1, "agent"), (3, "parent")):
        changed = list(recorded)
        event = msgspec.structs.replace(changed[version].event, how=how)
        changed[version] = msgspec.structs.replace(changed[version], event=event)
        fields = {(d.version, d.field) for d in replay_match(changed).differences}
        assert (version, "how") in fields


async def test_fork_that_cannot_be_is_refused() -> None:
    log, _ = await play_one(TICTACTOE, ["random", "random"])
    recorded = log.read(MATCH)
    for length in (len(recorded) - 1, len(recorded)):
        with pytest.raises(CannotPlay, match="has ended at version"):
            await fork(recorded[:length], ["random", "random"])
    with pytest.raises(CannotPlay, match="2 seats, not 1"):
        await fork(recorded[:3], ["random"])
    altered = [*recorded[:2], msgspec.structs.replace(recorded[2], version=9)]
    with pytest.raises(ReplayDiffers, match="version 2"):
        await fork(altered, ["random", "random"])


async def test_paused_match_and_epochs_can_be_forked() -> None:
    diary = Diary(days=30, width=60, overflow="rebase")
    engine = FailingEngine(NoWorker("none"), failing=lambda number: number == 20)
    engine.model = DirectEngine(window=200).model
    log, result = await play_one(diary, ["decision"], engine=engine)
    assert result.end == "paused"
    forked, result = await fork(log.read(MATCH), ["random"], diary)
    assert result.end == "terminated"
    assert not replay_match(forked.read("fork-1"), game=diary).differences
