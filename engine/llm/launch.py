"""Start vLLM's engine process on a model bundle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.adapter import TENSORS, fused_layers
from engine.bundle import TOKENIZER_CONFIG, VLLM_VERSION, Bundle
from engine.errors import BadBundle, EngineFailed
from engine.llm.settings import EngineSettings
from engine.plan import RANKS
from engine.settings import CPU_CACHE, NumberFormat, WorkerSettings
from engine.tensors import read_header

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

    from engine.llm.guarded import GuardedLLM

_TORCH: dict[NumberFormat, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_CACHE = {"auto": "auto", "fp8": "fp8", "int8": "int8_per_token_head"}

UNIT = 16
"""Tokens that are reused only together; vLLM's hashes cost time for each."""

SHORT_ON_GPU, SHORT_ON_CPU = 512, 0
"""Tokens that a question alone on its state reads in one step, without a stop for later ones.

A card reads some hundred tokens in the time in which it reads its weights once, and a stop costs
that time again; the next question then reads these tokens with its own. A CPU gains nothing.
"""

_GUESSED = {
    # the form that works while the next step is being planned
    "ngram": {
        "method": "ngram_gpu",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    },
    "mtp": {"method": "mtp", "num_speculative_tokens": 1},
}


def prepare_environment(*, debug: bool) -> None:
    """Set what vLLM reads from the environment, before it is imported; the user's choice stays.

    The engine process inherits it: one thread (more slow each other down many times on shared
    cores), nothing fetched or reported over the network, the log on stderr.
    """
    for name, value in {
        "OMP_NUM_THREADS": "1",
        # memory of a step is kept for the next: to get it from the system again costs more than
        # what is computed in it
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_LOGGING_LEVEL": "DEBUG" if debug else "ERROR",
        "TORCH_CPP_LOG_LEVEL": "INFO" if debug else "ERROR",
        # scheduler and worker in one process on the CPU too, as on a single GPU
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # a record as long as the model's limit, and the one token that nobody reads behind it
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    }.items():
        os.environ.setdefault(name, value)


def launch(bundle: Bundle, settings: WorkerSettings, *, stock: bool = False) -> GuardedLLM:
    """Load the bundle in an engine process; blocks for seconds, or minutes for a large model.

    Args:
        bundle: Base, head, tokenizer and perhaps an adapter.
        settings: How to load it.
        stock: With vLLM's own scheduler, which reuses whole blocks and drops the answers: only to
            compare with.

    Raises:
        EngineFailed: vLLM did not start; its log on stderr has the cause.
        BadBundle: The adapter's rank is beyond what vLLM takes.
        BadSetting: vLLM, this machine or the model cannot do what is set.
        DoesNotFit: This machine's memory does not hold it.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    from engine.llm.guarded import GuardedLLM
    from engine.llm.refuse import refuse
    from engine.llm.statistics import Statistics

    on_cpu = current_platform.is_cpu()
    refuse(bundle, settings, on_cpu=on_cpu)
    arguments = AsyncEngineArgs(
        model=str(bundle.base),
        tokenizer=str(bundle.tokenizer),
        # decisions come as tokens; without its settings the tokenizer is of no use to chat either
        skip_tokenizer_init=not (bundle.tokenizer / TOKENIZER_CONFIG).is_file(),
        language_model_only=True,
        dtype=settings.dtype,
        max_model_len=settings.window_of(bundle.window) + 1,
        max_num_seqs=settings.max_seqs,
        max_num_batched_tokens=settings.max_batched_tokens,
        kv_cache_memory_bytes=settings.kv_cache_memory or (CPU_CACHE if on_cpu else None),
        kv_cache_dtype=_CACHE[settings.kv_cache_dtype],  # pyright: ignore[reportArgumentType]
        mamba_ssm_cache_dtype=_TORCH[settings.state_dtype],  # pyright: ignore[reportArgumentType]
        speculative_config=_guessing(settings),
        prefix_match_unit=None if stock else UNIT,
        enforce_eager=on_cpu,
        worker_cls="engine.llm.worker.DecisionWorker",
        scheduler_cls=None if stock else "engine.llm.scheduler.DecisionScheduler",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        **_adapter_arguments(bundle),
    )
    arguments.additional_config = EngineSettings(  # pyright: ignore[reportAttributeAccessIssue]
        head=str(bundle.head),
        head_config=bundle.head_config,
        features=_TORCH[settings.feature_format],
        chat_share=settings.chat_share,
        short=SHORT_ON_CPU if on_cpu else SHORT_ON_GPU,
    )
    try:
        engine = GuardedLLM.from_engine_args(arguments, stat_loggers=[Statistics])
    except (RuntimeError, ValueError, OSError, TimeoutError) as error:
        raise EngineFailed(
            f"vLLM did not start: {error}; `--debug` shows the engine's own log"
        ) from error
    assert isinstance(engine, GuardedLLM)
    engine.adapter = adapter_request(bundle)
    return engine


def adapter_request(bundle: Bundle) -> LoRARequest | None:
    """Name the bundle's adapter for vLLM; None if there is none.

    vLLM separates cached prefixes by the adapter's name alone, and what is kept for them depends
    on the head too: the name holds the content of both.
    """
    from vllm.lora.request import LoRARequest

    if bundle.adapter is None:
        return None
    return LoRARequest(f"clef@{bundle.hash[:12]}", 1, str(bundle.adapter))


def fingerprint(bundle: Bundle, settings: WorkerSettings) -> str:
    """Name in one line all that answers depend on."""
    parts = " ".join(f"{part}={digest}" for part, digest in bundle.part_hashes.items())
    return (
        f"vllm={VLLM_VERSION} dtype={settings.dtype} kv={settings.kv_cache_dtype} "
        f"state={settings.state_dtype} features={settings.feature_format} {parts}"
    )


def _guessing(settings: WorkerSettings) -> dict[str, Any] | None:
    if settings.speculative == "dflash2":
        return {"method": "dflash", "model": str(settings.draft)}
    return _GUESSED.get(settings.speculative)


def _adapter_arguments(bundle: Bundle) -> dict[str, Any]:
    """Make room for one adapter, on the layers that it changes and no others.

    Left to itself vLLM would run the adapter's products on every layer, and on the embeddings.
    """
    if bundle.adapter is None or bundle.adapter_rank is None:
        return {}
    rank = next((rank for rank in RANKS if rank >= bundle.adapter_rank), None)
    if rank is None:
        raise BadBundle(f"the adapter's rank is {bundle.adapter_rank}, vLLM takes at most 512")
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 1,
        "max_lora_rank": rank,
        "lora_target_modules": fused_layers(read_header(bundle.adapter / TENSORS).shapes),
    }
