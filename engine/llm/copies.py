"""Copies of cache blocks on the CPU: each is one move of memory.

A record that goes on from inside a block begins with a copy of it, and of the state of every group
of linear attention. vLLM's function indexes single bytes, which a CPU does one by one: 25 times
slower, and for eight questions on one state an eighth of their step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.v1.worker import gpu_model_runner


def install() -> None:
    """Let the model runner use `copy_blocks`."""
    runner: Any = gpu_model_runner
    runner.copy_kv_cache_blocks_inplace = copy_blocks


def copy_blocks(
    kv_caches: Iterable[Tensor | list[Tensor]], num_blocks: int, pairs: Sequence[tuple[int, int]]
) -> None:
    """Copy whole blocks in the storage of every cache, as `copy_kv_cache_blocks_inplace` does.

    Args:
        kv_caches: Of the layers; several may look at the same storage.
        num_blocks: Blocks that each storage has, one after another.
        pairs: From the first block to the second, which no other pair names.
    """
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for cache in kv_caches
        for tensor in (cache if isinstance(cache, list | tuple) else (cache,))
    }
    for storage in storages.values():
        blocks = torch.empty(0, dtype=torch.uint8).set_(storage).view(num_blocks, -1)
        for source, target in pairs:
            blocks[target].copy_(blocks[source])
