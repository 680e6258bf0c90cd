"""What an engine's facts are judged to mean; `test_probe` gathers real ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.checkup import Check
from engine.kernels import CARDS, Facts, Toolkit, fallbacks, judge, toolkit_line

# of the 27B: layers and adapter
READ_FLOPS = 50.1e9
GOOD = Facts(
    device="NVIDIA H200",
    capability=(9, 0),
    attention=["FLASH_ATTN"],
    linear_attention=["flashinfer"],
    sampler="flashinfer",
    quantization=[],
    graphs="FULL_AND_PIECEWISE",
    adapter="DenseAdapter",
    flops=780e12,
    bytes_s=4.2e12,
    read_flops=READ_FLOPS,
    read_tokens=8019,
    read_s=0.82,
)


def judged(**changes: Any) -> dict[str, Check]:
    checks = list(judge(msgspec.structs.replace(GOOD, **changes)))
    for check in checks:
        assert check.status == "ok" or check.remedy
    return {check.name: check for check in checks}


def bad(**changes: Any) -> list[str]:
    return [name for name, check in judged(**changes).items() if check.status != "ok"]


def test_the_right_kernels_at_the_right_speed_are_ok() -> None:
    assert bad() == []
    assert list(judged()) == [
        "attention",
        "linear attention",
        "sampler",
        "quantization",
        "CUDA graphs",
        "adapter kernel",
        "matrix products",
        "memory",
        "reading a record",
    ]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"attention": ["TRITON_ATTN"]}, ["attention"]),
        ({"attention": ["FLASHINFER"]}, []),
        ({"attention": ["TRITON_ATTN"], "capability": (7, 5), "linear_attention": ["triton"]}, []),
        ({"linear_attention": ["triton"]}, ["linear attention"]),
        ({"linear_attention": ["triton"], "capability": (10, 0)}, ["linear attention"]),
        ({"linear_attention": ["triton"], "capability": (8, 9)}, []),
        ({"linear_attention": ["cutedsl"], "capability": (10, 0)}, []),
        ({"sampler": "native"}, ["sampler"]),
        ({"quantization": ["MacheteLinearKernel"]}, []),
        ({"quantization": ["MarlinLinearKernel", "ConchLinearKernel"]}, ["quantization"]),
        ({"quantization": ["EmulationMxfp8LinearKernel"]}, ["quantization"]),
        ({"graphs": "NONE"}, ["CUDA graphs"]),
        ({"said": ["FlashInfer unavailable; falling back"]}, ["vLLM says"]),
        ({"flops": 0.86 * 790e12}, []),
        ({"flops": 0.84 * 790e12}, ["matrix products"]),
        ({"bytes_s": 0.84 * 4.3e12}, ["memory"]),
        ({"read_s": 1.2}, ["reading a record"]),
        ({"read_s": 0.9}, []),
        ({"read_tokens": 2000, "read_s": 9.0}, []),  # too short to compare
    ],
)
def test_each_fallback_is_a_warning_and_nothing_else_is(
    changes: dict[str, Any], names: list[str]
) -> None:
    assert bad(**changes) == names


def test_a_fallback_gives_vllm_s_reason() -> None:
    reason = "FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0."
    assert f"({reason})" in judged(sampler="native", said=[reason])["sampler"].detail
    assert "(" not in judged(sampler="native")["sampler"].detail


def test_an_unknown_card_is_compared_with_itself() -> None:
    assert bad(device="NVIDIA L4", flops=100e12, bytes_s=3e11, read_s=6.0) == []
    assert "no figures of NVIDIA L4" in judged(device="NVIDIA L4")["speed of the device"].detail
    assert bad(device="NVIDIA L4", flops=100e12, bytes_s=3e11, read_s=9.0) == ["reading a record"]


def test_a_processor_has_no_fallbacks() -> None:
    assert (
        bad(
            device="cpu",
            capability=None,
            attention=["CPU_ATTN"],
            linear_attention=["triton"],
            sampler="forward_cpu",
            quantization=["CPUWNA16LinearKernel"],
            graphs="NONE",
            said=["Falling back to the Triton GDN decode path"],
            read_s=60.0,
        )
        == []
    )


def test_cards_have_sound_figures() -> None:
    for card in CARDS.values():
        assert 50e12 < card.flops < 1000e12
        assert 0.5e12 < card.bytes_s < 5e12


LOG = """
(EngineCore pid=7) INFO 11-30 09:00:01 [cuda.py:480] Using FLASH_ATTN attention backend out of [].
WARNING 11-30 09:00:01 [topk.py:69] FlashInfer top-p/top-k sampling unavailable: sm70; falling back.
WARNING 11-30 09:00:02 [topk.py:69] FlashInfer top-p/top-k sampling unavailable: sm70; falling back.
(EngineCore pid=7) WARNING 11-30 09:00:02 [cuda.py:460] --block-size 784 precluded higher-priority.
Falling back, says a line that is no log line
"""


def test_vllm_s_words_are_found_in_its_log() -> None:
    assert fallbacks(LOG) == [
        "FlashInfer top-p/top-k sampling unavailable: sm70; falling back.",
        "--block-size 784 precluded higher-priority.",
    ]
    assert fallbacks("") == []


def test_missing_tools_are_named() -> None:
    whole = Toolkit(
        headers="/cuda/include", compiler="/cuda/nvcc", host_compiler="/cc", python_headers="/P.h"
    )
    assert toolkit_line(whole).status == "ok"
    check = toolkit_line(msgspec.structs.replace(whole, headers="", python_headers=""))
    assert check.status == "warning"
    assert "missing: CUDA headers, Python.h" in check.detail


def test_a_model_of_a_few_million_parameters_is_not_judged_by_its_speed():
    line = judged(read_flops=12e6, read_s=0.05)["reading a record"]
    assert line.status == "ok"
    assert "too small" in line.detail
