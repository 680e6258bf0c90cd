"""vLLM's engine with a door: what would end the process for all is refused for the one who asks.

Whoever asks, be it this package or vLLM's own server on the same engine, comes through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from vllm.exceptions import VLLMClientError, VLLMValidationError
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.output_processor import RequestOutputCollector

from engine.errors import BadRequest, EngineFailed
from engine.llm.plan import ReadPlan
from engine.llm.settings import KEY


class GuardedLLM(AsyncLLM):
    """Lets decisions have the adapter, and everything else the base weights.

    Attributes:
        adapter: The only one that there is; None if there is none.
    """

    adapter: LoRARequest | None = None

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Take no adapter but the one; raises VLLMValidationError."""
        self._refuse_other_adapter(lora_request)
        return await super().add_lora(lora_request)

    @asynccontextmanager
    async def asked(
        self,
        request_id: str,
        input_ids: Sequence[int],
        params: SamplingParams,
        *,
        salt: str,
        adapter: LoRARequest | None = None,
        priority: int = 0,
    ) -> AsyncIterator[RequestOutputCollector]:
        """Have a prompt read for the length of the block; leaving it by an exception takes it back.

        Raises:
            BadRequest: vLLM refuses it.
            EngineFailed: The engine process is gone.
        """
        prompt = tokens_input(list(input_ids), cache_salt=salt or None)
        try:
            queue = None
            # a cancellation in here would leave a request behind that nobody can name
            with anyio.CancelScope(shield=True):
                queue = await self.add_request(
                    request_id, prompt, params, lora_request=adapter, priority=priority
                )
            assert queue is not None
            try:
                yield queue
            except EngineDeadError:
                raise
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self.abort(queue.request_id, internal=True)
                raise
            finally:
                queue.close()
        except VLLMClientError as error:
            raise BadRequest(str(error)) from error
        except EngineDeadError as error:
            raise EngineFailed("the engine process is gone; start the worker again") from error

    async def _add_request(self, request: EngineCoreRequest, *args: Any, **kwargs: Any) -> None:
        """Hand a request to the engine process, unless it must not get there.

        Raises:
            VLLMValidationError: vLLM's own class for what is the caller's fault.
        """
        self._refuse_unknown_tokens(request)
        _refuse_huge_numbers(request)
        extra = (request.sampling_params and request.sampling_params.extra_args) or {}
        if not isinstance(extra.get(KEY), ReadPlan):
            make_chat(request, extra)
        self._refuse_other_adapter(request.lora_request)
        await super()._add_request(request, *args, **kwargs)

    def _refuse_other_adapter(self, asked: LoRARequest | None) -> None:
        """See that nobody brings an adapter: its products have room for one, in its own place."""
        if asked is None or asked == self.adapter:
            return
        ours = f"{self.adapter.lora_name} alone" if self.adapter else "none"
        raise VLLMValidationError(
            f"the adapter {asked.lora_name} is unknown: this worker has {ours}; "
            "start another worker for another bundle"
        )

    def _refuse_unknown_tokens(self, request: EngineCoreRequest) -> None:
        """See that the model has a row for every token.

        vLLM compares with its tokenizer, and not at all where it has none: the ids come from here.
        """
        size = self.model_config.get_vocab_size()
        sampling = request.sampling_params
        for where, ids in {
            "the prompt": request.prompt_token_ids,
            "allowed_token_ids": sampling and sampling.allowed_token_ids,
            "stop_token_ids": sampling and sampling.stop_token_ids,
        }.items():
            for token in (min(ids), max(ids)) if ids else ():
                if not 0 <= token < size:
                    raise VLLMValidationError(
                        f"token {token} in {where} is none of the model's {size}; "
                        "use the model's own tokenizer"
                    )


def _refuse_huge_numbers(request: EngineCoreRequest) -> None:
    """See that every whole number can be sent: vLLM keeps for ever what it then cannot send."""
    sampling = request.sampling_params
    for name in type(sampling).__struct_fields__ if sampling else ():
        value = getattr(sampling, name)
        if type(value) is int and value.bit_length() > 63:
            raise VLLMValidationError(f"{name} has {value.bit_length()} bits; at most 63 are taken")


def make_chat(request: EngineCoreRequest, extra: dict[str, Any]) -> None:
    """Keep a request that is no decision on the base weights and off the decisions' cache."""
    if request.lora_request is not None:
        raise VLLMValidationError(
            f"the adapter {request.lora_request.lora_name} answers decisions only; "
            "chat runs on the base weights: name no adapter"
        )
    if KEY in extra:
        raise VLLMValidationError(
            f"the argument {KEY!r} belongs to decisions; ask those over the queue"
        )
    if request.cache_salt:
        # vLLM hashes an adapter's name and a salt alike, so a salt could pass for the name
        request.cache_salt = f"chat {request.cache_salt}"
