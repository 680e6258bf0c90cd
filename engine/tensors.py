"""Names and shapes in safetensors files, read from their headers alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.errors import BadBundle

Shapes = dict[str, tuple[int, ...]]

_LARGEST_HEADER = 100 << 20  # bytes; the format's own limit


class _Entry(msgspec.Struct):
    shape: tuple[int, ...]
    dtype: str
    data_offsets: tuple[int, int]


class Header(msgspec.Struct, frozen=True):
    """What a file says about its content.

    Attributes:
        shapes: Of each tensor, by name.
        metadata: Free text, as it was written.
        dtypes: Of each tensor, as the format names them: BF16, F32, ...
        sizes: Bytes of each tensor.
        file_size: Bytes that the whole file must have.
    """

    shapes: Shapes
    metadata: dict[str, str]
    dtypes: dict[str, str]
    sizes: dict[str, int]
    file_size: int


def read_header(path: Path) -> Header:
    """Read one file's header.

    Raises:
        BadBundle: It is missing or no safetensors file.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = msgspec.json.decode(
                file.read(min(length, _LARGEST_HEADER)), type=dict[str, msgspec.Raw]
            )
        metadata = entries.pop("__metadata__", msgspec.Raw(b"{}"))
        tensors = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in entries.items()}
        return Header(
            shapes={name: tensor.shape for name, tensor in tensors.items()},
            metadata=msgspec.json.decode(metadata, type=dict[str, str]),
            dtypes={name: tensor.dtype for name, tensor in tensors.items()},
            sizes={
                name: tensor.data_offsets[1] - tensor.data_offsets[0]
                for name, tensor in tensors.items()
            },
            file_size=8 + length + max((t.data_offsets[1] for t in tensors.values()), default=0),
        )
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: not a safetensors file; make the bundle again") from error
