from __future__ import annotations

import sys

import pytest

from games import load_game
from runtime.agents import make_agent
from runtime.errors import CannotPlay, UnknownAgent
from runtime.replay import replay_match
from runtime.table import check_seats
from tests.support.matches import MATCH, cut, events_of, play_one, resume_one, seat, turns


@pytest.mark.parametrize(
    ("game", "bot"),
    [
        ("openspiel:tic_tac_toe", "mcts,simulations=50"),
        ("openspiel:tic_tac_toe", "uniform_random"),
        ("openspiel:tic_tac_toe", "fixed_action_preference"),
        ("openspiel:pig(players=2,winscore=20)", "mcts,simulations=20"),
        ("openspiel:kuhn_poker", "ismcts,simulations=50"),
        ("openspiel:kuhn_poker", "uniform_random"),
        ("openspiel:leduc_poker", "ismcts,simulations=20"),
    ],
)
async def test_bot_plays_repeats_and_replays(game: str, bot: str) -> None:
    rules = load_game(game)
    agents = [f"openspiel:{bot}", "random"]
    check_seats(rules, [seat(name) for name in agents])
    log, result = await play_one(rules, agents, seed=4)
    again, _ = await play_one(rules, agents, seed=4)
    assert result.end == "terminated"
    assert events_of(log) == events_of(again)
    own = [turn for turn in turns(events_of(log)) if turn.seat == 0]
    assert {turn.how for turn in own} <= {"agent", "forced"}
    assert not replay_match(log.read(MATCH)).differences


async def test_bot_goes_on_after_a_restart_as_it_would_have() -> None:
    game, agents = load_game("openspiel:kuhn_poker"), ["openspiel:ismcts", "random"]
    log, _ = await play_one(game, agents, seed=2)
    for length in range(1, len(events_of(log))):
        shorter = await cut(log, length)
        await resume_one(shorter, game, agents)
        assert events_of(shorter) == events_of(log)


async def test_bot_that_searches_beats_chance() -> None:
    game = load_game("openspiel:tic_tac_toe")
    returns = 0.0
    for seed in range(4):
        _, result = await play_one(game, ["openspiel:mcts", "random"], seed=seed)
        returns += result.returns[0]
    assert returns >= 3


def test_bot_refuses_games_that_it_cannot_play() -> None:
    with pytest.raises(CannotPlay, match="tictactoe is none; take openspiel:NAME"):
        check_seats(load_game("tictactoe"), [seat("openspiel:mcts"), seat("random")])
    with pytest.raises(CannotPlay, match="hides things from its seats"):
        check_seats(load_game("openspiel:liars_dice"), [seat("openspiel:ismcts"), seat("random")])


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(UnknownAgent, match=r"pip install 'ostinato\[openspiel\]'"):
        make_agent("openspiel:mcts")
