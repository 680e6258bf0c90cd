"""PettingZoo's environments as games."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from games import (
    BadGameParameters,
    GamesError,
    IllegalAction,
    State,
    UnknownGame,
    UnsupportedGame,
    load_game,
)
from games.adapters.observations import text_of
from games.adapters.pettingzoo import PettingZooGame
from games.testing import check
from tests.support.generator import Generator


def start(id: str) -> State:
    game = load_game(f"pettingzoo:{id}")
    return game.start(seats=game.facts.min_seats, seed=0)


def test_an_open_environment_tells_its_actions():
    state = start("classic/tictactoe-v3").apply("action 3")
    assert state.actor == 1
    assert state.view(0).public == "TICTACTOE_V3\n\nPLAY\nplayer_1: action 3\n"
    assert state.view(1).private == (
        "\nYou are player_2.\nPlane 0:\n0 0 0\n0 0 0\n0 0 0\nPlane 1:\n0 0 0\n1 0 0\n0 0 0\n"
    )
    assert [option.id for option in state.options()] == [
        f"action {number}" for number in range(9) if number != 3
    ]


def test_a_match_is_won_and_lost():
    state = start("classic/tictactoe-v3")
    for number in (0, 3, 1, 4, 2):
        state = state.apply(f"action {number}")
    assert (state.actor, state.returns(), state.options()) == (None, (1.0, -1.0), ())


def test_agents_that_choose_at_once_do_not_see_one_another():
    state = start("classic/rps-v2")
    one, two = (state.apply(action) for action in ("action 0", "action 1"))
    assert one.view(1) == two.view(1)
    assert "action" not in one.view(1).public


@pytest.mark.parametrize(
    "id", ["classic/tictactoe-v3", "classic/connect_four-v3", "classic/rps-v2(num_actions=5)"]
)
def test_every_law_is_kept(id: str):
    report = check(load_game(f"pettingzoo:{id}"), seeds=3, limit=10)
    assert (report.matches, report.unfinished) == (3, 0)


def test_an_earlier_state_goes_on_another_way():
    state = start("classic/connect_four-v3")
    later = state.apply("action 0").apply("action 0")
    other = state.apply("action 6").apply("action 0")
    assert state.apply("action 0").apply("action 0").view(0) == later.view(0)
    assert other.view(0) != later.view(0)


def test_a_renderer_and_names_of_actions_may_be_given():
    game = PettingZooGame(
        make=Generator,
        id="generator",
        rules="Take a number or leave it.",
        render=lambda env, agent: f"{agent} sees {env.number}",
        label=lambda agent, number: ("take", "leave")[number],
        returns=(0.0, 40.0),
    )
    state = game.start(seats=2, seed=7)
    assert state.view(0).public == "GENERATOR\nTake a number or leave it.\n\nPLAY\n"
    assert [option.id for option in state.options()] == ["take", "leave"]
    assert "player_0 sees " in state.view(0).private
    assert state.apply("take").returns()[0] > 0
    assert game.start(seats=2, seed=7).view(0) == state.view(0)
    assert {game.start(seats=2, seed=seed).view(0).text for seed in range(9)} != {state.view(0)}


def test_an_illegal_action_changes_nothing():
    state = start("classic/tictactoe-v3").apply("action 3")
    with pytest.raises(IllegalAction, match="'action 3' is not a legal action"):
        state.apply("action 3")
    assert state.apply("action 4").actor == 0


@pytest.mark.parametrize(
    ("id", "kind", "message"),
    [
        ("classic/nothing-v1", UnknownGame, "has no 'classic/nothing-v1'; it has classic/chess-v6"),
        ("classic/rps-v2(x=1)", BadGameParameters, "unexpected keyword argument 'x'"),
        ("classic/rps-v2(5)", BadGameParameters, "'5' is not key=value"),
        ("classic/rps-v2(num_actions=5", BadGameParameters, "write NAME or NAME\\("),
        ("classic/go-v5", UnsupportedGame, "make a PettingZooGame with `render`"),
        ("classic/leduc_holdem-v4", UnsupportedGame, r"pip install 'pettingzoo\[classic\]'"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(
    id: str, kind: type[GamesError], message: str
):
    with pytest.raises(kind, match=message) as error:
        load_game(f"pettingzoo:{id}")
    assert "\n" not in str(error.value)


def test_actions_need_numbers():
    with pytest.raises(UnsupportedGame, match=r"with \[None, None\] actions"):
        PettingZooGame(make=lambda: Generator(numbered=False), id="generator")


def test_seats_are_those_of_the_environment():
    with pytest.raises(BadGameParameters, match="2 seats, not 3"):
        load_game("pettingzoo:classic/rps-v2").start(seats=3, seed=0)


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        ("as it is", "as it is"),
        (3, "3"),
        (np.array(2.5), "2.5"),
        (np.array([1, 0.5]), "1 0.5"),
        (np.array([[1, 2], [3, 4]]), "1 2\n3 4"),
        (np.zeros((1, 2, 1)), "Plane 0:\n0 0"),
        (np.zeros(3000), None),
        (np.zeros((1, 1, 1, 1)), None),
        (object(), None),
    ],
)
def test_observations_are_written_number_by_number(observed: Any, text: str | None):
    assert text_of(observed) == text


def test_without_pettingzoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    load: Callable[..., Any] = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "pettingzoo":
            raise ModuleNotFoundError(name)
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UnsupportedGame, match=r"pip install 'ostinato\[pettingzoo\]'"):
        load_game("pettingzoo:classic/rps-v2")
