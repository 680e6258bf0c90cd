from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from engine.llm.plan import ReadPlan
from engine.llm.snapshots import Stops, chat_stops, record_stops, watch
from engine.tokens import RecordField

pytestmark = pytest.mark.vllm


def stops(public_end: int, state_end: int) -> Stops:
    plan = ReadPlan(
        fields=(RecordField(1, (state_end + 9, state_end + 10), ()),),
        state_start=0,
        public_end=public_end,
        state_end=state_end,
    )
    return record_stops(plan, 16)


@pytest.mark.parametrize(
    ("start", "end", "several", "last", "expected"),
    [
        (0, 900, False, True, 496),  # the public part's last unit, over a border of blocks
        (0, 900, True, True, 496),
        (496, 900, True, True, 592),  # then the state's, if somebody waits for it
        (496, 900, False, True, 900),
        (592, 900, True, True, 900),
        (0, 450, False, False, 384),  # cut short: a border of blocks
        (384, 450, False, False, 450),  # none on the way
        (0, 500, False, False, 496),
        (0, 300, False, False, 300),
    ],
)
def test_steps_end_where_others_go_on(
    start: int, end: int, several: bool, last: bool, expected: int
):
    options: Any = {"several": several, "block": 384, "last": last}
    assert stops(500, 600).next_end(start, end, **options) == expected


def test_a_chat_stops_where_its_next_turn_begins():
    assert chat_stops(700, 16).state == 688
    assert chat_stops(100, 16).state == 0  # shorter than what a step costs


def test_no_public_part_no_stop():
    assert stops(0, 600).next_end(0, 900, several=False, block=384, last=True) == 900


UNIT, BLOCK = 16, 64


@pytest.fixture
def cache():
    """A cache of vLLM's: one group of attention, one of linear attention, and 20 blocks."""
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
    )

    init_none_hash(sha256)
    attention = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32
    )
    linear = MambaSpec(
        block_size=BLOCK, shapes=((8,),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )
    groups = [KVCacheGroupSpec(["a"], attention), KVCacheGroupSpec(["l"], linear)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=20, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK,
        hash_block_size=UNIT,
    )
    return Cache(manager, get_request_block_hasher(UNIT, sha256))


class Cache:
    """Plans requests as vLLM's scheduler does, one step after another."""

    def __init__(self, manager: Any, hasher: Any) -> None:
        self.manager, self._hasher = manager, hasher
        self.attention, self.linear = manager.coordinator.single_type_managers
        self.stops: dict[str, Stops] = {}
        for each in (self.attention, self.linear):
            watch(each, self.stops)

    def request(self, name: str, length: int, *, public: int) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.stops[name] = stops(public, length)
        return Request(
            name,
            list(range(length)),
            SamplingParams(max_tokens=1),
            None,
            block_hasher=self._hasher,
        )

    def plan(self, request: Any, tokens: int | None = None) -> int | None:
        """Plan a step of a request; give how many tokens it found, None if it has to wait."""
        found, known, _ = self.manager.get_computed_blocks(request)
        tokens = request.num_tokens - known if tokens is None else tokens
        if self.manager.allocate_slots(request, tokens, known, found) is None:
            return None
        request.num_computed_tokens += known + tokens
        return known

    def go_on(self, request: Any, tokens: int) -> bool:
        """Plan a further step of a request."""
        planned = self.manager.allocate_slots(request, tokens) is not None
        request.num_computed_tokens += tokens
        return planned

    def end_step(self, *requests: Any) -> list[tuple[int, int]]:
        """Give the step's copies of blocks; requests that are complete leave."""
        copies, kept = self.manager.take_kv_cache_block_copies()
        self.manager.block_pool.free_blocks(kept)
        for request in requests:
            self.manager.free(request)
        self.manager.new_step_starts()
        return [tuple(pair) for pair in copies]


def test_a_block_is_copied_only_when_it_is_filled(cache):
    """A state of linear attention outlived its keys and values, which are read again."""
    length, stop = 44, 32
    first = cache.request("first", length, public=stop)
    assert cache.plan(first, stop) == 0
    cache.end_step()
    first_step_block = cache.attention.req_to_blocks["first"][0].block_id
    assert cache.go_on(first, length - stop)
    cache.end_step(first)
    cache.manager.evict_blocks({first_step_block})

    again = cache.request("again", length, public=stop)
    assert cache.plan(again, length) == 0  # over the stop, for all it knows nobody waits there
    other = cache.request("other", length + 9, public=stop)
    assert cache.plan(other) is None
    assert cache.end_step(again) == []
    assert cache.plan(other) == stop
    (attention, _), *_ = cache.end_step(other)
    assert attention not in (first_step_block, 0)


def test_what_was_filled_before_is_copied_at_once(cache):
    """Beyond it, the block may be filled in the same step."""
    first = cache.request("first", 60, public=32)
    assert cache.plan(first, 32) == 0
    cache.end_step()
    assert cache.go_on(first, 12)
    cache.end_step()
    assert cache.go_on(first, 16)
    assert cache.plan(cache.request("other", 50, public=32)) == 32


@pytest.mark.parametrize(
    ("start", "end", "several", "last", "expected"),
    [
        (496, 700, False, True, 700),  # in one step
        (480, 700, False, True, 592),  # too long for that
        (496, 700, True, True, 592),  # others wait for the state
        (496, 700, False, False, 592),  # the record goes on
    ],
)
def test_a_short_rest_is_read_in_one_step(start, end, several, last, expected):
    stop = stops(600, 620).next_end(start, end, several=several, block=384, last=last, short=204)
    assert stop == expected
