"""The joint head: from the states of a record to one logit for every option.

Names follow the tensors of the release's `joint_head.safetensors`. Of a token that belongs neither
to a question nor to an option the head needs its *features* alone, W numbers: those of a state are
kept beside its keys and values, and serve every question on it.

Shapes: T tokens, Q fields, N options of all fields together, H hidden size, W the head's width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
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
from engine.tokens import RecordField

_MAX_LOGIT_SCALE: Final = math.log(100)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where the head reads single states of a record; make it once with `find_places`.

    Attributes:
        start: The first question's first token: nothing before it is read for itself.
        means: Averages states from `start` on over each question's, then each option's span,
            [Q + N, T - start]; an empty span gives NaN.
        lexical: Mean row of the output embedding over each option's token ids, [N, H].
        types: Type code of each field, [Q].
        counts: Options of each field; they sum to N.
    """

    start: int
    means: Tensor
    lexical: Tensor
    types: Tensor
    counts: list[int]


def find_places(
    input_ids: Sequence[int], fields: Sequence[RecordField], lm_head: Tensor, dtype: torch.dtype
) -> Places:
    """Prepare the reading of a record on the device of `lm_head`, without waiting for it."""
    start = min(field.question_span[0] for field in fields)
    spans = [field.question_span for field in fields]
    spans += [span for field in fields for span in field.option_spans]
    means = torch.zeros(len(spans), len(input_ids) - start, dtype=dtype)
    for row, (first, end) in zip(means, spans, strict=True):
        if first < end:
            row[first - start : end - start] = 1 / (end - first)
        else:
            row.fill_(torch.nan)
    device = lm_head.device
    means = _to_device(means, device)
    ids = _to_device(torch.tensor(input_ids[start:]), device)
    return Places(
        start=start,
        means=means,
        lexical=means[len(fields) :] @ lm_head[ids].to(dtype),
        types=_to_device(torch.tensor([field.type for field in fields]), device),
        counts=[len(field.option_spans) for field in fields],
    )


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
        places = find_places(input_ids, fields, lm_head, self.hidden_norm.weight.dtype)
        [logits] = self.logits([self.memory(hidden)], [hidden[places.start :]], [places])
        return list(logits.split(places.counts))

    def memory(self, hidden: Tensor) -> Tensor:
        """Give the head features, [T, H] to [T, W]: all it needs of the state's tokens."""
        return self.memory_projection(self._normalize(hidden))

    @torch.inference_mode()
    def logits(
        self, memories: Sequence[Tensor], tails: Sequence[Tensor], places: Sequence[Places]
    ) -> list[Tensor]:
        """Score the options of several records at once; records do not influence one another.

        Args:
            memories: Head features of all tokens of each record, [T, W], any number format.
            tails: States of each record's tokens from its first question on, [T - start, H].
            places: Where the questions and options stand.

        Returns:
            For each record the logits of all its options, field after field.
        """
        layout = _Layout.of([each.counts for each in places], memories[0].device)
        kept = [_Memory(memory.to(self.hidden_norm.weight.dtype)) for memory in memories]
        states = [self._normalize(tail) for tail in tails]
        means = [place.means @ x for place, x in zip(places, states, strict=True)]
        questions = torch.cat([m[: len(p.counts)] for m, p in zip(means, places, strict=True)])
        options = torch.cat([m[len(p.counts) :] for m, p in zip(means, places, strict=True)])
        last = torch.stack([x[-1] for x in states])[layout.record_of_field]  # [Q, H]
        lexical = torch.cat([place.lexical for place in places])
        asked = questions[layout.field_of_option]  # every option's question, [N, H]

        evidence = (
            self.option_context_projection(options)
            + self.option_lexical_projection(lexical)
            + self.option_question_projection(asked)
        )
        for layer in self.evidence_layers:
            evidence = layer(evidence, kept, layout.options_of_record)

        base = self.question_projection(questions)
        fields = (
            base
            + self.option_summary_norm(_summaries(evidence, base, layout))
            + self.global_projection(last)
            + self.type_embedding(torch.cat([place.types for place in places]))
        )
        for layer in self.layers:
            fields = layer(fields, kept, layout.fields_of_record)

        fields = self.field_norm(fields)[layout.field_of_option]
        evidence = self.option_norm(evidence)
        residual = self.residual_scorer(
            torch.cat([fields, evidence, fields * evidence, (fields - evidence).abs()], -1)
        )
        joint = _scaled(self.joint_logit_scale) * F.cosine_similarity(fields, evidence, eps=1e-8)
        prior = _scaled(self.prior_logit_scale) * F.cosine_similarity(
            lexical, asked + last[layout.field_of_option], eps=1e-12
        )
        logits = prior + self.residual_gate.sigmoid() * (joint + residual.squeeze(-1))
        return list(logits.split(layout.options_of_record))

    def _normalize(self, hidden: Tensor) -> Tensor:
        return self.hidden_norm(hidden.to(self.hidden_norm.weight.dtype))


class _Layout(msgspec.Struct, frozen=True):
    """How the fields and options of several records lie one after another.

    Attributes:
        fields_of_record, options_of_record: Numbers of them.
        record_of_field: [Q].
        field_of_option: [N].
        options_of_field: [Q, most options of one], the first option again behind the last.
        present: Whether that place is an option of its own, [Q, most options of one].
    """

    fields_of_record: list[int]
    options_of_record: list[int]
    record_of_field: Tensor
    field_of_option: Tensor
    options_of_field: Tensor
    present: Tensor

    @classmethod
    def of(cls, counts: Sequence[list[int]], device: torch.device) -> _Layout:
        """Lay out records of fields of so many options."""
        flat = [count for record in counts for count in record]
        most, first = max(flat), [0, *accumulate(flat)]
        table = [
            [start + (place if place < count else 0) for place in range(most)]
            for start, count in zip(first, flat, strict=False)
        ]
        present = [[place < count for place in range(most)] for count in flat]
        records = [index for index, record in enumerate(counts) for _ in record]
        fields = [index for index, count in enumerate(flat) for _ in range(count)]
        return cls(
            [len(record) for record in counts],
            [sum(record) for record in counts],
            *(
                _to_device(torch.tensor(values), device)
                for values in (records, fields, table, present)
            ),
        )


class _Memory:
    """The head features of one record, [T, W], and what layer normalization needs of them."""

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self._scale: Tensor | None = None

    def scale(self, eps: float) -> Tensor:
        """Give one over each token's standard deviation, [T]: the same for every layer."""
        if self._scale is None:
            self._scale = (self.features.var(-1, correction=0) + eps).rsqrt()
        return self._scale


class _Attention(nn.Module):
    """Multi-head attention without mask; query, key and value projections are packed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """Let each query, [n, W], see all of the memory, [T, W], projected to keys and values."""
        weights = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        query, key, value = (
            F.linear(source, weight, bias).unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for source, (weight, bias) in zip((queries, memory, memory), weights, strict=True)
        )  # each [heads, n or T, W / heads]
        return self.out_proj(
            F.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
        )

    def read(self, queries: Tensor, memory: _Memory, norm: nn.LayerNorm | None = None) -> Tensor:
        """Do what `forward` does with `norm(memory)`, in the cheaper of two forms.

        A score is bilinear in query and memory, and so the key projection can be applied to the
        few queries instead of to the many tokens; the weighted mean is linear, and so the value
        projection can wait until the tokens are summed up. All heads then read the same features.
        A layer normalization before them, r (m - mean(m)) gamma + beta, is a centring and a
        scaling by gamma, which go the same way, and one factor r for each token. What adds the
        same to the scores of all tokens (key bias, beta) has no effect.

        Per query and token this costs `heads` times more than keys of their own; it wins as long
        as projecting the tokens costs more than that.
        """
        if len(queries) * (self.heads - 1) > queries.shape[-1]:
            features = memory.features
            return self(queries, features if norm is None else norm(features))
        query_weight, key_weight, value_weight = self.in_proj_weight.chunk(3)
        query_bias, _, value_bias = self.in_proj_bias.chunk(3)
        query = F.linear(queries, query_weight, query_bias).unflatten(-1, (self.heads, -1))
        query = query.transpose(0, 1) * query.shape[-1] ** -0.5
        absorbed = query @ key_weight.unflatten(0, (self.heads, -1))  # [heads, n, W]
        if norm is None:
            mean = (absorbed @ memory.features.T).softmax(-1) @ memory.features
        else:
            scale = memory.scale(norm.eps)
            absorbed = _centred(absorbed * norm.weight)
            weights = (absorbed @ memory.features.T * scale).softmax(-1)
            mean = _centred(weights * scale @ memory.features) * norm.weight + norm.bias
        value = mean @ value_weight.unflatten(0, (self.heads, -1)).mT
        return self.out_proj(value.transpose(0, 1).flatten(1) + value_bias)


class _EvidenceLayer(nn.Module):
    """Lets each option gather evidence from the whole record; options do not see one another."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(config.width)
        self.memory_norm = nn.LayerNorm(config.width)
        self.attention = _Attention(config.width, config.heads)
        self.feedforward_norm = nn.LayerNorm(config.width)
        self.feedforward = _feed_forward(config.width, config.feedforward, config.width)

    def forward(self, options: Tensor, memories: list[_Memory], counts: list[int]) -> Tensor:
        queries = self.query_norm(options).split(counts)
        options = options + torch.cat(
            [
                self.attention.read(own, memory, self.memory_norm)
                for own, memory in zip(queries, memories, strict=True)
            ]
        )
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

    def forward(self, fields: Tensor, memories: list[_Memory], counts: list[int]) -> Tensor:
        own = self.norm1(fields).split(counts)
        fields = fields + torch.cat([self.self_attn(each, each) for each in own])
        own = self.norm2(fields).split(counts)
        fields = fields + torch.cat(
            [
                self.multihead_attn.read(each, memory)
                for each, memory in zip(own, memories, strict=True)
            ]
        )
        return fields + self.linear2(F.gelu(self.linear1(self.norm3(fields))))


def _feed_forward(inputs: int, inner: int, outputs: int) -> nn.Sequential:
    # index 2 stands for the dropout of training, so that names are the release's: 0 and 3
    return nn.Sequential(
        nn.Linear(inputs, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, outputs)
    )


def _summaries(options: Tensor, bases: Tensor, layout: _Layout) -> Tensor:
    """Give for each field the mean of its options, weighted by how they fit it, [Q, W]."""
    own = options[layout.options_of_field]  # [Q, most options, W]
    fit = (own @ bases.unsqueeze(-1)).squeeze(-1) * bases.shape[-1] ** -0.5
    weights = fit.masked_fill(~layout.present, -torch.inf).softmax(-1)
    return (weights.unsqueeze(-2) @ own).squeeze(-2)


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _scaled(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(max=_MAX_LOGIT_SCALE).exp()


def _to_device(values: Tensor, device: torch.device) -> Tensor:
    """Send what the host made, without waiting for the device."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
