"""Refuse, before anything is loaded, what vLLM, this machine or the model cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import psutil
import torch
from vllm.platforms import current_platform

from engine.bundle import Bundle
from engine.errors import BadSetting
from engine.plan import draft_size, plan, sizes_of
from engine.settings import WorkerSettings
from engine.tensors import read_header


def refuse(bundle: Bundle, settings: WorkerSettings, *, on_cpu: bool) -> None:
    """See that a bundle can be served as the settings say.

    Raises:
        BadSetting: Names the setting, its value, and what is in the way.
        DoesNotFit: By the arithmetic of `ostinato plan`.
    """
    for name, reason in _obstacles(bundle, settings, on_cpu=on_cpu):
        raise BadSetting(f"{name} {getattr(settings, name)}: {reason}")
    draft = draft_size(settings.draft) if settings.draft else 0
    memory = (
        psutil.virtual_memory().available if on_cpu else current_platform.get_device_total_memory()
    )
    settings = msgspec.structs.replace(settings, device="cpu" if on_cpu else "gpu")
    window = settings.window_of(bundle.window) + 1  # the token that nobody reads
    plan(sizes_of(bundle, settings), memory, settings, draft=draft, window=window)


def _obstacles(
    bundle: Bundle, settings: WorkerSettings, *, on_cpu: bool
) -> Iterator[tuple[str, str]]:
    if settings.device == "gpu" and on_cpu:
        yield "device", "the vLLM installed here is the CPU build; install ostinato[gpu]"
    if settings.device == "cpu" and not on_cpu:
        yield "device", "the vLLM installed here is the GPU build; install ostinato[cpu]"
    if settings.head_device == "gpu" and on_cpu:
        yield "head_device", "the model runs on the CPU here, and so does its head; leave it out"
    if settings.head_device == "cpu" and not on_cpu:
        yield "head_device", "this version scores beside the model alone; leave it out"
    limit = settings.window_of(bundle.window)
    if settings.max_record_tokens is not None and settings.max_record_tokens > limit:
        yield "max_record_tokens", f"the window is {limit}; take a larger one or shorter records"
    if on_cpu and settings.kv_cache_dtype == "int8":
        yield "kv_cache_dtype", "vLLM's attention on the CPU knows auto and fp8"
    if on_cpu and settings.kv_cache_dtype == "fp8" and not torch.cpu._is_avx512_supported():
        yield "kv_cache_dtype", "this CPU has no AVX-512, which it takes; take auto"
    if settings.speculative != "off":
        reason = _why_not_speculate(bundle, settings, on_cpu=on_cpu)
        if reason:
            yield "speculative", reason
    elif settings.draft is not None:
        yield "draft", "only `speculative` dflash2 uses a draft model; set that or leave it out"


def _why_not_speculate(bundle: Bundle, settings: WorkerSettings, *, on_cpu: bool) -> str:
    if on_cpu and settings.speculative == "dflash2":
        return "it exists in vLLM's V2 model runner alone, which does not run on a CPU; take off"
    if on_cpu:
        return (
            "vLLM's CPU runner cannot guess tokens and reuse prefixes at once (its copy of "
            "linear-attention states is a GPU kernel); take off"
        )
    if settings.speculative == "dflash2" and settings.draft is None:
        return "it needs a draft model; name its folder as `draft`"
    if settings.speculative == "mtp" and not _has_predictor(bundle):
        return "the base has no predictor (`mtp.` tensors); take off, ngram, or such a base"
    return ""


def _has_predictor(bundle: Bundle) -> bool:
    return any(
        tensor.startswith("mtp.")
        for name in bundle.manifest.base.files
        if name.endswith(".safetensors")
        for tensor in read_header(bundle.base / name).shapes
    )
