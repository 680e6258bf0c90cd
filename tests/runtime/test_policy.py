from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.draws import draw
from runtime.errors import UnknownAgent
from runtime.policy import Policy, make_policy

numbers = st.floats(0, 1, exclude_max=True)
probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def shares(policy: Policy, given: list[float], count: int = 20_000) -> list[float]:
    found = Counter(policy.choose(given, draw(1, index)) for index in range(count))
    return [found[index] / count for index in range(len(given))]


def test_default_takes_the_most_probable_and_of_equals_the_first() -> None:
    assert Policy().choose([0.2, 0.5, 0.3], None) == 1
    assert Policy().choose([0.2, 0.4, 0.4], 0.99) == 1
    assert not Policy().draws


def test_temperature_one_follows_the_probabilities() -> None:
    given = [0.1, 0.6, 0.0, 0.3]
    assert shares(Policy(temperature=1.0), given) == pytest.approx(given, abs=0.015)


def test_temperature_sharpens_and_flattens() -> None:
    given = [0.2, 0.8]
    for temperature in (0.5, 2.0):
        weights = [p ** (1 / temperature) for p in given]
        expected = [weight / sum(weights) for weight in weights]
        assert shares(Policy(temperature=temperature), given) == pytest.approx(expected, abs=0.015)


def test_what_is_below_the_floor_is_never_drawn() -> None:
    given = [0.05, 0.5, 0.45]
    found = shares(Policy(temperature=1.0, floor=0.1), given)
    assert found[0] == 0
    assert found[1:] == pytest.approx([0.5 / 0.95, 0.45 / 0.95], abs=0.015)
    assert Policy(temperature=1.0, floor=0.9).choose(given, 0.0) == 1


@given(probabilities, numbers, st.floats(0.01, 100), st.floats(0, 1))
def test_choice_is_an_option_that_may_be_drawn(
    given: list[float], number: float, temperature: float, floor: float
) -> None:
    chosen = Policy(temperature=temperature, floor=floor).choose(given, number)
    top = max(given)
    assert given[chosen] == top or given[chosen] >= floor
    assert given[chosen] > 0 or top == 0


def test_tiny_temperature_does_not_overflow() -> None:
    policy = make_policy({"temperature": "1e-300"})
    assert policy.choose([0.3, 0.7], 0.999) == 1
    assert math.isfinite(policy.temperature)


@pytest.mark.parametrize(
    ("parameters", "policy"),
    [
        ({}, Policy()),
        ({"temperature": "0.7"}, Policy(temperature=0.7)),
        ({"floor": "0.01"}, Policy(temperature=1.0, floor=0.01)),
        ({"floor": "0.01", "temperature": "0.5"}, Policy(temperature=0.5, floor=0.01)),
    ],
)
def test_parameters(parameters: dict[str, str], policy: Policy) -> None:
    assert make_policy(parameters) == policy


@pytest.mark.parametrize(
    "parameters",
    [{"temprature": "1"}, {"temperature": "hot"}, {"temperature": "-1"}, {"floor": "1.5"}]
    + [{"temperature": text} for text in ("nan", "inf")],
)
def test_bad_parameters_are_named(parameters: dict[str, Any]) -> None:
    [(name, _)] = parameters.items()
    with pytest.raises(UnknownAgent, match=name):
        make_policy(parameters)


def test_top_p_draws_among_the_heaviest_alone() -> None:
    policy = make_policy({"top_p": "0.7"})
    assert policy == Policy(temperature=1.0, top_p=0.7)
    probabilities = [0.1, 0.5, 0.15, 0.25]
    chosen = {policy.choose(probabilities, draw / 1000) for draw in range(1000)}
    assert chosen == {1, 3}
    assert policy.choose(probabilities, 0.66) == 1
    assert policy.choose(probabilities, 0.67) == 3


def test_top_p_looks_at_what_the_temperature_makes_of_the_weights() -> None:
    probabilities = [0.6, 0.3, 0.1]
    cold = Policy(temperature=0.5, top_p=0.7)  # weights 0.78, 0.20, 0.02
    warm = Policy(temperature=2.0, top_p=0.7)  # weights 0.47, 0.33, 0.19
    assert {cold.choose(probabilities, draw / 100) for draw in range(100)} == {0}
    assert {warm.choose(probabilities, draw / 100) for draw in range(100)} == {0, 1}


def test_top_p_takes_the_first_of_equals_and_respects_the_floor() -> None:
    even = [0.25] * 4
    half = Policy(temperature=1.0, top_p=0.5)
    assert {half.choose(even, draw / 100) for draw in range(100)} == {0, 1}
    floored = Policy(temperature=1.0, top_p=0.99, floor=0.3)
    assert {floored.choose([0.4, 0.4, 0.2], draw / 100) for draw in range(100)} == {0, 1}


@given(
    probabilities.filter(any),
    numbers,
    numbers,
)
def test_top_p_never_draws_what_is_lighter_than_what_it_leaves_out(
    given: list[float], top_p: float, number: float
) -> None:
    index = Policy(temperature=1.0, top_p=top_p).choose(given, number)
    assert given[index] > 0
    assert sum(p for p in given if p > given[index]) <= top_p * sum(given) + 1e-9
