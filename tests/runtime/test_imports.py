from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from games.adapters.openspiel import OpenSpielState
from games.registry import load_game
from runtime.agents import make_agent
from runtime.errors import BadInput
from runtime.exports import export_records, format_of
from runtime.imports import import_records
from runtime.match import Match
from runtime.replay import replay_match
from store.errors import BadExport, LogUnavailable, UnknownMatch
from store.events import ChanceDrawn, MatchEnded, MatchStarted, TurnTaken
from store.export import export_matches, import_matches
from store.log import EventLog
from store.memory import MemoryLog
from tests.support.matches import events_of, only, play_one, table, turns

pytest.importorskip("pyspiel", reason="chess needs OpenSpiel")
pytest.importorskip("pokerkit", reason="hold'em needs pokerkit")

PGN = """\
[Event "Cup"]
[White "Müller, A"]
[Black "B"]
[Result "1-0"]

1. e4 e5 {a note} 2. Nf3 (2. f4) Nc6 3. Bb5 1-0
[Event "Faulty"]

1. e4 Ke4 *

[White "short"]
[Result "0-1"]

1. f3 e5 2. g4 Qh4# 0-1
"""
PHH = """\
variant = 'NT'
antes = [0, 0, 0]
blinds_or_straddles = [1, 2, 0]
min_bet = 2
starting_stacks = [20, 50, 100]
actions = ['d dh p1 AhAs', 'd dh p2 KhKs', 'd dh p3 QhQs', 'p3 cbr 100', 'p1 cc', 'p2 cc',
  'd db 2c7d9h', 'd db Js', 'd db 3c']
players = ['Ann', 'Bo', 'Cy']
finishing_stacks = [60, 60, 50]
"""


def games(log: EventLog) -> list[str]:
    return [each.match for each in log.matches()]


def require_replays(log: EventLog) -> None:
    for match in games(log):
        replayed = replay_match(log.read(match))
        assert (replayed.ended, replayed.differences) == (True, ())


async def imported(tmp_path: Path, name: str, text: str | bytes) -> MemoryLog:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    log = MemoryLog()
    await import_records(log, path)
    return log


async def test_sound_games_are_imported_and_replay(tmp_path: Path):
    path = tmp_path / "cup.pgn"
    path.write_text(PGN)
    log, seen = MemoryLog(), []
    done = await import_records(log, path, on_match=lambda: seen.append(1))
    assert (done.imported, done.present, len(seen)) == (2, 0, 3)
    [fault] = done.faults
    assert str(fault) == "match 2, move 1... Ke4, line 9: it is no legal move"
    require_replays(log)
    cup, short = games(log)
    started = only(events_of(log, cup), MatchStarted)
    assert started.seats == ("recorded:B", "recorded:Müller, A")
    assert (started.source.format, started.source.file, started.source.number) == (
        *("pgn", "cup.pgn", 1),
    )
    assert started.source.tags["Event"] == "Cup"
    ended = only(events_of(log, cup), MatchEnded)
    assert (ended.end, ended.reason, ended.returns) == (
        *("truncated", "recorded result 1-0", (0.0, 0.0)),
    )
    assert only(events_of(log, short), MatchEnded).returns == (1.0, -1.0)
    assert [event.how for event in turns(events_of(log, short))] == ["agent"] * 4


async def test_the_same_games_again_are_left_alone(tmp_path: Path):
    log = await imported(tmp_path, "cup.pgn", PGN)
    (tmp_path / "other.pgn").write_text("\n".join([PGN, PGN]))
    done = await import_records(log, tmp_path / "other.pgn")
    assert (done.imported, done.present, len(done.faults)) == (0, 4, 2)
    assert len(games(log)) == 2


async def test_bytes_of_older_files(tmp_path: Path):
    plain = await imported(tmp_path, "a.pgn", PGN)
    for name, data in (
        ("bom.pgn", b"\xef\xbb\xbf" + PGN.encode()),
        ("crlf.pgn", PGN.replace("\n", "\r\n").encode()),
        ("cr.pgn", PGN.replace("\n", "\r").encode()),
        ("latin.pgn", PGN.encode("latin-1")),
        ("packed.pgn.zst", zstandard.compress(PGN.encode())),
    ):
        assert games(await imported(tmp_path, name, data)) == games(plain)
    with pytest.raises(BadInput, match="UTF-16; save it as UTF-8"):
        await imported(tmp_path, "wide.pgn", PGN.encode("utf-16"))
    with pytest.raises(BadExport, match="not compressed as its name says"):
        await imported(tmp_path, "plain.pgn.zst", PGN)
    with pytest.raises(LogUnavailable, match=r"none\.pgn cannot be read"):
        await import_records(MemoryLog(), tmp_path / "none.pgn")


async def test_hands_are_imported_with_their_cards(tmp_path: Path):
    log = await imported(tmp_path, "home.phh", "\ufeff" + PHH.replace("\n", "\r\n"))
    require_replays(log)
    [match] = games(log)
    events = events_of(log, match)
    drawn = [event for event in events if isinstance(event, ChanceDrawn)]
    dealt = " ".join(event.outcome for event in drawn)
    assert dealt == "Ah Kh Qh As Ks Qs 2c 7d 9h Js 3c"
    assert {event.draw for event in drawn} == {None}
    assert only(events, MatchEnded).returns == (40.0, 10.0, -50.0)
    with pytest.raises(BadInput, match="byte 0 is not UTF-8"):
        await imported(tmp_path, "bad.phh", b"\xff")


async def test_cards_that_nobody_drew_are_only_for_imported_matches(tmp_path: Path):
    """In any other match an outcome without its number is a difference."""
    log = await imported(tmp_path, "home.phh", PHH)
    [match] = games(log)
    first, *rest = events_of(log, match)
    assert isinstance(first, MatchStarted)
    forged = MemoryLog()
    bare = MatchStarted(
        **{name: getattr(first, name) for name in first.__struct_fields__ if name != "source"}
    )
    await forged.append(match, [bare, *rest], expected=0)
    found = replay_match(forged.read(match)).differences
    assert [(each.version, each.field, each.expected) for each in found] == [
        *((1, "draw", "nothing"), (1, "outcome", "Ah")),
    ]


@pytest.mark.parametrize(("name", "text", "version"), [("a.pgn", PGN, 3), ("a.phh", PHH, 7)])
async def test_an_imported_match_can_be_played_on(
    tmp_path: Path, name: str, text: str, version: int
):
    log = await imported(tmp_path, name, text)
    parent = log.read(games(log)[0])
    started = parent[0].event
    assert isinstance(started, MatchStarted)
    game = load_game(started.game)
    at = table(log, game, ["random"] * len(started.seats))
    result = await Match.fork(at, "fork", parent[: version + 1]).run()
    assert result.end == "terminated"
    require_replays(log)


async def test_an_imported_match_moves_between_logs(tmp_path: Path):
    log = await imported(tmp_path, "home.phh", PHH)
    export_matches(log, tmp_path / "all.jsonl.zst")
    there = MemoryLog()
    assert await import_matches(there, tmp_path / "all.jsonl.zst") == 1
    require_replays(there)


@pytest.mark.parametrize(
    ("name", "text"), [("cup.pgn", PGN), ("home.phh", PHH), ("home.phhs", f"[7]\n{PHH}")]
)
async def test_what_is_exported_is_imported_again(tmp_path: Path, name: str, text: str):
    log = await imported(tmp_path, name, text)
    format = format_of(Path(name))
    assert format is not None
    written = export_records(log, tmp_path / f"out-{name}", format)
    assert written == (len(games(log)), 0)
    again = MemoryLog()
    done = await import_records(again, tmp_path / f"out-{name}")
    assert (done.imported, done.faults) == (written.exported, ())
    for one, two in zip(games(log), games(again), strict=True):
        assert acts(log, one) == acts(again, two)
    assert export_records(again, tmp_path / f"again-{name}", format) == written
    first, second = (tmp_path / f"{prefix}-{name}" for prefix in ("out", "again"))
    assert first.read_bytes() == second.read_bytes()


def acts(log: EventLog, match: str) -> list[str]:
    events = events_of(log, match)
    return [
        event.action if isinstance(event, TurnTaken) else event.outcome
        for event in events
        if isinstance(event, TurnTaken | ChanceDrawn)
    ]


@pytest.mark.parametrize(
    ("game", "name"),
    [
        ("openspiel:chess(fen=8/8/8/4k3/8/8/4Q3/4K3 b - - 0 40)", "a.pgn"),
        ("openspiel:chess(chess960=true)", "b.pgn"),
        ("holdem(ante=1,stack=40)", "c.phh"),
    ],
)
async def test_matches_that_were_played_here_are_written(tmp_path: Path, game: str, name: str):
    rules = load_game(game)
    seats = rules.facts.min_seats
    log, result = await play_one(rules, ["random"] * seats, seed=3)
    path = tmp_path / name
    format = format_of(path)
    assert format is not None
    export_records(log, path, format)
    assert result.match in path.read_text()
    again = MemoryLog()
    done = await import_records(again, path)
    assert (done.imported, done.faults) == (1, ())
    [match] = games(again)
    require_replays(again)
    ended = only(events_of(again, match), MatchEnded)
    assert (ended.end, ended.returns) == (result.end, result.returns)
    moves = [event.action for event in turns(events_of(log))]
    assert [event.action for event in turns(events_of(again, match))] == moves


async def test_chess_is_written_as_openspiel_plays_it(tmp_path: Path):
    """OpenSpiel itself takes the moves of the file, one by one, to the same position."""
    import pyspiel

    rules = load_game("openspiel:chess")
    log, _ = await play_one(rules, ["random", "random"], seed=9)
    path = tmp_path / "a.pgn"
    export_records(log, path, "pgn")
    moves = path.read_text().split("\n\n")[1].split()[:-1]
    inner = pyspiel.load_game("chess").new_initial_state()
    for move in moves:
        if not move.endswith("."):
            inner.apply_action(inner.string_to_action(move))
    state = rules.start(seats=2, seed=0)
    for event in turns(events_of(log)):
        state = state.apply(event.action)
    assert isinstance(state, OpenSpielState)
    assert str(state.inner) == str(inner)


async def test_what_a_format_cannot_hold_is_refused(tmp_path: Path):
    log = await imported(tmp_path, "cup.pgn", PGN)
    for index in range(2):
        at = table(log, load_game("holdem"), ["random", "random"])
        await Match.new(at, f"hand-{index}", seed=index).run()
    at = table(log, load_game("tictactoe"), ["random", "random"])
    await Match.new(at, "ttt", seed=1).run()
    assert export_records(log, tmp_path / "all.pgn", "pgn") == (2, 3)
    assert export_records(log, tmp_path / "all.phhs", "phh") == (2, 3)
    assert export_records(log, tmp_path / "one.phh", "phh", ["hand-1"]) == (1, 0)
    with pytest.raises(BadInput, match=r"holds one hand and there are 2; name it \.phhs"):
        export_records(log, tmp_path / "two.phh", "phh")
    with pytest.raises(BadInput, match="ttt is not of a game that pgn holds"):
        export_records(log, tmp_path / "x.pgn", "pgn", ["ttt"])
    with pytest.raises(UnknownMatch, match="nobody"):
        export_records(log, tmp_path / "x.pgn", "pgn", ["nobody"])
    empty = MemoryLog()
    with pytest.raises(BadInput, match=r"no match of a game that phh holds; export to \.jsonl"):
        export_records(empty, tmp_path / "x.phh", "phh")
    assert not list(tmp_path.glob("x.*"))


def test_agents_of_records_are_none_here():
    with pytest.raises(Exception, match="no agent 'recorded'"):
        make_agent("recorded:B")
