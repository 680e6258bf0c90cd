"""Checkpoints in files small enough to be carried one by one, replaced in one step."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch

PART: Final = 15 << 20
"""Bytes of a file."""

_INDEX = "checkpoint.json"


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write a state into a folder of that name; an older one there is replaced."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    staged = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    parts = [content[i : i + PART] for i in range(0, len(content), PART)]
    for number, part in enumerate(parts):
        (staged / f"part-{number}").write_bytes(part)
    index = {"parts": len(parts), "sha256": hashlib.sha256(content).hexdigest()}
    (staged / _INDEX).write_text(json.dumps(index) + "\n")
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    staged.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> dict[str, Any] | None:
    """Read the state of a folder; None if there is none.

    Raises:
        ValueError: A part is missing or damaged.
    """
    if not folder.exists() and (old := folder.with_name(f"{folder.name}.old")).exists():
        old.rename(folder)  # stopped between the two moves of `save`
    if not (folder / _INDEX).exists():
        return None
    index = json.loads((folder / _INDEX).read_text())
    parts = [folder / f"part-{number}" for number in range(index["parts"])]
    content = b"".join(part.read_bytes() for part in parts if part.exists())
    if hashlib.sha256(content).hexdigest() != index["sha256"]:
        raise ValueError(f"{folder}: a part is missing or damaged; bring all of its files again")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
