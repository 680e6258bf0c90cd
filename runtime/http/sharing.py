"""Decisions in flight, each asked once however many wait for it.

Clients have no idempotency key: a retry is the same request again, while the first may still be
under way. Identical asks share one decision; it is given up when the last one who waits goes away.
"""

from __future__ import annotations

import hashlib
import logging
import uuid

import anyio

from engine.client import Engine
from engine.contract import Ask, DecisionReply, DecisionRequest, encode_ask
from engine.errors import EngineError, EngineFailed

log = logging.getLogger(__name__)


class _Shared:
    """One decision, made by who asked first, and the others who wait for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()
        self.reply: DecisionReply | None = None
        self.error: EngineError | None = None
        self._others = 0

    async def wait(self) -> None:
        """Wait for it; who asked first does not leave it meanwhile."""
        self._others += 1
        self.scope.shield = True
        try:
            await self.done.wait()
        finally:
            self._others -= 1
            self.scope.shield = self._others > 0


class Sharing:
    """Asks an engine.

    Args:
        source: Names this gateway to the queue.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._shared: dict[bytes, _Shared] = {}

    async def decide(
        self, engine: Engine, ask: Ask, *, affinity: str, seconds: float
    ) -> DecisionReply:
        """Give the answer, from a decision that is under way already if there is one.

        Args:
            engine: Who is asked.
            ask: The question.
            affinity: Who answers it, if it is not under way.
            seconds: Its deadline then.

        Raises:
            EngineError: See `Engine.decide`.
        """
        key = hashlib.sha256(encode_ask(ask)).digest()
        while (shared := self._shared.get(key)) is not None:
            await shared.wait()
            if shared.reply is not None or shared.error is not None:
                break  # else who asked was on the way out when this one came
        else:
            shared = self._shared[key] = _Shared()
            request = DecisionRequest(
                id=uuid.uuid4().hex,
                attempt=1,
                source=self._source,
                affinity=affinity,
                remaining_s=seconds,
                ask=ask,
            )
            try:
                await _ask(engine, request, shared)
            finally:
                del self._shared[key]
                shared.done.set()
        if shared.error is not None:
            raise shared.error
        assert shared.reply is not None
        return shared.reply

    def fail_all(self, error: EngineError) -> None:
        """End all that is under way."""
        for shared in self._shared.values():
            shared.error = error
            shared.scope.cancel()


async def _ask(engine: Engine, request: DecisionRequest, shared: _Shared) -> None:
    """Have it answered by the task of who asked first: a task of its own would come later."""
    try:
        with shared.scope:
            shared.reply = await engine.decide(request)
    except EngineError as error:
        shared.error = error
    except Exception:
        log.exception("a decision broke", extra={"decision": request.id})
        shared.error = EngineFailed("the server failed; its log says why")
