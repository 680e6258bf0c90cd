"""vLLM's worker, with an eye on the hidden states of decision records.

vLLM builds this class by name in the engine process: `worker_cls`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput

from engine.head import JointHead
from engine.llm.reading import Reader
from engine.llm.settings import KEY, WorkerSettings

if TYPE_CHECKING or not current_platform.is_cpu():
    from vllm.v1.worker.gpu_worker import Worker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker


class DecisionWorker(Worker):
    """Reads the model's final states after each step; the logits leave with the step's output."""

    def init_device(self) -> None:
        """Replace vLLM's two faulty CPU operators, before anything is built with them."""
        if current_platform.is_cpu():
            from engine.llm import gdn, lora

            gdn.install()
            lora.install()
        super().init_device()

    def load_model(self, **kwargs: Any) -> None:
        """Load the model and beside it the head."""
        super().load_model(**kwargs)
        settings = self.vllm_config.additional_config
        assert isinstance(settings, WorkerSettings)
        assert self.device is not None
        head = JointHead.from_file(
            Path(settings.head), settings.head_config, dtype=torch.float32, device=self.device
        )
        self._reader = Reader(head, _lm_head(self.get_model()))
        self._logits: dict[str, Tensor] = {}

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """Run the step, then read its final states."""
        output = super().execute_model(scheduler_output)
        self._reader.forget(scheduler_output.finished_req_ids)
        for new in scheduler_output.scheduled_new_reqs:
            fields = ((new.sampling_params and new.sampling_params.extra_args) or {}).get(KEY)
            if fields is not None:
                assert new.prompt_token_ids is not None
                self._reader.begin(new.req_id, new.prompt_token_ids, fields)
        state = self.model_runner.execute_model_state
        if state is not None and len(self._reader):
            # the newer model runner keeps the batch with the step, the older one with itself
            batch = getattr(state, "input_batch", None) or self.model_runner.input_batch
            self._logits = self._reader.step(
                batch.req_ids,
                scheduler_output.num_scheduled_tokens,
                _starts(scheduler_output),
                state.hidden_states,
            )
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample, and give the step's logits along with the tokens."""
        output = super().sample_tokens(grammar_output)
        logits, self._logits = self._logits, {}
        if not logits:
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return _WithLogits(output, logits)
        return _attach(output, logits)


class _WithLogits(AsyncModelRunnerOutput):
    """A step's output that is still on its way from the device, and the logits with it."""

    def __init__(self, output: AsyncModelRunnerOutput, logits: dict[str, Tensor]) -> None:
        self._output = output
        self._logits = logits

    def get_output(self) -> ModelRunnerOutput:
        # vLLM's copy began behind ours on the same stream: when it is here, so are the logits
        return _attach(self._output.get_output(), self._logits)


def _attach(output: ModelRunnerOutput, logits: dict[str, Tensor]) -> ModelRunnerOutput:
    """Give the output one more attribute: vLLM's class has none for results of our kind."""
    setattr(output, KEY, {request_id: values.tolist() for request_id, values in logits.items()})
    return output


def _starts(scheduler_output: SchedulerOutput) -> dict[str, int]:
    cached = scheduler_output.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    for new in scheduler_output.scheduled_new_reqs:
        starts[new.req_id] = new.num_computed_tokens
    return starts


def _lm_head(model: Any) -> Tensor:
    """Find the output embedding in the text model or in the multimodal one around it."""
    text = getattr(model, "language_model", model)
    return text.lm_head.weight.data
