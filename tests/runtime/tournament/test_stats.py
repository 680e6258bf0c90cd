from __future__ import annotations

import itertools
import math
import random

import pytest

from runtime.tournament.stats import Model, Sprt, elo, elo_of, expected_score

# Published by fastchess, app/tests/sprt_test.cpp: wins, losses, draws, or pairs LL LD WL DD WD WW.
MATCHES: list[tuple[Model, float, float, tuple[int, int, int], float]] = [
    ("normalized", 0, 2, (36433, 36027, 68692), 0.92),
    ("normalized", -1.75, 0.25, (10871, 10650, 20431), 2.30),
    ("logistic", 0.5, 2.5, (21404, 21184, 40708), -1.57),
    ("logistic", 0, 2, (57433, 57030, 106593), -2.59),
]
PAIRS: list[tuple[Model, float, float, tuple[int, int, int, int, int, int], float]] = [
    ("normalized", 0, 2, (365, 16618, 36029, 200, 16974, 390), 2.25),
    ("normalized", -1.75, 0.25, (127, 4883, 10311, 401, 5150, 104), 3.01),
    ("logistic", 0.5, 2.5, (223, 9863, 20279, 1000, 10037, 246), -3.07),
    ("logistic", 0, 2, (871, 26175, 55003, 980, 26678, 821), -4.98),
]
# app/tests/elo_test.cpp: difference, error, normalised, its error, superiority; None: not given.
ELO_MATCHES = [
    ((76, 89, 123), (None, None, -20.76, 40.13, 0.1553)),
    ((136, 96, 111), (40.70, 30.43, 49.77, 36.77, 0.9960)),
    ((34, 356, 0), (None, None, -508.44, 34.48, None)),
]
ELO_PAIRS = [
    ((34, 54, 31, 32, 64, 75), (55.58, 27.65, 57.94, 28.28, 1.0)),
    ((332, 433, 457, 41, 333, 334), (-8.64, 10.33, -9.17, 10.96, 0.0505)),
    ((7895, 8757, 5485, 200, 568, 9999), (-21.04, 2.95, -19.01, 2.65, None)),
]


def of_matches(counts: tuple[int, int, int]) -> tuple[int, ...]:
    won, lost, drawn = counts
    return (lost, drawn, won)


def of_pairs(counts: tuple[int, int, int, int, int, int]) -> tuple[int, ...]:
    ll, ld, wl, dd, wd, ww = counts
    return (ll, ld, wl + dd, wd, ww)


@pytest.mark.parametrize(
    ("model", "elo0", "elo1", "counts", "expected"),
    [(*case[:3], of_matches(case[3]), case[4]) for case in MATCHES]
    + [(*case[:3], of_pairs(case[3]), case[4]) for case in PAIRS],
)
def test_ratios_are_the_published_ones(
    model: Model, elo0: float, elo1: float, counts: tuple[int, ...], expected: float
) -> None:
    assert Sprt(elo0=elo0, elo1=elo1, model=model).ratio(counts) == pytest.approx(
        expected, abs=0.01
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [(of_matches(counts), values) for counts, values in ELO_MATCHES]
    + [(of_pairs(counts), values) for counts, values in ELO_PAIRS],
)
def test_elo_is_the_published_one(
    counts: tuple[int, ...], expected: tuple[float | None, ...]
) -> None:
    found = elo(counts)
    assert found is not None
    values = (
        found.difference,
        found.error,
        found.normalised,
        found.normalised_error,
        found.superiority,
    )
    for value, published in zip(values, expected, strict=True):
        if published is not None:
            assert value == pytest.approx(published, abs=0.01)


def test_bounds_and_what_they_accept() -> None:
    test = Sprt(elo0=0, elo1=50)
    assert test.bounds == pytest.approx((-2.944, 2.944), abs=0.001)
    assert test.decision((0, 0, 0)) is None
    assert test.decision((100, 100, 300)) == "elo1"
    assert test.decision((300, 100, 100)) == "elo0"
    assert test.decision((10, 10, 11)) is None


def test_equal_results_have_a_ratio_too() -> None:
    test = Sprt(elo0=0, elo1=5)
    assert test.ratio((0, 0, 104)) > 0 > test.ratio((104, 0, 0))
    assert elo((0, 0, 0)) is None
    all_won = elo((0, 0, 7))
    assert all_won is not None
    assert (all_won.difference, all_won.error, all_won.superiority) == (math.inf, 0, 1)
    level = elo((0, 7, 0))
    assert level is not None
    assert (level.difference, level.normalised, level.superiority) == (0, 0, 0.5)


@pytest.mark.parametrize("size", [3, 5])
def test_ratio_takes_the_side_that_the_counts_take(size: int) -> None:
    for low, high in ((0, 150), (-150, 0), (-150, 150), (75, 150)):
        test = Sprt(elo0=low, elo1=high)
        for counts in itertools.product((0, 1, 50), repeat=size):
            found = elo(counts)
            if found is not None and found.normalised > high:
                assert test.ratio(counts) > 0
            elif found is not None and found.normalised < low:
                assert test.ratio(counts) < 0


def test_elo_and_score_are_each_others_inverse() -> None:
    for value in (-300.0, -1.0, 0.0, 12.5):
        assert elo_of(expected_score(value)) == pytest.approx(value)
    assert expected_score(400) == pytest.approx(10 / 11)


@pytest.mark.parametrize("tests", [200, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("truth", ["elo0", "elo1"])
def test_errors_are_as_rare_as_asked_for(truth: str, tests: int) -> None:
    test = Sprt(elo0=0, elo1=200, model="logistic", alpha=0.1, beta=0.1)
    rng = random.Random(1)
    score = expected_score(test.elo0 if truth == "elo0" else test.elo1)
    wrong = 0
    for _ in range(tests):
        counts = [0, 0, 0]
        while (accepted := test.decision(counts)) is None:
            counts[2 if rng.random() < score else 0] += 1
        wrong += accepted != truth
    # Overshooting the bounds makes errors rarer than asked for; three deviations above are chance.
    assert wrong / tests <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / tests)
