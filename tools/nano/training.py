"""The loop of a stage: it stops when its minutes are over and goes on where it stopped."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tools.nano import checkpoint
from tools.nano.batches import Batch, Schedule, in_order_of_length, load
from tools.nano.dataset import Dataset
from tools.nano.scoring import losses
from tools.nano.stages import (
    DecideStage,
    Stage,
    optimizer_of,
    packed_moments,
    round_moments,
    trained,
)

_WARM_UP: Final = 100
_TOLD_EVERY: Final = 20  # steps
_TESTED_TOKENS: Final = 131_072  # of a batch of tests


Options = dict[str, Any]
"""What a run's result depends on, beside the data: kept in the checkpoint, and compared."""


def train(
    stage: Stage,
    data: Dataset,
    test: Dataset,
    folder: Path,
    options: Options,
    *,
    minutes: float,
    device: str,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Train a stage until it is done or time is up; give what is known of it.

    Args:
        stage: What to train.
        data: To learn from.
        test: Measured on now and then; empty for a stage without questions.
        folder: Of the checkpoints.
        options: `steps`, `tokens` of a batch, `rate`, `longest` record, `seed`,
            `answer_weight`, `test_every`, `save_every`.
        minutes: After so many it stops, at the next step at which it saves.
        device: cpu or cuda.
        tell: Told what is going on.

    Raises:
        ValueError: The checkpoint there is of other options or data.
    """
    began = time.monotonic()
    stage.module.to(device)
    optimizer = optimizer_of(stage.module, rate=options["rate"])
    identity = {**options, "data": data.hash}
    found = checkpoint.load(folder / stage.name)
    record: dict[str, Any] = {
        "options": identity, "step": 0, "seconds": 0.0, "curve": [], "tests": [],
    }  # fmt: skip
    if found is not None:
        record = found["record"]
        if record["options"] != identity:
            raise ValueError(
                f"{folder / stage.name}: a run with {record['options']}, not {identity}; "
                "give the same options, or another folder"
            )
        stage.module.load_state_dict(found["weights"], strict=False)
        optimizer.load_state_dict(found["optimizer"])
    lengths = data.lengths + (data.answer_lengths if stage.answers else 0)
    if not stage.answers:  # texts without questions
        lengths = np.where(data.game_of < len(data.games), lengths, np.iinfo(np.int64).max)
    lengths = np.where(lengths <= options["longest"], lengths, np.iinfo(np.int64).max)
    schedule = Schedule(
        lengths, tokens=options["tokens"], steps=options["steps"], seed=options["seed"]
    )
    before, tokens_read, total = record["seconds"], 0, 0.0
    ahead = _ahead(data, islice(schedule, record["step"], None), stage, options)
    with closing(ahead) as batches:
        for batch in batches:
            step = record["step"]
            for group in optimizer.param_groups:
                group["lr"] = options["rate"] * _share_of_rate(step, options["steps"])
            batch = batch.to(device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                loss = stage.loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained(stage.module).values(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            tokens_read += int(batch.lengths.sum())
            total += float(loss.detach())
            seconds = time.monotonic() - began
            record |= {"step": step, "seconds": before + seconds}
            if step % _TOLD_EVERY == 0:
                mean, total = total / _TOLD_EVERY, 0.0
                record["curve"].append([step, round(mean, 4)])
                tell(
                    f"{stage.name} {step}/{options['steps']} loss {mean:.4f}, "
                    f"{tokens_read / seconds:,.0f} tokens/s, {record['seconds']:.1f} s"
                )
            done = step == options["steps"]
            if isinstance(stage, DecideStage) and (done or step % options["test_every"] == 0):
                record["tests"].append([step, measure(stage, test, device)])
                tell(f"  tests: {_short(record['tests'][-1][1])}")
            if done or step % options["save_every"] == 0:
                _save(folder, stage, optimizer, record)
                if time.monotonic() - began > 60 * minutes:
                    break
    return record


def _save(
    folder: Path, stage: Stage, optimizer: torch.optim.Optimizer, record: dict[str, Any]
) -> None:
    round_moments(optimizer)
    weights = {name: each.detach().cpu() for name, each in trained(stage.module).items()}
    state = {"record": record, "weights": weights, "optimizer": packed_moments(optimizer)}
    checkpoint.save(folder / stage.name, state)


def _share_of_rate(step: int, steps: int) -> float:
    """Rise to the whole rate, then fall along a cosine to a twentieth."""
    if step < _WARM_UP:
        return (step + 1) / _WARM_UP
    done = (step - _WARM_UP) / max(1, steps - _WARM_UP)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _ahead(
    data: Dataset, indices: Iterator[Any], stage: Stage, options: Options
) -> Generator[Batch]:
    """Put batches together while the device computes."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=8)
    stopped = threading.Event()

    def offer(item: Batch | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.2)
            except queue.Full:
                continue
            else:
                return

    def fill() -> None:
        try:
            for each in indices:
                if stopped.is_set():
                    return
                weight = options["answer_weight"]
                offer(load(data, each, answers=stage.answers, answer_weight=weight))
            offer(None)
        except BaseException as error:
            offer(error)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


@torch.inference_mode()
def measure(stage: DecideStage, test: Dataset, device: str) -> dict[str, dict[str, float]]:
    """Measure on positions that nothing was learned from, by game and question.

    Returns:
        For each `game: question` their number, the mean loss, and the share in which the most
        probable option is a right one: one of the best actions, or the target's most probable.
    """
    stage.module.eval()
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for indices in in_order_of_length(test.lengths, tokens=_TESTED_TOKENS):
        batch = load(test, indices, answers=False).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits = stage.module(batch)
        asked = batch.questions[..., 0] >= 0
        loss = iter(losses(logits, batch).tolist())
        right = iter(right_choices(logits, batch))
        for row, place in asked.nonzero().tolist():
            game, kind = int(batch.games[row]), int(batch.kinds[row, place])
            into = sums[f"{test.games[game]}: {test.kinds[kind]}"]
            into[0] += 1
            into[1] += next(loss)
            into[2] += next(right)
    stage.module.train()
    return {
        name: {"number": n, "loss": round(a / n, 4), "right": round(b / n, 4)}
        for name, (n, a, b) in sorted(sums.items())
    }


def right_choices(logits: torch.Tensor, batch: Batch) -> list[bool]:
    """Say of every field whether its most probable option is a right one."""
    asked = batch.questions[..., 0] >= 0
    chosen = logits[asked].argmax(-1, keepdim=True)
    values, targets = batch.values[asked], batch.targets[asked]
    worth = torch.where(values.isnan().all(-1, keepdim=True), targets, values)
    worth = worth.nan_to_num(-torch.inf)
    best = worth.amax(-1, keepdim=True)
    return (worth.gather(-1, chosen) >= best - 1e-6).squeeze(-1).tolist()


def _short(found: dict[str, dict[str, float]]) -> str:
    return ", ".join(f"{name} {each['right']:.3f}" for name, each in found.items())
