"""What a machine holds of a bundle: sizes from headers and configuration, nothing loaded.

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
from engine.settings import CPU_CACHE, GIB, NumberFormat, WorkerSettings
from engine.tensors import read_header

Weights = Literal["stored", "fp8", "w4a16"]
"""How the layers' matrices lie on the card: as in the files, in 8 bits, in 4 bits."""

RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM allocates; a smaller adapter is padded with zeros."""

_SHARE = 0.92  # of the card; vLLM's default, which workers keep
_GRAPHS = GIB * 6 // 10  # estimate: CUDA graphs of one 27B, and what CUDA itself takes
_VISION, _PREDICTOR = "model.visual.", "mtp."
_BITS = {"fp8": 8.0, "w4a16": 4.125}  # a weight; 4 bits and a 16-bit scale for each 128
_IN_16_BITS = ("in_proj_a", "in_proj_b", "conv1d", "norm")
_BYTES: dict[NumberFormat, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
# tokens guessed at once, each with a linear-attention state; a draft model names its own
_GUESSES = {"off": 0, "ngram": 4, "mtp": 1, "dflash2": 8}
_CHAT = 8_000  # tokens of a chat
_MATCH = 4_000  # tokens of a match's state


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What of a model counts on a card, in bytes unless said otherwise.

    Attributes:
        weights: Without vision, and without the predictor unless it guesses for chats.
        adapter: vLLM's buffers: at its next rank, on every layer that has the named modules.
        head: The scoring head, which is kept in float32.
        workspace: Activations of the largest engine step.
        full: Layers with full attention.
        linear: Layers with linear attention.
        token: Keys and values of one token in one layer.
        state: Linear-attention state of one layer.
        feature: Head features of one token.
        align: Tokens that a block is a multiple of.
        longest: The model's own limit in tokens.
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
    align: int
    longest: int

    @property
    def block(self) -> int:
        """Tokens in a block of the cache."""
        if not self.linear:
            return self.align
        return -(-self.state // (self.token * self.align)) * self.align

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
        window: Longest sequence in tokens that is let in.
        seats: Sequences as long as the window at once; there are never more than `max_seqs`.
        chats: Sequences of 8,000 tokens at once.
        matches: Kept states of 4,000 tokens at once.
    """

    items: list[Item]
    block: int
    blocks: int
    kv_token: int
    context: int
    window: int
    seats: int
    chats: int
    matches: int


def sizes_of(
    bundle: Bundle, settings: WorkerSettings | None = None, *, weights: Weights = "stored"
) -> Sizes:
    """Read the sizes of a bundle, as the settings have it, from its headers and configuration.

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
            settings=settings or WorkerSettings(),
            weights=weights,
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
    settings: WorkerSettings,
    weights: Weights = "stored",
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
    number = 4 if settings.dtype == "float32" else 2
    # in 8 bits each head of each token has a scale
    kept_head = {"auto": text["head_dim"] * number, "fp8": text["head_dim"]}
    kept_head["int8"] = text["head_dim"] + 4
    left_out = (_VISION,) if settings.speculative == "mtp" else (_VISION, _PREDICTOR)
    loaded = sum(
        _bits(name, shape, 8.0 * tensors.sizes[name], weights, number)
        for name, shape in tensors.shapes.items()
        if not name.startswith(left_out)
    )
    beside = settings.head_device is None or settings.head_device == settings.device
    return Sizes(
        weights=int(loaded / 8),
        adapter=number * allocated * adapted,
        head=2 * head if beside else 0,
        # the gated product's two halves and their product, beside the residual stream
        workspace=settings.max_batched_tokens
        * number
        * (3 * text["intermediate_size"] + 4 * text["hidden_size"])
        + settings.max_seqs * 4 * text["vocab_size"],
        full=len(kinds) - linear,
        linear=linear,
        token=2 * text["num_key_value_heads"] * kept_head[settings.kv_cache_dtype],
        state=values * text["linear_key_head_dim"] * _BYTES[settings.state_dtype]
        + (2 * keys + values) * kept * number,
        feature=_BYTES[settings.feature_format] * width if beside else 0,
        align=128 if settings.device == "cpu" else 16,
        longest=text["max_position_embeddings"],
    )


def plan(
    sizes: Sizes,
    memory: int,
    settings: WorkerSettings,
    *,
    draft: int = 0,
    window: int | None = None,
) -> Plan:
    """Lay a model out on a card, or in the memory of a machine without one.

    Args:
        sizes: See `sizes_of`.
        memory: Bytes of the card, or what is free for a model on the CPU.
        settings: The same that the sizes were read with.
        draft: Bytes of a draft model's weights.
        window: A sequence of this many tokens has to fit; None: any.

    Raises:
        DoesNotFit: It does not fit; says what is missing and what to change.
    """
    on_cpu = settings.device == "cpu"
    spare = 0 if on_cpu else memory - int(memory * _SHARE)
    taken = [
        Item("weights", sizes.weights, "tensor sizes"),
        Item("adapter", sizes.adapter, "its rank on every layer with its modules, as vLLM has it"),
        Item("head", sizes.head, "tensor sizes, in float32"),
        Item("draft model", draft, "tensor sizes; without its cache"),
        Item("workspace", sizes.workspace, f"computed, {settings.max_batched_tokens:,} tokens"),
        Item("graphs and CUDA", 0 if on_cpu else _GRAPHS, "estimate"),
        Item("not vLLM's", spare, f"its share is {_SHARE:.0%}"),
    ]
    left = memory - sum(item.bytes for item in taken)
    wanted = settings.kv_cache_memory or (CPU_CACHE if on_cpu else 0)
    cache = wanted or max(left, 0)
    states = 2 + _GUESSES[settings.speculative]
    needed = sizes.blocks_of(window or sizes.block, states) * sizes.block_bytes
    if left < max(wanted, needed):
        missing = max(wanted, needed) - left
        raise DoesNotFit(
            f"{missing / GIB:.1f} GiB are missing on {memory / GIB:.1f} GiB: weights take "
            f"{sizes.weights / GIB:.1f}, the adapter {sizes.adapter / GIB:.1f}, the cache at least "
            f"{max(wanted, needed) / GIB:.1f}; take a quantized base (`ostinato plan` with "
            "--weights fp8 or w4a16 shows what it saves), a lower rank, a smaller --window, "
            "--kv-cache-dtype fp8, no draft model, or more memory"
        )
    blocks = cache // sizes.block_bytes
    attention = blocks - sizes.blocks_of(0, states)
    context = max(0, attention // -(-sizes.full // sizes.pool) * sizes.block)
    if cache < needed:
        raise DoesNotFit(
            f"a cache of {cache / GIB:.2f} GiB (--kv-cache-memory) holds a sequence of "
            f"{context:,} tokens, the window is {window or sizes.block:,}; give it "
            f"{needed / GIB:.2f} GiB, or take a smaller --window"
        )
    if not on_cpu and blocks < settings.max_seqs:
        raise DoesNotFit(
            f"the cache of {cache / GIB:.2f} GiB has {blocks} blocks, and vLLM's CUDA graphs want "
            f"one for each of {settings.max_seqs} sequences in a step; take --max-seqs {blocks} at "
            "most"
        )
    cached = blocks * sizes.block * sizes.feature
    longest = settings.window_of(sizes.longest)
    items = [
        *taken[:5],
        Item("KV cache and linear states", cache - cached, "what is left"),
        Item("head features", cached, f"{sizes.feature:,} bytes a token"),
        *taken[5:],
        Item("free", left - cache, "what is left"),
    ]
    if wanted:
        items[5] = msgspec.structs.replace(items[5], source="--kv-cache-memory")
    return Plan(
        items=[item for item in items if item.bytes > 0],
        block=sizes.block,
        blocks=blocks,
        kv_token=sizes.kv_token,
        context=min(context, sizes.longest),
        window=longest,
        seats=min(settings.max_seqs, blocks // sizes.blocks_of(longest, states)),
        chats=blocks // sizes.blocks_of(min(_CHAT, sizes.longest), states),
        matches=blocks // sizes.blocks_of(min(_MATCH, sizes.longest), 1),
    )


def draft_size(folder: Path) -> int:
    """Give the bytes of a draft model's weights; raises BadBundle if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadBundle(f"{folder}: no *.safetensors in it; give the draft model's folder")
    return sum(sum(read_header(file).sizes.values()) for file in files)


def _bits(name: str, shape: tuple[int, ...], stored: float, weights: Weights, number: int) -> float:
    """Give the bits of a tensor in memory, where a float takes `number` bytes."""
    count = 1
    for side in shape:
        count *= side
    if stored >= 16 * count:  # not quantized
        stored = 8 * number * count
    quantized = (
        weights in _BITS
        and ".layers." in name
        and len(shape) == 2
        and not any(part in name for part in _IN_16_BITS)
    )
    return min(stored, count * _BITS[weights]) if quantized else stored
