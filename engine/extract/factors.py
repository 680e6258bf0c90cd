"""Low-rank factors of a change, and how much they leave out.

Shapes: m rows, n columns, k singular values looked at, r the rank.
"""

from __future__ import annotations

import hashlib

import msgspec
import torch
from torch import Tensor

from engine.extract.compare import pieces
from engine.extract.weights import Weights
from engine.manifest import MatrixError

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}

HIGHEST_RANK = 512
"""What vLLM takes."""

_EXACT = 512  # smaller side, up to which the full decomposition is quicker than a sketch
_FIRST_SKETCH = 320  # columns; enough for rank 256 with room to see where the rank ends
_ABOVE_NOISE = 1.3  # a singular value of rounding errors alone stays below 1.0
_POWER_STEPS = (2, 8)  # fewest, most
_SETTLED = 1e-3  # of the residual energy, that another step would still find


class Spectrum(msgspec.Struct, frozen=True):
    """The leading singular values of a change, and the factors cut at its rank.

    Attributes:
        values: Singular values, falling, [k].
        rank: How many stand above the rounding errors of the number format.
        gap: The last that counts over the first that does not, or over the rounding errors.
        full: The change has no low rank: factors would not be smaller than the matrix.
        a: [kept, n].
        b: [m, kept]; `kept` is the rank, or k where the change is full.
    """

    values: list[float]
    rank: int
    gap: float
    full: bool
    a: Tensor
    b: Tensor


def factor(base: Weights, tuned: Weights, name: str, *, device: str, dtype: str) -> Spectrum:
    """Factor the change of one matrix.

    The rank is the number of singular values above what rounding the tuned weights to their
    number format can make: an error of ulp/√12 a value has singular values up to about
    ulp/√12 · (√m + √n). Large matrices are decomposed on a random subspace (Halko, Martinsson and
    Tropp, 2011), with power steps until the subspace holds what it can.
    """
    delta, noise = _delta(base, tuned, name, device=device)
    smaller = min(delta.shape)
    limit = min(HIGHEST_RANK, int(delta.numel() / sum(delta.shape)))
    if smaller <= _EXACT:
        u, values, v = torch.linalg.svd(delta, full_matrices=False)
    else:
        columns = min(_FIRST_SKETCH, smaller)
        u, values, v = _sketch(delta, columns, name)
        if values[-1] > _ABOVE_NOISE * noise:
            u, values, v = _sketch(delta, min(HIGHEST_RANK + 64, smaller), name)
    rank = int((values > _ABOVE_NOISE * noise).sum())
    full = rank > limit or rank == len(values)
    following = float(values[rank]) if rank < len(values) else noise
    gap = float(values[rank - 1]) / max(following, float(values[0]) * 1e-7) if rank else 0.0
    kept = len(values) if full else max(rank, 1)
    root = values[:kept].sqrt()
    return Spectrum(
        values=[float(value) for value in values],
        rank=rank,
        gap=gap,
        full=full,
        a=(root[:, None] * v[:kept]).to(DTYPES[dtype]).cpu().contiguous(),
        b=(u[:, :kept] * root).to(DTYPES[dtype]).cpu().contiguous(),
    )


def warm_up(device: str) -> None:
    """Do once, on a small matrix, what a device prepares at its first use."""
    _sketch(torch.randn(1024, 1024, device=device), _FIRST_SKETCH, "warm up")


def measure(
    base: Weights, tuned: Weights, name: str, a: Tensor, b: Tensor, *, rank: int, device: str
) -> MatrixError:
    """Measure what factors, as they are stored, leave out of a change."""
    left, change, whole = 0.0, 0.0, 0.0
    a = a.to(device, torch.float32)
    for old, new, rows in pieces(base.read(name), tuned.read(name), b):
        old, new = old.to(device, torch.float32), new.to(device, torch.float32)
        delta = new - old
        change += _energy(delta)
        whole += _energy(new)
        left += _energy(delta.addmm_(rows.to(device, torch.float32), a, alpha=-1))
    return MatrixError(rank, _ratio(left, change), _ratio(left, whole))


def _delta(base: Weights, tuned: Weights, name: str, *, device: str) -> tuple[Tensor, float]:
    """Give T − B in float32, and the largest singular value that rounding alone would make."""
    old, new = base.read(name), tuned.read(name)
    delta = torch.empty(new.shape, dtype=torch.float32, device=device)
    energy = 0.0
    # a value's last digit is worth eps times its power of two
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (old, new))
    for old_rows, new_rows, target in pieces(old, new, delta):
        rows = new_rows.to(device, torch.float32)
        energy += _energy(torch.exp2(torch.frexp(rows).exponent.float() - 1)) * eps**2
        torch.sub(rows, old_rows.to(device, torch.float32), out=target)
    rows, columns = delta.shape
    deviation = (energy / delta.numel() / 12) ** 0.5
    return delta, deviation * (rows**0.5 + columns**0.5)


def _sketch(delta: Tensor, columns: int, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose a matrix on the subspace of its largest singular values."""
    # the same numbers on every device and in every run
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")
    start = torch.randn(delta.shape[1], columns, generator=torch.Generator().manual_seed(seed)).to(
        delta.device
    )
    basis = torch.linalg.qr(delta @ start).Q
    whole, held = _energy(delta), 0.0
    for step in range(_POWER_STEPS[1]):
        projected = basis.T @ delta  # [k, n]
        before, held = held, _energy(projected)
        if step >= _POWER_STEPS[0] and held - before <= _SETTLED * max(whole - held, 0.0):
            break
        basis = torch.linalg.qr(delta @ torch.linalg.qr(projected.T).Q).Q
    else:
        projected = basis.T @ delta
    u, values, v = torch.linalg.svd(projected, full_matrices=False)
    return basis @ u, values, v


def _energy(values: Tensor) -> float:
    """Give the sum of squares, in float64 without a copy of a large matrix in it."""
    return sum(
        float(torch.linalg.vector_norm(rows, dtype=torch.float64)) ** 2
        for (rows,) in pieces(values)
    )


def _ratio(part: float, whole: float) -> float:
    return (part / whole) ** 0.5 if whole else 0.0
