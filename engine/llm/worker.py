"""vLLM's worker, with an eye on the hidden states of decision records.

vLLM builds this class by name in the engine process: `worker_cls`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm.platforms import current_platform
from vllm.v1.core.kv_cache_utils import get_kv_cache_groups
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput

from engine.head import JointHead
from engine.llm import hashes, lora, seeds
from engine.llm.applied import unapplied
from engine.llm.features import FeaturePool, refuse_foreign_cache, share_of_cache
from engine.llm.plan import find_plan
from engine.llm.reading import Reader
from engine.llm.settings import KEY, EngineSettings

if TYPE_CHECKING or not current_platform.is_cpu():
    from vllm.v1.worker.gpu_worker import Worker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker


class DecisionWorker(Worker):
    """Reads the model's final states after each step; the logits leave with the step's output."""

    def init_device(self) -> None:
        """Replace what vLLM does slowly or wrongly, before anything is built with it."""
        refuse_foreign_cache(self.vllm_config)
        hashes.install()
        if self.vllm_config.lora_config is not None:
            lora.install()
        if current_platform.is_cpu():
            from engine.llm import copies, gdn

            copies.install()
            gdn.install(
                self.model_config.dtype, self.vllm_config.cache_config.mamba_ssm_cache_dtype
            )
        else:
            from engine.llm import graphs

            self.graphs = graphs.install()
        super().init_device()

    def load_model(self, **kwargs: Any) -> None:
        """Load the model and beside it the head."""
        super().load_model(**kwargs)
        if current_platform.is_cpu():
            seeds.install(self.model_runner)
        if self.vllm_config.lora_config is not None:
            manager: Any = self.model_runner.lora_manager
            lora.require_wrapped(
                manager._adapter_manager, self.vllm_config.lora_config.target_modules or []
            )
        settings = self.vllm_config.additional_config
        assert isinstance(settings, EngineSettings)
        assert self.device is not None
        self._head = JointHead.from_file(
            Path(settings.head), settings.head_config, dtype=torch.float32, device=self.device
        )
        self._feature_dtype: torch.dtype = getattr(torch, settings.features)
        self._reader: Reader | None = None
        self._logits: dict[str, Tensor] = {}

    def determine_available_memory(self) -> int:
        """Leave room for the features in what vLLM takes for its cache."""
        available = super().determine_available_memory()
        groups = get_kv_cache_groups(self.vllm_config, self.get_kv_cache_spec())
        group = groups[_attention_group(groups)]
        layers = max(len(each.layer_names) for each in groups)
        return share_of_cache(
            available,
            block_bytes=layers * group.kv_cache_spec.page_size_bytes,
            feature_bytes=group.kv_cache_spec.block_size
            * self._width
            * self._feature_dtype.itemsize,
        )

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """Allocate the cache and beside it the features."""
        super().initialize_from_config(kv_cache_config)
        assert self.device is not None
        self._group = _attention_group(kv_cache_config.kv_cache_groups)
        pool = FeaturePool(
            kv_cache_config.num_blocks,
            kv_cache_config.kv_cache_groups[self._group].kv_cache_spec.block_size,
            self._width,
            dtype=self._feature_dtype,
            device=self.device,
        )
        self._reader = Reader(self._head, _lm_head(self.get_model()), pool)

    def feature_memory(self) -> tuple[int, int, int, int]:
        """Give slots, width, bytes of a number, and bytes in all: their product."""
        assert self._reader is not None
        pool = self._reader.pool
        slots, width = pool.rows.shape
        return slots, width, pool.rows.element_size(), pool.nbytes

    def cpu_seconds(self) -> float:
        """Give the processor time that this process has taken."""
        return time.process_time()

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """Run the step, then read its final states."""
        reader = self._reader
        assert reader is not None
        if scheduler_output.kv_cache_block_copies:
            reader.pool.copy(scheduler_output.kv_cache_block_copies)
        output = super().execute_model(scheduler_output)
        reader.forget(scheduler_output.finished_req_ids)
        for new in scheduler_output.scheduled_new_reqs:
            plan = find_plan(new.sampling_params)
            if plan is not None and plan.fields:
                assert new.prompt_token_ids is not None
                adapter = new.lora_request.lora_name if new.lora_request else ""
                reader.begin(new.req_id, new.prompt_token_ids, plan, adapter)
        state = self.model_runner.execute_model_state
        if state is not None:
            self._logits = self._read(reader, scheduler_output, state)
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample, and give the step's logits along with the tokens."""
        if current_platform.is_cpu():
            with seeds.only_wanted(self.model_runner):
                output = super().sample_tokens(grammar_output)
        else:
            output = super().sample_tokens(grammar_output)
        logits, self._logits = self._logits, {}
        if not logits:
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return _WithLogits(output, logits)
        return _attach(output, logits)

    def unapplied(self, folder: str) -> list[str]:
        """Name what of the adapter in a folder is not in the layers; `collective_rpc` calls it."""
        return unapplied(self.model_runner.lora_manager._adapter_manager, Path(folder))

    @property
    def _width(self) -> int:
        return self._head.memory_projection.out_features

    def _read(
        self, reader: Reader, scheduler_output: SchedulerOutput, state: Any
    ) -> dict[str, Tensor]:
        """Read the step's states where this model runner keeps its slots and blocks."""
        runner: Any = self.model_runner
        group, pool = self._group, reader.pool
        batch = getattr(state, "input_batch", None)
        if batch is None:  # the older runner keeps the batch with itself, and blocks on the host
            batch = runner.input_batch
            rows = scheduler_output.total_num_scheduled_tokens
            slots = batch.block_table[group].slot_mapping.gpu[:rows]

            def features_of(request_id: str, start: int, end: int) -> Tensor:
                return pool.read(runner.requests[request_id].block_ids[group], start, end)

        else:
            tables = runner.block_tables
            slots = tables.slot_mappings[group, : batch.num_tokens]

            def features_of(request_id: str, start: int, end: int) -> Tensor:
                blocks = tables.input_block_tables[group][batch.req_ids.index(request_id)]
                return pool.read(blocks, start, end, tables.kernel_block_sizes[group])

        return reader.step(
            batch.req_ids,
            scheduler_output.num_scheduled_tokens,
            _starts(scheduler_output),
            state.hidden_states,
            slots,
            features_of,
        )


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


def _attention_group(groups: list[KVCacheGroupSpec]) -> int:
    """Find the group whose slots count tokens; those of linear attention hold states."""
    return next(
        index
        for index, group in enumerate(groups)
        if isinstance(group.kv_cache_spec, FullAttentionSpec)
    )


def _lm_head(model: Any) -> Tensor:
    """Find the output embedding in the text model or in the multimodal one around it."""
    text = getattr(model, "language_model", model)
    return text.lm_head.weight.data
