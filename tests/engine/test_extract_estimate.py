from __future__ import annotations

import random

import pytest

from engine.extract.estimate import Estimate, Range, hashing_s

LARGE, SMALL = (17408, 5120), (48, 5120)
SHAPES = {f"large {i}": LARGE for i in range(30)} | {f"small {i}": SMALL for i in range(20)}
BESIDE = 10.0


def simulate(times: dict[str, float]) -> list[tuple[Range, float]]:
    """Give each estimate with what was left when it was made."""
    estimate = Estimate(SHAPES, BESIDE)
    names = estimate.order(SHAPES)
    assert sorted(names) == sorted(SHAPES)
    made: list[tuple[Range, float]] = []
    left = sum(times.values()) + BESIDE
    for name in names:
        left -= times[name]
        found = estimate.took(SHAPES[name], times[name])
        if found is not None:
            made.append((found, left))
    return made


def usual() -> dict[str, float]:
    return {name: 4.0 if shape == LARGE else 0.1 for name, shape in SHAPES.items()}


def test_two_matrices_of_each_shape_say_it_all() -> None:
    ((found, left),) = simulate(usual())
    assert found.seconds == pytest.approx(left)
    assert found.low < left < found.high
    assert left == pytest.approx(28 * 4 + 18 * 0.1 + BESIDE)


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_machine_widens_the_range(seed: int) -> None:
    lots = random.Random(seed)
    times = {name: seconds * lots.uniform(0.85, 1.3) for name, seconds in usual().items()}
    for found, left in simulate(times):
        assert found.low <= left <= found.high


def test_a_slow_first_matrix_does_not_make_the_rest_slow() -> None:
    times = usual() | {"large 0": 40.0}
    made = simulate(times)
    assert made[0][0].low <= made[0][1] <= made[0][0].high
    found, left = made[-1]
    assert abs(found.seconds - left) <= 0.25 * left


def test_a_machine_that_turns_slow_is_noticed() -> None:
    times = usual()
    names = Estimate(SHAPES, BESIDE).order(SHAPES)
    for name in names[10:]:
        times[name] *= 3
    made = simulate(times)
    assert len(made) > 1
    found, left = made[-1]
    assert abs(found.seconds - left) <= 0.25 * left


def test_few_matrices_need_no_estimate() -> None:
    estimate = Estimate({"a": LARGE, "b": LARGE}, BESIDE)
    assert estimate.took(LARGE, 1.0) is None
    assert estimate.took(LARGE, 1.0) is None


def test_hashing_is_measured_here() -> None:
    assert 0 < hashing_s(1 << 30) < hashing_s(1 << 40)
