from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm

UNIT = 16


def hashers() -> tuple[Any, Any, list[int]]:
    """Give vLLM's hasher, ours, and what is counted: the units that ours hashed."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    from engine.llm.hashes import remembering

    function = get_hash_fn_by_name("sha256")
    init_none_hash(function)
    counted = [0]

    def count(value: Any) -> bytes:
        counted[0] += 1
        return function(value)

    return get_request_block_hasher(UNIT, function), remembering(UNIT, count), counted


def request(hasher: Any, tokens: list[int], *, adapter: str = "", salt: str | None = None) -> Any:
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request(
        request_id="r",
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=40),
        pooling_params=None,
        lora_request=LoRARequest(adapter, 1, "nowhere") if adapter else None,
        cache_salt=salt,
        block_hasher=hasher,
    )


def test_hashes_are_vllms_own_whatever_came_before():
    stock, ours, _ = hashers()
    pick = random.Random(3)
    trunks = [[pick.randrange(4) for _ in range(200)] for _ in range(3)]
    for turn in range(300):
        tokens = pick.choice(trunks)[: pick.randrange(201)]
        tokens = tokens + [pick.randrange(4) for _ in range(pick.randrange(60))]
        origin: Any = {
            "adapter": pick.choice(("", "one", "two")),
            "salt": pick.choice((None, "a", "b")),
        }
        expected, found = request(stock, tokens, **origin), request(ours, tokens, **origin)
        assert found.block_hashes == expected.block_hashes, turn
        # what is generated behind a prompt is hashed too
        for each in (expected, found):
            each.append_output_token_ids([1] * 20)
        assert found.block_hashes == expected.block_hashes, turn


def test_a_question_costs_its_own_units():
    _, ours, counted = hashers()
    states = [[number] * 16 * UNIT for number in range(20)]
    for state in states:
        request(ours, state + [100] * 40)
    before = counted[0]
    for state in states:
        request(ours, state + [101] * 40)
        request(ours, state + [7] * UNIT + [102] * 40)  # grown
    assert counted[0] - before == len(states) * (2 + 3)


def test_the_engine_hashes_with_it(monkeypatch):
    core = importlib.import_module("vllm.v1.engine.core")
    hashes = importlib.import_module("engine.llm.hashes")
    monkeypatch.setattr(core, "get_request_block_hasher", None)
    hashes.install()
    assert core.get_request_block_hasher is hashes.remembering
