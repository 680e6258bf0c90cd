"""vLLM's scheduler, with the answers of decisions in its outputs.

vLLM builds this class by name in the engine process: `scheduler_cls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput

from engine.llm.settings import KEY

if TYPE_CHECKING or current_platform.is_cpu():
    from vllm.v1.core.sched.scheduler import Scheduler as Base
else:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Base


class DecisionScheduler(Base):
    """Sends the logits that the worker attached to a step's output along with each request's."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Do vLLM's own, then put each decision's logits into its output."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        logits: dict[str, list[float]] | None = getattr(model_runner_output, KEY, None)
        if logits:
            for output in (o for client in outputs.values() for o in client.outputs):
                if output.request_id in logits:
                    # the one field that vLLM hands from here to the caller unread
                    output.kv_transfer_params = {KEY: logits[output.request_id]}
        return outputs
