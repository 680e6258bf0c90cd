"""Whether vLLM took every tensor of an adapter's file into its layers."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from engine.adapter import TENSORS, fused_layers


def unapplied(manager: Any, folder: Path) -> list[str]:
    """Name the tensors of an adapter that are not in the layers' buffers, as they are in its file.

    Of a fused layer vLLM cuts and stacks what belongs to its slices, and may repeat A: sums of
    squares are compared, up to the rounding to the model's format.

    Args:
        manager: vLLM's adapter manager, with the adapter in slot 0.
        folder: Where the adapter's file is.
    """
    present: dict[str, dict[str, float]] = defaultdict(dict)
    with safe_open(folder / TENSORS, framework="pt") as file:
        for name in sorted(file.keys()):
            [layer] = fused_layers([name])
            present[layer][name] = _energy(file.get_tensor(name))
    absent: list[str] = []
    for layer, tensors in present.items():
        module = manager.modules.get(layer)
        if module is None:
            absent += tensors
            continue
        a = [_energy(slice_[0]) for slice_ in module.lora_a_stacked]
        b = sum(_energy(slice_[0]) for slice_ in module.lora_b_stacked)
        ours = {name for name in tensors if ".lora_B." in name}
        if not _same(b, sum(tensors[name] for name in ours)):
            absent += sorted(ours)
        absent += [
            name
            for name, energy in tensors.items()
            if name not in ours and not any(_same(each, energy) for each in a)
        ]
    return absent


def _energy(tensor: Tensor) -> float:
    return float(tensor.double().square().sum())


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-2)
