"""Decisions in flight, each asked once however many wait for it.

Clients have no idempotency key: a retry is the same request again, while the first may still be
under way. Identical asks share one decision; it is given up when the last one who waits goes away.
"""

from __future__ import annotations

import hashlib
import logging
import uuid

import anyio
from anyio.abc import TaskGroup

from engine.client import Engine
from engine.contract import Ask, DecisionReply, DecisionRequest, encode_ask
from engine.errors import EngineError, EngineFailed

log = logging.getLogger(__name__)


class _Shared:
    """One decision and those who wait for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()
        self.reply: DecisionReply | None = None
        self.error: EngineError | None = None


class Sharing:
    """Asks an engine.

    Args:
        group: Runs the decisions, which may outlive those who asked first.
        source: Names this gateway to the queue.
    """

    def __init__(self, group: TaskGroup, source: str) -> None:
        self._group = group
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
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared()
            request = DecisionRequest(
                id=uuid.uuid4().hex,
                attempt=1,
                source=self._source,
                affinity=affinity,
                remaining_s=seconds,
                ask=ask,
            )
            self._group.start_soon(self._run, engine, request, key, shared)
        shared.waiting += 1
        try:
            await shared.done.wait()
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.done.is_set():
                self._forget(key, shared)  # whoever asks the same from now on asks anew
                shared.scope.cancel()
        if shared.error is not None:
            raise shared.error
        assert shared.reply is not None
        return shared.reply

    def fail_all(self, error: EngineError) -> None:
        """End all that is under way."""
        for shared in list(self._shared.values()):
            shared.error = error
            shared.scope.cancel()

    async def _run(
        self, engine: Engine, request: DecisionRequest, key: bytes, shared: _Shared
    ) -> None:
        try:
            with shared.scope:
                shared.reply = await engine.decide(request)
        except EngineError as error:
            shared.error = error
        except Exception:
            log.exception("a decision broke", extra={"decision": request.id})
            shared.error = EngineFailed("the server failed; its log says why")
        finally:
            if shared.reply is None and shared.error is None:
                shared.error = EngineFailed("the server is ending; ask again")
            self._forget(key, shared)
            shared.done.set()

    def _forget(self, key: bytes, shared: _Shared) -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]
