"""Keeps what clients asked and were answered in a log: one match for each session of a client.

A turn is one request: what the state's text is now, the questions, and what came of them, appended
together before the reply is sent. Until then the client holds its request, as it always does over
HTTP. So requests of one session may overtake one another, and none waits for another's answer.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.to_thread

from engine.contract import Ask, DecisionReply
from engine.errors import DecisionExpired, EngineError
from engine.models import Model
from games.systemone import Told
from runtime.http.systemone import Asked
from runtime.http.turns import answered, match_of, questions_of, started, turn
from runtime.requests import answers_of, decision_id
from store.errors import StoreError, VersionConflict
from store.events import DecisionFailed, Event
from store.log import EventLog

log = logging.getLogger(__name__)

_REMEMBERED: Final = 1_000  # sessions
_KEPT: Final = 16 << 20  # characters of their texts; what is forgotten is written whole again
_LONG: Final = 20_000  # characters; hashing and comparing them would hold up others
_CLOSE_S: Final = 5.0

Outcome = Callable[[str], Event]
"""Makes the event that closes a decision, of the decision's id."""


class _Session:
    """A session's match; what this process has not written itself it does not know."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.version: int | None = None
        self.told = Told()


class Sessions:
    """Writes a log; the only one that does.

    Args:
        log: The log, which is closed with this.
        model: Whose answers are kept.
        deadline_s: Of each decision.
    """

    def __init__(self, log: EventLog, model: Model, *, deadline_s: float) -> None:
        self._log = log
        self._model = model
        self._deadline_s = deadline_s
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._characters = 0
        self._under_way = 0
        self._idle = anyio.Event()

    async def keep(
        self,
        asked: Asked,
        *,
        caller: str,
        decide: Callable[[], Awaitable[DecisionReply]],
    ) -> DecisionReply:
        """Have a decision made, and give it when it is in the log.

        A failure is kept too, and so is that the client went away.

        Args:
            asked: What is asked.
            caller: The name of the client's key.
            decide: Makes the decision.

        Raises:
            EngineError: As `decide`.
            StoreError: The answer cannot be kept.
        """
        began, ask, session = time.perf_counter(), asked.ask, asked.session
        match = match_of(caller, session or asked.start)
        self._under_way += 1
        try:
            reply = await decide()
            answers = answers_of(questions_of(ask)[0], reply)
        except EngineError as error:
            await self._keep_failure(match, session, ask, error.code, str(error))
            raise
        except anyio.get_cancelled_exc_class():
            gone = "the client went away"
            await self._keep_failure(match, session, ask, DecisionExpired.code, gone)
            raise
        else:
            ms = (time.perf_counter() - began) * 1000
            outcome: Outcome = lambda decision: answered(decision, reply, answers, total_ms=ms)  # noqa: E731
            await self._append(match, session, ask, outcome)
            return reply
        finally:
            self._under_way -= 1
            idle, self._idle = self._idle, anyio.Event()
            idle.set()

    async def close(self) -> None:
        """Wait for what is being written, and close the log."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSE_S):
                while self._under_way:
                    await self._idle.wait()
            await self._log.close()

    async def _keep_failure(self, match: str, session: str, ask: Ask, code: str, why: str) -> None:
        outcome: Outcome = lambda decision: DecisionFailed(  # noqa: E731
            decision=decision, code=code, message=why
        )
        try:
            await self._append(match, session, ask, outcome)
        except StoreError as error:  # the client hears of its own failure
            log.warning("a failed decision is not in the log", extra={"why": str(error)})

    async def _append(self, match: str, name: str, ask: Ask, outcome: Outcome) -> None:
        """Append one request's events, all or none, whether or not the caller waits."""
        with anyio.CancelScope(shield=True):
            session = self._sessions.setdefault(match, _Session())
            self._sessions.move_to_end(match)
            async with session.lock:
                before = len(session.told.text)
                try:
                    await self._append_to(session, match, name, ask, outcome)
                except BaseException:
                    session.version, session.told = None, Told()
                    raise
                finally:
                    self._characters += len(session.told.text) - before
            self._forget()

    async def _append_to(
        self, session: _Session, match: str, name: str, ask: Ask, outcome: Outcome
    ) -> None:
        version, told = session.version, session.told
        if version is None:
            first = started(name, self._model, deadline_s=self._deadline_s)
            try:
                told, events = await self._turn(Told(), match, 1, ask, outcome)
                session.version = await self._log.append(match, [first, *events], expected=0)
                session.told = told
                return
            except VersionConflict as known:  # an earlier process, or one that was forgotten
                version, told = known.actual, Told()
        told, events = await self._turn(told, match, version, ask, outcome)
        session.version = await self._log.append(match, events, expected=version)
        session.told = told

    async def _turn(
        self, told: Told, match: str, version: int, ask: Ask, outcome: Outcome
    ) -> tuple[Told, list[Event]]:
        def make() -> tuple[Told, list[Event]]:
            return turn(
                told,
                ask,
                match=match,
                version=version,
                model=self._model,
                deadline_s=self._deadline_s,
            )

        told, events = await anyio.to_thread.run_sync(make) if len(ask.state) > _LONG else make()
        return told, [*events, outcome(decision_id(match, version + 1))]

    def _forget(self) -> None:
        """Keep what is remembered small."""
        while len(self._sessions) > _REMEMBERED or self._characters > _KEPT:
            match = next((m for m, each in self._sessions.items() if not each.lock.locked()), None)
            if match is None:
                return
            self._characters -= len(self._sessions.pop(match).told.text)
