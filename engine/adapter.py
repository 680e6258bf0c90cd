"""Adapters as vLLM reads them: PEFT files with the names that vLLM really applies.

vLLM looks for `base_model.model.model.language_model.layers.N...`; with a shorter prefix it loads
the file without a word and answers as the base would. Files made elsewhere are checked for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.errors import BadBundle
from engine.tensors import Shapes, read_header

if TYPE_CHECKING:
    from torch import Tensor

PEFT_PREFIX: Final = "base_model.model."
CONFIG: Final = "adapter_config.json"
TENSORS: Final = "adapter_model.safetensors"

_MODULE = re.compile(
    r"model\.language_model\.layers\.\d+\."
    r"(linear_attn\.(in_proj_qkv|in_proj_z|in_proj_a|in_proj_b|out_proj)"
    r"|self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"
)

_FUSED = {
    "in_proj_qkv": "in_proj_qkvz",
    "in_proj_z": "in_proj_qkvz",
    "in_proj_b": "in_proj_ba",
    "in_proj_a": "in_proj_ba",
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Matrices that vLLM keeps as slices of one layer, and that layer."""

_TOGETHER = {"in_proj_qkv": "in_proj_z", "in_proj_z": "in_proj_qkv"}
"""Two matrices that vLLM cuts into four slices of one layer; its process ends where one is absent.

It puts up with the absence of any other slice.
"""


def write_adapter(
    folder: Path, factors: Mapping[str, tuple[Tensor, Tensor]], *, rank: int, base: str
) -> None:
    """Write an adapter whose scale is 1: what it adds to a matrix is B·A.

    Args:
        folder: Where to; made if need be.
        factors: For each module, e.g. `model.language_model.layers.7.mlp.up_proj`, A of shape
            [r, in] and B of shape [out, r]; r may be lower than the rank, the rest is zero.
        rank: The common rank.
        base: Hash of the base that the factors belong to.

    Raises:
        BadBundle: A module is none that vLLM adapts, or factors do not fit each other.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for module, (a, b) in sorted(factors.items()):
        tensors |= adapter_tensors(module, a, b, rank=rank)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(adapter_config(factors, rank=rank), encoding="utf-8")
    # one entry only: the library writes several in an order that changes from run to run
    save_file(tensors, folder / TENSORS, metadata={"base": base})


def adapts(module: str) -> bool:
    """Say whether vLLM applies an adapter to a module of this name."""
    return _MODULE.fullmatch(module) is not None


def fused_layers(tensors: Iterable[str]) -> list[str]:
    """Name the layers, as vLLM has them, that tensors of an adapter's file change."""
    layers: set[str] = set()
    for name in tensors:
        module = name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)[0]
        parent, _, matrix = module.removeprefix("model.language_model.").rpartition(".")
        layers.add(f"language_model.model.{parent}.{_FUSED.get(matrix, matrix)}")
    return sorted(layers)


def companions(modules: Iterable[str]) -> list[str]:
    """Name the modules that an adapter of these has to hold besides, be their factors zero."""
    have = set(modules)
    wanted: set[str] = set()
    for module in have:
        parent, _, matrix = module.rpartition(".")
        if matrix in _TOGETHER:
            wanted.add(f"{parent}.{_TOGETHER[matrix]}")
    return sorted(wanted - have)


def adapter_tensors(module: str, a: Tensor, b: Tensor, *, rank: int) -> dict[str, Tensor]:
    """Give a module's two tensors as the file holds them, padded with zeros to the common rank.

    Raises:
        BadBundle: vLLM would not adapt the module, or the factors do not fit each other.
    """
    import torch

    own = a.shape[0]
    if not adapts(module) or own != b.shape[1] or own > rank:
        raise BadBundle(
            f"{module}: factors {list(a.shape)} and {list(b.shape)} are no adapter of rank "
            f"{rank} that vLLM applies"
        )
    padding = (0, rank - own)
    return {
        f"{PEFT_PREFIX}{module}.lora_A.weight": torch.nn.functional.pad(
            a, (0, 0, *padding)
        ).contiguous(),
        f"{PEFT_PREFIX}{module}.lora_B.weight": torch.nn.functional.pad(b, padding).contiguous(),
    }


def adapter_shapes(modules: Iterable[str], base_shapes: Shapes, *, rank: int) -> Shapes:
    """Give names and shapes of an adapter's tensors, in the order in which they are written.

    Args:
        modules: Those with an adapter; `base_shapes` has their `.weight`.
        base_shapes: The base's tensors.
        rank: The common rank.
    """
    shapes: Shapes = {}
    for module in modules:
        rows, columns = base_shapes[f"{module}.weight"]
        shapes[f"{PEFT_PREFIX}{module}.lora_A.weight"] = (rank, columns)
        shapes[f"{PEFT_PREFIX}{module}.lora_B.weight"] = (rows, rank)
    return shapes


def adapter_config(modules: Iterable[str], *, rank: int) -> str:
    """Give the text of the PEFT configuration of an adapter whose scale is 1."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "r": rank,
        "target_modules": sorted({module.rsplit(".", 1)[1] for module in modules}),
    }
    return json.dumps(config, indent=2) + "\n"


def adapter_rank(folder: Path) -> int:
    """Read an adapter's rank.

    Raises:
        BadBundle: The file is missing, or its scale is not 1.
    """
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes())
        rank, alpha = config["r"], config["lora_alpha"]
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
    except (ValueError, TypeError, KeyError) as error:
        raise BadBundle(f"{path}: not a PEFT configuration; make the bundle again") from error
    if type(rank) is not int or rank < 1 or alpha != rank:
        raise BadBundle(f"{path}: rank {rank} and lora_alpha {alpha} must be one positive number")
    return rank


def check_adapter(folder: Path, *, rank: int, base: str, base_shapes: Shapes) -> None:
    """Check that an adapter was made for a base, and that vLLM will apply every tensor of it.

    Args:
        folder: Where the adapter is.
        rank: What the bundle says.
        base: The base's hash.
        base_shapes: The base's tensors.

    Raises:
        BadBundle: It was made for another base, or a tensor's name or shape does not fit.
    """
    header = read_header(folder / TENSORS)
    made_for = header.metadata.get("base", "")
    if made_for != base:
        raise BadBundle(
            f"{folder}: the adapter was made for another base ({made_for[:12] or 'unnamed'}, "
            f"here is {base[:12]}); use the adapter with its own base"
        )
    if adapter_rank(folder) != rank:
        raise BadBundle(f"{folder}: the adapter's rank is not {rank}; make the bundle again")
    modules: set[str] = set()
    for name in header.shapes:
        module = name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)[0]
        if not adapts(module) or f"{module}.weight" not in base_shapes:
            raise BadBundle(
                f"{folder}: vLLM would not apply {name}; name it "
                f"{PEFT_PREFIX}model.language_model.layers.N..., as in the base"
            )
        modules.add(module)
    if absent := companions(modules):
        raise BadBundle(
            f"{folder}: vLLM applies in_proj_qkv and in_proj_z of a layer together or not at all; "
            f"absent: {', '.join(absent)}; add them, with zeros where nothing changes"
        )
    expected = adapter_shapes(modules, base_shapes, rank=rank)
    for name, shape in expected.items():
        if header.shapes.get(name) != shape:
            raise BadBundle(
                f"{folder}: {name} should have the shape {list(shape)}; make the bundle again"
            )
    if not expected:
        raise BadBundle(f"{folder}: the adapter is empty; make a bundle without one instead")
