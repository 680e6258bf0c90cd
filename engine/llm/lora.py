"""The adapter's products: two dense ones for each slice of a layer, under a row mask.

vLLM's wrappers serve many adapters at once and look one up for every row. The CPU's marks a row
without adapter by index -1 and then takes the *last* one for it, so that with one slot every chat
row gets the adapter; the GPU's costs half of the whole model again. All decisions name one adapter,
so its matrices multiply all rows of a step, and the mask takes it away again from those without:
what they get is a sum with zero, which is exact. Shapes depend on the number of rows alone and
nothing waits for the device, so that CUDA graphs can hold it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from vllm.lora.layers import LoRAMapping
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase
from vllm.platforms import current_platform

from engine.errors import EngineFailed

_library = torch.library.Library("ostinato", "FRAGMENT")
_library.define(
    "add_adapter(Tensor(a!) y, Tensor x, Tensor[] a, Tensor[] b, Tensor mask, Tensor used,"
    " float scale) -> ()"
)


def install() -> None:
    """Let the platform name this wrapper; call it before the adapter manager is built."""
    qualified = f"{DenseAdapter.__module__}.{DenseAdapter.__qualname__}"
    platform: Any = type(current_platform)
    platform.get_punica_wrapper = staticmethod(lambda: qualified)


def require_wrapped(manager: Any, expected: list[str]) -> None:
    """See that vLLM wrapped every layer that the adapter changes, and no other.

    Args:
        manager: vLLM's adapter manager.
        expected: Names of the layers as vLLM has them.

    Raises:
        EngineFailed: It did not; the adapter would be applied in part, without a word.
    """
    absent = sorted(set(expected) - set(manager.modules))
    beyond = sorted(set(manager.modules) - set(expected))
    if absent or beyond:
        raise EngineFailed(
            f"vLLM would apply the adapter to {len(expected) - len(absent)} of {len(expected)} "
            f"layers and to {len(beyond)} others, first {(absent + beyond)[0]}; make the bundle "
            "again from a base in the release's layout"
        )


class DenseAdapter(PunicaWrapperBase):
    """Products of the one adapter, in slot 0, on the rows that have it.

    Args:
        max_num_batched_tokens: Rows of the largest step.
        max_batches: Requests of the largest step.
        device: Where the model is.
        lora_config: vLLM's, with number format and number of adapters.

    Raises:
        EngineFailed: Room for more than one adapter is asked for.
    """

    def __init__(
        self,
        max_num_batched_tokens: int,
        max_batches: int,
        device: torch.device | str,
        *,
        lora_config: Any,
    ) -> None:
        if lora_config.max_loras != 1:
            raise EngineFailed(
                f"{lora_config.max_loras} adapters at once are asked for, and a worker serves one; "
                "start a worker for each bundle"
            )
        super().__init__(max_num_batched_tokens, max_batches, device)
        self._mask = torch.zeros(
            max_num_batched_tokens, 1, dtype=lora_config.lora_dtype, device=device
        )
        self._used = torch.zeros(1, dtype=torch.bool)  # on the host: read without waiting

    def update_metadata(
        self,
        mapping: LoRAMapping,
        lora_index_to_id: list[int | None],
        max_loras: int,
        vocab_size: int,
        **kwargs: Any,
    ) -> None:
        """Note which rows of the step have the adapter.

        Raises:
            EngineFailed: A row names another adapter than the one that is loaded.
        """
        ids = np.asarray(mapping.index_mapping)
        adapted = ids > 0
        if (ids[adapted] != lora_index_to_id[0]).any():
            raise EngineFailed("a step holds rows of two adapters; a worker serves one")
        self._used.fill_(bool(adapted.any()))
        mask = torch.from_numpy(adapted).unsqueeze(-1)
        if self._mask.device.type != "cpu":
            mask = mask.pin_memory().to(self._mask.device, non_blocking=True)
        self._mask[: len(ids)].copy_(mask)

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **kwargs: Any,
    ) -> None:
        """Add x A^T B^T to the slices of y, [rows, sum of slices], in place.

        Args:
            y: What the layer gave without adapter.
            x: What went into the layer, [rows, inputs].
            lora_a_stacked: Per slice [1, 1, rank, inputs].
            lora_b_stacked: Per slice [1, 1, outputs, rank].
            scale: Factor of the products; vLLM folds the adapter's own scaling into B.
            output_slices: Width of each slice of y, as in B.
            **kwargs: Not used; vLLM's other paths.
        """
        torch.ops.ostinato.add_adapter(
            y, x, list(lora_a_stacked), list(lora_b_stacked), self._mask, self._used, scale
        )

    def add_shrink(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse a product alone: it would belong to adapters that are divided among devices.

        Raises:
            EngineFailed: Always.
        """
        raise EngineFailed("vLLM's fully_sharded_loras is set; leave it out")

    add_expand = add_shrink

    def add_lora_embedding(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse adapters of embeddings.

        Raises:
            EngineFailed: Always.
        """
        raise EngineFailed("the adapter changes an embedding; a bundle's adapter must not")

    add_lora_logits = add_lora_embedding


def _add(
    y: Tensor,
    x: Tensor,
    a: list[Tensor],
    b: list[Tensor],
    mask: Tensor,
    used: Tensor,
    scale: float,
) -> None:
    if not used:
        return
    rows, start = mask[: x.shape[0]], 0
    for down, up in zip(a, b, strict=True):
        end = start + up.shape[-2]
        inner = torch.mm(x, down[0, 0].t()).mul_(rows)
        y[:, start:end].addmm_(inner, up[0, 0].t(), alpha=scale)
        start = end


# opaque to the compiler: it would write each slice of y anew instead of adding to it
_library.impl("add_adapter", _add, "CompositeExplicitAutograd")
torch.library.register_fake("ostinato::add_adapter", lambda *_: None, lib=_library)
