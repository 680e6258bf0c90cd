"""A base and a tuned model of the 27B's exact shape, in files that take no room on the disk."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, Final

from engine.adapter import CONFIG as ADAPTER_CONFIG
from engine.adapter import TENSORS, adapter_config, adapter_shapes
from engine.bundle import Bundle, base_files, write_manifest
from engine.manifest import FileEntry, Part, file_entry
from engine.tensors import Shapes, read_header
from tests.support.bundles import ORACLE

HIDDEN, INNER, VOCABULARY = 5120, 17408, 248320
CONFIG: Final[dict[str, Any]] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "vocab_size": VOCABULARY,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
}
FULL: Final = {
    "q_proj": (12288, HIDDEN),
    "k_proj": (1024, HIDDEN),
    "v_proj": (1024, HIDDEN),
    "o_proj": (HIDDEN, 6144),
}
LINEAR: Final = {
    "in_proj_qkv": (10240, HIDDEN),
    "in_proj_z": (6144, HIDDEN),
    "in_proj_a": (48, HIDDEN),
    "in_proj_b": (48, HIDDEN),
    "out_proj": (HIDDEN, 6144),
}
MLP: Final = {
    "gate_proj": (INNER, HIDDEN),
    "up_proj": (INNER, HIDDEN),
    "down_proj": (HIDDEN, INNER),
}
_FIRST_CHANGED: Final = 40  # of 64 layers
_HEAD_BYTES: Final = 256_125_024


def shapes_27b() -> Shapes:
    """Give the tensors of the tuned model; its vision tower stands for a larger one."""
    shapes: Shapes = {
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "model.language_model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.language_model.norm.weight": (HIDDEN,),
        "model.visual.patch_embed.proj.weight": (1152, 1536),
    }
    for layer, kind in enumerate(CONFIG["layer_types"]):
        place = f"model.language_model.layers.{layer}"
        linear = kind == "linear_attention"
        block, own = ("linear_attn", LINEAR) if linear else ("self_attn", FULL)
        shapes |= {f"{place}.{block}.{name}.weight": shape for name, shape in own.items()}
        shapes |= {f"{place}.mlp.{name}.weight": shape for name, shape in MLP.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{place}.{name}.weight"] = (HIDDEN,)
        if linear:
            shapes |= {f"{place}.linear_attn.{name}": (48,) for name in ("A_log", "dt_bias")}
            shapes[f"{place}.linear_attn.norm.weight"] = (128,)
            shapes[f"{place}.linear_attn.conv1d.weight"] = (10240, 1, 4)
        else:
            shapes |= {f"{place}.self_attn.{n}_norm.weight": (256,) for n in ("q", "k")}
    return shapes


def changed_27b() -> list[str]:
    """List the matrices that the release changes."""
    return [
        name
        for name in shapes_27b()
        if name.endswith("_proj.weight") or "in_proj" in name
        if ".layers." in name and int(name.split(".")[3]) >= _FIRST_CHANGED
    ]


def sparse_pair(folder: Path) -> tuple[Path, Path]:
    """Write base and tuned model: headers, and behind them holes as long as the tensors."""
    shapes = shapes_27b()
    base, tuned = folder / "base", folder / "tuned"
    for part in (base, tuned):
        part.mkdir(parents=True)
        (part / "config.json").write_text(json.dumps({"text_config": CONFIG}))
        shutil.copy(ORACLE / "clef" / "tokenizer.json", part)
        for shard in range(4):
            names = [name for index, name in enumerate(shapes) if index % 4 == shard]
            _sparse(
                part / f"model-{shard:05}-of-00005.safetensors",
                {name: shapes[name] for name in names},
            )
    _sparse(base / "model-00004-of-00005.safetensors", {"mtp.fc.weight": (HIDDEN, 2 * HIDDEN)})
    sizes = {"hidden_size": HIDDEN, "width": 1024, "routing_layers": 2, "layers": 4, "heads": 16}
    (tuned / "joint_head_config.json").write_text(json.dumps(sizes | {"feedforward": 4096}))
    _sparse(tuned / "joint_head.safetensors", {"whole": (_HEAD_BYTES // 2 - 64, 1)}, _HEAD_BYTES)
    return base, tuned


def sparse_bundle(folder: Path, base: Path, tuned: Path, *, rank: int) -> Bundle:
    """Write the bundle that an extraction would make of the pair, with holes for factors."""
    adapter = folder / "adapter"
    adapter.mkdir(parents=True)
    modules = [name.removesuffix(".weight") for name in changed_27b()]
    known = {base / name: _unhashed(base / name) for name in base_files(base)}
    digest = Part("", {path.name: entry for path, entry in known.items()}).hash
    shapes = adapter_shapes(modules, shapes_27b(), rank=rank)
    _sparse(adapter / TENSORS, shapes, metadata={"base": digest})
    (adapter / ADAPTER_CONFIG).write_text(adapter_config(modules, rank=rank))
    known[(adapter / TENSORS).resolve()] = _unhashed(adapter / TENSORS)
    return write_manifest(
        folder, name="27B", base=base, head=tuned, tokenizer=tuned, adapter=adapter, known=known
    )


def parameters(path: Path) -> int:
    """Count the values in a file by its header."""
    return sum(math.prod(shape) for shape in read_header(path).shapes.values())


def _unhashed(path: Path) -> FileEntry:
    """Hash a file only if it is hashed whenever the bundle is loaded."""
    size = path.stat().st_size
    return FileEntry(size, "0" * 64) if size > 256 << 20 else file_entry(path)


def _sparse(
    path: Path, shapes: Shapes, size: int | None = None, metadata: dict[str, str] | None = None
) -> None:
    header: dict[str, Any] = {"__metadata__": metadata or {}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(size or 8 + len(text) + end)
