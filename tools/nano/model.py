"""The text model in plain torch, for training: Qwen3.5's hybrid layers, names as in the release.

Every fourth layer has full attention with an output gate; the others have the gated delta rule
(S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", ICLR 2025), here over chunks of tokens.

Shapes: B records, T tokens, H hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.release_layout import Sizes, layer_matrices

CHUNK = 64
_ROTARY_SHARE, _THETA, _EPS = 0.25, 1e7, 1e-6


class Linear(nn.Linear):
    """A matrix without bias to which a product of two thin ones may be added."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.lora_a: nn.Parameter | None = None
        self.lora_b: nn.Parameter | None = None

    def adapt(self, rank: int) -> None:
        """Add factors, the second of them zero."""
        a = torch.empty(rank, self.in_features, device=self.weight.device)
        nn.init.normal_(a, std=self.in_features**-0.5)
        self.lora_a = nn.Parameter(a)
        self.lora_b = nn.Parameter(a.new_zeros(self.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the matrix, and what was added to it."""
        y = F.linear(x, self.weight)
        if self.lora_a is None or self.lora_b is None:
            return y
        return y + F.linear(F.linear(x, self.lora_a), self.lora_b)


class RmsNorm(nn.Module):
    """Root mean square normalization; the weight is an offset from 1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        return (_rms(x.float()) * (1 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    """The same with a plain weight, then a gate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """Normalize and gate."""
        return (_rms(x.float()) * self.weight * F.silu(gate.float())).to(gate.dtype)


def _rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + _EPS)


class LinearAttention(nn.Module):
    """Attention with a state of fixed size."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        keys, values = sizes.key_heads * sizes.linear_dim, sizes.value_heads * sizes.linear_dim
        channels = 2 * keys + values
        self.split = (keys, keys, values)
        self.conv1d = nn.Conv1d(channels, channels, 4, groups=channels, padding=3, bias=False)
        # memories that fade within some tokens beside some that last for thousands
        self.A_log = nn.Parameter(torch.linspace(-4.0, 2.0, sizes.value_heads))
        self.dt_bias = nn.Parameter(torch.full((sizes.value_heads,), -2.0))
        self.norm = GatedNorm(sizes.linear_dim)
        self.in_proj_qkv = Linear(sizes.hidden, channels)
        self.in_proj_z = Linear(sizes.hidden, values)
        self.in_proj_a = Linear(sizes.hidden, sizes.value_heads)
        self.in_proj_b = Linear(sizes.hidden, sizes.value_heads)
        self.out_proj = Linear(values, sizes.hidden)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Give what each token reads, [B, T, H]; positions play no part."""
        sizes = self.sizes
        mixed = F.silu(_convolved(self.in_proj_qkv(x), self.conv1d.weight))
        query, key, value = (
            part.unflatten(-1, (-1, sizes.linear_dim)) for part in mixed.split(self.split, -1)
        )
        with torch.autocast(x.device.type, enabled=False):
            exact = x.float()
            steps = F.softplus(self.in_proj_a(exact) + self.dt_bias)
            read = gated_delta_rule(
                query.float(),
                key.float(),
                value.float(),
                -self.A_log.exp() * steps,
                self.in_proj_b(exact).sigmoid(),
            )
        gate = self.in_proj_z(x).unflatten(-1, (-1, sizes.linear_dim))
        return self.out_proj(self.norm(read, gate).flatten(-2))


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve each channel with its own taps, [B, T, C] and [C, 1, taps].

    Shifted sums: the library's backward pass for depthwise convolutions is slower than all else.
    """
    taps = weight.to(x.dtype)
    count = weight.shape[-1]
    padded = F.pad(x, (0, 0, count - 1, 0))
    parts = [padded[:, tap : tap + x.shape[1]] * taps[:, 0, tap] for tap in range(count)]
    return sum(parts[1:], parts[0])


class FullAttention(nn.Module):
    """Causal attention with normalized queries and keys, partial rotation, and an output gate."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.q_proj = Linear(sizes.hidden, 2 * sizes.heads * sizes.head_dim)
        self.k_proj = Linear(sizes.hidden, sizes.kv_heads * sizes.head_dim)
        self.v_proj = Linear(sizes.hidden, sizes.kv_heads * sizes.head_dim)
        self.o_proj = Linear(sizes.heads * sizes.head_dim, sizes.hidden)
        self.q_norm = RmsNorm(sizes.head_dim)
        self.k_norm = RmsNorm(sizes.head_dim)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Give what each token reads, [B, T, H]."""
        sizes = self.sizes
        query, gate = self.q_proj(x).unflatten(-1, (sizes.heads, -1)).chunk(2, -1)
        key, value = (
            project(x).unflatten(-1, (sizes.kv_heads, -1)) for project in (self.k_proj, self.v_proj)
        )
        query, key = (
            _rotate(norm(each), rotary) for norm, each in ((self.q_norm, query), (self.k_norm, key))
        )
        groups = sizes.heads // sizes.kv_heads
        read = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.repeat_interleave(groups, 2).transpose(1, 2),
            value.repeat_interleave(groups, 2).transpose(1, 2),
            is_causal=True,
        ).transpose(1, 2)
        return self.o_proj((read * gate.sigmoid()).flatten(-2))


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotary
    turned, kept = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    one, other = turned.chunk(2, -1)
    turned = turned * cos + torch.cat([-other, one], -1) * sin
    return torch.cat([turned.to(x.dtype), kept], -1)


class Mlp(nn.Module):
    """The gated feed-forward part of a layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate_proj = Linear(sizes.hidden, sizes.mlp)
        self.up_proj = Linear(sizes.hidden, sizes.mlp)
        self.down_proj = Linear(sizes.mlp, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One layer: attention of its kind, then the feed-forward part."""

    def __init__(self, sizes: Sizes, kind: str) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(sizes.hidden)
        self.post_attention_layernorm = RmsNorm(sizes.hidden)
        if kind == "full_attention":
            self.self_attn = FullAttention(sizes)
        else:
            self.linear_attn = LinearAttention(sizes)
        self.mlp = Mlp(sizes)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Give the next states, [B, T, H]."""
        attention = self.self_attn if hasattr(self, "self_attn") else self.linear_attn
        x = x + attention(self.input_layernorm(x), (cos, sin))
        return x + self.mlp(self.post_attention_layernorm(x))


class TextModel(nn.Module):
    """Embedding, layers, final norm, and the output embedding beside them."""

    def __init__(self, sizes: Sizes, vocab_size: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = nn.Embedding(vocab_size, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes, kind) for kind in sizes.layer_kinds())
        self.norm = RmsNorm(sizes.hidden)
        self.lm_head = Linear(sizes.hidden, vocab_size)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * sizes.layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Give the states after the final norm, [B, T] to [B, T, H].

        Padding stands on the right, where no token sees it.
        """
        x = self.embed_tokens(ids)
        cos, sin = self._rotary(ids.shape[1], x.device)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def adapt(self, rank: int) -> None:
        """Freeze everything, and add factors to the matrices that the release has changed."""
        self.requires_grad_(requires_grad=False)
        for _, module in self.adapted():
            module.adapt(rank)

    def adapted(self) -> Iterable[tuple[str, Linear]]:
        """Give the modules that have factors, or are to have them, by their name in the release."""
        for layer in self.sizes.adapted_layers():
            for name in layer_matrices(self.sizes, layer):
                module = self.get_submodule(f"layers.{layer}.{name}")
                assert isinstance(module, Linear)
                yield f"model.language_model.layers.{layer}.{name}", module

    def _rotary(self, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
        turned = int(self.sizes.head_dim * _ROTARY_SHARE)
        powers = torch.arange(0, turned, 2, device=device, dtype=torch.float32) / turned
        angles = torch.arange(tokens, device=device, dtype=torch.float32)[:, None] * _THETA**-powers
        angles = torch.cat([angles, angles], -1)[:, None]  # [T, 1, turned], over heads
        return angles.cos(), angles.sin()


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
) -> Tensor:
    """Read from and write to a state token by token, computed chunk by chunk.

    Args:
        query: [B, T, key heads, D]; normalized here.
        key: Likewise.
        value: [B, T, value heads, D].
        decay: Logarithm of what a token leaves of the state, [B, T, value heads].
        beta: How much of a key's old value is replaced, [B, T, value heads].

    Returns:
        [B, T, value heads, D].
    """
    tokens, dim = key.shape[1], key.shape[-1]
    groups = value.shape[2] // key.shape[2]
    query, key = (
        (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPS)).repeat_interleave(groups, 2)
        for x in (query, key)
    )
    padding = -tokens % CHUNK

    def chunked(x: Tensor) -> Tensor:
        """Arrange as [B, heads, chunks, CHUNK, ...]."""
        x = F.pad(x.transpose(1, 2), (0, 0) * (x.dim() - 3) + (0, padding))
        return x.unflatten(2, (-1, CHUNK))

    query, key, value, decay, beta = map(chunked, (query * dim**-0.5, key, value, decay, beta))
    total = decay.cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=key.device).triu(1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
    scaled = key * beta[..., None]
    # within a chunk, every token's new value depends on the ones before it: a triangular system
    system = ((scaled @ key.transpose(-1, -2)) * between).tril(-1)
    right = torch.cat([value * beta[..., None], scaled * total.exp()[..., None]], -1)
    new, reads = (_unit_inverse(system) @ right).split((value.shape[-1], dim), -1)
    inside = (query @ key.transpose(-1, -2)) * between
    query = query * total.exp()[..., None]
    key = (key * (total[..., -1:] - total).exp()[..., None]).transpose(-1, -2)
    left = total[..., -1].exp()[..., None, None]
    state = value.new_zeros(*value.shape[:2], dim, value.shape[-1])
    outputs: list[Tensor] = []
    for chunk in range(key.shape[2]):
        written = new[:, :, chunk] - reads[:, :, chunk] @ state
        outputs.append(query[:, :, chunk] @ state + inside[:, :, chunk] @ written)
        state = state * left[:, :, chunk] + key[:, :, chunk] @ written
    read = torch.stack(outputs, 2).flatten(2, 3)[:, :, :tokens]
    return read.transpose(1, 2)


def _unit_inverse(below: Tensor) -> Tensor:
    """Invert 1 + L for L below the diagonal, [..., CHUNK, CHUNK], in blocks that double.

    [[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]]: products only, which a GPU does faster
    than many small triangular systems, and as stable as solving them (the series in powers of L is
    not: where keys repeat, its terms grow without bound before they cancel).
    """
    one = torch.eye(CHUNK, dtype=below.dtype, device=below.device)
    place = torch.arange(CHUNK, device=below.device)
    with torch.no_grad():
        inverse = one.expand_as(below)
        for size in (1 << level for level in range(CHUNK.bit_length() - 1)):
            block = place // size
            joins = (block[:, None] == block + 1) & (block % 2 == 0)
            inverse = inverse - inverse @ (below * joins) @ inverse
    # a step of Newton's method: it changes rounding alone, and has the inverse's gradient
    return 2 * inverse - inverse @ (inverse + below @ inverse)
