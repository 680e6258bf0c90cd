"""Sizes of the model and what they come to."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

import torch

from engine.head import JointHead
from engine.manifest import HeadConfig
from tools.release_layout import Sizes, base_shapes, layer_matrices


class Recipe(NamedTuple):
    """A size of model.

    Attributes:
        sizes: Of the base.
        head: Of the scoring head.
        rank: Of the adapter.
    """

    sizes: Sizes
    head: HeadConfig
    rank: int


RECIPES: Final = {
    "nano": Recipe(
        Sizes(hidden=192, mlp=512, heads=4, kv_heads=2, key_heads=1, value_heads=2),
        HeadConfig(
            hidden_size=192, width=128, routing_layers=2, layers=4, heads=4, feedforward=256
        ),
        rank=32,
    ),
    "smoke": Recipe(
        Sizes(hidden=64, mlp=64, heads=1, kv_heads=1, key_heads=1, value_heads=1),
        HeadConfig(hidden_size=64, width=64, routing_layers=2, layers=4, heads=2, feedforward=64),
        rank=4,
    ),
}


def parameters(recipe: Recipe, vocab_size: int) -> dict[str, int]:
    """Count the parameters of each part of the bundle; in bf16 a parameter is two bytes."""
    shapes = base_shapes(recipe.sizes, vocab_size)
    with torch.device("meta"):
        head = sum(each.numel() for each in JointHead(recipe.head).parameters())
    adapter = sum(
        (rows + columns) * recipe.rank
        for layer in recipe.sizes.adapted_layers()
        for rows, columns in layer_matrices(recipe.sizes, layer).values()
    )
    return {
        "base": sum(prod(shape) for shape in shapes.values()),
        "adapter": adapter,
        "head": head,
    }
