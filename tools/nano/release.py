"""Write a trained model in the release's layout: the base, and the tuned model with its head."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from engine.bundle import HEAD_CONFIG, HEAD_TENSORS
from tools.nano.sizes import Recipe
from tools.release_layout import Shape, base_shapes, config, write_json, write_shards

_LANGUAGE: Final = "model.language_model."
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def vocabulary(tokenizer: Path) -> int:
    """Give the rows of the embeddings: the tokens, and up to 63 more for the kernels' sake."""
    tokens = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab_size()
    return -(-tokens // 64) * 64


def write_base(
    folder: Path, recipe: Recipe, weights: Mapping[str, Tensor], tokenizer: Path
) -> None:
    """Write a base: configuration, weights in bfloat16, tokenizer.

    Args:
        folder: Where to; made if need be.
        recipe: Its sizes.
        weights: Of the text model by their names there; the vision tower, which nothing trains,
            is drawn.
        tokenizer: Folder of the tokenizer's files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = weights["embed_tokens.weight"].shape[0]
    shapes = base_shapes(recipe.sizes, rows)
    tokens = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    ids = {token.content: id for id, token in tokens.get_added_tokens_decoder().items()}
    write_json(folder / "config.json", config(recipe.sizes, vocab_size=rows, token_ids=ids))
    write_shards(folder, shapes, lambda name: _tensor(name, shapes[name], weights))
    for name in _TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, folder / name)


def write_tuned(
    folder: Path,
    recipe: Recipe,
    base: Mapping[str, Tensor],
    trained: Mapping[str, Tensor],
    tokenizer: Path,
) -> None:
    """Write the tuned model: adapted matrices with their factors in them, and the head.

    Args:
        folder: Where to; made if need be.
        recipe: Its sizes.
        base: Weights of the base.
        trained: What the second stage changed: `text.*` factors and `head.*`.
        tokenizer: Folder of the tokenizer's files.
    """
    weights = {name: tensor.bfloat16().float() for name, tensor in base.items()}
    for name, a in trained.items():
        if name.endswith(".lora_a"):
            module = name.removeprefix("text.").removesuffix(".lora_a")
            weights[f"{module}.weight"] += trained[f"text.{module}.lora_b"] @ a
    write_base(folder, recipe, weights, tokenizer)
    head = {
        name.removeprefix("head."): tensor.bfloat16().contiguous()
        for name, tensor in trained.items()
        if name.startswith("head.")
    }
    save_file(head, folder / HEAD_TENSORS, metadata={"format": "pt"})
    write_json(folder / HEAD_CONFIG, msgspec.to_builtins(recipe.head))


def _tensor(name: str, shape: Shape, weights: Mapping[str, Tensor]) -> Tensor:
    if name == "lm_head.weight":
        return weights[name]
    if name.startswith(_LANGUAGE):
        return weights[name.removeprefix(_LANGUAGE)]
    digest = hashlib.sha256(name.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name.removesuffix(".weight").rstrip("0123456789").endswith("norm"):
        return torch.ones(shape)
    return 0.02 * torch.randn(shape, generator=generator)
