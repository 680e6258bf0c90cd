"""Where in a request vLLM keeps what others can go on from.

Attention can be entered at any token whose keys and values are there, linear attention only where
its state was kept: where a step ended. vLLM therefore stops at every border of a block and at the
prompt's end, which nobody reuses. A record is stopped where others begin instead: at the last unit
of its public part, and of its state if more questions on it wait; a chat at the last unit of its
prompt, where its next turn begins, unless that is short.

The stops at borders exist because `MambaManager.cache_blocks` registers every block that a step
filled, whether or not the state in it is that of the block's end. `watch` lets it register a block
only if the step ended there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.core.single_type_kv_cache_manager import (
    FullAttentionManager,
    MambaManager,
    SingleTypeKVCacheManager,
)
from vllm.v1.request import Request

from engine.llm.plan import ReadPlan

_SHORT: Final = 8  # units of a chat's prompt that is read in one step


class Stops(NamedTuple):
    """The places in one request that others may go on from, in tokens, multiples of the unit.

    Attributes:
        public: The last unit of a record's public part; 0 if there is none.
        state: The last unit of its state, or of a chat's prompt; 0 if there is none.
    """

    public: int
    state: int

    def next_end(
        self,
        start: int,
        end: int,
        *,
        several: bool,
        block: int,
        last: bool,
        junction: int = 0,
        short: int = 0,
    ) -> int:
        """Give where a step on the request ends that could read from `start` to `end`.

        Args:
            start: First token.
            end: As far as the step's room reaches.
            several: More questions on the state wait.
            block: Tokens of a block.
            last: `end` is the end of the request.
            junction: Where others were seen to part from it; vLLM's finding, 0 for none.
            short: As many tokens are sooner read again by the next than in a step of their own.
        """
        if last and end - start <= short and not several:
            return end
        wanted = (self.public, self.state, junction // block * block)
        if not several:
            wanted = (self.public,)
        ahead = [stop for stop in wanted if start < stop <= end]
        if ahead:
            return min(ahead)
        # cut short, a step may as well end where its state is kept
        border = end // block * block
        return end if last or border <= start else border


def record_stops(plan: ReadPlan, unit: int) -> Stops:
    """Give where others begin who ask about the same state, or about a later one."""
    return Stops(plan.public_end // unit * unit, plan.state_end // unit * unit)


def chat_stops(length: int, unit: int) -> Stops:
    """Give where the next turn of a chat begins, for a prompt of so many tokens.

    A stop is a step of its own; a short prompt is read again for less.
    """
    return Stops(0, length // unit * unit if length > _SHORT * unit else 0)


class EndsAt:
    """A request that seems to end earlier, for functions that look no further than its end."""

    def __init__(self, request: Request, end: int) -> None:
        self.num_tokens = end
        self.num_prompt_tokens = end
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def enter_at_stops(coordinator: Any) -> None:
    """Let requests go on from where a stop is also beside a model that guesses tokens.

    vLLM would have the last unit before that read again, because what the guessing model keeps of
    its last token holds a guess at the token behind it. But linear attention can be entered at the
    stop alone. A guess is checked before it counts, so one that is a little worse does no harm.
    """
    coordinator.attention_groups = [
        group._replace(use_eagle=False) for group in coordinator.attention_groups
    ]
    for manager in coordinator.single_type_managers:
        manager.use_eagle = False


def watch(manager: SingleTypeKVCacheManager, stops: Mapping[str, Stops]) -> None:
    """Let one of vLLM's managers keep what requests leave at their stops, by request id."""
    if isinstance(manager, MambaManager):
        _watch_states(manager, stops)
    elif isinstance(manager, FullAttentionManager):
        _watch_attention(manager, stops)


def _watch_states(manager: Any, stops: Mapping[str, Stops]) -> None:
    cache_blocks, cache_tail = manager.cache_blocks, manager._cache_partial_tail_block

    def cache_if_ended(request: Request, num_tokens: int, **options: Any) -> None:
        full, beyond = divmod(num_tokens, manager.block_size)
        before = full if beyond else full - 1
        cached = manager.num_cached_block
        cached[request.request_id] = max(cached.get(request.request_id, 0), before)
        cache_blocks(request, num_tokens, **options)

    def cache_stop(request: Request, num_tokens: int) -> Any:
        if num_tokens not in stops[request.request_id]:
            return None
        return cache_tail(EndsAt(request, num_tokens), num_tokens)

    manager.cache_blocks = cache_if_ended
    manager._cache_partial_tail_block = cache_stop


def _watch_attention(manager: Any, stops: Mapping[str, Stops]) -> None:
    _keep_stops(manager, stops)
    _defer_copies(manager)


def _keep_stops(manager: Any, stops: Mapping[str, Stops]) -> None:
    def cache_stops(request: Request, num_tokens: int) -> None:
        pool, unit = manager.block_pool, manager.block_pool.hash_block_size
        blocks = manager.req_to_blocks[request.request_id]
        for stop in stops[request.request_id]:
            if 0 < stop <= num_tokens and stop % manager.block_size:
                # vLLM's own function would drop the shorter entry of a block for the longer one
                pool._insert_block_hash(
                    make_block_hash_with_group_id(
                        request.block_hashes[stop // unit - 1], manager.kv_cache_group_id
                    ),
                    blocks[stop // manager.block_size],
                    num_tokens=stop,
                )

    manager._cache_partial_tail_block = cache_stops


def _defer_copies(manager: Any) -> None:
    """Let nobody begin inside a block that the same step is still to fill.

    Whoever begins inside a block gets a copy of it, made before the step computes anything. vLLM
    registers blocks when their step is planned, and waits a step only for the states of linear
    attention. Those may be there from before when keys and values had to be read again.
    """
    cache_blocks, start_step = manager.cache_blocks, manager.new_step_starts
    count_blocks = manager.get_num_blocks_to_allocate
    filled_from: dict[int, int] = {}  # by block, the first token that this step computes

    def new_step_starts() -> None:
        filled_from.clear()
        start_step()

    def cache_and_note(request: Request, num_tokens: int, **options: Any) -> None:
        size, name = manager.block_size, request.request_id
        start = max(request.num_computed_tokens, manager.num_cached_block.get(name, 0) * size)
        blocks = manager.req_to_blocks[name]
        for index in range(start // size, -(-num_tokens // size)):
            filled_from[blocks[index].block_id] = max(start, index * size)
        cache_blocks(request, num_tokens, **options)

    def count_or_wait(
        request_id: str,
        num_tokens: int,
        found: Any,
        computed: int,
        end: int,
        *rest: Any,
        **options: Any,
    ) -> int:
        if manager._has_partial_local_hit(found, end):
            filled = filled_from.get(found[-1].block_id)
            if filled is not None and filled < end:
                return manager.block_pool.num_gpu_blocks + 1  # too many: it waits for the next
        return count_blocks(request_id, num_tokens, found, computed, end, *rest, **options)

    manager.new_step_starts = new_step_starts
    manager.cache_blocks = cache_and_note
    manager.get_num_blocks_to_allocate = count_or_wait
