"""What answers decisions inside a worker."""

from __future__ import annotations

from typing import Protocol

from engine.contract import DecisionReply, DecisionRequest, Prime, Primed
from engine.fleet import Statistics


class Backend(Protocol):
    """A model, or what stands for one."""

    @property
    def fingerprint(self) -> str:
        """Name engine, base, adapter, head and tokenizer by short hashes."""
        ...

    @property
    def dead(self) -> bool:
        """Whether it will never answer again; the worker process then ends."""
        ...

    @property
    def statistics(self) -> Statistics:
        """Count what the engine did beside decisions."""
        ...

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Answer one request; cancelling the call frees all that it holds.

        Raises:
            EngineError: This request gets no answer; others are not disturbed.
        """
        ...

    async def prime(self, prime: Prime) -> Primed:
        """Read a state ahead; a newer one of the same affinity ends it.

        Raises:
            EngineError: It was not read; nobody waits for it.
        """
        ...

    async def close(self) -> None:
        """Stop and free everything."""
        ...
