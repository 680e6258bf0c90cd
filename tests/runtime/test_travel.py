from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import zstandard

from engine.contract import encode_ask
from games import load_game
from games.base import Game
from runtime.errors import BadInput, ReplayDiffers
from runtime.fold import Fold
from runtime.match import Match
from runtime.recordings import open_recordings
from runtime.replay import replay_match
from runtime.snapshots import EVERY, _files
from runtime.travel import Moment, open_moment
from store.errors import UnknownMatch
from store.events import TurnTaken
from store.export import export_matches
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.engines import DirectEngine
from tests.support.matches import MATCH, play_one, table
from tests.support.toys import Diary, DiaryState

LONG = Diary(days=500, width=20)


async def recording(
    folder: Path, game: Game, agents: list[str], *, home: Path | None = None
) -> tuple[Path, DirectEngine]:
    """Play one match and write its log; the engine has what was asked."""
    engine = DirectEngine()
    played, _ = await play_one(game, agents, engine=engine, home=home)
    path = folder / "log.db"
    log = open_log(path)
    await log.restore(MATCH, played.stored(MATCH))
    await log.close()
    return path, engine


def snapshots(home: Path, first: bytes | None = None) -> list[Path]:
    """Give their files, of one match or all, by version."""
    folder = home / "snapshots" / ("" if first is None else first.hex()[:32])
    return sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda f: int(f.name))


class NeverStarted(Diary):
    """Proves that nothing was folded from the start."""

    def start(self, *, seats: int, seed: int) -> DiaryState:
        raise AssertionError("it starts")


class Own(Diary):
    """Its states come from a module of their own."""

    def start(self, *, seats: int, seed: int) -> DiaryState:
        from my_diary import MyState  # pyright: ignore[reportMissingImports]

        return MyState(*msgspec.structs.astuple(super().start(seats=seats, seed=seed)))


@pytest.mark.parametrize("kind", ["log", "portable file"])
async def test_every_version_shows_state_views_and_the_request_to_the_byte(
    tmp_path: Path, kind: str
) -> None:
    game = load_game("kuhn_poker")
    path, engine = await recording(tmp_path, game, ["decision", "decision"])
    if kind == "portable file":
        log = open_log(path, read_only=True)
        path = tmp_path / "all.jsonl.zst"
        export_matches(log, path)
        await log.close()
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


@pytest.mark.parametrize("kept", ["while it was played", "by the first look"])
@pytest.mark.parametrize("name", ["diary", "openspiel:pig(winscore=40)"])
async def test_with_snapshots_every_version_is_what_a_full_fold_gives(
    tmp_path: Path, name: str, kept: str
) -> None:
    game = Diary(days=50, width=20) if name == "diary" else load_game(name)
    seats = ["decision"] * game.facts.min_seats
    home = tmp_path if kept == "while it was played" else None
    path, _ = await recording(tmp_path, game, seats, home=home)
    async with open_recordings(path) as recordings:
        last = recordings.read(MATCH)[-1].version
        if home is None:
            open_moment(recordings, MATCH, last, game=game, home=tmp_path)
        assert len(snapshots(tmp_path)) > last // (EVERY + 8)
        for version in range(last + 1):
            cold = open_moment(recordings, MATCH, version, game=game)
            warm = open_moment(recordings, MATCH, version, home=tmp_path, game=NeverStarted())
            for field in ("recorded", "views", "asked", "request"):
                assert getattr(warm, field) == getattr(cold, field)
            for field in set(Fold.__struct_fields__) - {"state"}:
                assert getattr(warm.fold, field) == getattr(cold.fold, field)
            assert warm.fold.state.encode() == cold.fold.state.encode()
            assert warm.fold.state.options() == cold.fold.state.options()


async def test_any_look_folds_less_than_a_tenth_of_a_long_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = Diary(days=1000, width=20)
    path, _ = await recording(tmp_path, game, ["random"], home=tmp_path)
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
        full = count
        for version in (1001, *range(0, 1001, 61)):
            count = 0
            open_moment(recordings, MATCH, version, game=NeverStarted(), home=tmp_path)
            assert count < full / 10


async def test_a_fork_and_a_match_taken_up_are_kept_too(tmp_path: Path) -> None:
    game = Diary(days=400, width=20)
    played, _ = await play_one(game, ["random"])
    log = MemoryLog()
    at = table(log, game, ["random"], home=tmp_path)
    await Match.fork(at, "fork", played.read(MATCH, stop=300)).run()
    await log.restore(MATCH, played.stored(MATCH)[:250])
    await Match.resume(at, log.read(MATCH)).run()
    fork, taken_up = (
        {int(file.name) for file in snapshots(tmp_path, log.read(match)[0].hash)}
        for match in ("fork", MATCH)
    )
    assert fork == {0, 64, 128, 192, 256, 320, 384}
    assert taken_up == {249 + 64, 249 + 128}


@pytest.mark.parametrize("harm", ["garbage", "another match", "another state", "other code"])
async def test_unsound_snapshot_is_not_used(tmp_path: Path, harm: str) -> None:
    path, _ = await recording(tmp_path, LONG, ["random"], home=tmp_path)
    await play_one(LONG, ["random"], seed=2, home=tmp_path / "other")
    files = snapshots(tmp_path)
    [_, first, *later] = files
    if harm == "garbage":
        for file in files:
            file.write_bytes(b"garbage")
    elif harm == "another match":
        for mine, its in zip(files, snapshots(tmp_path / "other"), strict=True):
            its.replace(mine)
    elif harm == "another state":
        for file in later:
            file.write_bytes(first.read_bytes())
    else:
        for file in files:
            file.write_bytes(made_by_other_code(file.read_bytes()))
    async with open_recordings(path) as recordings:
        expected = open_moment(recordings, MATCH, 450, game=LONG)
        found = open_moment(recordings, MATCH, 450, game=LONG, home=tmp_path)
        assert found == expected
        again = open_moment(recordings, MATCH, 450, game=NeverStarted(), home=tmp_path)
        assert again == expected


def made_by_other_code(data: bytes) -> bytes:
    """Change what a snapshot says of the files of the code that made it."""
    packages, code, digest, fold = msgspec.msgpack.decode(zstandard.decompress(data))
    return zstandard.compress(msgspec.msgpack.encode([packages, code[::-1], digest, fold]))


async def test_changed_code_makes_snapshots_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "my_diary.py"
    text = (
        "from tests.support.toys import DiaryState\nclass MyState(DiaryState, frozen=True): pass\n"
    )
    module.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    game = Own(days=200, width=20)
    path, _ = await recording(tmp_path, game, ["random"], home=tmp_path)
    async with open_recordings(path) as recordings:
        open_moment(recordings, MATCH, 150, game=NeverStarted(), home=tmp_path)
        module.write_text(f'{text}    """As it has become."""\n')
        _files.cache_clear()  # as in a process that starts now
        with pytest.raises(AssertionError, match="starts"):
            open_moment(recordings, MATCH, 150, game=NeverStarted(), home=tmp_path)
        open_moment(recordings, MATCH, 150, game=game, home=tmp_path)
        open_moment(recordings, MATCH, 150, game=NeverStarted(), home=tmp_path)


async def test_a_state_that_cannot_be_pickled_is_played_and_shown(tmp_path: Path) -> None:
    class Stubborn(DiaryState, frozen=True):
        def __reduce__(self) -> str:
            raise RuntimeError("no")

    game = Diary(days=200)
    game._state = Stubborn(200, 20)
    path, _ = await recording(tmp_path, game, ["random"], home=tmp_path)
    async with open_recordings(path) as recordings:
        moment = open_moment(recordings, MATCH, 150, game=game, home=tmp_path)
    assert moment.fold.turn == 150
    assert not snapshots(tmp_path)


async def test_only_so_many_matches_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.snapshots.MATCHES", 2)
    for seed in range(4):
        log, _ = await play_one(Diary(days=100), ["random"], seed=seed, home=tmp_path)
    assert len(list((tmp_path / "snapshots").iterdir())) == 2
    assert snapshots(tmp_path, log.read(MATCH)[0].hash)


async def test_changed_rules_are_said_not_shown(tmp_path: Path) -> None:
    path, _ = await recording(tmp_path, Diary(days=3), ["decision"])
    async with open_recordings(path) as recordings:
        turns = [
            each.version for each in recordings.read(MATCH) if isinstance(each.event, TurnTaken)
        ]
        with pytest.raises(ReplayDiffers, match="version 0: state_hash was"):
            open_moment(recordings, MATCH, 0, game=Renamed())
        with pytest.raises(ReplayDiffers, match=rf"version {turns[0]}: views\[0\] was"):
            open_moment(recordings, MATCH, turns[1] - 1, game=Diary(days=3, width=7))


class Renamed(Diary):
    """Starts with a day behind it."""

    def start(self, *, seats: int, seed: int) -> object:
        return super().start(seats=seats, seed=seed).apply("rest")
