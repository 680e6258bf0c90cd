"""What a GPU holds of a bundle: sizes from headers and configuration, nothing loaded.

The cache follows vLLM: a block's tokens are as many as make the keys and values of one layer as
large as one layer's linear-attention state; layers of either kind share pools of blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from engine.adapter import TENSORS
from engine.bundle import Bundle, base_tensors
from engine.errors import BadBundle, DoesNotFit
from engine.quantized import Tensors
from engine.tensors import read_header

Profile = Literal["stored", "fp8", "w4a16"]
"""How the layers' matrices lie on the card: as in the files, in 8 bits, in 4 bits."""
KvDtype = Literal["bf16", "fp8"]

RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM allocates; a smaller adapter is padded with zeros."""

GIB: Final = 1 << 30
_SHARE = 0.92  # of the card; vLLM's default, which workers keep
_GRAPHS = GIB * 6 // 10  # estimate: CUDA graphs of one 27B, and what CUDA itself takes
_STEP = 2048  # tokens in an engine step, as the backend starts vLLM
_ALIGN = 16  # tokens; a block is a multiple
_NOT_LOADED = ("model.visual.", "mtp.")
_BITS = {"fp8": 8.0, "w4a16": 4.125}  # a weight; 4 bits and a 16-bit scale for each 128
_IN_16_BITS = ("in_proj_a", "in_proj_b", "conv1d", "norm")
_CHAT = 8_000  # tokens of a chat
_MATCH = 4_000  # tokens of a match's state


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What of a model counts on a card, in bytes unless said otherwise.

    Attributes:
        weights: As the profile has them, without vision and predictor.
        adapter: vLLM's buffers: at its next rank, on every layer that has the named modules.
        head: The scoring head, which is kept in float32.
        workspace: Activations of the largest engine step.
        full: Layers with full attention.
        linear: Layers with linear attention.
        token: Keys and values of one token in one layer.
        state: Linear-attention state of one layer.
        feature: Head features of one token.
        window: Longest record in tokens.
    """

    weights: int
    adapter: int
    head: int
    workspace: int
    full: int
    linear: int
    token: int
    state: int
    feature: int
    window: int

    @property
    def block(self) -> int:
        """Tokens in a block of the cache."""
        if not self.linear:
            return _ALIGN
        return -(-self.state // (self.token * _ALIGN)) * _ALIGN

    @property
    def pool(self) -> int:
        """Layers whose blocks lie side by side."""
        return min(self.full, self.linear) or max(self.full, self.linear)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in all layers of a pool, with the head features of its tokens."""
        return self.block * (self.pool * self.token + self.feature)

    @property
    def kv_token(self) -> int:
        """Bytes of one more token's keys and values."""
        return self.full * self.token

    def blocks_of(self, tokens: int, states: int) -> int:
        """Give the blocks of a sequence that keeps this many linear-attention states."""
        attention = -(-tokens // self.block) * -(-self.full // self.pool)
        return attention + states * -(-self.linear // self.pool)


class Item(msgspec.Struct, frozen=True):
    """One part of the card: bytes, and where the figure is from."""

    name: str
    bytes: int
    source: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a card is used.

    Attributes:
        items: All of the card, in parts.
        block: Tokens in a block of the cache.
        blocks: Blocks in the cache.
        kv_token: Bytes of a token's keys and values.
        context: Longest sequence in tokens, if there is only one.
        chats: Sequences of 8,000 tokens at once.
        matches: Kept states of 4,000 tokens at once.
    """

    items: list[Item]
    block: int
    blocks: int
    kv_token: int
    context: int
    chats: int
    matches: int


def sizes_of(bundle: Bundle, *, profile: Profile = "stored", kv_dtype: KvDtype = "bf16") -> Sizes:
    """Read the sizes of a bundle from its headers and configuration.

    Raises:
        BadBundle: The configuration lacks a size.
    """
    tensors = base_tensors(bundle)
    modules: set[str] = set()
    if bundle.adapter is not None:
        names = read_header(bundle.adapter / TENSORS).shapes
        modules = {name.split(".lora_")[0].rpartition(".")[2] for name in names}
    path = bundle.base / "config.json"
    config = msgspec.json.decode(path.read_bytes())
    try:
        return model_sizes(
            config.get("text_config", config),
            tensors,
            modules=modules,
            rank=bundle.adapter_rank or 0,
            head=bundle.head.stat().st_size,
            width=bundle.manifest.head_config.width,
            profile=profile,
            kv_dtype=kv_dtype,
        )
    except (KeyError, TypeError) as error:
        raise BadBundle(f"{path}: no size {error} in it, so nothing to plan with") from error


def model_sizes(
    text: dict[str, Any],
    tensors: Tensors,
    *,
    modules: set[str],
    rank: int,
    head: int,
    width: int,
    profile: Profile,
    kv_dtype: KvDtype,
) -> Sizes:
    """Compute sizes from a configuration and the tensors of its weights."""
    kinds = text["layer_types"]
    linear = kinds.count("linear_attention")
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    kept = text["linear_conv_kernel_dim"] - 1
    allocated = next((allowed for allowed in RANKS if allowed >= rank), RANKS[-1]) if rank else 0
    adapted = sum(
        sum(shape)
        for name, shape in tensors.shapes.items()
        if name.startswith("model.language_model.layers.") and name.split(".")[-2] in modules
    )
    per_value = 2 if kv_dtype == "bf16" else 1
    weights = sum(
        _bits(name, shape, 8.0 * tensors.sizes[name], profile)
        for name, shape in tensors.shapes.items()
        if not name.startswith(_NOT_LOADED)
    )
    return Sizes(
        weights=int(weights / 8),
        adapter=2 * allocated * adapted,
        head=2 * head,
        # the gated product's two halves and their product, beside the residual stream, in 16 bits
        workspace=_STEP * 2 * (3 * text["intermediate_size"] + 4 * text["hidden_size"])
        + 16 * 4 * text["vocab_size"],
        full=len(kinds) - linear,
        linear=linear,
        token=2 * text["num_key_value_heads"] * text["head_dim"] * per_value,
        state=values * text["linear_key_head_dim"] * 4 + (2 * keys + values) * kept * 2,
        feature=2 * width,
        window=text["max_position_embeddings"],
    )


def plan(sizes: Sizes, gpu_memory: int, *, draft: int = 0) -> Plan:
    """Lay a model out on a card.

    Args:
        sizes: See `sizes_of`.
        gpu_memory: Bytes of the card.
        draft: Bytes of a draft model's weights.

    Raises:
        DoesNotFit: No sequence would fit; says what is missing and what to change.
    """
    spare = gpu_memory - int(gpu_memory * _SHARE)
    items = [
        Item("weights", sizes.weights, "tensor sizes"),
        Item("adapter", sizes.adapter, "its rank on every layer with its modules, as vLLM has it"),
        Item("head", sizes.head, "tensor sizes, in float32"),
        Item("draft model", draft, "tensor sizes; without its cache"),
        Item("workspace", sizes.workspace, f"computed, a step of {_STEP:,} tokens"),
        Item("graphs and CUDA", _GRAPHS, "estimate"),
        Item("not vLLM's", spare, f"its share is {_SHARE:.0%}"),
    ]
    left = gpu_memory - sum(item.bytes for item in items)
    blocks = max(left, 0) // sizes.block_bytes
    single = sizes.blocks_of(sizes.block, 2)
    if blocks < single:
        missing = single * sizes.block_bytes - left
        raise DoesNotFit(
            f"{missing / GIB:.1f} GiB are missing on {gpu_memory / GIB:.1f} GiB: weights take "
            f"{sizes.weights / GIB:.1f}, the adapter {sizes.adapter / GIB:.1f}; take a quantized "
            "base (--profile fp8 or w4a16 shows what it saves), a lower rank, no draft model, or a "
            "larger card"
        )
    cached = blocks * sizes.block * sizes.feature
    items[5:5] = [
        Item("KV cache and linear states", blocks * sizes.block_bytes - cached, "what is left"),
        Item("head features", cached, f"{sizes.feature:,} bytes a token"),
    ]
    attention = blocks - (single - sizes.blocks_of(sizes.block, 0))
    context = attention // -(-sizes.full // sizes.pool) * sizes.block
    return Plan(
        items=[item for item in items if item.bytes],
        block=sizes.block,
        blocks=blocks,
        kv_token=sizes.kv_token,
        context=min(context, sizes.window),
        chats=blocks // sizes.blocks_of(min(_CHAT, sizes.window), 2),
        matches=blocks // sizes.blocks_of(min(_MATCH, sizes.window), 1),
    )


def draft_size(folder: Path) -> int:
    """Give the bytes of a draft model's weights; raises BadBundle if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadBundle(f"{folder}: no *.safetensors in it; give the draft model's folder")
    return sum(sum(read_header(file).sizes.values()) for file in files)


def _bits(name: str, shape: tuple[int, ...], stored: float, profile: Profile) -> float:
    """Give the bits of a tensor on the card."""
    quantized = (
        profile in _BITS
        and ".layers." in name
        and len(shape) == 2
        and not any(part in name for part in _IN_16_BITS)
    )
    count = 1
    for side in shape:
        count *= side
    return min(stored, count * _BITS[profile]) if quantized else stored
