"""Head features beside the keys and values that they belong to.

Every block of vLLM's cache has a block of feature rows, found by the same slot. A hit that vLLM
reports is thereby a guarantee that the features are there, and a miss needs no action: who may use
a block, when it is copied and when it is given to another is decided in one place alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.errors import EngineFailed


class FeaturePool:
    """Rows of features by slot; one that was never written is NaN, and so is what reads it.

    Args:
        blocks: Blocks of the cache.
        block_size: Tokens of one.
        width: Numbers of a token.
        dtype: How they are kept.
        device: Where they are kept.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        width: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.block_size = block_size
        self.rows = torch.full((blocks * block_size, width), torch.nan, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Slots times width times bytes of a number."""
        return self.rows.nbytes

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, from the first to the second of each pair; call it before the step."""
        blocks = self._blocks(self.block_size)
        if self.rows.device.type == "cpu":
            for source, target in pairs:  # a move of memory each, ten times as fast as by index
                blocks[target].copy_(blocks[source])
            return
        source, target = self._indices(pairs).unbind(1)
        blocks[target] = blocks[source]

    def write(self, slots: Tensor, features: Tensor) -> None:
        """Keep the features of a step's rows, [n, W], at their slots, [n]."""
        self.rows[slots] = features.to(self.rows.dtype)

    def read(
        self, blocks: Sequence[int] | Tensor, start: int, end: int, size: int | None = None
    ) -> Tensor:
        """Give the features of a request's tokens from `start` to `end`, [end - start, W].

        Args:
            blocks: The request's blocks, in order; there may be more than are needed.
            start: First token.
            end: The one behind the last.
            size: Tokens of such a block, if vLLM's kernels divide the blocks of its cache.
        """
        size = size or self.block_size
        first = start // size
        needed = blocks[first : -(-end // size)]
        ids = needed if isinstance(needed, Tensor) else self._indices(needed)
        # blocks are moved whole: row by row takes ten times as long on a CPU
        found = self._blocks(size).index_select(0, ids).flatten(0, 1)
        return found[start - first * size : end - first * size]

    def _blocks(self, size: int) -> Tensor:
        return self.rows.view(-1, size, self.rows.shape[-1])

    def _indices(self, values: Sequence[Any]) -> Tensor:
        indices = torch.tensor(values, dtype=torch.long)
        if self.rows.device.type == "cpu":
            return indices
        return indices.pin_memory().to(self.rows.device, non_blocking=True)


def share_of_cache(available: int, *, block_bytes: int, feature_bytes: int) -> int:
    """Give the part of the memory that is left for keys and values, in bytes.

    Args:
        available: Bytes for both.
        block_bytes: What one block takes in the caches of all layers.
        feature_bytes: What its features take.
    """
    return available * block_bytes // (block_bytes + feature_bytes)


def refuse_foreign_cache(config: Any) -> None:
    """See that all keys and values are computed here: those from elsewhere have no features.

    Raises:
        EngineFailed: vLLM's configuration says otherwise; the message names the setting.
    """
    settings = {
        "kv_transfer_config": config.kv_transfer_config is not None,
        "kv_offloading_size": bool(config.cache_config.kv_offloading_size),
        "kv_sharing_fast_prefill": config.cache_config.kv_sharing_fast_prefill,
        "decode_context_parallel_size": config.parallel_config.decode_context_parallel_size > 1,
        "prefill_context_parallel_size": config.parallel_config.prefill_context_parallel_size > 1,
    }
    for name, used in settings.items():
        if used:
            raise EngineFailed(
                f"vLLM's {name} is set: it fills the cache with keys and values that this worker "
                "did not compute, and decisions could not use them; leave it out"
            )
