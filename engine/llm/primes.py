"""States that are being read ahead: one for each affinity, and only as long as it is of use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Primes:
    """The primes under way; each has a scope that ends it."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[int, anyio.CancelScope]] = {}

    @contextmanager
    def begin(self, affinity: str, tokens: int) -> Iterator[anyio.CancelScope]:
        """Begin a prime of so many tokens in the place of an earlier one of another length.

        One of the same length goes on, and the engine has the second wait for it.
        """
        earlier = self._under_way.get(affinity)
        if earlier is not None and earlier[0] != tokens:
            earlier[1].cancel()
        with anyio.CancelScope() as scope:
            mine = self._under_way[affinity] = (tokens, scope)
            try:
                yield scope
            finally:
                if self._under_way.get(affinity) is mine:
                    del self._under_way[affinity]

    def overtake(self, affinity: str, tokens: int) -> None:
        """End a prime whose state is shorter than the one that is asked about now."""
        under_way = self._under_way.get(affinity)
        if under_way is not None and under_way[0] < tokens:
            under_way[1].cancel()
