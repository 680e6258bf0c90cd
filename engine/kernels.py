"""Whether an engine runs on the kernels that it should, and as fast: decided from facts alone.

The facts are gathered by `engine.probe`, in an engine that has loaded the bundle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from engine.checkup import Check, ok, warning

SLOW: Final = 0.85
"""Below this share of what is expected, a speed is a warning."""

READ_TOKENS: Final = 8_000
"""Of the record that is timed; the share below holds for about this length and more."""

_READ_SHARE: Final = 0.6
"""Of a card's matrix products that reading a record reaches: 8,019 tokens of the 27B in 0.81 s on
an H200, eager, its adapter as dense products: 495 of the card's 790 TFLOP/s."""

_LEAST_S: Final = 0.2
"""Where the arithmetic takes less, the processor's launching of kernels is what is timed."""

_SAID = re.compile(r"^(?:\(.*?\) )?(?:WARNING|INFO|ERROR) \S+ \S+ \[[^\]]*\] (.*)")
_FALLING = re.compile(
    r"fall(?:s|ing)? ?back|unavailable|not available|not supported|disabled via|reduced performance"
    r"|precluded|not the best performance|under-?perform",
    re.IGNORECASE,
)
_SLOW_KERNELS = ("Conch", "Exllama", "Triton", "Humming", "Emulation", "Dequant", "Torch")


class Card(msgspec.Struct, frozen=True):
    """What a card reaches in plain matrix products and in copies within its memory.

    Attributes:
        flops: Multiply-adds count two, in bfloat16.
        bytes_s: Read and written together.
    """

    flops: float
    bytes_s: float
    source: str


_MAKER = "80 % of the maker's figure for products and 90 % for memory, as an H200 reaches"


def _by_maker(teraflops: float, terabytes: float) -> Card:
    return Card(0.8 * teraflops * 1e12, 0.9 * terabytes * 1e12, _MAKER)


CARDS: Final = {
    "NVIDIA H200": Card(790e12, 4.3e12, "measured"),
    "NVIDIA H100 80GB HBM3": _by_maker(989, 3.35),
    "NVIDIA A100-SXM4-80GB": _by_maker(312, 2.04),
    "NVIDIA GeForce RTX 5090": _by_maker(209, 1.79),
    "NVIDIA GeForce RTX 4090": _by_maker(165, 1.01),
    "NVIDIA GeForce RTX 3090": _by_maker(71, 0.94),
}


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """What kernels that are compiled at run time need; empty if it is not there.

    Attributes:
        headers: Path of CUDA's headers.
        compiler: Path of nvcc.
        host_compiler: Path of the C compiler, which Triton needs.
        python_headers: Path of Python.h, which Triton needs.
    """

    headers: str
    compiler: str
    host_compiler: str
    python_headers: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine runs on, see `engine.probe`.

    Attributes:
        device: The card's name, or the processor's.
        capability: Major and minor, of a card.
        attention: Kernels of the layers with full attention.
        linear_attention: Kernels that read records in the layers with linear attention.
        sampler: What draws tokens: flashinfer, or native.
        quantization: Kernels of quantized matrices; empty if nothing is.
        graphs: vLLM's mode of CUDA graphs; NONE where there are none.
        adapter: The class that adds the adapter; empty without adapter.
        flops: Of plain matrix products in bfloat16, a second.
        bytes_s: Of copies within memory, a second.
        read_flops: Of one token through the layers.
        read_tokens: Of the record that was timed.
        read_s: Seconds that it took, alone and in full.
        said: vLLM's own lines about what it could not take.
    """

    device: str
    capability: tuple[int, int] | None
    attention: list[str]
    linear_attention: list[str]
    sampler: str
    quantization: list[str]
    graphs: str
    adapter: str
    flops: float
    bytes_s: float
    read_flops: float
    read_tokens: int
    read_s: float
    said: list[str] = []


def fallbacks(log: str) -> list[str]:
    """Find in vLLM's log what it says about kernels that it could not take, each line once."""
    said: dict[str, None] = {}
    for line in log.splitlines():
        match = _SAID.match(line)
        if match is not None and _FALLING.search(match[1]):
            said[match[1]] = None
    return list(said)


def toolkit_line(toolkit: Toolkit) -> Check:
    """Say whether kernels can be compiled here."""
    missing = [
        name
        for name, found in (
            ("CUDA headers", toolkit.headers),
            ("nvcc", toolkit.compiler),
            ("a C compiler", toolkit.host_compiler),
            ("Python.h", toolkit.python_headers),
        )
        if not found
    ]
    if not missing:
        return ok("CUDA headers", f"{toolkit.headers}, nvcc, cc")
    return warning(
        "CUDA headers",
        f"missing: {', '.join(missing)}; FlashInfer and Triton compile while they run",
        "install the CUDA toolkit of torch's version, gcc and python3-dev",
    )


def judge(facts: Facts) -> Iterator[Check]:
    """Give a line for each kind of kernel, and for each speed."""
    yield _attention(facts)
    yield _linear_attention(facts)
    yield _sampler(facts)
    yield _quantization(facts)
    yield _graphs(facts)
    if facts.adapter:
        yield ok("adapter kernel", facts.adapter)
    # on a processor vLLM says much about the card that is not there
    for line in facts.said if facts.capability else ():
        yield warning(
            "vLLM says",
            line,
            "see the lines above; what is missing is named here",
        )
    yield from _speeds(facts)


def _attention(facts: Facts) -> Check:
    found = ", ".join(facts.attention)
    fast = ("FLASH_ATTN", "FLASHINFER")
    slow = [name for name in facts.attention if name not in fast]
    if facts.capability is None or facts.capability < (8, 0) or not slow:
        return ok("attention", found)
    return warning(
        "attention",
        f"{found}, a fallback on this card{_why(facts, 'attention|flash')}",
        "install vLLM's CUDA build whole; unset VLLM_ATTENTION_BACKEND",
    )


def _linear_attention(facts: Facts) -> Check:
    found = ", ".join(facts.linear_attention) or "none"
    # vLLM has FlashInfer's kernel for these two generations of cards alone
    able = facts.capability is not None and (
        facts.capability == (9, 0) or facts.capability[0] == 10
    )
    if not able or "triton" not in facts.linear_attention:
        return ok("linear attention", found)
    return warning(
        "linear attention",
        f"{found}, where this card can run FlashInfer's{_why(facts, 'gdn')}",
        "install flashinfer-python and CUDA 13; let gdn_prefill_backend be",
    )


def _sampler(facts: Facts) -> Check:
    if facts.capability is None or facts.sampler != "native":
        return ok("sampler", facts.sampler)
    return warning(
        "sampler",
        f"PyTorch's own; decisions do not sample, chat does{_why(facts, 'sampl')}",
        "install flashinfer-python; unset VLLM_USE_FLASHINFER_SAMPLER",
    )


def _quantization(facts: Facts) -> Check:
    if not facts.quantization:
        return ok("quantization", "the base is not quantized")
    found = ", ".join(facts.quantization)
    slow = [name for name in facts.quantization if name.startswith(_SLOW_KERNELS)]
    if facts.capability is None or not slow:
        return ok("quantization", found)
    return warning(
        "quantization",
        f"{found}: {', '.join(slow)} is a fallback{_why(facts, 'kernel|quant')}",
        "take a base in a form with a fast kernel here: W4A16 in groups of 128, or FP8",
    )


def _graphs(facts: Facts) -> Check:
    if facts.capability is None or facts.graphs != "NONE":
        return ok("CUDA graphs", facts.graphs.lower())
    return warning(
        "CUDA graphs",
        "none: every small step waits for the processor",
        "leave graphs on (no enforce_eager, no debugging flags of torch)",
    )


def _speeds(facts: Facts) -> Iterator[Check]:
    card = CARDS.get(facts.device)
    tera = f"{facts.flops / 1e12:,.1f} TFLOP/s"
    giga = f"{facts.bytes_s / 1e9:,.0f} GB/s"
    if card is None:
        detail = f"matrix products {tera}, copies {giga}; no figures of {facts.device} to compare"
        yield ok("speed of the device", detail)
    else:
        remedy = "see nvidia-smi for other programs, heat, a power limit, a slice of a card (MIG)"
        yield _speed("matrix products", tera, facts.flops / card.flops, card.source, remedy)
        yield _speed("memory", giga, facts.bytes_s / card.bytes_s, card.source, remedy)
    reached = facts.read_flops * facts.read_tokens / facts.read_s
    detail = f"{facts.read_tokens:,} tokens in {facts.read_s:.2f} s"
    if facts.capability is None or facts.read_tokens < READ_TOKENS // 2:
        yield ok("reading a record", f"{detail}; nothing to compare")
        return
    expected = _READ_SHARE * (card.flops if card else facts.flops)
    if facts.read_flops * facts.read_tokens < _LEAST_S * expected:
        yield ok("reading a record", f"{detail}; a model too small to compare: launching counts")
        return
    source = f"{_READ_SHARE:.0%} of the matrix products, as measured on an H200"
    yield _speed(
        "reading a record",
        detail,
        reached / expected,
        source,
        "see the kernels above; ask an idle machine again",
    )


def _speed(name: str, detail: str, share: float, source: str, remedy: str) -> Check:
    text = f"{detail}, {share:.0%} of what is expected ({source})"
    if share >= SLOW:
        return ok(name, text)
    return warning(name, text, remedy)


def _why(facts: Facts, about: str) -> str:
    """Give vLLM's own words about a kind of kernel, if it said any."""
    said = [line for line in facts.said if re.search(about, line, re.IGNORECASE)]
    return f" ({said[0]})" if said else ""
