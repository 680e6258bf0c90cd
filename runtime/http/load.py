"""How long a decision will probably take, from what is under way and how fast it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.http.problems import problem

_MEMORY: Final = 0.8  # of the rate so far; a new measurement weighs the rest


class Load:
    """Tokens under way, and tokens a second as they were answered.

    Only the tokens of whole records are known before they are read; what is reused makes them
    fast, and so shows in the rate.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.decisions = 0
        self._rate: float | None = None
        self._since: float = 0.0
        self._done = 0

    def estimate_s(self, tokens: int) -> float:
        """Give how long until so many more tokens are answered; 0 while nothing is known."""
        return 0.0 if self._rate is None else (self.tokens + tokens) / self._rate

    def admit(self, tokens: int, *, seconds: float) -> None:
        """See that a decision can be answered in time.

        Raises:
            Problem: 503, with the time after which it probably could.
        """
        estimate_s = self.estimate_s(tokens)
        if self.decisions and estimate_s > seconds:
            raise problem(
                503,
                "unavailable_error",
                f"{self.decisions} decisions are under way and this one would take about"
                f" {estimate_s:.0f} s of its {seconds:g} s; ask again later or add workers",
                retry_s=estimate_s - seconds,
            )

    @contextmanager
    def under_way(self, tokens: int) -> Iterator[None]:
        """Count a decision from here to its end; one that fails tells nothing about the rate."""
        now = time.monotonic()
        if not self.decisions:
            self._since, self._done = now, 0
        self.tokens += tokens
        self.decisions += 1
        try:
            yield
            self._done += tokens
            self._measure()
        finally:
            self.tokens -= tokens
            self.decisions -= 1

    def _measure(self) -> None:
        """Take the rate of the time since something was always under way."""
        seconds = time.monotonic() - self._since
        if seconds <= 0:
            return
        rate = self._done / seconds
        self._rate = rate if self._rate is None else self._rate * _MEMORY + rate * (1 - _MEMORY)
