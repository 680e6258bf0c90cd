"""What `ostinato bench engine` measures; see `engine/llm/bench.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

Way = Literal["ostinato", "nothing reused", "whole blocks"]

GROWTH: Final = 60  # tokens
NUMBERS: Final = (1, 2, 4, 8)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Attributes:
        way: How states are reused.
        tokens: Of the state.
        kind: "new", "known", "grown" (by 60 tokens), "8 at once", "8 in turn", or "8 joint".
        ms: The median of the repeats, from the request to the last answer.
        cpu_ms: Processor time of engine and front end together, likewise: what neighbours on a
            shared machine disturb little.
        read: Tokens that were read for it, of the last repeat.
    """

    way: Way
    tokens: int
    kind: str
    ms: float
    cpu_ms: float
    read: int


class FeatureMemory(msgspec.Struct, frozen=True):
    """What the head features take: `slots` times `width` times `bytes_each`."""

    slots: int
    width: int
    bytes_each: int
    total: int


class Measured(msgspec.Struct, frozen=True):
    """All figures, and what the head features take."""

    figures: list[Figure]
    features: FeatureMemory


def number_of_states(sizes: Sequence[int], repeats: int) -> int:
    """Count the states that `measure` asks about: each in three ways."""
    return 3 * len(sizes) * repeats
