"""Carries one match's questions to a model: durable first, then sent, then answered once."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import anyio
import anyio.to_thread
import msgspec

from engine.client import Engine, Stray
from engine.contract import DecisionReply, DecisionRequest
from engine.errors import DecisionExpired, EngineError, QueueFull, RecordTooLong, from_failure
from games.questions import Answer, Question
from runtime.agents.base import Turn
from runtime.errors import CannotPlay, ReplayDiffers
from runtime.fold import Asked
from runtime.journal import Journal
from runtime.primes import Primes
from runtime.requests import FORM, RECORD, Request, answers_of, decision_id, derive
from store.events import (
    AnswerDiscarded,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    Event,
)
from store.log import Recorded

log = logging.getLogger(__name__)

PAUSE_S = 0.05  # before a full queue is tried again; doubled each time, to one second
INLINE = 8_192  # characters of state that are measured without a thread of its own
GRACE_S = 5.0
"""The engine keeps a decision's deadline and knows why there is no answer; this long after it, an
engine that says nothing is given up."""


class Outbox:
    """The decisions of one match."""

    def __init__(
        self, journal: Journal, engines: Sequence[Engine | None], primes: Primes, *, source: str
    ) -> None:
        """Make it with what each seat asks."""
        self._journal = journal
        self._engines = engines
        self._primes = primes
        self._source = source
        self._asks = 0  # in this run of the agent
        self._strays: dict[str, Stray] = {}  # what one more answer to a decision is
        self._resumed_attempt = 1

    def resume(self, recorded: Sequence[Recorded]) -> None:
        """Learn what was asked in an earlier process."""
        self._strays |= strays_of(recorded)
        # How often that process published is not in the log, and the queue drops an attempt that
        # it has seen. The age of the match in milliseconds is above any earlier attempt.
        self._resumed_attempt = 2 + max(0, time.time_ns() // 1_000_000 - recorded[0].at_ms)

    def discard(self, decision: str, stray: Stray) -> None:
        """Record an answer that nobody waits for; it changes nothing.

        The log knows decisions of earlier processes, `stray` is what the engine makes of it.
        """
        reason = self._strays.get(decision, stray)
        self._journal.record(AnswerDiscarded(decision=decision, reason=reason))

    def rewind(self) -> None:
        """Expect the agent to ask from the start of its turn; what the log has is not sent."""
        self._asks = 0

    async def ask(
        self, turn: Turn, questions: Sequence[Question], chosen: tuple[str, ...], draw: float | None
    ) -> tuple[Answer, ...]:
        """Give the answers to one request of an agent, from the log if they are there.

        Raises:
            RecordTooLong: It does not fit the window; nothing was recorded.
            EngineError: It failed or expired; that is recorded.
            ReplayDiffers: The request that the log has is another one.
            CannotPlay: The agent already waits for an answer.
        """
        request = derive(turn.view, questions)
        earlier = self._journal.fold.asked[self._asks :][:1]
        self._asks += 1
        if not earlier:
            asked = await self._request(turn, questions, request, chosen, draw)
            return await self._send(asked, request, attempt=1)
        [known] = earlier
        self._check(known, request)
        if known.answer is not None:
            return known.answer.answers
        if known.failure is not None:
            raise from_failure(known.failure.code, known.failure.message)
        return await self._send(known.request, request, attempt=self._resumed_attempt)

    async def _request(
        self,
        turn: Turn,
        questions: Sequence[Question],
        request: Request,
        chosen: tuple[str, ...],
        draw: float | None,
    ) -> DecisionRequested:
        model = self._engine(turn.seat).model
        measure = model.measure
        if len(request.ask.state) < INLINE:
            tokens = measure(request.ask)
        else:  # a tokenizer takes milliseconds for a long state, and other matches go on
            tokens = await anyio.to_thread.run_sync(measure, request.ask)
        fold = self._journal.fold
        if fold.asked and fold.asked[-1].open:
            raise CannotPlay("an agent asks one thing at a time; put the questions into one call")
        window = fold.started.window
        if window is not None and tokens > window:
            raise RecordTooLong(f"the record has {tokens} tokens, the window {window}")
        asked = DecisionRequested(
            decision=decision_id(fold.match, fold.next_version),
            seat=turn.seat,
            part=len(chosen),
            questions=tuple(questions),
            form=FORM,
            record=RECORD,
            public_end=request.ask.public_end,
            length=request.length,
            sha256=request.sha256,
            deadline_s=fold.started.deadline_s,
            fallback=fold.started.fallback,
            bundle=model.hash,
            chosen=chosen,
            draw=draw,
        )
        self._record(asked)
        return asked

    def _check(self, known: Asked, request: Request) -> None:
        asked = known.request
        if asked.sha256 != request.sha256:
            raise ReplayDiffers(
                f"decision {asked.decision}: the log has request {asked.sha256[:12]}, this agent"
                f" now asks {request.sha256[:12]}; resume with the code that recorded the match"
            )
        model = self._engine(asked.seat).model
        if known.open and asked.bundle != model.hash:
            raise ReplayDiffers(
                f"decision {asked.decision} was put to model {asked.bundle}, this one is"
                f" {model.hash}; resume with the same --model"
            )

    async def _send(
        self, asked: DecisionRequested, request: Request, *, attempt: int
    ) -> tuple[Answer, ...]:
        message = DecisionRequest(
            id=asked.decision,
            attempt=attempt,
            source=self._source,
            affinity=self._journal.fold.match,
            remaining_s=asked.deadline_s,
            ask=request.ask,
        )
        await self._journal.save()
        await self._primes.send()
        start = time.perf_counter()
        try:
            reply = await self._decide(self._engine(asked.seat), message)
            answers = answers_of(asked.questions, reply)
        except EngineError as error:
            self._fail(asked, error.code, str(error))
            raise
        except anyio.get_cancelled_exc_class():
            # If it is the whole match that is stopped, this never gets into the log.
            self._fail(asked, DecisionExpired.code, "the agent waited no longer")
            raise
        self._record(
            DecisionAnswered(
                decision=asked.decision,
                attempt=reply.attempt,
                answers=answers,
                tokens_read=reply.tokens_read,
                tokens_reused=reply.tokens_reused,
                queue_ms=reply.queue_ms,
                engine_ms=reply.engine_ms,
                total_ms=(time.perf_counter() - start) * 1000,
                fingerprint=reply.fingerprint,
            )
        )
        return answers

    async def _decide(self, engine: Engine, message: DecisionRequest) -> DecisionReply:
        """Have it answered; while the queue is full the match waits, as long as its deadline."""
        deadline = time.monotonic() + message.remaining_s
        pause_s = PAUSE_S
        try:
            with anyio.fail_after(message.remaining_s + GRACE_S):
                while True:
                    try:
                        return await engine.decide(message)
                    except QueueFull:
                        left_s = deadline - time.monotonic() - pause_s
                        if left_s <= 0:
                            raise
                        log.info("the queue is full", extra={"decision": message.id})
                        await anyio.sleep(pause_s)
                        pause_s = min(2 * pause_s, 1.0)
                        message = msgspec.structs.replace(message, remaining_s=left_s)
        except TimeoutError as error:
            raise DecisionExpired(
                f"decision {message.id}: no answer in {message.remaining_s:g} s; see whether a"
                " worker runs, or allow more time"
            ) from error

    def _engine(self, seat: int) -> Engine:
        engine = self._engines[seat]
        if engine is None:
            raise CannotPlay(f"seat {seat} asks a model and has none; name one with --model")
        return engine

    def _fail(self, asked: DecisionRequested, code: str, message: str) -> None:
        self._record(DecisionFailed(decision=asked.decision, code=code, message=message))

    def _record(self, event: Event) -> None:
        self._journal.record(event)
        self._strays |= _stray_of(event)


def strays_of(recorded: Sequence[Recorded]) -> dict[str, Stray]:
    """Give what one more answer to each decision of a match is."""
    strays: dict[str, Stray] = {}
    for each in recorded:
        strays |= _stray_of(each.event)
    return strays


def _stray_of(event: Event) -> dict[str, Stray]:
    if isinstance(event, DecisionRequested | DecisionFailed):
        return {event.decision: "late"}
    return {event.decision: "duplicate"} if isinstance(event, DecisionAnswered) else {}
