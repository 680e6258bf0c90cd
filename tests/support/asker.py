"""An engine in float32 of the tests, and short ways to ask it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from engine.contract import Ask, DecisionReply, DecisionRequest, Field

UNIT = 16
BLOCK = 384
BAND = 1e-4
WORDS = (" a", " b", " the", " of", " and", " to", " in")  # one token each


class Asker:
    """An engine of the tests, and short ways to ask it."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.start: int = backend._state_start
        self.asked = 0

    async def ask(
        self,
        state: str,
        *,
        public: int | None = None,
        questions: Sequence[int] = (0,),
        salt: str = "",
        form: Any = "independent",
    ) -> DecisionReply:
        self.asked += 1
        ask = Ask(
            state=state,
            public_end=len(state) if public is None else public,
            fields=tuple(map(question, questions)),
            form=form,
            salt=salt,
        )
        return await self.backend.decide(
            DecisionRequest(
                id=f"d{self.asked}",
                attempt=1,
                source="test",
                affinity="test",
                remaining_s=60,
                ask=ask,
                explain=True,
            )
        )

    async def cold(self, state: str, **options: Any) -> DecisionReply:
        """Ask where nothing is kept."""
        self.asked += 1
        return await self.ask(state, salt=f"cold {self.asked}", **options)

    async def chat(self, name: str, text: str, tokens: int = 12) -> list[int]:
        """Generate on the base weights."""
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            max_tokens=tokens,
            temperature=0.0,
            detokenize=False,
            ignore_eos=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = tokens_input(list(self.backend._encoder.ids(text)))
        [final] = [output async for output in self.backend.engine.generate(prompt, params, name)]
        return list(final.outputs[0].token_ids)

    async def in_worker(self, function: Callable[[Any], Any]) -> Any:
        [result] = await self.backend.engine.collective_rpc(function)
        return result


def question(number: int) -> Field:
    ids = tuple(f"o{index}" for index in range(2 + number % 3))
    return Field(
        id=f"q{number}",
        type="choice",
        instruction="What now?" if number == 0 else f"And what of {number}?",
        option_ids=ids,
        option_texts=tuple(f'{{"option_id":"{id}"}}' for id in ids),
    )


def words(count: int, seed: int) -> str:
    """Make a text of so many tokens."""
    pick = random.Random(seed)
    return "".join(pick.choice(WORDS) for _ in range(count))


def logits(reply: DecisionReply) -> list[float]:
    return [logit for answer in reply.answers for logit in answer.logits or ()]


def distance(one: DecisionReply, other: DecisionReply) -> float:
    return max(abs(a - b) for a, b in zip(logits(one), logits(other), strict=True))


async def start(bundle: Any, **settings: Any) -> Asker:
    from engine.llm.backend import VllmBackend

    return Asker(await VllmBackend.start(bundle, dtype="float32", **settings))
