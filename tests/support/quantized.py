"""Bases in 4 and 8 bits, made of the tiny checkpoint by rounding to the nearest."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.bundles import ORACLE

Method = Literal["compressed-tensors", "gptq", "awq", "fp8"]
GROUP = 32
_MATRIX = re.compile(r"model\.language_model\.layers\.\d+\.(?!.*in_proj_[ab]\.)(.*_proj.*)\.weight")
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
_LEFT = ["lm_head", "re:.*in_proj_[ab]$", "re:.*visual.*", "re:mtp.*"]


def quantized_base(folder: Path, method: Method) -> Path:
    """Write a copy of the oracle's base whose layers' matrices have 4 bits, or 8 as fp8."""
    folder.mkdir(parents=True)
    tensors: dict[str, Tensor] = {}
    for path in sorted((ORACLE / "base").iterdir()):
        if path.suffix == ".safetensors":
            tensors |= load_file(path)
        elif path.name not in ("config.json", "model.safetensors.index.json"):
            shutil.copy(path, folder)
    for name in [name for name in tensors if _MATRIX.fullmatch(name)]:
        module = name.removesuffix(".weight")
        if method == "fp8":
            tensors |= _fp8(name, tensors[name])
            continue
        levels, scales = _round(tensors.pop(name))
        if method == "gptq":
            tensors[f"{module}.qweight"] = _pack(levels).T.contiguous()
            tensors[f"{module}.scales"] = scales.T.contiguous()
            zeros = torch.full((scales.shape[1], scales.shape[0]), 7)  # stored as one less
            tensors[f"{module}.qzeros"] = _pack(zeros)
            tensors[f"{module}.g_idx"] = torch.arange(levels.shape[1], dtype=torch.int32) // GROUP
        elif method == "awq":
            zeros = torch.full((scales.shape[1], scales.shape[0]), 8)
            tensors[f"{module}.qweight"] = _pack(levels.T.contiguous(), _AWQ_ORDER)
            tensors[f"{module}.scales"] = scales.T.contiguous()
            tensors[f"{module}.qzeros"] = _pack(zeros, _AWQ_ORDER)
        else:
            tensors[f"{module}.weight_packed"] = _pack(levels)
            tensors[f"{module}.weight_scale"] = scales
            tensors[f"{module}.weight_shape"] = torch.tensor(levels.shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((ORACLE / "base" / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"quantization_config": _configuration(method, list(tensors))})
    )
    return folder


def _configuration(method: Method, names: list[str]) -> dict[str, Any]:
    if method == "fp8":
        left = [name.removesuffix(".weight") for name in names if re.search("in_proj_[ab]", name)]
        return {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "ignored_layers": [*left, "lm_head"],
        }
    if method == "awq":
        return {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": ["in_proj_a", "in_proj_b", "visual", "lm_head"],
        }
    if method == "gptq":
        return {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": GROUP,
            "desc_act": False,
            "sym": True,
            "lm_head": False,
            "dynamic": {"-:.*in_proj_[ab]$": {}, "-:.*visual.*": {}},
        }
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    group = {"targets": ["Linear"], "weights": weights | {"group_size": GROUP}}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": _LEFT,
    }


def _round(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Give levels 0 to 15 around 8, [out, in], and a scale for each group of inputs."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    scales = (groups.abs().amax(2) / 7).clamp(min=1e-8).bfloat16()
    levels = (groups / scales.float()[..., None]).round().clamp(-8, 7) + 8
    return levels.flatten(1).int(), scales


def _fp8(name: str, weight: Tensor) -> dict[str, Tensor]:
    scale = weight.float().abs().max() / torch.finfo(torch.float8_e4m3fn).max
    return {name: (weight / scale).to(torch.float8_e4m3fn), f"{name}_scale": scale}


def _pack(levels: Tensor, order: list[int] | None = None) -> Tensor:
    """Put eight levels of a row into a word, in this order from the lowest bits on."""
    shifts = torch.argsort(torch.tensor(order or range(8))) * 4
    words = (levels.long().unflatten(1, (-1, 8)) << shifts).sum(2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()
