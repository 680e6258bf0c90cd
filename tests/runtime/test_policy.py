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
