"""What tests do to the scheduler, in the engine process: worker and scheduler share it."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any


def scheduler_of(worker: Any) -> Any:
    """Find the scheduler behind a call to the worker."""
    from vllm.v1.engine.core import EngineCore

    frame = sys._getframe()
    while frame is not None:
        core = frame.f_locals.get("self")
        if isinstance(core, EngineCore):
            return core.scheduler
        frame = frame.f_back
    raise LookupError("the worker was not called by an engine in this process")


def set_step(worker: Any, *, tokens: int | None) -> None:
    """Let a step have so many tokens; None: as many as at the start."""
    from engine.llm.shares import Shares

    scheduler = scheduler_of(worker)
    most = scheduler.scheduler_config.max_num_batched_tokens
    scheduler.max_num_scheduled_tokens = min(tokens or most, most)
    scheduler._shares = Shares(
        scheduler.max_num_scheduled_tokens, scheduler.max_num_running_reqs, 0.25
    )


def set_short(worker: Any, *, tokens: int) -> None:
    """Let a question that is alone read so many tokens without a stop."""
    scheduler = scheduler_of(worker)
    scheduler._settings = dataclasses.replace(scheduler._settings, short=tokens)


def preemptions(worker: Any) -> int:
    """Count how often the requests that are there were preempted, as vLLM counts it."""
    return sum(request.num_preemptions for request in scheduler_of(worker).requests.values())
