"""The joint head: from the states of a record to one logit for every option.

Written in float32, plainly. Names follow the tensors of the release's `joint_head.safetensors`.
Shapes: T tokens, Q fields, N options of all fields together, H hidden size, W the head's width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from engine.errors import BadBundle
from engine.manifest import HeadConfig
from engine.tokens import RecordField, Span

_MAX_LOGIT_SCALE: Final = math.log(100)


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """What the head takes from single places of a record, besides every token's memory.

    Attributes:
        questions: Mean normalized state over each question's span, [Q, H].
        options: The same over each option's span, [N, H].
        last: Normalized state of the last token, [H].
        lexical: Mean row of the output embedding over each option's token ids, [N, H].
        types: Type code of each field, [Q].
        counts: Options of each field; they sum to N.
    """

    questions: Tensor
    options: Tensor
    last: Tensor
    lexical: Tensor
    types: Tensor
    counts: list[int]


class JointHead(nn.Module):
    """The scoring network of a bundle; load it with `from_file`."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.width

        def projection() -> nn.Linear:
            return nn.Linear(hidden, width, bias=False)

        self.hidden_norm = nn.LayerNorm(hidden)
        self.memory_projection = projection()
        self.question_projection = projection()
        self.option_question_projection = projection()
        self.global_projection = projection()
        self.option_context_projection = projection()
        self.option_lexical_projection = projection()
        self.type_embedding = nn.Embedding(3, width)
        self.evidence_layers = nn.ModuleList(
            _EvidenceLayer(config) for _ in range(config.routing_layers)
        )
        self.option_summary_norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(_FieldLayer(config) for _ in range(config.layers))
        self.field_norm = nn.LayerNorm(width)
        self.option_norm = nn.LayerNorm(width)
        self.residual_scorer = _feed_forward(4 * width, width, 1)
        self.prior_logit_scale = nn.Parameter(torch.zeros(()))
        self.joint_logit_scale = nn.Parameter(torch.zeros(()))
        self.residual_gate = nn.Parameter(torch.zeros(()))

    @classmethod
    def from_file(
        cls,
        path: Path,
        config: Mapping[str, int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> JointHead:
        """Read the tensors of a head.

        Args:
            path: A safetensors file.
            config: Sizes, as in the release's `joint_head_config.json`.
            dtype: Number format to compute in.
            device: Where to.

        Raises:
            BadBundle: The file is unreadable or its tensors are not those of the sizes.
        """
        try:
            tensors = load_file(path, device=str(device))
            with torch.device("meta"):
                head = cls(msgspec.convert(config, HeadConfig))
            head.load_state_dict(
                {name: tensor.to(dtype) for name, tensor in tensors.items()}, assign=True
            )
        except (OSError, SafetensorError, msgspec.ValidationError, RuntimeError) as error:
            detail = " ".join(str(error).split())
            raise BadBundle(f"{path}: not this head's tensors ({detail})") from error
        return head.requires_grad_(requires_grad=False).eval()

    @torch.inference_mode()
    def score(
        self,
        hidden: Tensor,
        input_ids: Sequence[int],
        lm_head: Tensor,
        fields: Sequence[RecordField],
    ) -> list[Tensor]:
        """Score the options of a record's fields, which influence one another.

        Args:
            hidden: States after the model's final norm, [T, H], any number format.
            input_ids: The record's tokens, T of them.
            lm_head: The output embedding, [vocabulary, H].
            fields: Where the questions and options stand.

        Returns:
            For each field, one logit for each option in model order.
        """
        x = self.normalize(hidden)
        return self.logits(self.memory_projection(x), self.pool(x, input_ids, lm_head, fields))

    def normalize(self, hidden: Tensor) -> Tensor:
        """Give the states as the head reads them, [T, H] to [T, H]."""
        return self.hidden_norm(hidden.to(self.hidden_norm.weight.dtype))

    def memory(self, hidden: Tensor) -> Tensor:
        """Give the head features, [T, H] to [T, W]: all it needs of the state's tokens."""
        return self.memory_projection(self.normalize(hidden))

    def pool(
        self,
        x: Tensor,
        input_ids: Sequence[int],
        lm_head: Tensor,
        fields: Sequence[RecordField],
    ) -> Pooled:
        """Gather what is read at single places; `x` are normalized states, [T, H]."""
        spans = [span for field in fields for span in field.option_spans]
        ids = torch.tensor(input_ids, device=lm_head.device)

        def lexical(span: Span) -> Tensor:
            return lm_head[ids[slice(*span)]].to(x.dtype).mean(0)

        return Pooled(
            questions=torch.stack([x[slice(*field.question_span)].mean(0) for field in fields]),
            options=torch.stack([x[slice(*span)].mean(0) for span in spans]),
            last=x[-1],
            lexical=torch.stack([lexical(span) for span in spans]),
            types=torch.tensor([field.type for field in fields], device=x.device),
            counts=[len(field.option_spans) for field in fields],
        )

    def logits(self, memory: Tensor, pooled: Pooled) -> list[Tensor]:
        """Score options from the head features of all tokens, [T, W], and the pooled places."""
        counts = torch.tensor(pooled.counts, device=memory.device)
        # every option beside its question, [N, H]
        questions = pooled.questions.repeat_interleave(counts, 0)
        options = (
            self.option_context_projection(pooled.options)
            + self.option_lexical_projection(pooled.lexical)
            + self.option_question_projection(questions)
        )
        for layer in self.evidence_layers:
            options = layer(options, memory)

        base = self.question_projection(pooled.questions)
        fields = (
            base
            + self.option_summary_norm(_summaries(options, base, pooled.counts))
            + self.global_projection(pooled.last)
            + self.type_embedding(pooled.types)
        )
        for layer in self.layers:
            fields = layer(fields, memory)

        fields = self.field_norm(fields).repeat_interleave(counts, 0)
        options = self.option_norm(options)
        residual = self.residual_scorer(
            torch.cat([fields, options, fields * options, (fields - options).abs()], -1)
        )
        joint = _scaled(self.joint_logit_scale) * F.cosine_similarity(fields, options, eps=1e-8)
        prior = _scaled(self.prior_logit_scale) * F.cosine_similarity(
            pooled.lexical, questions + pooled.last, eps=1e-12
        )
        logits = prior + self.residual_gate.sigmoid() * (joint + residual.squeeze(-1))
        return list(logits.split(pooled.counts))


class _Attention(nn.Module):
    """Multi-head attention without mask; query, key and value projections are packed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """Let each query, [n, W], see all of the memory, [m, W]."""
        weights = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        query, key, value = (
            F.linear(source, weight, bias).unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for source, (weight, bias) in zip((queries, memory, memory), weights, strict=True)
        )  # each [heads, n or m, W / heads]
        return self.out_proj(
            F.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
        )


class _EvidenceLayer(nn.Module):
    """Lets each option gather evidence from the whole record; options do not see one another."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(config.width)
        self.memory_norm = nn.LayerNorm(config.width)
        self.attention = _Attention(config.width, config.heads)
        self.feedforward_norm = nn.LayerNorm(config.width)
        self.feedforward = _feed_forward(config.width, config.feedforward, config.width)

    def forward(self, options: Tensor, memory: Tensor) -> Tensor:
        options = options + self.attention(self.query_norm(options), self.memory_norm(memory))
        return options + self.feedforward(self.feedforward_norm(options))


class _FieldLayer(nn.Module):
    """Lets the fields see one another, then the record."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.self_attn = _Attention(config.width, config.heads)
        self.norm2 = nn.LayerNorm(config.width)
        self.multihead_attn = _Attention(config.width, config.heads)
        self.norm3 = nn.LayerNorm(config.width)
        self.linear1 = nn.Linear(config.width, config.feedforward)
        self.linear2 = nn.Linear(config.feedforward, config.width)

    def forward(self, fields: Tensor, memory: Tensor) -> Tensor:
        normed = self.norm1(fields)
        fields = fields + self.self_attn(normed, normed)
        fields = fields + self.multihead_attn(self.norm2(fields), memory)
        return fields + self.linear2(F.gelu(self.linear1(self.norm3(fields))))


def _feed_forward(inputs: int, inner: int, outputs: int) -> nn.Sequential:
    # index 2 stands for the dropout of training, so that names are the release's: 0 and 3
    return nn.Sequential(
        nn.Linear(inputs, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, outputs)
    )


def _summaries(options: Tensor, bases: Tensor, counts: list[int]) -> Tensor:
    """Give for each field the mean of its options, weighted by how they fit it, [Q, W]."""
    scale = bases.shape[-1] ** -0.5
    return torch.stack(
        [
            (own @ base * scale).softmax(0) @ own
            for own, base in zip(options.split(counts), bases, strict=True)
        ]
    )


def _scaled(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(max=_MAX_LOGIT_SCALE).exp()
