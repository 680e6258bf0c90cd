"""Who may have how many of a step's tokens.

Decisions and chat share the engine. A side that is alone has all of a step; where both want more
than there is, each has its declared share, so that neither waits for the other to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Side = Literal["chat", "decision", "prime"]
"""A prime, which nobody waits for, is counted with the decisions and comes behind them."""

_PRIMES_PART = 8
"""A prime under way has this part of a step even so: what it holds is not held for ever."""


class Shares:
    """The division of one step after another.

    Args:
        tokens: Of a step.
        seats: Sequences of a step.
        chat: Chat's share of both, between 0 and 1.

    Attributes:
        chat_seats: The most chats at once. A chat keeps its place for as long as it generates, so
            what it may have cannot depend on whether decisions want it now.
    """

    def __init__(self, tokens: int, seats: int, chat: float) -> None:
        self._tokens = tokens
        self._chat = min(max(1, round(tokens * chat)), tokens - 1)
        self._left: dict[Side, int] = {"chat": tokens, "decision": tokens, "prime": tokens}
        self.chat_seats = min(max(1, round(seats * chat)), max(1, seats - 1))

    def divide(self, wanted: Mapping[Side, int]) -> None:
        """Begin a step in which each side could use so many tokens, or fewer."""
        chat, decisions, primes = wanted["chat"], wanted["decision"], wanted["prime"]
        free = self._tokens - decisions - chat
        primes = min(primes, max(free, self._tokens // _PRIMES_PART))
        self._left = {
            "chat": max(self._chat, self._tokens - decisions - primes),
            "decision": max(self._tokens - self._chat, self._tokens - chat),
            "prime": primes,
        }

    def left(self, side: Side) -> int:
        """Give what a side may still have of this step."""
        return (
            min(self._left["decision"], self._left[side]) if side == "prime" else self._left[side]
        )

    def take(self, side: Side, tokens: int) -> None:
        """Count tokens that a side was given."""
        self._left[side] -= tokens
        if side == "prime":
            self._left["decision"] -= tokens
