"""What a tuned checkpoint changes of its base, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor

from engine.adapter import adapts
from engine.errors import BadWeights
from engine.extract.weights import Weights

_ROWS = 16 << 20  # values looked at together: 64 MiB in float32
_EXTRA = "mtp."
"""A base brings a predictor of further tokens along, which tuned models leave out."""


class Finding(msgspec.Struct, frozen=True):
    """Something that no adapter can hold.

    Attributes:
        tensor: Its name.
        what: What is the matter, for people.
        error: What the bundle would do without it: ‖T − B‖ / ‖T‖, 1 if there is no counterpart.
    """

    tensor: str
    what: str
    error: float


def structural(base: Weights, tuned: Weights) -> list[Finding]:
    """List tensors that are in one checkpoint only, or have another shape in the other."""
    findings = [
        Finding(name, "missing from the tuned weights", 1.0)
        for name in sorted(base.shapes.keys() - tuned.shapes.keys())
        if not name.startswith(_EXTRA)
    ]
    findings += [
        Finding(name, "missing from the base", 1.0)
        for name in sorted(tuned.shapes.keys() - base.shapes.keys())
    ]
    findings += [
        Finding(name, f"{list(tuned.shapes[name])} tuned, {list(shape)} in the base", 1.0)
        for name, shape in sorted(base.shapes.items())
        if name in tuned.shapes and tuned.shapes[name] != shape
    ]
    return findings


def common(base: Weights, tuned: Weights) -> list[str]:
    """List the tensors that can be compared, in the order in which they are stored."""
    shared = (name for name in tuned.shapes if base.shapes.get(name) == tuned.shapes[name])
    return sorted(shared, key=lambda name: (tuned.files[name].name, name))


def change_of(base: Weights, tuned: Weights, name: str) -> float | None:
    """Give ‖T − B‖ / ‖T‖ of one tensor, or None if nothing changed.

    Raises:
        BadWeights: A value is not finite.
    """
    changed, total = 0.0, 0.0
    same = True
    for old, new in pieces(base.read(name), tuned.read(name)):
        for source, values in ((base, old), (tuned, new)):
            if not torch.isfinite(values).all():
                raise BadWeights(
                    f"{source.files[name]}: {name} has values that are not finite; "
                    "copy the file again"
                )
        if torch.equal(old, new):
            continue
        same = False
        changed += float((new.double() - old.double()).square().sum())
        total += float(new.double().square().sum())
    return None if same else (changed / total) ** 0.5 if total else 1.0


def unadaptable(name: str, error: float) -> Finding | None:
    """Give the finding of a changed tensor that vLLM adapts to nothing, None if it is a matrix."""
    if adapts(name.removesuffix(".weight")):
        return None
    return Finding(name, "changed, and no adapter reaches it", error)


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of one shape into matching pieces of a few rows."""
    if not tensors[0].ndim:
        yield tensors
        return
    rows = max(1, _ROWS // max(1, tensors[0][:1].numel()))
    for start in range(0, len(tensors[0]), rows):
        yield tuple(tensor[start : start + rows] for tensor in tensors)
