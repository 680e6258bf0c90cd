"""How near probabilities come to what turned out true; sums alone, whatever their number.

Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review 78
(1950): the mean of the squared distance to the truth, summed over options, from 0 to 2. Expected
calibration error: Naeini, Cooper, Hauskrecht, "Obtaining well calibrated probabilities using
Bayesian binning", AAAI 2015, over ten equal bins of the top option's probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BINS = 10


class Bin(NamedTuple):
    """Answers whose top option had a probability of this bin."""

    answers: int
    confidence: float
    """Mean probability of the top option."""
    right: float
    """Share in which the top option was the true one."""


class Calibration:
    """Adds up answers whose truth is known."""

    def __init__(self) -> None:
        self.count = 0
        self._brier = 0.0
        self._bins = [[0, 0.0, 0] for _ in range(BINS)]

    def add(self, probabilities: Sequence[float], truth: int) -> None:
        """Count one answer; `truth` is the index of the right option."""
        self.count += 1
        self._brier += sum((p - (index == truth)) ** 2 for index, p in enumerate(probabilities))
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        top = probabilities[best]
        into = self._bins[min(int(top * BINS), BINS - 1)]
        into[0] += 1
        into[1] += top
        into[2] += best == truth

    @property
    def brier(self) -> float | None:
        """The mean Brier score; None without answers."""
        return self._brier / self.count if self.count else None

    @property
    def ece(self) -> float | None:
        """The expected calibration error; None without answers."""
        if not self.count:
            return None
        return sum(abs(confidence - right) for _, confidence, right in self._bins) / self.count

    def bins(self) -> list[Bin]:
        """Give the bins that are not empty, from the least sure."""
        return [Bin(n, confidence / n, right / n) for n, confidence, right in self._bins if n]
