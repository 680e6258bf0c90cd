"""The two stages: a language model that decides too; then, with it frozen, adapter and head."""

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

TEXT: Final = "text."
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

    def score(self, batch: Batch) -> Tensor:
        """Give a logit for every option of every field, [B, Q, M]."""
        ...


class Decider(nn.Module):
    """A text model and a head that reads its states."""

    def __init__(self, text: TextModel, head: JointHead) -> None:
        super().__init__()
        self.text = text
        self.head = head

    def score(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Score every option from the states, [B, T, H] to [B, Q, M]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return logits_of(self.head, hidden, self.text.lm_head.weight, batch)


class BaseStage:
    """The base as a language model: texts, questions, and answers as text behind them.

    A head decides from the same states, so that the base learns to see in a position what its
    decisions need: answers as text alone taught it too little of lines and threats.
    """

    name = "base"
    answers = True

    def __init__(self, recipe: Recipe, vocab_size: int) -> None:
        self.module = Decider(TextModel(recipe.sizes, vocab_size), new_head(recipe.head))

    def loss(self, batch: Batch) -> Tensor:
        """Give the mean loss of the next token, answers count more, and that of the fields."""
        states = self.module.text(batch.ids)
        hidden = states[:, :-1]
        targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
        there = weights > 0
        hidden, targets, weights = hidden[there], targets[there], weights[there]
        lm_head = self.module.text.lm_head
        told = sum(
            (F.cross_entropy(lm_head(h).float(), t, reduction="none") * w).sum()
            for h, t, w in zip(
                hidden.split(_ROWS), targets.split(_ROWS), weights.split(_ROWS), strict=True
            )
        )
        decided = losses(self.module.score(states, batch), batch)
        return told / weights.sum() + decided.sum() / max(1, len(decided))

    def score(self, batch: Batch) -> Tensor:
        """Give a logit for every option of every field, [B, Q, M]."""
        return self.module.score(self.module.text(batch.ids), batch)


class DecideStage:
    """Adapter and head on decisions, the base frozen; the head goes on with what it has learned.

    Args:
        recipe: Of the sizes.
        vocab_size: Rows of the embeddings.
        base: What the first stage trained: `text.*` and `head.*`.
    """

    name = "decide"
    answers = False

    def __init__(self, recipe: Recipe, vocab_size: int, base: dict[str, Tensor]) -> None:
        self.module = Decider(TextModel(recipe.sizes, vocab_size), new_head(recipe.head))
        self.module.load_state_dict(
            {name: as_stored(t) if name.startswith(TEXT) else t for name, t in base.items()}
        )
        self.module.text.adapt(recipe.rank)

    def loss(self, batch: Batch) -> Tensor:
        """Give the mean loss of the fields."""
        return losses(self.score(batch), batch).mean()

    def score(self, batch: Batch) -> Tensor:
        """Give a logit for every option of every field, [B, Q, M]."""
        return self.module.score(self.module.text(batch.ids), batch)


def text_of(base: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the text model's weights of what the first stage trained, by their names there."""
    return {name.removeprefix(TEXT): t for name, t in base.items() if name.startswith(TEXT)}


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
