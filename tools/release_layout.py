"""The release's layout at any size: configuration, names and shapes of the tensors, shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Shape = tuple[int, ...]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a base; the defaults are the smallest that vLLM's kernels take."""

    hidden: int = 128
    mlp: int = 256
    layers: int = 8
    window: int = 32768
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    linear_dim: int = 128
    vision: int = 64

    def layer_kinds(self) -> list[str]:
        """Give the kind of each layer: every fourth has full attention."""
        return [
            "full_attention" if layer % 4 == 3 else "linear_attention"
            for layer in range(self.layers)
        ]

    def adapted_layers(self) -> range:
        """Give the layers that have an adapter: the last three eighths, as in the release."""
        return range(self.layers - self.layers * 3 // 8, self.layers)


def config(sizes: Sizes, *, vocab_size: int, token_ids: dict[str, int]) -> dict[str, Any]:
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
            "head_dim": sizes.head_dim,
            "hidden_act": "silu",
            "hidden_size": sizes.hidden,
            "initializer_range": 0.02,
            "intermediate_size": sizes.mlp,
            "layer_types": sizes.layer_kinds(),
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": sizes.linear_dim,
            "linear_num_key_heads": sizes.key_heads,
            "linear_num_value_heads": sizes.value_heads,
            "linear_value_head_dim": sizes.linear_dim,
            "mamba_ssm_dtype": "float32",
            "max_position_embeddings": sizes.window,
            "model_type": "qwen3_5_text",
            "mtp_num_hidden_layers": 0,
            "mtp_use_dedicated_embeddings": False,
            "num_attention_heads": sizes.heads,
            "num_hidden_layers": sizes.layers,
            "num_key_value_heads": sizes.kv_heads,
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
            "hidden_size": sizes.vision,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": sizes.vision,
            "model_type": "qwen3_5_vision",
            "num_heads": 1,
            "num_position_embeddings": 16,
            "out_hidden_size": sizes.hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": token_ids["<|vision_end|>"],
        "vision_start_token_id": token_ids["<|vision_start|>"],
    }


def write_shards(folder: Path, shapes: dict[str, Shape], tensor: Callable[[str], Tensor]) -> None:
    """Write tensors in bfloat16, in two shards with an index."""
    from safetensors.torch import save_file

    names = sorted(shapes)
    shards = (names[: len(names) // 2], names[len(names) // 2 :])
    weight_map: dict[str, str] = {}
    size = 0
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: tensor(name).bfloat16().contiguous() for name in shard}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
        size += sum(each.nbytes for each in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def layer_matrices(sizes: Sizes, layer: int) -> dict[str, tuple[int, int]]:
    """Give rows and columns of a layer's matrices that an adapter may change."""
    keys, values = sizes.key_heads * sizes.linear_dim, sizes.value_heads * sizes.linear_dim
    matrices = {
        "mlp.gate_proj": (sizes.mlp, sizes.hidden),
        "mlp.up_proj": (sizes.mlp, sizes.hidden),
        "mlp.down_proj": (sizes.hidden, sizes.mlp),
    }
    if sizes.layer_kinds()[layer] == "full_attention":
        return matrices | {
            "self_attn.q_proj": (
                2 * sizes.heads * sizes.head_dim,
                sizes.hidden,
            ),  # query and output gate
            "self_attn.k_proj": (sizes.kv_heads * sizes.head_dim, sizes.hidden),
            "self_attn.v_proj": (sizes.kv_heads * sizes.head_dim, sizes.hidden),
            "self_attn.o_proj": (sizes.hidden, sizes.heads * sizes.head_dim),
        }
    return matrices | {
        "linear_attn.in_proj_qkv": (2 * keys + values, sizes.hidden),
        "linear_attn.in_proj_z": (values, sizes.hidden),
        "linear_attn.in_proj_a": (sizes.value_heads, sizes.hidden),
        "linear_attn.in_proj_b": (sizes.value_heads, sizes.hidden),
        "linear_attn.out_proj": (sizes.hidden, values),
    }


def base_shapes(sizes: Sizes, vocab_size: int) -> dict[str, Shape]:
    """Give names and shapes of a base's tensors."""
    language = "model.language_model"
    shapes: dict[str, Shape] = {
        "lm_head.weight": (vocab_size, sizes.hidden),
        f"{language}.embed_tokens.weight": (vocab_size, sizes.hidden),
        f"{language}.norm.weight": (sizes.hidden,),
    }
    for layer, kind in enumerate(sizes.layer_kinds()):
        own: dict[str, Shape] = {
            "input_layernorm.weight": (sizes.hidden,),
            "post_attention_layernorm.weight": (sizes.hidden,),
        }
        own |= {f"{name}.weight": shape for name, shape in layer_matrices(sizes, layer).items()}
        if kind == "full_attention":
            own |= {
                "self_attn.q_norm.weight": (sizes.head_dim,),
                "self_attn.k_norm.weight": (sizes.head_dim,),
            }
        else:
            channels = (2 * sizes.key_heads + sizes.value_heads) * sizes.linear_dim
            own |= {
                "linear_attn.A_log": (sizes.value_heads,),
                "linear_attn.dt_bias": (sizes.value_heads,),
                "linear_attn.conv1d.weight": (channels, 1, 4),
                "linear_attn.norm.weight": (sizes.linear_dim,),
            }
        shapes |= {f"{language}.layers.{layer}.{name}": shape for name, shape in own.items()}
    return shapes | {f"model.visual.{name}": shape for name, shape in _vision_shapes(sizes).items()}


def _vision_shapes(sizes: Sizes) -> dict[str, Shape]:
    merged = 4 * sizes.vision
    linear: dict[str, Shape] = {
        "blocks.0.attn.proj": (sizes.vision, sizes.vision),
        "blocks.0.attn.qkv": (3 * sizes.vision, sizes.vision),
        "blocks.0.mlp.linear_fc1": (sizes.vision, sizes.vision),
        "blocks.0.mlp.linear_fc2": (sizes.vision, sizes.vision),
        "blocks.0.norm1": (sizes.vision,),
        "blocks.0.norm2": (sizes.vision,),
        "merger.linear_fc1": (merged, merged),
        "merger.linear_fc2": (sizes.hidden, merged),
        "merger.norm": (sizes.vision,),
        "patch_embed.proj": (sizes.vision, 3, 2, 16, 16),
    }
    shapes: dict[str, Shape] = {"pos_embed.weight": (16, sizes.vision)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file as the release's are."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
