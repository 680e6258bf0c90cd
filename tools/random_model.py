"""A small model with random weights in the release's layout: base, adapter factors, head.

Every tensor has a generator of its own, so that one more changes no other. Values are uniform,
because these come from integers and are the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.bundle import HEAD_CONFIG, HEAD_TENSORS
from engine.head import JointHead
from engine.manifest import HeadConfig

Shape = tuple[int, ...]

HIDDEN, MLP, LAYERS, WINDOW = 128, 256, 8, 32768
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
KEY_HEADS, VALUE_HEADS, LINEAR_DIM = 2, 4, 128
VISION = 64
ADAPTED_LAYERS = range(LAYERS - 3, LAYERS)  # the last three eighths, as in the release
RANK = 8
HEAD = HeadConfig(
    hidden_size=HIDDEN, width=64, routing_layers=2, layers=4, heads=4, feedforward=128
)
# the last one as in training: above ln 100, where the head caps it
SCALARS = {"prior_logit_scale": 2.0, "residual_gate": -2.75, "joint_logit_scale": 4.75}


def layer_kinds() -> list[str]:
    """Give the kind of each layer: every fourth has full attention."""
    return ["full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(LAYERS)]


def config(*, vocab_size: int, token_ids: dict[str, int]) -> dict[str, Any]:
    """Give `config.json`; `token_ids` are those of the added tokens by their text."""
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "dtype": "bfloat16",
        "image_token_id": token_ids["<|image_pad|>"],
        "language_model_only": False,
        "model_type": "qwen3_5",
        "text_config": {
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_output_gate": True,
            "bos_token_id": token_ids["<|endoftext|>"],
            "dtype": "bfloat16",
            "eos_token_id": token_ids["<|endoftext|>"],
            "full_attention_interval": 4,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "initializer_range": 0.02,
            "intermediate_size": MLP,
            "layer_types": layer_kinds(),
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": LINEAR_DIM,
            "linear_num_key_heads": KEY_HEADS,
            "linear_num_value_heads": VALUE_HEADS,
            "linear_value_head_dim": LINEAR_DIM,
            "mamba_ssm_dtype": "float32",
            "max_position_embeddings": WINDOW,
            "model_type": "qwen3_5_text",
            "mtp_num_hidden_layers": 0,
            "mtp_use_dedicated_embeddings": False,
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "output_gate_type": "swish",
            "pad_token_id": None,
            "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "mrope_interleaved": True,
                "mrope_section": [3, 3, 2],
                "partial_rotary_factor": 0.25,
                "rope_theta": 10000000,
                "rope_type": "default",
            },
            "tie_word_embeddings": False,
            "use_cache": True,
            "vocab_size": vocab_size,
        },
        "tie_word_embeddings": False,
        "video_token_id": token_ids["<|video_pad|>"],
        "vision_config": {
            "deepstack_visual_indexes": [],
            "depth": 1,
            "dtype": "bfloat16",
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": VISION,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": VISION,
            "model_type": "qwen3_5_vision",
            "num_heads": 1,
            "num_position_embeddings": 16,
            "out_hidden_size": HIDDEN,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": token_ids["<|vision_end|>"],
        "vision_start_token_id": token_ids["<|vision_start|>"],
    }


def write_base(folder: Path, configuration: dict[str, Any], *, seed: int) -> None:
    """Write `config.json` and the weights, in two shards with an index."""
    shapes = _base_shapes(configuration["text_config"]["vocab_size"])
    names = sorted(shapes)
    shards = (names[: len(names) // 2], names[len(names) // 2 :])
    weight_map: dict[str, str] = {}
    size = 0
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: _draw(name, shapes[name], seed).bfloat16() for name in shard}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
        size += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)
    _write_json(folder / "config.json", configuration)


def write_head(folder: Path, *, seed: int) -> None:
    """Write the head's tensors and sizes."""
    with torch.device("meta"):
        shapes = {name: tuple(t.shape) for name, t in JointHead(HEAD).state_dict().items()}
    tensors = {name: _draw(name, shape, seed).bfloat16() for name, shape in shapes.items()}
    save_file(tensors, folder / HEAD_TENSORS, metadata={"format": "pt"})
    _write_json(folder / HEAD_CONFIG, msgspec.to_builtins(HEAD))


def adapter_factors(*, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Give the factors of the kinds of matrices that the release changed."""
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    for layer in ADAPTED_LAYERS:
        for name, (rows, columns) in _layer_matrices(layer).items():
            module = f"model.language_model.layers.{layer}.{name}"
            a = _uniform(f"{module}.lora_A", (RANK, columns), seed, std=columns**-0.5)
            factors[module] = (a, _uniform(f"{module}.lora_B", (rows, RANK), seed, std=0.1))
    return factors


def _layer_matrices(layer: int) -> dict[str, tuple[int, int]]:
    """Give rows and columns of a layer's matrices that an adapter may change."""
    keys, values = KEY_HEADS * LINEAR_DIM, VALUE_HEADS * LINEAR_DIM
    matrices = {
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    if layer_kinds()[layer] == "full_attention":
        return matrices | {
            "self_attn.q_proj": (2 * HEADS * HEAD_DIM, HIDDEN),  # query and output gate
            "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        }
    return matrices | {
        "linear_attn.in_proj_qkv": (2 * keys + values, HIDDEN),
        "linear_attn.in_proj_z": (values, HIDDEN),
        "linear_attn.in_proj_a": (VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_b": (VALUE_HEADS, HIDDEN),
        "linear_attn.out_proj": (HIDDEN, values),
    }


def _base_shapes(vocab_size: int) -> dict[str, Shape]:
    language = "model.language_model"
    shapes: dict[str, Shape] = {
        "lm_head.weight": (vocab_size, HIDDEN),
        f"{language}.embed_tokens.weight": (vocab_size, HIDDEN),
        f"{language}.norm.weight": (HIDDEN,),
    }
    for layer, kind in enumerate(layer_kinds()):
        own: dict[str, Shape] = {
            "input_layernorm.weight": (HIDDEN,),
            "post_attention_layernorm.weight": (HIDDEN,),
        }
        own |= {f"{name}.weight": shape for name, shape in _layer_matrices(layer).items()}
        if kind == "full_attention":
            own |= {"self_attn.q_norm.weight": (HEAD_DIM,), "self_attn.k_norm.weight": (HEAD_DIM,)}
        else:
            channels = (2 * KEY_HEADS + VALUE_HEADS) * LINEAR_DIM
            own |= {
                "linear_attn.A_log": (VALUE_HEADS,),
                "linear_attn.dt_bias": (VALUE_HEADS,),
                "linear_attn.conv1d.weight": (channels, 1, 4),
                "linear_attn.norm.weight": (LINEAR_DIM,),
            }
        shapes |= {f"{language}.layers.{layer}.{name}": shape for name, shape in own.items()}
    return shapes | {f"model.visual.{name}": shape for name, shape in _vision_shapes().items()}


def _vision_shapes() -> dict[str, Shape]:
    merged = 4 * VISION
    linear: dict[str, Shape] = {
        "blocks.0.attn.proj": (VISION, VISION),
        "blocks.0.attn.qkv": (3 * VISION, VISION),
        "blocks.0.mlp.linear_fc1": (VISION, VISION),
        "blocks.0.mlp.linear_fc2": (VISION, VISION),
        "blocks.0.norm1": (VISION,),
        "blocks.0.norm2": (VISION,),
        "merger.linear_fc1": (merged, merged),
        "merger.linear_fc2": (HIDDEN, merged),
        "merger.norm": (VISION,),
        "patch_embed.proj": (VISION, 3, 2, 16, 16),
    }
    shapes: dict[str, Shape] = {"pos_embed.weight": (16, VISION)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


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


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
