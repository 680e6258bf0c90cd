"""The backend that answers with vLLM: one engine process, with the head beside the model in it."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
import torch

from engine.bundle import Bundle
from engine.contract import (
    DecisionReply,
    DecisionRequest,
    Field,
    FieldAnswer,
    Prime,
    Primed,
)
from engine.errors import BadBundle, EngineError, EngineFailed, RecordTooLong
from engine.fleet import Statistics
from engine.llm.chat import ChatRequest, ChatTokens, chat
from engine.llm.check import require_vllm
from engine.llm.launch import (
    UNIT,
    adapter_request,
    fingerprint,
    launch,
    prepare_environment,
)
from engine.llm.plan import Outcome, ReadPlan, plan_of, prime_plan
from engine.llm.primes import Primes
from engine.llm.settings import KEY
from engine.selftest import FIXED, check_answer
from engine.settings import WorkerSettings
from engine.tokens import PREFIX, Encoder, Record

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

    from engine.llm.guarded import GuardedLLM


class VllmBackend:
    """Answers decisions with a bundle; make one with `start`.

    Attributes:
        engine: vLLM's engine, for its own server too: what is no decision runs on base weights.
        adapter: The bundle's adapter as a vLLM request names it; None for a bundle without.
        window: Longest record, in tokens.
        fingerprint: vLLM, number formats, base, adapter, head and tokenizer.
        dead: The engine process is gone; every later decision fails.
    """

    def __init__(
        self,
        engine: GuardedLLM,
        *,
        encoder: Encoder,
        adapter: LoRARequest | None,
        window: int,
        fingerprint: str,
    ) -> None:
        self.engine = engine
        self.adapter = adapter
        self.window = window
        self.fingerprint = fingerprint
        self.dead = False
        self._encoder = encoder
        self._state_start = len(encoder.ids(PREFIX))
        self._primes = Primes()

    @classmethod
    async def start(
        cls,
        bundle: Bundle,
        settings: WorkerSettings | None = None,
        *,
        debug: bool = False,
        **changes: Any,
    ) -> VllmBackend:
        """Load the bundle in an engine process and ask it a fixed question.

        Changes this process's environment, see `launch.prepare_environment`.

        Args:
            bundle: Base, head, tokenizer and perhaps an adapter.
            settings: How to load it; None takes the defaults.
            debug: Let vLLM log what it does.
            **changes: Settings that are to be others.

        Raises:
            EngineMissing: vLLM is absent or not the tested one.
            EngineFailed: vLLM did not start, or its first answer is not finite.
            BadBundle: The adapter changes nothing, vLLM does not take all of it, or the answer is
                not the one that the bundle records.
            BadSetting: vLLM, this machine or the model cannot do what is set.
            DoesNotFit: This machine's memory does not hold it.
        """
        settings = msgspec.structs.replace(settings or WorkerSettings(), **changes)
        prepare_environment(debug=debug)
        await anyio.to_thread.run_sync(require_vllm, abandon_on_cancel=True)
        start = partial(launch, bundle, settings)
        backend = cls(
            await anyio.to_thread.run_sync(start, abandon_on_cancel=True),
            encoder=Encoder(bundle.tokenizer),
            adapter=adapter_request(bundle),
            window=settings.record_limit(bundle.window),
            fingerprint=fingerprint(bundle, settings),
        )
        try:
            await backend._test(bundle, settings)
        except BaseException:
            await backend.close()
            raise
        return backend

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Answer every field of the request; cancelling it takes its records off the engine.

        Raises:
            BadRequest: The encoder refuses a record; RecordTooLong if the window does.
            EngineFailed: A logit is not finite, or the engine process is gone.
        """
        started = time.monotonic()
        deadline = started + request.remaining_s
        ask = request.ask
        encode = partial(self._encoder.encode, ask, window=self.window)
        records = await anyio.to_thread.run_sync(encode)
        self._primes.overtake(request.affinity, max(record.state_end for record in records))
        outcomes = await self._read_all(
            request.id, records, self.adapter, salt=ask.salt, deadline=deadline
        )
        fields = [ask.fields] if ask.form == "joint" else [(field,) for field in ask.fields]
        tokens = sum(len(record.input_ids) for record in records)
        reused = sum(outcome.reused for outcome in outcomes)
        return DecisionReply(
            id=request.id,
            attempt=request.attempt,
            answers=tuple(
                answer
                for args in zip(fields, records, outcomes, strict=True)
                for answer in _answers(*args, explain=request.explain)
            ),
            tokens=tokens,
            tokens_read=tokens - reused,
            tokens_reused=reused,
            steps=1
            + max(outcome.last_step for outcome in outcomes)
            - min(outcome.first_step for outcome in outcomes),
            missed="; ".join(dict.fromkeys(o.missed for o in outcomes if o.missed)),
            truncated=max(record.truncated for record in records),
            engine_ms=(time.monotonic() - started) * 1e3,
            fingerprint=self.fingerprint,
            input_ids=(
                tuple(records[0].input_ids) if request.explain and ask.form == "joint" else None
            ),
        )

    async def prime(self, prime: Prime) -> Primed:
        """Read a state for the questions to come; of a known one nothing is read.

        A newer prime of the same affinity ends it, and so does a decision on a longer state.

        Raises:
            BadRequest: The text holds a lone surrogate; RecordTooLong if no question would fit.
            EngineFailed: The engine process is gone.
        """
        encode = partial(self._encoder.encode_state, prime.state, prime.public_end)
        ids, public_end = await anyio.to_thread.run_sync(encode)
        length, tokens = len(ids), len(ids) // UNIT * UNIT
        if length >= self.window:
            raise RecordTooLong(
                f"the state has {length} tokens, the window is {self.window}: no question fits"
            )
        if not tokens:
            return Primed(tokens=0)
        plan = prime_plan(public_end, tokens)
        with self._primes.begin(prime.affinity, length):
            outcome = await self._ask("prime", ids[:tokens], plan, self.adapter, prime.salt)
            read = tokens - outcome.reused if outcome.steps else 0
            return Primed(tokens=tokens, tokens_read=read, steps=outcome.steps)
        return Primed(tokens=tokens, overtaken=True)

    async def chat(self, request: ChatRequest) -> AsyncGenerator[ChatTokens, None]:
        """Generate on the base weights; closing the generator, or cancelling, frees everything.

        Raises:
            BadRequest: A token is unknown, a number out of range, or the prompt too long.
            EngineFailed: The engine process is gone.
        """
        async with aclosing(chat(self.engine, request)) as tokens:
            async for some in tokens:
                yield some

    @property
    def statistics(self) -> Statistics:
        """See `Backend.statistics`."""
        counted: Any = self.engine.logger_manager
        [found] = counted.stat_loggers
        return Statistics(cache_used=found.cache_used, chat_tokens=found.chat_tokens)

    async def close(self) -> None:
        """End the engine process and wait for it."""
        if self.engine.output_handler is not None:
            self.engine.output_handler.cancel()  # it would log the end as a failure
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.engine.shutdown)
            self.engine.engine_core.resources.ctx.term()  # vLLM closes its sockets only

    async def _test(self, bundle: Bundle, settings: WorkerSettings) -> None:
        """Answer a fixed question with the adapter and, if there is one, without it."""
        [record] = self._encoder.encode(FIXED, window=self.window)
        [adapted] = await self._read_all("start.adapted", [record], self.adapter)
        handler = self.engine.output_handler
        assert handler is not None
        handler.add_done_callback(self._died)  # it ends when the engine does
        if self.adapter is not None:
            lost = await self.engine.collective_rpc("unapplied", args=(self.adapter.lora_path,))
            if absent := sorted({name for names in lost for name in names}):
                raise BadBundle(
                    f"vLLM applies the adapter without {len(absent)} of its tensors, first "
                    f"{absent[0]}; make the bundle again"
                )
            [plain] = await self._read_all("start.plain", [record], None)
            if adapted.logits == plain.logits:
                raise BadBundle(
                    "the adapter changes nothing: its tensors are zero or named for another model; "
                    "make the bundle again from the tuned weights"
                )
        check_answer(adapted.logits, bundle.manifest.answer, settings)

    def _died(self, _: object) -> None:
        self.dead = True

    async def _read_all(
        self,
        decision_id: str,
        records: Sequence[Record],
        adapter: LoRARequest | None,
        *,
        salt: str = "",
        deadline: float = 0.0,
    ) -> list[Outcome]:
        """Read the records side by side; the first failure ends the others."""
        outcomes: dict[int, Outcome] = {}

        async def read(index: int) -> None:
            outcomes[index] = await self._read(
                f"{decision_id}.{index}",
                records[index],
                adapter,
                salt,
                siblings=len(records) - 1,
                deadline=deadline,
            )

        try:
            async with anyio.create_task_group() as group:
                for index in range(len(records)):
                    group.start_soon(read, index)
        except ExceptionGroup as failures:
            expected, others = failures.split(EngineError)
            if expected is None or others is not None:
                raise
            raise expected.exceptions[0] from None
        return [outcomes[index] for index in range(len(records))]

    async def _read(
        self,
        request_id: str,
        record: Record,
        adapter: LoRARequest | None,
        salt: str,
        *,
        siblings: int,
        deadline: float,
    ) -> Outcome:
        plan = plan_of(record, state_start=self._state_start, siblings=siblings, salt=salt)
        # to the millisecond of the clock that all processes of a machine share
        outcome = await self._ask(
            request_id, record.input_ids, plan, adapter, salt, priority=round(deadline * 1000)
        )
        if not outcome.logits:
            raise EngineFailed("the engine ended the record without an answer; ask again")
        if not all(map(math.isfinite, outcome.logits)):
            raise EngineFailed("the model's answer is not finite; other decisions go on")
        return outcome

    async def _ask(
        self,
        request_id: str,
        input_ids: Sequence[int],
        plan: ReadPlan,
        adapter: LoRARequest | None,
        salt: str,
        *,
        priority: int = 0,
    ) -> Outcome:
        from vllm.outputs import RequestOutput
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        from engine.llm.statistics import DECISION

        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            # it stays what it is until it is sent: nothing that came over HTTP can look like it
            extra_args={KEY: plan},
            # made for this request alone: a deep copy of them would take a millisecond
            skip_clone=True,
        )
        async with self.engine.asked(
            DECISION + request_id,
            input_ids,
            params,
            salt=salt,
            adapter=adapter,
            priority=priority,
        ) as outputs:
            output = await outputs.get()
        assert isinstance(output, RequestOutput)
        found = (output.kv_transfer_params or {}).get(KEY)
        if found is None:
            raise EngineFailed("the engine ended the record without an answer; ask again")
        outcome = msgspec.convert(found, Outcome)
        return msgspec.structs.replace(outcome, reused=output.num_cached_tokens or 0)


def _answers(
    fields: Sequence[Field], record: Record, outcome: Outcome, *, explain: bool
) -> Iterator[FieldAnswer]:
    """Give each field of a record its share of the logits."""
    start = 0
    for field, place in zip(fields, record.fields, strict=True):
        logits = outcome.logits[start : start + len(place.option_spans)]
        start += len(logits)
        answer = FieldAnswer(
            id=field.id,
            option_ids=field.option_ids,
            probabilities=tuple(torch.tensor(logits, dtype=torch.float32).softmax(0).tolist()),
        )
        if explain:
            answer = msgspec.structs.replace(
                answer,
                logits=tuple(logits),
                question_span=place.question_span,
                option_spans=tuple(place.option_spans),
            )
        yield answer
