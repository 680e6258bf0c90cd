"""Loads a bundle as a worker does and looks at what its engine runs on, and how fast.

This happens in a process of its own (`main`), which prints the facts as JSON: what fails there, in
native code too, ends nothing else.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import EngineFailed
from engine.kernels import READ_TOKENS, Facts, fallbacks
from engine.settings import WorkerSettings, decode_settings, encode_settings

_READS: Final = 5
_SENTENCE: Final = "The lift stops at floor {}, and nobody gets in. "


def probe(
    bundle: Path,
    settings: WorkerSettings,
    *,
    timeout_s: float,
    read_tokens: int = READ_TOKENS,
    reading_s: float = 20.0,
) -> Facts:
    """Gather the facts in another process.

    Args:
        bundle: A sound bundle's folder.
        settings: How a worker would load it.
        timeout_s: A large model takes minutes to load.
        read_tokens: About the length of the record that is timed.
        reading_s: Seconds after which no further record is begun; card and memory take one more.

    Raises:
        EngineFailed: The engine did not start or answer; the message has its last words.
    """
    command = [sys.executable, "-c", "from engine.probe import main; main()", str(bundle)]
    command += [encode_settings(settings), str(read_tokens), str(reading_s)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=os.environ | {"VLLM_LOGGING_LEVEL": "INFO"},
        )
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(
            f"{bundle}: not loaded and measured within {timeout_s:.0f} s; try --no-load"
        ) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise EngineFailed(f"{bundle}: {lines[-1]}; `ostinato --debug worker` shows the whole log")
    facts = msgspec.json.decode(done.stdout.splitlines()[-1], type=Facts)
    return msgspec.structs.replace(facts, said=fallbacks(done.stderr))


def main() -> None:
    """Gather facts about the bundle that the command line names and print them."""
    import anyio

    # the function that looks at the engine travels to its process
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    path, settings, tokens, seconds = sys.argv[1:]
    facts = anyio.run(_measure, Path(path), decode_settings(settings), int(tokens), float(seconds))
    sys.stdout.write("\n" + msgspec.json.encode(facts).decode() + "\n")


async def _measure(
    path: Path, settings: WorkerSettings, read_tokens: int, reading_s: float
) -> Facts:
    from engine.bundle import load_bundle
    from engine.contract import Ask, DecisionRequest, Field
    from engine.llm.backend import VllmBackend
    from engine.tokens import Encoder

    bundle = load_bundle(path)
    window = min(bundle.window, read_tokens + 512)
    each = len(Encoder(bundle.tokenizer).ids(_SENTENCE.format(100)))
    times: list[float] = []
    tokens = 0
    backend = await VllmBackend.start(bundle, settings, window=window, max_record_tokens=None)
    try:
        found = (await backend.engine.collective_rpc(look))[0]  # pyright: ignore[reportArgumentType]
        started = time.monotonic()
        # the first one compiles what is not compiled yet
        while not times or (len(times) < 1 + _READS and time.monotonic() - started < reading_s):
            number = len(times)
            ask = Ask(
                state="".join(
                    _SENTENCE.format(100 * number + line % 90)
                    for line in range((window - 400) // each)
                ),
                fields=(
                    Field(
                        id="q",
                        type="noul",
                        instruction="Is the lift empty?",
                        option_ids=("true", "false"),
                        option_texts=('{"option_id":"true"}', '{"option_id":"false"}'),
                    ),
                ),
                salt=f"probe {number}",
            )
            began = time.monotonic()
            reply = await backend.decide(
                DecisionRequest(
                    id=f"probe-{number}",
                    attempt=1,
                    source="doctor",
                    affinity="doctor",
                    remaining_s=600.0,
                    ask=ask,
                )
            )
            times.append(time.monotonic() - began)
            tokens = reply.tokens_read
    finally:
        await backend.close()
    read_s = statistics.median(times[1:] or times)
    return msgspec.convert(
        found | {"read_flops": _token_flops(bundle), "read_tokens": tokens, "read_s": read_s}, Facts
    )


def _token_flops(bundle: Any) -> float:
    """Count two operations for each value of the layers' matrices and of the adapter."""
    from engine.adapter import TENSORS
    from engine.bundle import base_tensors
    from engine.tensors import read_header

    matrices: list[tuple[int, ...]] = [
        shape
        for name, shape in base_tensors(bundle).shapes.items()
        if ".layers." in name and name.startswith("model.language_model.") and len(shape) == 2
    ]
    if bundle.adapter is not None:
        matrices += read_header(bundle.adapter / TENSORS).shapes.values()
    return 2.0 * sum(math.prod(shape) for shape in matrices)


def look(worker: Any) -> dict[str, Any]:
    """Run in the engine's process: what it chose, and what its device reaches."""
    import torch
    from vllm.platforms import current_platform

    config = worker.vllm_config
    capability = None
    if not current_platform.is_cpu():
        found = current_platform.get_device_capability()
        capability = (found.major, found.minor) if found else None
    attention: set[str] = set()
    linear: set[str] = set()
    for layer in config.compilation_config.static_forward_context.values():
        if hasattr(layer, "gdn_prefill_backend"):
            linear.add(str(layer.gdn_prefill_backend))
        elif hasattr(layer, "get_attn_backend"):
            attention.add(str(layer.get_attn_backend().get_name()))
    model = worker.get_model()
    wrappers = {
        type(module.punica_wrapper).__name__
        for module in model.modules()
        if getattr(module, "punica_wrapper", None) is not None
    }
    device = torch.device("cpu" if current_platform.is_cpu() else "cuda")
    mode = config.compilation_config.cudagraph_mode
    return {
        "device": str(current_platform.get_device_name()),
        "capability": capability,
        "attention": sorted(attention),
        "linear_attention": sorted(linear),
        "sampler": _sampler(worker.model_runner.sampler),
        "quantization": sorted({name for module in model.modules() for name in _kernels(module)}),
        "graphs": getattr(mode, "name", str(mode)),
        "adapter": ", ".join(sorted(wrappers)),
        "flops": _product_rate(device),
        "bytes_s": _copy_rate(device),
    }


def _sampler(sampler: Any) -> str:
    """Name what draws tokens, in either of vLLM's two model runners."""
    if hasattr(sampler, "use_flashinfer"):
        return "flashinfer" if sampler.use_flashinfer else "native"
    name = sampler.topk_topp_sampler.forward.__name__
    return {"forward_cuda": "flashinfer", "forward_native": "native"}.get(str(name), str(name))


def _kernels(module: Any) -> list[str]:
    """Name the kernels of a quantized layer, or the method where it has none of its own."""
    method = getattr(module, "quant_method", None)
    kind = type(method)
    if not kind.__module__.startswith("vllm.model_executor.layers.quantization."):
        return []
    if kind.__name__.startswith("Unquantized") or kind.__name__.endswith("KVCacheMethod"):
        return []
    owners = [method, getattr(module, "scheme", None)]
    kernels = [
        type(value).__name__
        for owner in owners
        if owner is not None
        for value in vars(owner).values()
        if type(value).__module__.startswith("vllm.model_executor.kernels.")
    ]
    return kernels or [type(method).__name__]


def _product_rate(device: Any) -> float:
    import torch

    side = 8192 if device.type == "cuda" else 512
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    return _rate(lambda: a @ a, 2.0 * side**3, device)


def _copy_rate(device: Any) -> float:
    import torch

    # beyond the card's own cache, and little enough for what vLLM leaves free
    count = (256 if device.type == "cuda" else 32) << 20
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), 2.0 * count, device)


def _rate(work: Any, amount: float, device: Any) -> float:
    """Give the best rate of a few bursts: what else runs on the device only ever takes from it."""
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    best = 0.0
    for _ in range(6):
        wait()
        started = time.monotonic()
        for _ in range(5):
            work()
        wait()
        best = max(best, 5 * amount / (time.monotonic() - started))
    return best
