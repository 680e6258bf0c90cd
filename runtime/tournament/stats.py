"""Elo differences and sequential tests from counts of results.

Results are counted per match (loss, draw, win) or per pair of matches with one seed and swapped
seats (0, 1/2, 1, 3/2, 2 points). Pairs are the better unit: what a seed and a seat are worth
cancels out in them. The generalised sequential probability ratio test, its maximum likelihood
estimates and normalised Elo follow M. Van den Bergh, "The generalized sequential probability ratio
test" and "Comments on normalized Elo" (2019, 2021), as the testing of chess engines uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

ELO = 400 / math.log(10)
"""Elo of one unit of log-odds."""

NORMALISED = 2 * ELO
"""Normalised Elo of one standard deviation of a match's result."""

REGULAR = 1e-3
"""Stands for a result that never came, so that every distribution can have any mean."""

Z95 = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""

Model = Literal["logistic", "normalized"]


class Elo(msgspec.Struct, frozen=True, kw_only=True):
    """A difference in strength; the errors are half the width of a 95 % interval.

    Attributes:
        superiority: The probability that the first is the stronger one, from 0 to 1.
    """

    difference: float
    error: float
    normalised: float
    normalised_error: float
    superiority: float


class Sprt(msgspec.Struct, frozen=True, kw_only=True):
    """A sequential test of `elo1` against `elo0`.

    Attributes:
        alpha: The probability to accept `elo1` where `elo0` is true.
        beta: The probability to accept `elo0` where `elo1` is true.
        model: In which Elo the two are given.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05
    model: Model = "normalized"

    @property
    def bounds(self) -> tuple[float, float]:
        """The log-likelihood ratios at which `elo0` and `elo1` are accepted (Wald)."""
        lower = math.log(self.beta / (1 - self.alpha))
        return lower, math.log((1 - self.beta) / self.alpha)

    def ratio(self, counts: Sequence[int]) -> float:
        """Give the log-likelihood ratio of counts from the worst result to the best."""
        if not sum(counts):
            return 0.0
        scores, shares, total = _distribution(counts)
        if self.model == "logistic":
            low, high = (
                _with_mean(scores, shares, expected_score(elo)) for elo in (self.elo0, self.elo1)
            )
        else:
            matches = len(counts) // 2  # in one result: 1, or 2 in a pair
            low, high = (
                _with_deviation(scores, shares, elo * math.sqrt(matches) / NORMALISED)
                for elo in (self.elo0, self.elo1)
            )
        return total * sum(
            share * math.log(one / zero) for share, one, zero in zip(shares, high, low, strict=True)
        )

    def decision(self, counts: Sequence[int]) -> Literal["elo0", "elo1"] | None:
        """Give which hypothesis the counts accept, None while neither."""
        lower, upper = self.bounds
        ratio = self.ratio(counts)
        return "elo0" if ratio <= lower else "elo1" if ratio >= upper else None


def expected_score(elo: float) -> float:
    """Give the expected share of points of a side that is `elo` better."""
    return 1 / (1 + math.exp(-elo / ELO))


def elo_of(score: float) -> float:
    """Give the Elo difference of an expected share of points; infinite at 0 and 1."""
    if not 0 < score < 1:
        return math.copysign(math.inf, score - 0.5)
    return ELO * math.log(score / (1 - score))


def elo(counts: Sequence[int]) -> Elo | None:
    """Give the Elo difference of counts from the worst result to the best, 3 or 5 of them.

    None without results. Where all results are equal, the interval is empty and the difference may
    be infinite.
    """
    total = sum(counts)
    if not total:
        return None
    most = len(counts) - 1
    mean = sum(index * count for index, count in enumerate(counts)) / (most * total)
    variance = sum(count * (index / most - mean) ** 2 for index, count in enumerate(counts)) / total
    matches = most // 2
    error = math.sqrt(variance / total)
    deviation = math.sqrt(variance * matches)
    above, below = elo_of(mean + Z95 * error), elo_of(mean - Z95 * error)
    leans = math.copysign(1, mean - 0.5) if mean != 0.5 else 0.0
    return Elo(
        difference=elo_of(mean),
        error=(above - below) / 2 if above != below else 0.0,
        normalised=NORMALISED * (mean - 0.5) / deviation if deviation else elo_of(mean),
        normalised_error=Z95 * NORMALISED / math.sqrt(matches * total),
        superiority=0.5 * (1 + math.erf((mean - 0.5) / error / math.sqrt(2)))
        if error
        else 0.5 * (1 + leans),
    )


def _distribution(counts: Sequence[int]) -> tuple[list[float], list[float], float]:
    """Give scores from 0 to 1, their shares and the number of results; no share is zero."""
    most = len(counts) - 1
    seen = [count or REGULAR for count in counts]
    total = sum(seen)
    return [index / most for index in range(most + 1)], [count / total for count in seen], total


def _with_mean(scores: Sequence[float], shares: Sequence[float], mean: float) -> list[float]:
    """Give the likeliest distribution with a mean; mean lies inside the scores' range."""
    offsets = [score - mean for score in scores]

    def slope(tilt: float) -> float:
        return sum(
            share * offset / (1 + tilt * offset)
            for share, offset in zip(shares, offsets, strict=True)
        )

    margin = 1e-12
    low, high = -1 / max(offsets) + margin, -1 / min(offsets) - margin
    tilt = _root(slope, low, high)
    return [share / (1 + tilt * offset) for share, offset in zip(shares, offsets, strict=True)]


def _with_deviation(scores: Sequence[float], shares: Sequence[float], target: float) -> list[float]:
    """Give the likeliest distribution whose mean is `target` standard deviations above 1/2."""
    found = [1 / len(scores)] * len(scores)
    for _ in range(50):
        mean = sum(p * score for p, score in zip(found, scores, strict=True))
        deviation = math.sqrt(
            sum(p * (score - mean) ** 2 for p, score in zip(found, scores, strict=True))
        )
        moved = [
            score - 0.5 - target * deviation * (1 + ((mean - score) / deviation) ** 2) / 2
            for score in scores
        ]
        before, found = found, _with_mean(moved, shares, 0.0)
        if max(abs(one - two) for one, two in zip(before, found, strict=True)) < 1e-9:
            break
    return found


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Find the zero of a falling function by bisection, to the last bit."""
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return middle
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
