"""The backend that answers with vLLM: one engine process, with the head beside the model in it."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
import torch

from engine.bundle import Bundle
from engine.contract import Ask, DecisionReply, DecisionRequest, Field, FieldAnswer
from engine.errors import BadBundle, EngineError, EngineFailed
from engine.llm.chat import ChatRequest, ChatTokens, chat
from engine.llm.check import require_vllm
from engine.llm.launch import (
    Dtype,
    Features,
    adapter_request,
    fingerprint,
    launch,
    prepare_environment,
)
from engine.llm.plan import Outcome, plan_of
from engine.llm.settings import KEY
from engine.tokens import PREFIX, Encoder, Record

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

    from engine.llm.guarded import GuardedLLM

_TEST = Ask(
    state="Three doors: red, green, blue. The key lies before the green one.",
    fields=(
        Field(
            id="q",
            type="choice",
            instruction="Which door opens?",
            option_ids=("blue", "green", "red"),
            option_texts=(
                '{"option_id":"blue"}',
                '{"option_id":"green"}',
                '{"option_id":"red"}',
            ),
        ),
    ),
)


class VllmBackend:
    """Answers decisions with a bundle; make one with `start`.

    Attributes:
        engine: vLLM's engine, for its own server too: what is no decision runs on base weights.
        adapter: The bundle's adapter as a vLLM request names it; None for a bundle without.
        window: Longest record, in tokens.
        fingerprint: vLLM, number format, base, adapter, head and tokenizer.
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

    @classmethod
    async def start(
        cls,
        bundle: Bundle,
        *,
        dtype: Dtype = "bfloat16",
        features: Features | None = None,
        window: int,
        kv_cache_memory: int | None = None,
        max_seqs: int = 16,
        max_batched_tokens: int = 2048,
        chat_share: float = 0.25,
        debug: bool = False,
    ) -> VllmBackend:
        """Load the bundle in an engine process and ask it a fixed question.

        Changes this process's environment, see `launch.prepare_environment`.

        Args:
            bundle: Base, head, tokenizer and perhaps an adapter.
            dtype: Number format of the model; the head is computed in float32 always.
            features: How head features are kept; None: in float32 for a model in float32, else in
                float16, which rounds ten times less than bfloat16 in the same room.
            window: Longest record in tokens; at most the model's own limit.
            kv_cache_memory: Bytes for the cache; None: 256 MiB on a CPU, on a GPU what is free.
            max_seqs: Sequences in one engine step.
            max_batched_tokens: Tokens in one engine step; longer records are read in chunks.
            chat_share: Chat's part of a step's tokens where decisions want all of them too, and of
                its sequences.
            debug: Let vLLM log what it does.

        Raises:
            EngineMissing: vLLM is absent or not the tested one.
            EngineFailed: vLLM did not start, or its first answer is not finite.
            BadBundle: The adapter changes nothing, or vLLM cannot take it.
        """
        prepare_environment(debug=debug)
        await anyio.to_thread.run_sync(require_vllm, abandon_on_cancel=True)
        window = min(window, bundle.window)
        features = features or ("float32" if dtype == "float32" else "float16")
        start = partial(
            launch,
            bundle,
            dtype=dtype,
            features=features,
            window=window,
            kv_cache_memory=kv_cache_memory,
            max_seqs=max_seqs,
            max_batched_tokens=max_batched_tokens,
            chat_share=chat_share,
        )
        backend = cls(
            await anyio.to_thread.run_sync(start, abandon_on_cancel=True),
            encoder=Encoder(bundle.tokenizer),
            adapter=adapter_request(bundle),
            window=window,
            fingerprint=fingerprint(bundle, dtype, features),
        )
        try:
            await backend._test()
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
        ask = request.ask
        encode = partial(self._encoder.encode, ask, window=self.window)
        records = await anyio.to_thread.run_sync(encode)
        outcomes = await self._read_all(request.id, records, self.adapter, salt=ask.salt)
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

    async def chat(self, request: ChatRequest) -> AsyncGenerator[ChatTokens, None]:
        """Generate on the base weights; closing the generator, or cancelling, frees everything.

        Raises:
            BadRequest: A token is unknown, a number out of range, or the prompt too long.
            EngineFailed: The engine process is gone.
        """
        async with aclosing(chat(self.engine, request)) as tokens:
            async for some in tokens:
                yield some

    async def close(self) -> None:
        """End the engine process and wait for it."""
        if self.engine.output_handler is not None:
            self.engine.output_handler.cancel()  # it would log the end as a failure
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.engine.shutdown)
            self.engine.engine_core.resources.ctx.term()  # vLLM closes its sockets only

    async def _test(self) -> None:
        """Answer a fixed question with the adapter and, if there is one, without it."""
        [record] = self._encoder.encode(_TEST, window=self.window)
        [adapted] = await self._read_all("start.adapted", [record], self.adapter)
        handler = self.engine.output_handler
        assert handler is not None
        handler.add_done_callback(self._died)  # it ends when the engine does
        if self.adapter is None:
            return
        [plain] = await self._read_all("start.plain", [record], None)
        if adapted.logits == plain.logits:
            raise BadBundle(
                "the adapter changes nothing: its tensors are zero or named for another model; "
                "make the bundle again from the tuned weights"
            )

    def _died(self, _: object) -> None:
        self.dead = True

    async def _read_all(
        self,
        decision_id: str,
        records: Sequence[Record],
        adapter: LoRARequest | None,
        *,
        salt: str = "",
    ) -> list[Outcome]:
        """Read the records side by side; the first failure ends the others."""
        outcomes: dict[int, Outcome] = {}

        async def read(index: int) -> None:
            outcomes[index] = await self._read(
                f"{decision_id}.{index}",
                records[index],
                adapter,
                salt,
                siblings=len(records) > 1,
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
        siblings: bool,
    ) -> Outcome:
        from vllm.outputs import RequestOutput
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=plan_of(record, state_start=self._state_start, siblings=siblings),
        )
        async with self.engine.asked(
            request_id, record.input_ids, params, salt=salt, adapter=adapter
        ) as outputs:
            output = await outputs.get()
        assert isinstance(output, RequestOutput)
        found = (output.kv_transfer_params or {}).get(KEY)
        if found is None:
            raise EngineFailed("the engine ended the record without an answer; ask again")
        outcome = msgspec.convert(found, Outcome)
        if not all(map(math.isfinite, outcome.logits)):
            raise EngineFailed("the model's answer is not finite; other decisions go on")
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
