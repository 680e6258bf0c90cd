"""The two stages: a language model; then, with it frozen, adapter and head."""

from __future__ import annotations

from typing import Any, Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.head import JointHead
from tools.nano.batches import Batch
from tools.nano.model import TextModel
from tools.nano.scoring import logits_of, losses, new_head
from tools.nano.sizes import Recipe

_ROWS: Final = 8192  # tokens whose logits over the vocabulary are in memory at once


class Stage(Protocol):
    """What is trained, and on what.

    Attributes:
        name: Also of its checkpoint.
        answers: Whether it reads the answers as text.
    """

    name: str
    answers: bool
    module: nn.Module

    def loss(self, batch: Batch) -> Tensor:
        """Give the mean loss of a batch."""
        ...


class BaseStage:
    """The base as a language model: texts, questions, and answers as text behind them."""

    name = "base"
    answers = True

    def __init__(self, recipe: Recipe, vocab_size: int) -> None:
        self.module = TextModel(recipe.sizes, vocab_size)

    def loss(self, batch: Batch) -> Tensor:
        """Give the mean loss of the next token; answers count more (`Batch.weights`)."""
        hidden = self.module(batch.ids)[:, :-1]
        targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
        there = weights > 0
        hidden, targets, weights = hidden[there], targets[there], weights[there]
        total = sum(
            (F.cross_entropy(self.module.lm_head(h).float(), t, reduction="none") * w).sum()
            for h, t, w in zip(
                hidden.split(_ROWS), targets.split(_ROWS), weights.split(_ROWS), strict=True
            )
        )
        return total / weights.sum()


class Decider(nn.Module):
    """A frozen base with adapter and head."""

    def __init__(self, text: TextModel, head: JointHead) -> None:
        super().__init__()
        self.text = text
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        """Score every option, [B, Q, M]."""
        hidden = self.text(batch.ids)
        with torch.autocast(hidden.device.type, enabled=False):
            return logits_of(self.head, hidden, self.text.lm_head.weight, batch)


class DecideStage:
    """Adapter and head on decisions."""

    name = "decide"
    answers = False

    def __init__(self, recipe: Recipe, vocab_size: int, base: dict[str, Tensor]) -> None:
        text = TextModel(recipe.sizes, vocab_size)
        text.load_state_dict({name: as_stored(tensor) for name, tensor in base.items()})
        text.adapt(recipe.rank)
        self.module = Decider(text, new_head(recipe.head))

    def loss(self, batch: Batch) -> Tensor:
        """Give the mean loss of the fields."""
        return losses(self.module(batch), batch).mean()


def as_stored(tensor: Tensor) -> Tensor:
    """Round to the numbers that the release's files hold."""
    return tensor.bfloat16().float()


def trained(module: nn.Module) -> dict[str, Tensor]:
    """Give the parameters that a stage changes."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def optimizer_of(module: nn.Module, *, rate: float) -> torch.optim.AdamW:
    """Make the optimizer: matrices decay, everything else does not."""
    parameters = trained(module).values()
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-9)


def round_moments(optimizer: torch.optim.Optimizer) -> None:
    """Round the optimizer's running means to 16 bits, in place.

    It is done at every step at which a run may stop, whether it stops there or not: what a
    checkpoint holds is what the run goes on with, so that stopping changes nothing.
    """
    for state in optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].copy_(state[name].bfloat16())


def packed_moments(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Give the optimizer's state with running means in 16 bits."""
    state = optimizer.state_dict()
    state["state"] = {
        key: {
            name: value.bfloat16() if name.startswith("exp_avg") else value
            for name, value in each.items()
        }
        for key, each in state["state"].items()
    }
    return state
