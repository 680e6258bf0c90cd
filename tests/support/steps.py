"""The scheduler without a model: steps are planned, and whatever was wanted of them is sampled."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from tests.support.bundles import ORACLE

UNIT, BLOCK = 16, 128


class Steps:
    """A scheduler, the requests in it, and what each step gave them.

    Attributes:
        ended: Number of the step that ended a request, by its name.
        came: Tokens that a chat has generated, by its name.
    """

    def __init__(
        self,
        *,
        tokens: int = 2048,
        seats: int = 8,
        blocks: int = 4000,
        chat_share: float = 0.25,
        speculative: dict[str, Any] | None = None,
    ) -> None:
        from engine.llm.launch import prepare_environment

        prepare_environment(debug=False)
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
            MambaSpec,
        )
        from vllm.v1.structured_output import StructuredOutputManager

        from engine.llm.scheduler import DecisionScheduler
        from engine.llm.settings import EngineSettings

        arguments = EngineArgs(
            model=str(ORACLE / "base"),
            skip_tokenizer_init=True,
            language_model_only=True,
            dtype="float32",
            max_model_len=32768,
            max_num_seqs=seats,
            max_num_batched_tokens=tokens,
            kv_cache_memory_bytes=1 << 30,
            prefix_match_unit=UNIT,
            enforce_eager=True,
            disable_log_stats=True,
            speculative_config=speculative,
        )
        settings = EngineSettings(head="", head_config={}, chat_share=chat_share)
        arguments.additional_config = settings  # pyright: ignore[reportAttributeAccessIssue]
        config = arguments.create_engine_config()
        config.cache_config.num_gpu_blocks = blocks
        attention = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32
        )
        linear = MambaSpec(
            block_size=BLOCK, shapes=((8,),), dtypes=(torch.float32,), mamba_cache_mode="align"
        )
        groups = [KVCacheGroupSpec(["l"], linear), KVCacheGroupSpec(["a"], attention)]
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(UNIT, sha256)
        self.scheduler = DecisionScheduler(
            config,
            KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
            StructuredOutputManager(config),
            block_size=BLOCK,
            hash_block_size=UNIT,
        )
        self.number = 0
        self.ended: dict[str, int] = {}
        self.came: dict[str, int] = {}

    def chat(self, name: str, ids: Sequence[int], tokens: int = 1000) -> None:
        """Let a chat come."""
        self._add(name, ids, tokens, None)

    def decision(
        self, name: str, state: Sequence[int], *, public: int | None = None, due: int = 0
    ) -> None:
        """Let a question of 40 tokens come on a state; every name asks another one."""
        from engine.llm.plan import ReadPlan
        from engine.tokens import RecordField

        end = len(state)
        question = [2000 + zlib.crc32(name.encode()) % 1000 + place for place in range(40)]
        fields = (RecordField(1, (end + 9, end + 12), ((end + 20, end + 22),)),)
        plan = ReadPlan(
            fields=fields,
            state_start=0,
            public_end=end if public is None else public,
            state_end=end,
        )
        self._add(name, [*state, *question], 1, plan, due)

    def prime(self, name: str, state: Sequence[int], *, public: int | None = None) -> None:
        """Let a state come that is to be read ahead."""
        from engine.llm.plan import prime_plan

        end = len(state) // UNIT * UNIT
        public = len(state) if public is None else public
        self._add(name, state[:end], 1, prime_plan(public, end))

    def _add(self, name: str, ids: Sequence[int], tokens: int, plan: Any, due: int = 0) -> None:
        import msgspec
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        from engine.llm.settings import KEY

        extra = None if plan is None else {KEY: msgspec.to_builtins(plan)}
        params = SamplingParams(max_tokens=tokens, ignore_eos=True, extra_args=extra)
        self.scheduler.add_request(
            Request(name, list(ids), params, None, priority=due, block_hasher=self._hasher)
        )

    def step(self) -> dict[str, int]:
        """Plan a step and have it read; give the tokens of each request."""
        from vllm.v1.outputs import ModelRunnerOutput

        from engine.llm.settings import KEY

        self.number += 1
        planned = self.scheduler.schedule()
        names = list(planned.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for name in names:
            request = self.scheduler.requests[name]
            whole = request.num_computed_tokens >= request.num_tokens
            sampled.append([7] if whole else [])
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        courses = self.scheduler._courses
        asked = [n for n, s in zip(names, sampled, strict=True) if s and n in courses]
        setattr(output, KEY, {name: [0.0] for name in asked if courses[name].plan.fields})
        outputs = self.scheduler.update_from_output(planned, output)
        for each in (each for client in outputs.values() for each in client.outputs):
            self.came[each.request_id] = self.came.get(each.request_id, 0) + len(each.new_token_ids)
            if each.finished:
                self.ended[each.request_id] = self.number
        return planned.num_scheduled_tokens

    def give_up(self, name: str) -> None:
        """Cancel a request."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
