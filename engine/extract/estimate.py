"""How long an extraction still takes, from the matrices that are done."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

Shape = tuple[int, ...]

_TIMED: Final = 2
"""Matrices of each shape before anything is said: one alone may have been unlucky."""
_DOUBT: Final = 0.25  # of an estimate, at least
_SAMPLE: Final = 8 << 20  # bytes


class Range(msgspec.Struct, frozen=True):
    """Seconds that are left: the most likely, and between which they should lie."""

    seconds: float
    low: float
    high: float


class Estimate:
    """Collects times; matrices of one shape take the same time, apart from what else runs.

    Args:
        shapes: Of the matrices that are to do, by name.
        beside_s: Seconds for what follows the matrices.
    """

    def __init__(self, shapes: Mapping[str, Shape], beside_s: float) -> None:
        self._left = Counter(shapes.values())
        self._beside_s = beside_s
        self._times: dict[Shape, list[float]] = {}
        self._said: tuple[float, Range] | None = None
        self._spent = 0.0

    def order(self, shapes: Mapping[str, Shape]) -> list[str]:
        """Give the matrices in an order in which an estimate is possible early."""
        seen: Counter[Shape] = Counter()
        first: list[str] = []
        rest: list[str] = []
        for name, shape in shapes.items():
            seen[shape] += 1
            (first if seen[shape] <= _TIMED else rest).append(name)
        return first + rest

    def took(self, shape: Shape, seconds: float) -> Range | None:
        """Add the time of a matrix; gives an estimate if there is a new one.

        There is one as soon as each shape is known, and again when the last one turns out wrong.
        """
        self._left[shape] -= 1
        self._times.setdefault(shape, []).append(seconds)
        self._spent += seconds
        left = {shape: count for shape, count in self._left.items() if count}
        if not left or any(len(self._times.get(shape, ())) < _TIMED for shape in left):
            return None
        found = self._range(left)
        if self._said is not None:
            before, said = self._said
            whole = self._spent - before + found.seconds
            if said.low <= whole <= said.high:
                return None
        self._said = (self._spent, found)
        return found

    def _range(self, left: Mapping[Shape, int]) -> Range:
        def total(pick: int | None) -> float:
            times = {shape: sorted(self._times[shape]) for shape in left}
            # the middle one, of two the faster: one slow matrix says nothing about the others
            return sum(
                count * times[shape][(len(times[shape]) - 1) // 2 if pick is None else pick]
                for shape, count in left.items()
            )

        seconds = total(None)
        return Range(
            seconds + self._beside_s,
            min(seconds * (1 - _DOUBT), total(0)) + self._beside_s * (1 - _DOUBT),
            max(seconds * (1 + _DOUBT), total(-1)) + self._beside_s * (1 + _DOUBT),
        )


def hashing_s(size: int) -> float:
    """Give the seconds that hashing takes here, once the bytes are read."""
    sample = bytes(_SAMPLE)
    started = time.monotonic()
    hashlib.sha256(sample).digest()
    return size * (time.monotonic() - started) / _SAMPLE
