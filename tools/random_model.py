"""A small model with random weights in the release's layout: base, adapter factors, head.

Every tensor has a generator of its own, so that one more changes no other. Values are uniform,
because these come from integers and are the same on every machine.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import msgspec
import torch
from release_layout import Shape, Sizes, base_shapes, layer_matrices, write_json, write_shards
from safetensors.torch import save_file
from torch import Tensor

from engine.bundle import HEAD_CONFIG, HEAD_TENSORS
from engine.head import JointHead
from engine.manifest import HeadConfig

SIZES = Sizes()
RANK = 8
HEAD = HeadConfig(
    hidden_size=SIZES.hidden, width=64, routing_layers=2, layers=4, heads=4, feedforward=128
)
# the last one as in training: above ln 100, where the head caps it
SCALARS = {"prior_logit_scale": 2.0, "residual_gate": -2.75, "joint_logit_scale": 4.75}


def write_base(folder: Path, configuration: dict[str, Any], *, seed: int) -> None:
    """Write `config.json` and the weights, in two shards with an index."""
    shapes = base_shapes(SIZES, configuration["text_config"]["vocab_size"])
    write_shards(folder, shapes, lambda name: _draw(name, shapes[name], seed))
    write_json(folder / "config.json", configuration)


def write_head(folder: Path, *, seed: int) -> None:
    """Write the head's tensors and sizes."""
    with torch.device("meta"):
        shapes = {name: tuple(t.shape) for name, t in JointHead(HEAD).state_dict().items()}
    tensors = {name: _draw(name, shape, seed).bfloat16() for name, shape in shapes.items()}
    save_file(tensors, folder / HEAD_TENSORS, metadata={"format": "pt"})
    write_json(folder / HEAD_CONFIG, msgspec.to_builtins(HEAD))


def adapter_factors(*, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Give the factors of the kinds of matrices that the release changed."""
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    for layer in SIZES.adapted_layers():
        for name, (rows, columns) in layer_matrices(SIZES, layer).items():
            module = f"model.language_model.layers.{layer}.{name}"
            a = _uniform(f"{module}.lora_A", (RANK, columns), seed, std=columns**-0.5)
            factors[module] = (a, _uniform(f"{module}.lora_B", (rows, RANK), seed, std=0.1))
    return factors


def _draw(name: str, shape: Shape, seed: int) -> Tensor:
    """Draw a tensor in the range that its name asks for."""
    if name in SCALARS:
        return torch.tensor(SCALARS[name])
    if name.endswith(".A_log"):  # decay: from near 1 to about 0.9 a token
        return _uniform(name, shape, seed, std=0.9) - 1.5
    if name.endswith(".dt_bias"):
        return _uniform(name, shape, seed, std=0.3) - 1.0
    if name.endswith("bias"):
        return _uniform(name, shape, seed, std=0.05)
    if name.removesuffix(".weight").rstrip("0123456789").endswith("norm"):
        # the language model stores most norms as offsets from 1
        offset = "language_model" in name and "linear_attn" not in name
        return _uniform(name, shape, seed, std=0.1) + (0.0 if offset else 1.0)
    if name.endswith(("embed_tokens.weight", "type_embedding.weight")):
        return _uniform(name, shape, seed, std=0.5)
    fan_in = math.prod(shape[1:])
    return _uniform(name, shape, seed, std=fan_in**-0.5)


def _uniform(name: str, shape: Shape, seed: int, *, std: float) -> Tensor:
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return (2 * torch.rand(shape, generator=generator) - 1) * (std * math.sqrt(3))
