"""The joint head: from the states of a record to one logit for every option.

Names follow the tensors of the release's `joint_head.safetensors`. Of a token that belongs neither
to a question nor to an option the head needs its *features* alone, W numbers: those of a state are
kept beside its keys and values, and serve every question on it.

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
from engine.head_layers import (
    EvidenceLayer,
    FieldLayer,
    Layout,
    Memory,
    StateFeatures,
    feed_forward,
    to_device,
)
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
    means = to_device(means, device)
    ids = to_device(torch.tensor(input_ids[start:]), device)
    return Places(
        start=start,
        means=means,
        lexical=means[len(fields) :] @ lm_head[ids].to(dtype),
        types=to_device(torch.tensor([field.type for field in fields]), device),
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
            EvidenceLayer(config) for _ in range(config.routing_layers)
        )
        self.option_summary_norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(FieldLayer(config) for _ in range(config.layers))
        self.field_norm = nn.LayerNorm(width)
        self.option_norm = nn.LayerNorm(width)
        self.residual_scorer = feed_forward(4 * width, width, 1)
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
        memory, tail = self.memory(hidden), hidden[places.start :]
        features = StateFeatures(memory[: places.start], [memory[places.start :]])
        [logits] = self.logits([features], [tail], [places])
        return list(logits.split(places.counts))

    def memory(self, hidden: Tensor) -> Tensor:
        """Give the head features, [T, H] to [T, W]: all it needs of the state's tokens."""
        return self.memory_projection(self._normalize(hidden))

    @torch.inference_mode()
    def logits(
        self, features: Sequence[StateFeatures], tails: Sequence[Tensor], places: Sequence[Places]
    ) -> list[Tensor]:
        """Score the options of several records at once; records do not influence one another.

        Args:
            features: Of the records of each state, in the order of the records.
            tails: States of each record's tokens from its first question on, [T - start, H].
            places: Where the questions and options stand.

        Returns:
            For each record the logits of all its options, field after field.
        """
        records = [len(each.rests) for each in features]
        layout = Layout.of([each.counts for each in places], records, tails[0].device)
        memories = [Memory(each, self.hidden_norm.weight.dtype) for each in features]
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
            evidence = layer(evidence, memories, layout.options_on_state)

        base = self.question_projection(questions)
        fields = (
            base
            + self.option_summary_norm(_summaries(evidence, base, layout))
            + self.global_projection(last)
            + self.type_embedding(torch.cat([place.types for place in places]))
        )
        for layer in self.layers:
            fields = layer(fields, memories, layout)

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


def _summaries(options: Tensor, bases: Tensor, layout: Layout) -> Tensor:
    """Give for each field the mean of its options, weighted by how they fit it, [Q, W]."""
    own = layout.options.per_record(options)  # [Q, most options, W]
    fit = (own @ bases.unsqueeze(-1)).squeeze(-1) * bases.shape[-1] ** -0.5
    weights = fit.masked_fill(~layout.options.present, -torch.inf).softmax(-1)
    return (weights.unsqueeze(-2) @ own).squeeze(-2)


def _scaled(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(max=_MAX_LOGIT_SCALE).exp()
