"""Block hashes of requests that begin alike: made once.

vLLM names every unit of a request by a hash of all that comes before it, which for a state of 8,000
tokens takes a millisecond, for each question on it. They are those of the question before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.engine import core
from vllm.v1.request import Request

_Hasher = Callable[[Request], list[Any]]

_REMEMBERED: Final = 32
"""Requests; of each the tokens and hashes, 100 KB for 8,000 tokens."""


class _Seen(NamedTuple):
    origin: tuple[str, str | None]
    tokens: list[int]
    hashes: list[Any]


def install() -> None:
    """Let the engine use `remembering`; call it before the engine makes its hasher."""
    module: Any = core
    module.get_request_block_hasher = remembering


def remembering(unit: int, function: Callable[[Any], bytes]) -> _Hasher:
    """Make what vLLM's `get_request_block_hasher` makes, with a memory of the last requests.

    Args:
        unit: Tokens that are named together.
        function: Hashes what vLLM puts together for a unit.
    """
    stock = get_request_block_hasher(unit, function)
    seen: list[_Seen] = []  # the last one last

    def hashes_of(request: Request) -> list[Any]:
        # images and embeddings go into the hashes too; a chat goes on from its own
        if request.block_hashes or request.mm_features or request.prompt_embeds is not None:
            return stock(request)
        adapter = request.lora_request.lora_name if request.lora_request else ""
        origin, tokens = (adapter, request.cache_salt), list(request.all_token_ids)
        most, nearest = 0, None
        for each in seen:
            end = (most + 1) * unit
            if each.origin == origin and each.tokens[end - unit : end] == tokens[end - unit : end]:
                alike = _units_alike(each.tokens, tokens, unit)
                if alike > most:
                    most, nearest = alike, each
        hashes: list[Any] = []
        if nearest is not None:
            hashes = nearest.hashes[:most]
            if 2 * most > len(nearest.hashes):  # another question, or the state has grown
                seen.remove(nearest)
        # vLLM's own goes on behind them, and its caller adds what is given to the same list
        request.block_hashes += hashes
        hashes += stock(request)
        request.block_hashes.clear()
        seen.append(_Seen(origin, tokens, hashes))
        del seen[:-_REMEMBERED]
        return hashes

    return hashes_of


def _units_alike(one: Sequence[int], other: Sequence[int], unit: int) -> int:
    """Count the units with which both begin."""
    low, high = 0, min(len(one), len(other)) // unit
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * unit : middle * unit] == other[low * unit : middle * unit]:
            low = middle
        else:
            high = middle - 1
    return low
