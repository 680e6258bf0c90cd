"""An engine of a benchmark: started on a bundle, asked and timed through the worker's own path."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from engine.bundle import Bundle
from engine.contract import Ask, DecisionReply, DecisionRequest, Field
from engine.llm.backend import VllmBackend
from engine.llm.launch import prepare_environment

_WORDS = (" a", " b", " c", " d", " e")  # one token each, as are the letters alone
_LINE = 32
_OPTIONS = ("one", "two")


class Rows:
    """Writes what was measured, a JSON line each, as it comes."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8") if path else None

    def write(self, case: str, **values: Any) -> None:
        """Write one row."""
        line = json.dumps({"case": case} | values)
        print(line, flush=True)
        if self._file is not None:
            print(line, file=self._file, flush=True)

    def times(self, case: str, milliseconds: list[float], **values: Any) -> None:
        """Write the median and the spread of some times."""
        low, *_, high = (
            statistics.quantiles(milliseconds, n=10)
            if len(milliseconds) > 1
            else (milliseconds * 9)
        )
        self.write(
            case,
            median_ms=round(statistics.median(milliseconds), 2),
            p10=round(low, 2),
            p90=round(high, 2),
            n=len(milliseconds),
            **values,
        )


async def start(bundle: Bundle, arguments: Mapping[str, Any], **settings: Any) -> VllmBackend:
    """Start an engine, with some of vLLM's own arguments beside the worker's.

    Args:
        bundle: The model.
        arguments: Of vLLM, over those of the worker.
        settings: Of `VllmBackend.start`.
    """
    prepare_environment(debug=False)
    from vllm.engine import arg_utils

    stock = arg_utils.AsyncEngineArgs

    def with_ours(**own: Any) -> Any:
        return stock(**(own | dict(arguments)))

    arg_utils.AsyncEngineArgs = with_ours  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return await VllmBackend.start(bundle, **settings)
    finally:
        arg_utils.AsyncEngineArgs = stock  # pyright: ignore[reportAttributeAccessIssue]


class Asker:
    """Asks one engine questions of known length."""

    def __init__(self, backend: VllmBackend) -> None:
        self.backend = backend
        self._asked = 0
        self._encoder: Any = backend._encoder
        self.start: int = backend._state_start
        self._shortest = self._tail("")

    def state(self, tokens: int, seed: int) -> str:
        """Make a state that ends at this token of the record, in lines."""
        pick = random.Random(seed)
        count = tokens - self.start
        words = []
        for place in range(count):
            word = "\n" if place % _LINE == _LINE - 1 else pick.choice(_WORDS)
            # a line that begins with a letter, as games' texts do
            words.append(word.strip(" ") if place % _LINE == 0 else word)
        text = "".join(words)
        assert len(self._encoder.ids(text)) == count, "a word is not one token here"
        return text

    def question(self, tokens: int) -> Field:
        """Make a question that nobody asked before, with this many tokens behind the state."""
        self._asked += 1
        pick = random.Random(self._asked)
        count = tokens - self._shortest
        if count < 1:
            raise ValueError(f"a question has {self._shortest + 1} tokens at least")
        return self._field("".join(pick.choice(_WORDS) for _ in range(count)))

    async def ask(
        self, state: str, fields: tuple[Field, ...], **options: Any
    ) -> tuple[float, DecisionReply]:
        """Ask; give milliseconds and the reply."""
        self._asked += 1
        request = DecisionRequest(
            id=f"d{self._asked}",
            attempt=1,
            source="bench",
            affinity="bench",
            remaining_s=600.0,
            ask=Ask(state=state, public_end=len(state), fields=fields, **options),
            explain=True,
        )
        started = time.perf_counter()
        reply = await self.backend.decide(request)
        return (time.perf_counter() - started) * 1e3, reply

    async def question_on(self, state: str, tokens: int, **options: Any) -> Any:
        """Ask one new question."""
        return await self.ask(state, (self.question(tokens),), **options)

    async def questions_on(self, state: str, count: int, tokens: int, **options: Any) -> Any:
        """Ask several new questions at once."""
        fields = tuple(self.question(tokens) for _ in range(count))
        named = tuple(
            Field(
                id=f"q{index}",
                type=field.type,
                instruction=field.instruction,
                option_ids=field.option_ids,
                option_texts=field.option_texts,
            )
            for index, field in enumerate(fields)
        )
        return await self.ask(state, named, **options)

    async def in_worker(self, function: Callable[[Any], Any]) -> Any:
        """Run a function on the worker; needs VLLM_ALLOW_INSECURE_SERIALIZATION=1."""
        [result] = await self.backend.engine.collective_rpc(function)
        return result

    async def chat(self, prompt: list[int], tokens: int, stamps: list[float]) -> list[int]:
        """Let the base write so many tokens; note when each came."""
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        self._asked += 1
        params = SamplingParams(
            max_tokens=tokens,
            temperature=0.0,
            detokenize=False,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        found: list[int] = []
        stream = self.backend.engine.generate(tokens_input(prompt), params, f"c{self._asked}")
        async for output in stream:
            found += output.outputs[0].token_ids
            stamps += [time.perf_counter()] * len(output.outputs[0].token_ids)
        return found

    def _tail(self, instruction: str) -> int:
        ask = Ask(state="", fields=(self._field(instruction or " a"),))
        [record] = self._encoder.encode(ask, window=4096)
        return len(record.input_ids) - record.state_end - 1

    def _field(self, instruction: str) -> Field:
        return Field(
            id="q",
            type="choice",
            instruction=instruction,
            option_ids=_OPTIONS,
            option_texts=tuple(f'{{"option_id":"{name}"}}' for name in _OPTIONS),
        )


def logits(reply: DecisionReply) -> list[float]:
    """Give the logits of all questions of a reply."""
    return [logit for answer in reply.answers for logit in answer.logits or ()]


def distance(one: DecisionReply, other: DecisionReply) -> float:
    """Give how far two replies' logits are apart at most."""
    return max(abs(a - b) for a, b in zip(logits(one), logits(other), strict=True))


async def at_once(calls: list[Callable[[], Any]]) -> None:
    """Run calls side by side."""
    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(partial(call))
