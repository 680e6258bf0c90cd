"""Marks for answers whose right distribution is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from games.solved import Judged
from runtime.calibration import BINS, Bin


class Row(NamedTuple):
    """Marks of one question of one game.

    Attributes:
        right: Share in which the most probable option is a right one: a best action, or the most
            probable of the right distribution.
        loss: What it costs on average against best play; None where options are no actions.
        brier: Mean squared distance to the right distribution, of a noul the probability's alone.
        ece: Expected calibration error: how far the top option's probability is from the share in
            which it is right, where several may be right by their part.
    """

    question: str
    type: str
    tests: int
    right: float
    loss: float | None
    brier: float
    ece: float


class Marks:
    """Adds up answers to one question."""

    def __init__(self) -> None:
        self.count = 0
        self._right = 0
        self._loss = 0.0
        self._brier = 0.0
        self._bins = [[0, 0.0, 0.0] for _ in range(BINS)]

    def add(self, judged: Judged, probabilities: Sequence[float]) -> None:
        """Count one answer, its probabilities in the options' order."""
        target, values = judged.target, judged.values
        top = max(range(len(probabilities)), key=probabilities.__getitem__)
        worth = target if values is None else values
        self.count += 1
        self._right += worth[top] >= max(worth) - 1e-6
        if values is not None:
            self._loss += max(values) - values[top]
        distance = [(p - t) ** 2 for p, t in zip(probabilities, target, strict=True)]
        self._brier += distance[0] if judged.question.type == "noul" else sum(distance)
        into = self._bins[min(int(probabilities[top] * BINS), BINS - 1)]
        into[0] += 1
        into[1] += probabilities[top]
        into[2] += target[top]

    def row(self, name: str, sample: Judged) -> Row:
        """Give the marks; one answer at least was counted."""
        off = sum(abs(confidence - right) for _, confidence, right in self._bins)
        return Row(
            question=name,
            type=sample.question.type,
            tests=self.count,
            right=self._right / self.count,
            loss=None if sample.values is None else self._loss / self.count,
            brier=self._brier / self.count,
            ece=off / self.count,
        )

    def bins(self) -> list[Bin]:
        """Give the bins that are not empty, from the least sure."""
        return [Bin(int(n), sure / n, right / n) for n, sure, right in self._bins if n]


def interval(successes: float, trials: int) -> tuple[float, float]:
    """Give a share's 95 % interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
    the American Statistical Association 22 (1927).
    """
    if not trials:
        return 0.0, 1.0
    z, share = 1.96, successes / trials
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    whole = 1 + z * z / trials
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)
