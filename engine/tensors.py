"""Names and shapes in safetensors files, read from their headers alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.errors import BadBundle

Shapes = dict[str, tuple[int, ...]]

_LARGEST_HEADER = 100 << 20  # bytes; the format's own limit


class _Entry(msgspec.Struct):
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """What a file says about its content.

    Attributes:
        shapes: Of each tensor, by name.
        metadata: Free text, as it was written.
    """

    shapes: Shapes
    metadata: dict[str, str]


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
        return Header(
            {name: msgspec.json.decode(raw, type=_Entry).shape for name, raw in entries.items()},
            msgspec.json.decode(metadata, type=dict[str, str]),
        )
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: not a safetensors file; make the bundle again") from error
