"""Bundles of real sizes without real weights: a base's configuration, a random adapter and head.

vLLM fills the base with random numbers itself (`load_format="dummy"`): how long a product takes
does not depend on its values. The adapter changes the last three eighths of the layers, as the
release's does; the head has the release's sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file

from engine.adapter import write_adapter
from engine.bundle import HEAD_CONFIG, HEAD_TENSORS, Bundle
from engine.head import JointHead
from engine.manifest import FORMAT, VLLM_VERSION, BaseSummary, HeadConfig, Manifest, Part

TOKENIZER = Path(__file__).parents[2] / "tests" / "oracle" / "base"
VOCABULARY, WINDOW = 248_320, 262_144


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a base and of what is made for it."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int = 256
    key_heads: int = 16
    value_heads: int
    linear_size: int = 128
    vocabulary: int = VOCABULARY
    rank: int = 256
    head_width: int = 1024

    @property
    def head(self) -> HeadConfig:
        """Sizes of the head."""
        return HeadConfig(
            hidden_size=self.hidden,
            width=self.head_width,
            routing_layers=2,
            layers=4,
            heads=16,
            feedforward=4 * self.head_width,
        )


SHAPES = {
    "27b": Shape(hidden=5120, mlp=17408, layers=64, heads=24, kv_heads=4, value_heads=48),
    "9b": Shape(hidden=4096, mlp=12288, layers=32, heads=16, kv_heads=4, value_heads=32),
    "tiny": Shape(
        hidden=256,
        mlp=512,
        layers=8,
        heads=4,
        kv_heads=2,
        head_size=64,
        key_heads=2,
        value_heads=4,
        vocabulary=2048,
        rank=16,
        head_width=64,
    ),
}


def write_bundle(folder: Path, name: str, *, device: str) -> Bundle:
    """Write what vLLM reads of a shape, drawing the numbers on a device."""
    shape = SHAPES[name]
    base, head = folder / "base", folder / "head"
    base.mkdir(parents=True, exist_ok=True)
    head.mkdir(exist_ok=True)
    (base / "config.json").write_text(json.dumps(config(shape)))
    source = torch.Generator(device).manual_seed(1)

    def draw(*size: int, std: float = 0.01) -> torch.Tensor:
        numbers = torch.randn(size, generator=source, device=device, dtype=torch.bfloat16)
        return (numbers * std).cpu()

    factors = {
        module: (draw(shape.rank, inputs), draw(outputs, shape.rank))
        for module, inputs, outputs in adapted(shape)
    }
    write_adapter(folder / "adapter", factors, rank=shape.rank, base="")
    with torch.device("meta"):
        sizes = {name: each.shape for name, each in JointHead(shape.head).state_dict().items()}
    tensors = {name: draw(*size, std=0.02) for name, size in sizes.items()}
    save_file(tensors, head / HEAD_TENSORS)
    (head / HEAD_CONFIG).write_bytes(msgspec.json.encode(shape.head))
    manifest = Manifest(
        format=FORMAT,
        name=f"{name}, random",
        arbitrary=True,
        vllm=VLLM_VERSION,
        summary=BaseSummary(hidden_size=shape.hidden, vocab_size=shape.vocabulary, window=WINDOW),
        head_config=shape.head,
        adapter_rank=shape.rank,
        base=Part(str(base), {}),
        adapter=Part(str(folder / "adapter"), {}),
        head=Part(str(head), {}),
        tokenizer=Part(str(TOKENIZER), {}),
    )
    return Bundle(path=folder, manifest=manifest, hash="0" * 12)


def kinds(shape: Shape) -> list[str]:
    """Give the kind of each layer: every fourth has full attention."""
    return [
        "full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(shape.layers)
    ]


def adapted(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Give the matrices that an adapter changes: module, inputs, outputs."""
    h, keys = shape.hidden, shape.key_heads * shape.linear_size
    values = shape.value_heads * shape.linear_size
    q, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    for layer in range(shape.layers * 5 // 8, shape.layers):
        own = {"mlp.gate_proj": (h, shape.mlp), "mlp.up_proj": (h, shape.mlp)}
        own["mlp.down_proj"] = (shape.mlp, h)
        if kinds(shape)[layer] == "full_attention":
            own |= {"self_attn.q_proj": (h, 2 * q), "self_attn.o_proj": (q, h)}
            own |= {"self_attn.k_proj": (h, kv), "self_attn.v_proj": (h, kv)}
        else:
            own |= {
                "linear_attn.in_proj_qkv": (h, 2 * keys + values),
                "linear_attn.in_proj_z": (h, values),
                "linear_attn.in_proj_b": (h, shape.value_heads),
                "linear_attn.in_proj_a": (h, shape.value_heads),
                "linear_attn.out_proj": (values, h),
            }
        for matrix, (inputs, outputs) in own.items():
            yield f"model.language_model.layers.{layer}.{matrix}", inputs, outputs


def config(shape: Shape) -> dict[str, Any]:
    """Give `config.json`."""
    rotary = shape.head_size // 8  # pairs of the quarter that is turned
    sections = [(rotary + 2 - k) // 3 for k in range(3)]
    text = {
        "model_type": "qwen3_5_text",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "linear_key_head_dim": shape.linear_size,
        "linear_value_head_dim": shape.linear_size,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "layer_types": kinds(shape),
        "max_position_embeddings": WINDOW,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attn_output_gate": True,
        "output_gate_type": "swish",
        "hidden_act": "silu",
        "eos_token_id": 1,
        "dtype": "bfloat16",
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_section": sections,
            "mrope_interleaved": True,
        },
    }
    vision = {
        "model_type": "qwen3_5_vision",
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": shape.hidden,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [],
        "hidden_act": "gelu_pytorch_tanh",
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "vision_config": vision,
        "tie_word_embeddings": False,
        "image_token_id": 5,
        "video_token_id": 6,
        "vision_start_token_id": 3,
        "vision_end_token_id": 4,
        "dtype": "bfloat16",
    }
