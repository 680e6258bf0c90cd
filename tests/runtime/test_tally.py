from __future__ import annotations

import pytest

from runtime.tally import Latency


def test_quantiles_are_right_to_a_hundredth() -> None:
    latency = Latency()
    for number in range(1, 1001):
        latency.add(number / 10)
    assert latency.quantile(0.5) == pytest.approx(50, rel=0.01)
    assert latency.quantile(0.95) == pytest.approx(95, rel=0.01)
    assert latency.quantile(1.0) == pytest.approx(100, rel=0.01)


def test_nothing_has_no_quantile_and_no_time_is_a_short_one() -> None:
    latency = Latency()
    assert latency.quantile(0.5) is None
    latency.add(0.0)
    assert latency.quantile(0.5) == pytest.approx(0.001, rel=0.02)


def test_histogram_does_not_grow_with_what_it_counts() -> None:
    latency = Latency()
    for number in range(10_000):
        latency.add(1 + number % 50)
    assert len(latency._buckets) <= 50
