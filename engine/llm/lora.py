"""Adapter products on the CPU: exact where requests with and without an adapter share a batch.

vLLM's CPU wrapper marks a row without adapter by index -1 and then gathers the matrices of the
*last* adapter slot for it, so that with one slot every chat row gets the adapter; and it gathers a
whole matrix per row. Here the rows that have the adapter take part in two dense products and the
others are not touched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform


def install() -> None:
    """Let the platform name this wrapper; call it before the adapter manager is built."""
    qualified = f"{DenseAdapter.__module__}.{DenseAdapter.__qualname__}"
    platform: Any = type(current_platform)
    platform.get_punica_wrapper = staticmethod(lambda: qualified)


class DenseAdapter(PunicaWrapperCPU):
    """Products of the one adapter, in slot 0, on its rows alone."""

    _rows: slice | Tensor | None = None
    """Rows of the step that have the adapter; None if there are none."""

    def update_metadata(self, *args: Any, **kwargs: Any) -> None:
        """Take the step's adapter of each row, as vLLM's wrapper does, and find its rows."""
        super().update_metadata(*args, **kwargs)
        adapted = self.token_lora_indices >= 0
        if adapted.all():
            self._rows = slice(None)
        else:
            self._rows = adapted.nonzero().squeeze(-1) if adapted.any() else None

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: tuple[Tensor, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add x A^T B^T to the slices of y, [rows, sum of slices], in place.

        Args:
            y: What the layer gave without adapter.
            x: What went into the layer, [rows, inputs].
            lora_a_stacked: Per slice [slots, 1, rank, inputs].
            lora_b_stacked: Per slice [slots, 1, outputs, rank].
            scale: Factor of the products; vLLM folds the adapter's own scaling into B.
            output_slices: Width of each slice of y.
            buffer: Not used; part of vLLM's signature.
            **kwargs: Not used.
        """
        if self._rows is None:
            return
        x = x[self._rows]
        start = 0
        for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            delta = torch.mm(torch.mm(x, a[0, 0].t()), b[0, 0].t())
            y[self._rows, start : start + width] += delta.mul_(scale)
            start += width
