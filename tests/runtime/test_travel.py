from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract import encode_ask
from games import load_game
from games.base import Game
from runtime.errors import BadInput, ReplayDiffers
from runtime.recordings import open_recordings
from runtime.replay import replay_match
from runtime.snapshots import EVERY, Snapshots
from runtime.travel import Moment, open_moment
from store.errors import UnknownMatch
from store.events import TurnTaken
from store.export import export_matches
from store.sqlite import open_log
from tests.support.engines import DirectEngine
from tests.support.matches import MATCH, play_one
from tests.support.toys import Diary

LONG = Diary(days=500, width=20)


async def recording(folder: Path, game: Game, agents: list[str]) -> tuple[Path, DirectEngine]:
    """Play one match and write its log; the engine has what was asked."""
    engine = DirectEngine()
    played, _ = await play_one(game, agents, engine=engine)
    path = folder / "log.db"
    log = open_log(path)
    await log.restore(MATCH, played.stored(MATCH))
    await log.close()
    return path, engine


async def test_every_version_shows_state_views_and_the_request_to_the_byte(tmp_path: Path) -> None:
    game = load_game("kuhn_poker")
    path, engine = await recording(tmp_path, game, ["decision", "decision"])
    sent = {request.id: encode_ask(request.ask) for request in engine.requests}
    state = game.start(seats=2, seed=1)
    asked = 0
    async with open_recordings(path) as recordings:
        for each in recordings.read(MATCH):
            moment = open_moment(recordings, MATCH, each.version)
            if action := getattr(each.event, "action", getattr(each.event, "outcome", None)):
                state = state.apply(action)
            assert moment.recorded == each
            assert moment.fold.state.encode() == state.encode()
            assert moment.views == (state.view(0), state.view(1))
            if moment.asked is not None:
                asked += 1
                assert moment.request_bytes == sent[moment.asked.decision]
        assert asked == 2 * len(sent) > 0


async def test_logs_and_portable_files_show_the_same(tmp_path: Path) -> None:
    path, _ = await recording(tmp_path, load_game("tictactoe"), ["decision", "random"])
    log = open_log(path, read_only=True)
    export_matches(log, tmp_path / "all.jsonl.zst")
    await log.close()
    moments: list[Moment] = []
    for file in (path, tmp_path / "all.jsonl.zst"):
        async with open_recordings(file) as recordings:
            moments.append(open_moment(recordings, MATCH, 7))
            with pytest.raises(BadInput, match=r"versions 0 to \d+, not 99; name one"):
                open_moment(recordings, MATCH, 99)
            with pytest.raises(UnknownMatch, match="nobody"):
                open_moment(recordings, "nobody", 0)
    assert moments[0].views == moments[1].views
    assert moments[0].request == moments[1].request


async def test_snapshots_change_nothing_but_what_has_to_be_folded(tmp_path: Path) -> None:
    path, _ = await recording(tmp_path, LONG, ["random"])
    async with open_recordings(path) as recordings:
        kept = Snapshots(tmp_path, MATCH)
        open_moment(recordings, MATCH, 500, game=LONG, snapshots=kept)
        files = list((tmp_path / "snapshots").rglob("*.pickle"))
        assert len(files) == 500 // EVERY
        for version in (0, 1, 99, 100, 101, 250, 499, 500, 501):
            cold = open_moment(recordings, MATCH, version, game=LONG)
            warm = open_moment(
                recordings, MATCH, version, game=LONG, snapshots=Snapshots(tmp_path, MATCH)
            )
            assert (warm.fold, warm.views) == (cold.fold, cold.views)


async def test_a_late_version_folds_less_than_a_tenth_of_a_long_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = Diary(days=1000, width=20)
    path, _ = await recording(tmp_path, game, ["random"])
    count = 0
    state_type = type(game.start(seats=1, seed=1))
    original = state_type.apply

    def apply(self: object, action: str) -> object:
        nonlocal count
        count += 1
        return original(self, action)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(state_type, "apply", apply)
    async with open_recordings(path) as recordings:
        assert not replay_match(recordings.read(MATCH), game=game).differences
        full, count = count, 0
        open_moment(recordings, MATCH, 1000, game=game, snapshots=Snapshots(tmp_path, MATCH))
        for version in range(0, 1001, 61):
            count = 0
            open_moment(recordings, MATCH, version, game=game, snapshots=Snapshots(tmp_path, MATCH))
            assert count <= full / 10


@pytest.mark.parametrize("harm", ["garbage", "another match", "another state"])
async def test_unsound_snapshot_is_not_used(tmp_path: Path, harm: str) -> None:
    path, _ = await recording(tmp_path, LONG, ["random"])
    async with open_recordings(path) as recordings:
        expected = open_moment(
            recordings, MATCH, 450, game=LONG, snapshots=Snapshots(tmp_path, MATCH)
        )
        [first, *files] = sorted((tmp_path / "snapshots").rglob("*.pickle"))
        for file in files:
            if harm == "garbage":
                file.write_bytes(b"garbage")
            elif harm == "another state":
                file.write_bytes(first.read_bytes())
        if harm == "another match":
            other = tmp_path / "other"
            other.mkdir()
            played, _ = await play_one(LONG, ["random"], seed=2)
            log = open_log(other / "log.db")
            await log.restore(MATCH, played.stored(MATCH))
            await log.close()
            async with open_recordings(other / "log.db") as others:
                plain = open_moment(others, MATCH, 450, game=LONG)
                through = open_moment(
                    others, MATCH, 450, game=LONG, snapshots=Snapshots(tmp_path, MATCH)
                )
                assert plain.fold == through.fold != expected.fold
        found = open_moment(recordings, MATCH, 450, game=LONG, snapshots=Snapshots(tmp_path, MATCH))
        assert found.fold == expected.fold


async def test_changed_rules_are_said_not_shown(tmp_path: Path) -> None:
    path, _ = await recording(tmp_path, Diary(days=3), ["decision"])
    async with open_recordings(path) as recordings:
        turns = [
            each.version for each in recordings.read(MATCH) if isinstance(each.event, TurnTaken)
        ]
        with pytest.raises(ReplayDiffers, match="version 0: state_hash was"):
            open_moment(recordings, MATCH, 0, game=Renamed())
        with pytest.raises(ReplayDiffers, match=rf"version {turns[1] - 1}: sha256 was"):
            open_moment(recordings, MATCH, turns[1] - 1, game=Diary(days=3, width=7))


class Renamed(Diary):
    """Starts with a day behind it."""

    def start(self, *, seats: int, seed: int) -> object:
        return super().start(seats=seats, seed=seed).apply("rest")
