"""Chat on the base weights, beside the decisions, in the same batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Literal

import msgspec

from engine.errors import BadRequest, EngineFailed

if TYPE_CHECKING:
    from engine.llm.guarded import GuardedLLM


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to continue, and how.

    Attributes:
        id: Names the request in logs; others may have the same.
        input_ids: The prompt's tokens.
        max_tokens: The most that are generated; fewer if the window ends before.
        temperature: 0 takes the best token always.
        top_p: The share of the probability that tokens are drawn from.
        seed: The same seed draws the same tokens from the same probabilities.
        stop_ids: Tokens that end it, besides the model's own.
        ignore_end: Go on behind the model's own end.
        salt: Keeps the reuse of one tenant apart from another's.
    """

    id: str
    input_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop_ids: tuple[int, ...] = ()
    ignore_end: bool = False
    salt: str = ""


class ChatTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The next tokens of a chat.

    Attributes:
        ids: One or more; none only at the end.
        finished: "stop" at a token that ends it, "length" at the most; empty before.
    """

    ids: tuple[int, ...]
    finished: Literal["", "stop", "length"] = ""


async def chat(engine: GuardedLLM, request: ChatRequest) -> AsyncGenerator[ChatTokens, None]:
    """Generate token by token; see `VllmBackend.chat`."""
    from vllm.exceptions import VLLMClientError
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    if request.seed is not None and not -(2**63) <= request.seed < 2**63:
        raise BadRequest(f"seed {request.seed} does not fit 64 bits")
    try:
        params = SamplingParams(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop_token_ids=list(request.stop_ids),
            ignore_eos=request.ignore_end,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
    except (VLLMClientError, ValueError) as error:
        raise BadRequest(str(error)) from error
    async with engine.asked(request.id, request.input_ids, params, salt=request.salt) as outputs:
        finished = ""
        while not finished:
            output = await outputs.get()
            assert isinstance(output, RequestOutput)
            [part] = output.outputs
            finished = part.finish_reason or ""
            if finished not in ("", "stop", "length"):
                raise EngineFailed(f"the engine ended the chat ({finished}); ask again")
            yield ChatTokens(ids=tuple(part.token_ids), finished=finished)
