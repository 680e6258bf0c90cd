"""Our games as PettingZoo's environments, held to PettingZoo's own tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pettingzoo.test import (
    api_test,
    max_cycles_test,
    parallel_api_test,
    parallel_seed_test,
    render_test,
    seed_test,
)

from games import BadGameParameters, IllegalAction
from games.adapters.aec import GameEnv, env, parallel_env
from games.registry import BUILT_IN
from tests.support.toys import Diary

# Matters of taste in PettingZoo's test: its own board games have a mask beside the observation
# too, and no legal action where another is to act.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Observation is not a NumPy array",
    "ignore:Observation space for each agent probably should be",
    "ignore:Action mask numpy array is all zeros",
)

AT_ONCE = "openspiel:repeated_game(stage_game=matrix_pd(),num_repetitions=50)"
GAMES = [
    *BUILT_IN,
    "openspiel:connect_four",
    "openspiel:leduc_poker",
    "openspiel:goofspiel(num_cards=4)",
    AT_ONCE,
]
SHORT = {"expedition": "expedition(size=tiny)"}
PARALLEL = [AT_ONCE, "openspiel:goofspiel(num_cards=4)", "expedition(size=tiny)", "openspiel:2048"]


def made(game: str, **settings: Any) -> GameEnv:
    return env(SHORT.get(game, game), **settings)


@pytest.mark.parametrize("game", GAMES)
def test_pettingzoos_api_test_passes(game: str):
    api_test(made(game), num_cycles=40)


@pytest.mark.parametrize("game", GAMES)
def test_pettingzoos_seed_test_passes(game: str):
    seed_test(lambda: made(game), num_cycles=40)


@pytest.mark.parametrize("game", PARALLEL)
def test_pettingzoos_parallel_api_test_passes(game: str):
    parallel_api_test(parallel_env(game), num_cycles=40)


def test_pettingzoos_tests_that_choose_without_a_mask_pass_where_all_is_legal():
    parallel_seed_test(lambda: parallel_env(AT_ONCE), num_cycles=40)
    module = SimpleNamespace(
        env=lambda max_cycles: env(AT_ONCE, parallel=True, max_cycles=max_cycles),
        parallel_env=lambda max_cycles: parallel_env(AT_ONCE, max_cycles=max_cycles),
    )
    max_cycles_test(module)


def test_a_seat_observes_its_view_and_what_it_may_do():
    game = env("kuhn_poker")
    game.reset(seed=1)
    observed, reward, terminated, truncated, info = game.last()
    assert observed is not None
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert bytes(observed["observation"]).rstrip(b"\0").decode() == info["text"]
    assert "Your card is the " in info["text"]
    assert (info["options"], observed["action_mask"].tolist()) == (("pass", "bet"), [1, 1])
    other = game.observe("seat_1")
    assert other["action_mask"].tolist() == [0, 0]


def test_rewards_are_what_the_returns_gain():
    game = env("tictactoe")
    game.reset(seed=0)
    for action in (0, 2, 0, 2, 0):  # top-left, left, top, centre, top-right
        game.step(action)
    assert game.rewards == {"seat_0": 1.0, "seat_1": -1.0}
    assert all(game.terminations.values())


def test_one_seed_is_one_match_and_another_is_another():
    cards: dict[int, set[str]] = {}
    for seed in (1, 1, 2, 3, 4, 5):
        game = env("holdem", seats=4)
        game.reset(seed=seed)
        text = "".join(info["text"] for info in game.infos.values())
        cards.setdefault(seed, set()).add(text)
    assert all(len(texts) == 1 for texts in cards.values())
    assert len(set.union(*cards.values())) == 5


def test_an_option_that_is_not_there_is_refused():
    game = env("tictactoe")
    game.reset(seed=0)
    game.step(0)
    with pytest.raises(IllegalAction, match="'action 8' is not a legal action"):
        game.step(8)


def test_a_view_that_has_grown_too_long_is_refused():
    game = env(Diary(width=400), observation_bytes=2_000)
    game.reset(seed=0)
    with pytest.raises(BadGameParameters, match="observation_bytes is 2000; make the environment"):
        for _ in range(40):
            game.step(0)
            game.observe("seat_0")


def test_it_renders_as_text():
    render_test(lambda render_mode: env("tictactoe", render_mode=render_mode))
    assert env("tictactoe").render() is None
