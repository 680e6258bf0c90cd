"""The joint head over filled-up batches, with gradients; `engine.head` has it record by record.

Shapes: B records, T tokens, Q fields, M options of a field, W the head's width, H hidden size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.head import JointHead
from engine.manifest import HeadConfig
from tools.nano.batches import Batch

_MAX_LOGIT_SCALE = math.log(100)


def new_head(config: HeadConfig) -> JointHead:
    """Make a head to be trained."""
    head = JointHead(config)
    for name, weight in head.named_parameters():
        if weight.dim() == 2:
            nn.init.xavier_uniform_(weight)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
    nn.init.normal_(head.type_embedding.weight, std=0.5)
    nn.init.constant_(head.joint_logit_scale, 1.5)
    nn.init.constant_(head.residual_gate, 1.0)
    return head


def logits_of(head: JointHead, hidden: Tensor, lm_head: Tensor, batch: Batch) -> Tensor:
    """Score every option of every field, [B, Q, M]; -inf where there is none.

    Args:
        head: Its weights.
        hidden: States after the final norm, [B, T, H].
        lm_head: The output embedding.
        batch: Where questions and options stand.
    """
    x = head.hidden_norm(hidden.float())
    memory = head.memory_projection(x)
    seen = torch.arange(x.shape[1], device=x.device) < batch.lengths[:, None]
    seen = seen[:, None, None]  # [B, 1, 1, T]
    present = batch.options[..., 0] >= 0  # [B, Q, M]
    asked = batch.questions[..., 0] >= 0  # [B, Q]
    question = _means(x, batch.questions)  # [B, Q, H]
    context = _means(x, batch.options)
    lexical = _lexical(lm_head, batch)
    last = x[torch.arange(len(x), device=x.device), batch.lengths - 1]  # [B, H]

    options = (
        head.option_context_projection(context)
        + head.option_lexical_projection(lexical)
        + head.option_question_projection(question)[:, :, None]
    )  # [B, Q, M, W]
    flat = options.flatten(1, 2)
    for layer in head.evidence_layers:
        found = layer.attention(layer.query_norm(flat), layer.memory_norm(memory), seen)
        flat = flat + found
        flat = flat + layer.feedforward(layer.feedforward_norm(flat))
    options = flat.view_as(options)

    base = head.question_projection(question)
    fit = (options @ base[..., None]).squeeze(-1) * base.shape[-1] ** -0.5
    fit = fit.masked_fill(~present, torch.finfo(fit.dtype).min)
    summary = (fit.softmax(-1)[..., None] * options).sum(-2)
    fields = (
        base
        + head.option_summary_norm(summary)
        + head.global_projection(last)[:, None]
        + head.type_embedding(batch.types)
    )
    others = asked[:, None, None] | torch.eye(asked.shape[1], dtype=torch.bool, device=asked.device)
    for layer in head.layers:
        own = layer.norm1(fields)
        fields = fields + layer.self_attn(own, own, others)
        fields = fields + layer.multihead_attn(layer.norm2(fields), memory, seen)
        fields = fields + layer.linear2(F.gelu(layer.linear1(layer.norm3(fields))))

    fields = head.field_norm(fields)[:, :, None].expand_as(options)
    options = head.option_norm(options)
    residual = head.residual_scorer(
        torch.cat([fields, options, fields * options, (fields - options).abs()], -1)
    )
    joint = _scaled(head.joint_logit_scale) * F.cosine_similarity(fields, options, -1, 1e-8)
    anchor = (question + last[:, None])[:, :, None].expand_as(lexical)
    prior = _scaled(head.prior_logit_scale) * F.cosine_similarity(lexical, anchor, -1, 1e-12)
    logits = prior + head.residual_gate.sigmoid() * (joint + residual.squeeze(-1))
    return logits.masked_fill(~present, -torch.inf)


def losses(logits: Tensor, batch: Batch) -> Tensor:
    """Give the cross-entropy to the right distribution of every field that there is, [fields].

    For a noul this is the logarithmic loss of its probability.
    """
    asked = batch.questions[..., 0] >= 0
    logs = logits.float()[asked].log_softmax(-1)
    targets = batch.targets[asked]
    return -(targets * logs.masked_fill(targets == 0, 0.0)).sum(-1)


def _means(x: Tensor, places: Tensor) -> Tensor:
    """Average tokens of spans, [B, T, H] and [B, ..., L] to [B, ..., H]."""
    rows = torch.arange(len(x), device=x.device).view(-1, *(1,) * (places.dim() - 1))
    there = (places >= 0)[..., None]
    tokens = x[rows, places.clamp(min=0)] * there
    return tokens.sum(-2) / there.sum(-2).clamp(min=1)


def _lexical(lm_head: Tensor, batch: Batch) -> Tensor:
    rows = torch.arange(len(batch.ids), device=batch.ids.device).view(-1, 1, 1, 1)
    ids = batch.ids[rows, batch.options.clamp(min=0)]
    there = (batch.options >= 0)[..., None]
    return (lm_head[ids].float() * there).sum(-2) / there.sum(-2).clamp(min=1)


def _scaled(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(max=_MAX_LOGIT_SCALE).exp()
