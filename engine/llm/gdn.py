"""Linear attention on the CPU: formats that vLLM's operator refuses, and a faster convolution.

vLLM's own operator takes a model in bf16 with states in float32. It is registered when the first
such layer is built; `install` names another function for it before that, where it would refuse:
there all is computed in float32. Elsewhere it stays, except for the convolution, which vLLM does
for one sequence after the other, channel by channel: with eight questions in a step that took an
eighth of it.

Source of the chunked form: Yang et al., "Gated Delta Networks" (arXiv 2412.06464), section 3.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
from vllm.utils.torch_utils import LayerNameType, _resolve_layer_name

_CHUNK = 64
"""Tokens solved at once: the size of the triangular systems."""


def needed(model: torch.dtype, state: str) -> bool:
    """Tell whether vLLM's own operator refuses a model's format with a format of its states."""
    return model != torch.bfloat16 or state != "float32"


def install(model: torch.dtype, state: str) -> None:
    """Let vLLM use `convolve` and, where it is needed, register `attention_core`.

    Call it before the model is built.

    Args:
        model: Format of the model.
        state: Format of its states, as vLLM names it.
    """
    operators: Any = gdn_attention
    operators.causal_conv1d_torch = convolve
    if needed(model, state):
        operators.cpu_gdn_attention_core = attention_core


def attention_core(
    mixed_qkv: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    core_attn_out: torch.Tensor,
    layer_name: LayerNameType,
) -> None:
    """Convolve and run the gated delta rule for every sequence of the step, in place.

    Args:
        mixed_qkv: Queries, keys and values, [tokens, 2 * key_dim + value_dim].
        b: What the write strength is the sigmoid of, [tokens, value heads].
        a: What the decay depends on, [tokens, value heads].
        core_attn_out: Takes the result, [tokens, value heads, value size].
        layer_name: Names the layer in vLLM's forward context.

    Raises:
        NotImplementedError: Speculative decoding, which this form does not know.
    """
    context: Any = get_forward_context()
    if context.attn_metadata is None:  # vLLM's profiling run: there are no state slots yet
        return
    layer = context.no_compile_layers[_resolve_layer_name(layer_name)]
    meta = context.attn_metadata[layer.prefix]
    if meta.num_actual_tokens == 0:
        return
    if meta.spec_sequence_masks is not None:
        raise NotImplementedError("this linear attention on the CPU does not speculate")

    sequences = meta.num_decodes + meta.num_prefills
    slots = meta.non_spec_state_indices_tensor[:sequences]
    starts = meta.non_spec_query_start_loc[: sequences + 1]
    resumed = meta.has_initial_state
    if resumed is None:  # every sequence is one decode
        resumed = torch.ones(sequences, dtype=torch.bool)

    conv_state, state = layer.kv_cache
    if not is_conv_state_dim_first():
        conv_state = conv_state.transpose(-1, -2)
    state = state.view(*state.shape[:2], layer.head_k_dim, layer.head_v_dim)
    state[slots[~resumed[:sequences]]] = 0

    tokens = int(starts[-1])
    mixed = convolve(
        mixed_qkv[:tokens].t(),
        layer.conv1d.weight.flatten(1),
        layer.conv1d.bias,
        conv_state,
        starts,
        cache_indices=slots,
        has_initial_state=resumed,
        activation=layer.activation,
    ).t()
    query, key, value = (part.squeeze(0).float() for part in layer.rearrange_mixed_qkv(mixed))
    decay = -layer.A_log.float().exp() * F.softplus(a[:tokens].float() + layer.dt_bias.float())
    strength = b[:tokens].float().sigmoid()
    for slot, (start, end) in zip(slots.tolist(), pairwise(starts.tolist()), strict=True):
        core_attn_out[start:end], state[slot] = delta_rule(
            query[start:end],
            key[start:end],
            value[start:end],
            decay[start:end],
            strength[start:end],
            state[slot].float(),
        )


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    conv_states: Tensor,
    query_start_loc: Tensor,
    cache_indices: Tensor,
    has_initial_state: Tensor,
    activation: str | None,
) -> Tensor:
    """Convolve each channel with what came before it in its sequence; keep what comes after.

    Takes the place of vLLM's `causal_conv1d_fn_cpu`.

    Args:
        x: All sequences one after another, [channels, tokens].
        weight: [channels, width].
        bias: [channels].
        conv_states: The last tokens of each sequence, [slots, channels, width - 1]; written anew.
        query_start_loc: Where the sequences begin, and the last one's end, [sequences + 1].
        cache_indices: Slots of the sequences, [sequences].
        has_initial_state: Sequences that go on from their slot; others begin with zeros.
        activation: "silu", "swish" or None.
    """
    rows, before = x.t(), weight.shape[1] - 1
    slots = cache_indices.long()
    kept = conv_states[slots].transpose(1, 2).to(x.dtype)  # [sequences, width - 1, channels]
    kept[~has_initial_state.bool()] = 0
    borders = list(pairwise(query_start_loc.tolist()))
    pieces = zip(kept, (rows[start:end] for start, end in borders), strict=True)
    padded = torch.cat([part for piece in pieces for part in piece])
    ends = torch.tensor([end + before * number for number, (_, end) in enumerate(borders, 1)])
    last = padded[ends[:, None] + torch.arange(-before, 0)]
    conv_states[slots] = last.transpose(1, 2).to(conv_states.dtype)

    # as an image one pixel wide: torch knows images alone with their channels side by side
    image = padded[None, :, None].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    mixed = F.conv2d(image, weight[:, None, :, None], bias, groups=len(weight))[0, :, :, 0].t()
    own = [
        mixed[start + before * number : end + before * number]
        for number, (start, end) in enumerate(borders)
    ]
    found = torch.cat(own) if len(own) > 1 else mixed
    return (F.silu(found) if activation in ("silu", "swish") else found).t()


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule over one sequence, in chunks.

    Per token and head: S <- exp(decay) S, S <- S + k (strength (v - S^T k))^T, output = S^T q,
    with q and k of unit length and q scaled by key_size ** -0.5.

    Args:
        query: [tokens, key heads, key size], not normalised.
        key: [tokens, key heads, key size], not normalised.
        value: [tokens, value heads, value size]; each key head serves several value heads.
        decay: Logarithm of what is kept, [tokens, value heads].
        strength: [tokens, value heads].
        state: State before the first token, [value heads, key size, value size].

    Returns:
        The outputs, [tokens, value heads, value size], and the state after the last token.
    """
    tokens, heads = value.shape[:2]
    size = min(_CHUNK, tokens)
    chunks = -(-tokens // size)

    def split(x: Tensor) -> Tensor:
        """[tokens, heads, ...] -> [heads, chunks, size, ...], zeros behind the last token."""
        x = F.pad(x, (0, 0) * (x.dim() - 1) + (0, chunks * size - tokens))
        return x.transpose(0, 1).unflatten(1, (chunks, size))

    share = heads // key.shape[1]
    q = split(_unit(query).repeat_interleave(share, 1) * query.shape[-1] ** -0.5)
    k = split(_unit(key).repeat_interleave(share, 1))
    v, g, beta = split(value), split(decay).cumsum(-1), split(strength).unsqueeze(-1)

    within = (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril()
    system = (beta * k @ k.mT * within).tril(-1)  # the diagonal of ones is implied
    solved = torch.linalg.solve_triangular(
        system,
        torch.cat((beta * v, beta * k * g.exp().unsqueeze(-1)), -1),
        upper=False,
        unitriangular=True,
    )
    new, old = solved.split((v.shape[-1], k.shape[-1]), -1)
    scores = q @ k.mT * within
    q = q * g.exp().unsqueeze(-1)
    k = k * (g[..., -1:] - g).exp().unsqueeze(-1)
    keep = g[..., -1].exp()[..., None, None]

    outputs = torch.empty_like(v)
    for i in range(chunks):
        written = new[:, i] - old[:, i] @ state
        outputs[:, i] = q[:, i] @ state + scores[:, i] @ written
        state = keep[:, i] * state + k[:, i].mT @ written
    return outputs.flatten(1, 2)[:, :tokens].transpose(0, 1), state


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
