"""Numbers that look random and are a function of a match's seed and of what they are for.

No generator keeps a state here: the number for seat 1 in turn 12 is the same whether the match
runs through, is resumed at turn 12, or is replayed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def draw(seed: int, *purpose: str | int) -> float:
    """Give a number in [0, 1): 53 bits, uniform over seeds and purposes."""
    return _bits(seed, *purpose) * 2.0**-53


def match_seed(seed: int, index: int) -> int:
    """Give the seed of one match of a run; below 2**53, so that any JSON reader keeps it."""
    return _bits(seed, "match", index)


def pick(weights: Sequence[float], draw: float) -> int:
    """Give the index that `draw` falls on; each index is as likely as its weight."""
    left = draw * sum(weights)
    last = 0
    for index, weight in enumerate(weights):
        if weight > 0:
            if left < weight:
                return index
            last = index
        left -= weight
    return last  # rounding can leave a crumb behind the last weight


def uniform(draw: float, count: int) -> int:
    """Give the index among `count` equally likely ones that `draw` falls on."""
    return int(draw * count)


def _bits(*parts: str | int) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11
