"""Layouts in matches, in replays, and as contestants of a tournament."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from games import kuhn_poker, load_game, tictactoe
from runtime.errors import BadInput, ReplayDiffers
from runtime.exports import export_records
from runtime.replay import replay_match
from runtime.tournament.plan import read_plan
from runtime.tournament.report import final_table
from runtime.tournament.run import Tournament
from store.events import DecisionRequested, MatchStarted
from store.memory import MemoryLog
from tests.support.engines import DirectEngine
from tests.support.matches import MATCH, cut, events_of, play_one, resume_one

CUP = """
game = "{game}"
seeds = 4

[[agents]]
name = "told"
agent = "decision"
layout = "plain"

[[agents]]
name = "untold"
agent = "decision"
layout = "bare"

[[agents]]
name = "as it is"
agent = "decision:temperature=1"
"""


def cup(folder: Path, text: str = CUP, *, game: str = "tictactoe") -> Path:
    file = folder / "cup.toml"
    file.write_text(text.replace("{game}", game))
    return file


async def test_match_records_its_layouts_and_replays() -> None:
    game = load_game("tictactoe(layout=bare+plain)")
    log, _ = await play_one(game, ["decision", "decision"], engine=DirectEngine())
    started = events_of(log)[0]
    assert isinstance(started, MatchStarted)
    assert (started.game, started.layout_version) == ("tictactoe(layout=bare+plain)", 2)
    assert not replay_match(log.read(MATCH)).differences
    asked = [event for event in events_of(log) if isinstance(event, DecisionRequested)]
    told = {
        event.seat: any(option.description for option in event.questions[0].options)
        for event in asked
        if len(event.questions[0].options) < 6
    }
    assert told == {0: False, 1: True}


@pytest.mark.parametrize("id", ["kuhn_poker", "kuhn_poker(layout=plain+bare)"])
async def test_another_version_of_a_layout_is_a_named_difference(
    id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no text that this match showed has changed."""
    log, _ = await play_one(load_game(id), ["random", "random"])
    assert not replay_match(log.read(MATCH)).differences
    newer = msgspec.structs.replace(kuhn_poker.PLAIN, version=2)
    monkeypatch.setattr(kuhn_poker, "LAYOUTS", kuhn_poker.LAYOUTS | {"plain": newer})
    monkeypatch.setattr(kuhn_poker, "PLAIN", newer)
    [difference] = replay_match(log.read(MATCH)).differences
    was = 1 if id == "kuhn_poker" else 2
    assert (difference.version, difference.field) == (0, "layout_version")
    assert (difference.expected, difference.found) == (str(was), str(was + 1))
    with pytest.raises(ReplayDiffers, match="version 0: layout_version was"):
        await resume_one(await cut(log, 3), load_game(id), ["random", "random"])


async def test_another_text_without_a_new_version_is_found_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = await play_one(load_game("tictactoe"), ["random", "random"])
    newer = msgspec.structs.replace(tictactoe.PLAIN, turns={"move": "{mark} takes {cell}\n"})
    monkeypatch.setitem(tictactoe.LAYOUTS, "plain", newer)
    differences = replay_match(log.read(MATCH)).differences
    assert {difference.field for difference in differences} == {"views[0]", "views[1]"}


@pytest.mark.parametrize("game", ["tictactoe", "kuhn_poker", "openspiel:tic_tac_toe"])
async def test_layouts_meet_as_contestants(tmp_path: Path, game: str) -> None:
    plan, rules = read_plan(cup(tmp_path, game=game))
    log = MemoryLog()
    engine = DirectEngine()
    outcome = await Tournament(plan, rules, log).play([engine] * 3)
    assert outcome.standings.matches == 4 * 3 * 2
    assert {row.name for row in final_table(outcome)} == {"told", "untold", "as it is"}
    played = {summary.match: log.read(summary.match) for summary in log.matches()}
    ids = {recorded[0].event.game for recorded in played.values()}
    assert ids == {game, f"{game}(layout=plain+bare)", f"{game}(layout=bare+plain)"}
    assert not any(replay_match(recorded).differences for recorded in played.values())
    again = await Tournament(plan, rules, log).play([engine] * 3)
    assert final_table(again) == final_table(outcome)
    assert log.count() == 24


async def test_each_contestant_is_told_the_game_in_its_own_layout(tmp_path: Path) -> None:
    plan, rules = read_plan(cup(tmp_path))
    log = MemoryLog()
    await Tournament(plan, rules, log).play([DirectEngine()] * 3)
    told: dict[str, int] = {"plain": 0, "bare": 0}
    for summary in log.matches():
        events = events_of(log, summary.match)
        _, _, names = events[0].game.removesuffix(")").partition("layout=")
        for event in events:
            if names and isinstance(event, DecisionRequested):
                options = event.questions[0].options
                told[names.split("+")[event.seat]] += any(each.description for each in options)
    assert told["plain"] > 0
    assert told["bare"] == 0


def test_layout_that_the_game_has_not_is_refused_with_its_place(tmp_path: Path) -> None:
    text = CUP.replace('"bare"', '"terse"')
    with pytest.raises(BadInput, match=r"cup.toml: agents\[1\].layout: tictactoe has no layout"):
        read_plan(cup(tmp_path, text))
    with pytest.raises(BadInput, match=r"agents\[1\].layout: expedition takes .*not layout=terse"):
        read_plan(cup(tmp_path, text, game="expedition"))
    with pytest.raises(BadInput, match=r"agents\[1\].layout: openspiel:tic_tac_toe has no layout"):
        read_plan(cup(tmp_path, text, game="openspiel:tic_tac_toe"))
    with pytest.raises(BadInput, match=r"agents\[0\].layouts is no key.*did you mean layout\?"):
        read_plan(cup(tmp_path, CUP.replace('layout = "plain"', 'layouts = "plain"')))


async def test_travellers_compare_layouts_each_alone(tmp_path: Path) -> None:
    plan, rules = read_plan(cup(tmp_path, game="expedition(rules=short,size=tiny)"))
    log = MemoryLog()
    await Tournament(plan, rules, log).play([DirectEngine()] * 3)
    started = [events_of(log, summary.match)[0] for summary in log.matches()]
    start = "expedition(rules=short,size=tiny"
    assert {each.game for each in started if isinstance(each, MatchStarted)} == {
        f"{start})",
        f"{start},layout=bare)",
    }
    assert not any(replay_match(log.read(each.match)).differences for each in log.matches())


@pytest.mark.parametrize("bot", ["openspiel:mcts,simulations=5", "mcts:simulations=5"])
async def test_bots_play_an_opponent_with_another_layout(bot: str) -> None:
    game = load_game("openspiel:tic_tac_toe(layout=bare+hints)")
    log, _ = await play_one(game, [bot, "random"])
    assert not replay_match(log.read(MATCH)).differences


@pytest.mark.parametrize(
    ("game", "file", "needle"),
    [
        ("openspiel:chess(fen=k7/8/1Q6/8/8/8/8/7K w - - 0 1,layout=plain+bare)", "a.pgn", "SetUp"),
        ("holdem(stack=4,layout=plain+bare)", "a.phh", "variant"),
    ],
)
async def test_matches_in_several_layouts_are_exported(
    game: str, file: str, needle: str, tmp_path: Path
) -> None:
    log, _ = await play_one(load_game(game), ["random", "random"])
    export_records(log, tmp_path / file, "pgn" if file.endswith("pgn") else "phh")
    assert needle in (tmp_path / file).read_text()


def test_search_sees_through_layouts_too() -> None:
    game = load_game("kuhn_poker(layout=plain+bare)")
    log, _ = anyio.run(lambda: play_one(game, ["mcts:simulations=20", "random"]))
    assert not replay_match(log.read(MATCH)).differences
