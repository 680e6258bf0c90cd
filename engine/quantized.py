"""Quantized checkpoints as vLLM reads them: how they are quantized, and what their tensors mean.

A quantized matrix is several tensors: packed numbers, scales, perhaps zero points and an order of
the inputs. Here they are counted as the one matrix that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.errors import BadBundle
from engine.tensors import Shapes

FLOATS: Final = ("BF16", "F16", "F32", "F64")

_PACKED: Final = (".weight_packed", ".qweight", ".weight")
_BESIDE: Final = (
    ".weight_scale",
    ".weight_scale_inv",
    ".weight_scale_2",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_g_idx",
    ".weight_shape",
    ".input_scale",
    ".input_global_scale",
    ".scales",
    ".qzeros",
    ".g_idx",
)
_WORD = 32  # bits that GPTQ, AWQ and compressed-tensors pack numbers into


class Quantization(msgspec.Struct, frozen=True):
    """How a base is quantized.

    Attributes:
        method: As vLLM names it: gptq, awq, fp8, compressed-tensors, ...
        bits: Of a weight.
    """

    method: str
    bits: int

    def __str__(self) -> str:
        return f"{self.method}, {self.bits} bits"


class Tensors(msgspec.Struct, frozen=True):
    """A checkpoint's tensors, quantized matrices as the matrices that they stand for.

    Attributes:
        shapes: By name; a matrix is named `....weight` however it is stored.
        sizes: Bytes, with what lies beside a quantized matrix.
        quantized: Names of the matrices that are not stored as floats of 16 bits or more.
    """

    shapes: Shapes
    sizes: dict[str, int]
    quantized: set[str]


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Find how a model is quantized in its `config.json`; None if it is not.

    Raises:
        BadBundle: It has several widths of weights, or names none.
    """
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return None
    method = str(found.get("quant_method", "unnamed"))
    groups = found.get("config_groups")
    if isinstance(groups, dict):  # compressed-tensors
        widths = {group.get("weights", {}).get("num_bits") for group in groups.values()}
    else:
        algorithm = str(found.get("quant_algo", method)).lower()
        named = {"fp8": 8, "nvfp4": 4}.get(algorithm)
        widths = {found.get("bits", found.get("w_bit", named))}
    width = widths.pop() if len(widths) == 1 else None
    if type(width) is not int:
        raise BadBundle(
            f"a base quantized as {method} with weights of {sorted(map(str, widths)) or 'no'} "
            "bits is not understood; take one whose layers all have the same width"
        )
    return Quantization(method, width)


def meaning(
    shapes: Shapes,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str],
    quantization: Quantization | None,
) -> Tensors:
    """Give the tensors of a checkpoint as the matrices that they stand for."""
    if quantization is None:
        return Tensors(dict(shapes), dict(sizes), set())
    result = Tensors({}, {}, set())
    for name, shape in shapes.items():
        module, kind = _split(name)
        if kind in _PACKED:
            weight = f"{module}.weight"
            result.shapes[weight] = _unpacked(kind, shape, dtypes[name], quantization)
            if dtypes[name] not in FLOATS:
                result.quantized.add(weight)
        else:
            weight = f"{module}.weight" if kind in _BESIDE else name
            if kind not in _BESIDE:
                result.shapes[name] = shape
        result.sizes[weight] = result.sizes.get(weight, 0) + sizes[name]
    return result


def _split(name: str) -> tuple[str, str]:
    module, dot, kind = name.rpartition(".")
    return module, dot + kind


def _unpacked(
    kind: str, shape: tuple[int, ...], dtype: str, quantization: Quantization
) -> tuple[int, ...]:
    """Give rows (outputs) and columns (inputs) of a matrix from those of its packed numbers."""
    if len(shape) != 2 or dtype in FLOATS:
        return shape
    rows, columns = shape
    each = _WORD // quantization.bits
    if kind == ".qweight":  # inputs first, as GPTQ and AWQ have it
        awq = "awq" in quantization.method
        return (columns * each, rows) if awq else (columns, rows * each)
    if dtype == "I32":
        return rows, columns * each
    return (rows, columns * 2) if dtype == "U8" and quantization.bits == 4 else shape
