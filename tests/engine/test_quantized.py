from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.bundle import Bundle, base_tensors, write_manifest
from engine.errors import BadBundle
from engine.plan import sizes_of
from engine.quantized import Quantization, meaning, read_quantization
from tests.support.bundles import ORACLE, adapter_bundle
from tests.support.quantized import Method, quantized_base

GROUPS = {"group_0": {"weights": {"num_bits": 4}}, "group_1": {"weights": {"num_bits": 4}}}


@pytest.mark.parametrize(
    ("found", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4),
        ({"quant_method": "awq", "w_bit": 4}, 4),
        ({"quant_method": "awq", "bits": 4}, 4),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4),
        ({"quant_method": "compressed-tensors", "config_groups": GROUPS}, 4),
    ],
)
def test_ways_to_quantize_are_read(found: dict[str, Any], bits: int) -> None:
    assert read_quantization({"quantization_config": found}) == Quantization(
        found["quant_method"], bits
    )


@pytest.mark.parametrize(
    "found",
    [
        {"quant_method": "gptq"},
        {
            "quant_method": "compressed-tensors",
            "config_groups": GROUPS | {"group_2": {"weights": {"num_bits": 8}}},
        },
    ],
)
def test_what_has_no_one_width_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(BadBundle, match="is not understood; take one whose layers"):
        read_quantization({"quantization_config": found})


def test_most_models_are_not_quantized() -> None:
    assert read_quantization({}) is None
    assert read_quantization({"quantization_config": None}) is None


@pytest.mark.parametrize(
    ("method", "bits", "stored"),
    [
        ("gptq", 4, {"qweight": ((16, 256), "I32"), "scales": ((1, 256), "F16")}),
        ("awq", 4, {"qweight": ((128, 32), "I32"), "qzeros": ((1, 32), "I32")}),
        ("fp8", 8, {"weight": ((256, 128), "F8_E4M3"), "weight_scale_inv": ((2, 1), "F32")}),
        (
            "compressed-tensors",
            4,
            {"weight_packed": ((256, 16), "I32"), "weight_shape": ((2,), "I64")},
        ),
        (
            "compressed-tensors",
            8,
            {"weight": ((256, 128), "I8"), "weight_scale": ((256, 1), "F32")},
        ),
        ("modelopt", 4, {"weight": ((256, 64), "U8"), "input_scale": ((), "F32")}),
    ],
)
def test_packed_tensors_count_as_their_matrix(
    method: str, bits: int, stored: dict[str, tuple[tuple[int, ...], str]]
) -> None:
    found = meaning(
        {"norm.weight": (128,)} | {f"up.{name}": shape for name, (shape, _) in stored.items()},
        {"norm.weight": 256} | {f"up.{name}": 1000 for name in stored},
        {"norm.weight": "BF16"} | {f"up.{name}": dtype for name, (_, dtype) in stored.items()},
        Quantization(method, bits),
    )
    assert found.shapes == {"norm.weight": (128,), "up.weight": (256, 128)}
    assert found.sizes == {"norm.weight": 256, "up.weight": 1000 * len(stored)}
    assert found.quantized == {"up.weight"}


@pytest.mark.parametrize(
    ("method", "bits"), [("compressed-tensors", 4), ("gptq", 4), ("awq", 4), ("fp8", 8)]
)
def test_a_quantized_base_has_the_matrices_of_the_base(
    method: Method, bits: int, tmp_path: Path
) -> None:
    plain = adapter_bundle(tmp_path / "plain")
    bundle = tuned_on(quantized_base(tmp_path / "q", method), tmp_path / "b")
    assert bundle.manifest.quantization == f"{method}, {bits} bits"
    found = base_tensors(bundle)
    assert found.shapes == base_tensors(plain).shapes
    assert len(found.quantized) == 6 * 6 + 2 * 7
    small, large = sizes_of(bundle), sizes_of(plain)
    assert small.weights < large.weights
    assert small.block_bytes == large.block_bytes
    # quantized weights do not get smaller by another form, and those left in 16 bits may
    assert small.weights * 0.5 < sizes_of(bundle, weights="fp8").weights <= small.weights


def test_a_quantized_output_embedding_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base = quantized_base(tmp_path / "q", "gptq")
    tensors = load_file(base / "model.safetensors")
    tensors["lm_head.qweight"] = tensors.pop("lm_head.weight").int()[: 128 // 8].contiguous()
    save_file(tensors, base / "model.safetensors")
    with pytest.raises(BadBundle, match=r"its lm_head is quantized.*leaves lm_head in 16 bits"):
        tuned_on(base, tmp_path / "b")


def tuned_on(base: Path, folder: Path) -> Bundle:
    folder.mkdir()
    return write_manifest(folder, name="q", base=base, head=ORACLE / "clef")
