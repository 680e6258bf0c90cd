"""Files that are whole or not there, also after a kill or on a full disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine.errors import NotWritten

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = {"torch.bfloat16": "BF16", "torch.float32": "F32"}


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file beside its place, then move it there in one step.

    Raises:
        NotWritten: The disk is full or may not be written.
    """
    staged = path.with_name(f".{path.name}.part")
    with written(path):
        with staged.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes as `write_file` does."""
    write_file(path, lambda file: file.write(data))


def write_tensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: str,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    metadata: Mapping[str, str],
) -> None:
    """Write a safetensors file of one number format, holding one tensor at a time.

    Args:
        path: Where to.
        shapes: Of every tensor, in the order in which `tensors` gives them.
        dtype: bfloat16 or float32.
        tensors: Names and values.
        metadata: Free text for the header.

    Raises:
        NotWritten: The disk is full or may not be written.
    """
    import torch

    width = 2 if dtype == "bfloat16" else 4
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + width * shape[0] * shape[1]
        header[name] = {
            "dtype": _NAMES[f"torch.{dtype}"],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(file: IO[bytes]) -> None:
        file.write(len(text).to_bytes(8, "little") + text)
        for (name, shape), (given, tensor) in zip(shapes.items(), tensors, strict=True):
            assert (name, shape) == (given, tuple(tensor.shape))
            file.write(tensor.contiguous().view(torch.uint8).numpy().data)

    write_file(path, write)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn what the system says against writing into NotWritten."""
    try:
        yield
    except OSError as error:
        raise NotWritten(
            f"{path}: {error.strerror}; make room or choose another --out, the same command "
            "goes on where it stopped"
        ) from error
