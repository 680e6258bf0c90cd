from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runtime.draws import draw, match_seed, pick, uniform


def test_draws_are_these_for_ever() -> None:
    """Recorded matches hold such numbers: another function would make them differ."""
    assert draw(1, "seat", 0, 3, 0) == 0.9447014400905976
    assert match_seed(1, 0) == 1199965861534937


@given(st.integers(), st.lists(st.integers() | st.text(max_size=5), max_size=4))
def test_draws_lie_in_the_unit_interval_and_repeat(seed: int, purpose: list[int | str]) -> None:
    number = draw(seed, *purpose)
    assert 0 <= number < 1
    assert number == draw(seed, *purpose)


def test_draws_are_spread_evenly() -> None:
    counts = Counter(int(draw(7, "seat", turn) * 10) for turn in range(10_000))
    assert all(900 < counts[decile] < 1100 for decile in range(10))


def test_seeds_of_a_run_differ_and_are_small_enough_for_any_reader() -> None:
    seeds = {match_seed(3, index) for index in range(1000)} | {match_seed(4, 0)}
    assert len(seeds) == 1001
    assert all(0 <= seed < 2**53 for seed in seeds)


@given(
    st.lists(st.floats(0, 10), min_size=1).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_pick_takes_something_with_weight(weights: list[float], number: float) -> None:
    assert weights[pick(weights, number)] > 0


def test_pick_walks_through_the_weights_in_order() -> None:
    assert [pick([1, 0, 2, 1], number) for number in (0, 0.24, 0.25, 0.74, 0.75)] == [0, 0, 2, 2, 3]


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_uniform_is_an_index(count: int, number: float) -> None:
    assert 0 <= uniform(number, count) < count
