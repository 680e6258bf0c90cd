from __future__ import annotations

import random

import pytest

from games import expedition
from games.base import CHANCE
from games.errors import NotYourTurn
from games.expedition import ExpeditionState
from games.expedition.solver import Solver, reachable

MOST_SITUATIONS = 50_000


def brute_force(state: ExpeditionState) -> float:
    """The value by following every branch of the game itself, nothing remembered."""
    if state.actor is None:
        return state.returns()[0]
    if state.actor == CHANCE:
        outcomes = state.outcomes()
        total = sum(outcome.weight * brute_force(state.apply(outcome.id)) for outcome in outcomes)
        return total / sum(outcome.weight for outcome in outcomes)
    return max(brute_force(state.apply(option.id)) for option in state.options())


def walk(state: ExpeditionState, rng: random.Random, solver: Solver | None = None) -> float:
    """The return of one match, steps drawn evenly or, with a solver, taken from it."""
    while state.actor is not None:
        state = random_turn(state, rng, solver)
    return state.returns()[0]


def random_turn(
    state: ExpeditionState, rng: random.Random, solver: Solver | None = None
) -> ExpeditionState:
    if state.actor == CHANCE:
        outcomes = state.outcomes()
        weights = [outcome.weight for outcome in outcomes]
        return state.apply(rng.choices(outcomes, weights)[0].id)
    if solver is not None:
        return state.apply(solver.best_action(state))
    return state.apply(rng.choice(state.options()).id)


@pytest.mark.parametrize("seed", range(3))
def test_values_and_steps_equal_brute_force_on_tiny_maps(seed: int):
    state = expedition.load(rules="short", size="tiny").start(seats=1, seed=seed)
    solver = Solver()
    by_weather = [state.apply(outcome.id) for outcome in state.outcomes()]
    total = sum(outcome.weight for outcome in state.outcomes())
    expected = 0.0
    for outcome, morning in zip(state.outcomes(), by_weather, strict=True):
        values = {option.id: brute_force(morning.apply(option.id)) for option in morning.options()}
        best = max(values.values())
        assert solver.value(morning) == pytest.approx(best, abs=1e-12)
        assert values[solver.best_action(morning)] == pytest.approx(best, abs=1e-12)
        expected += outcome.weight * best / total
    assert solver.value(state) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_values_equal_brute_force_on_the_last_day_of_large_maps(seed: int):
    rng, solver = random.Random(seed), Solver()
    game = expedition.load(rules="short")
    checked = 0
    while checked < 3:
        state = game.start(seats=1, seed=seed)
        while state.actor is not None and state.situation.day < state.world.days:
            careful = state.actor == 0 and state.situation.energy < 6
            state = state.apply("rest") if careful else random_turn(state, rng)
        if state.actor is not None:
            assert solver.value(state) == pytest.approx(brute_force(state), abs=1e-12)
            checked += 1


@pytest.mark.parametrize("seed", range(4))
def test_maps_are_small_and_worth_solving(seed: int):
    state = expedition.load(rules="short").start(seats=1, seed=seed)
    situations = set().union(*reachable(state.world, state.situation))
    assert 20_000 < len(situations) <= MOST_SITUATIONS
    solver = Solver()
    assert 0.4 < solver.value(state) <= 1.0
    rng = random.Random(seed)
    best = [walk(state, rng, solver) for _ in range(60)]
    drawn = [walk(state, rng) for _ in range(60)]
    assert sum(best) / 60 == pytest.approx(solver.value(state), abs=0.15)
    assert sum(best) > 2 * sum(drawn)


@pytest.mark.long
@pytest.mark.parametrize("size", sorted(expedition.SIZES))
def test_a_hundred_maps_are_small(size: str):
    game = expedition.load(rules="short", size=size)
    for seed in range(100):
        state = game.start(seats=1, seed=seed)
        assert sum(map(len, reachable(state.world, state.situation))) <= MOST_SITUATIONS


def test_a_solver_follows_to_another_map_and_back():
    game = expedition.load(rules="short", size="small")
    first, second = (game.start(seats=1, seed=seed) for seed in (0, 1))
    solver = Solver()
    values = solver.value(first), solver.value(second)
    assert values[0] != values[1]
    assert (solver.value(first), solver.value(second)) == values


def test_no_step_is_given_at_a_chance_turn():
    state = expedition.load(rules="short", size="tiny").start(seats=1, seed=0)
    with pytest.raises(NotYourTurn, match="phase weather"):
        Solver().best_action(state)
