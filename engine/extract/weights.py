"""A checkpoint's folder of safetensors files, checked before anything is read from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from engine.bundle import HEAD_CONFIG, HEAD_TENSORS, TOKENIZER
from engine.errors import BadBundle, BadWeights
from engine.quantized import FLOATS
from engine.tensors import Shapes, read_header

if TYPE_CHECKING:
    from torch import Tensor

INDEX: Final = "model.safetensors.index.json"
_T = TypeVar("_T")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _Config(msgspec.Struct):
    quantization_config: dict[str, object] | None = None


class Weights(msgspec.Struct, frozen=True):
    """Tensors of a checkpoint by name; see `open_weights`.

    Attributes:
        folder: Where the files are.
        files: The file that holds each tensor.
        shapes: Of each tensor.
        dtypes: Of each tensor, as the files name them.
        sizes: Bytes of each tensor.
    """

    folder: Path
    files: dict[str, Path]
    shapes: Shapes
    dtypes: dict[str, str]
    sizes: dict[str, int]

    def read(self, name: str) -> Tensor:
        """Map one tensor into memory; its pages are given back with it.

        Raises:
            BadWeights: The file has changed since it was checked.
        """
        from safetensors import SafetensorError, safe_open

        path = self.files[name]
        try:
            with safe_open(path, framework="pt") as file:
                return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise BadWeights(f"{path}: {error}; copy the file again") from error


def open_weights(folder: Path) -> Weights:
    """Read the headers of a checkpoint's files.

    Raises:
        BadWeights: A file is missing, truncated or no safetensors file, the index does not match
            the files, or the weights are quantized.
    """
    if not folder.is_dir():
        raise BadWeights(f"{folder}: no such folder; give one with model weights in it")
    config = _read(folder / "config.json", _Config)
    if config.quantization_config is not None:
        raise BadWeights(f"{folder}: the weights are quantized; extract with unquantized ones")
    index = folder / INDEX
    if index.exists():
        places = _read(index, _Index).weight_map
        shards = sorted(set(places.values()))
    else:
        places = None
        shards = sorted(path.name for path in folder.glob("model*.safetensors"))
    if not shards:
        raise BadWeights(f"{folder}: no model*.safetensors in it; give a folder of model weights")
    weights = Weights(folder, {}, {}, {}, {})
    for shard in shards:
        _add(weights, folder / shard)
    if places is not None:
        held = {name: path.name for name, path in weights.files.items()}
        wrong = sorted(name for name in places if held.get(name) != places[name])
        wrong += sorted(held.keys() - places.keys())
        if wrong:
            raise BadWeights(
                f"{index}: {len(wrong)} tensors are not where it says, the first is {wrong[0]}; "
                "copy index and shards again"
            )
    return weights


def check_roles(base: Path, tuned: Path) -> None:
    """Raise BadWeights if the folders seem swapped, or one stands for both."""
    if base.resolve() == tuned.resolve():
        raise BadWeights(f"{base} is given as base and as tuned; give two folders")
    if (base / HEAD_TENSORS).exists():
        raise BadWeights(
            f"{base} has a {HEAD_TENSORS}, so it is a tuned model; swap --base and --tuned"
            if not (tuned / HEAD_TENSORS).exists()
            else f"{base} has a {HEAD_TENSORS}, so it is a tuned model; give its base as --base"
        )
    if not tuned.is_dir():
        raise BadWeights(f"{tuned}: no such folder; give the tuned model's")
    for name in (HEAD_TENSORS, HEAD_CONFIG, TOKENIZER):
        if not (tuned / name).exists():
            raise BadWeights(f"{tuned}: no {name} in it; give the tuned model's whole folder")


def _add(weights: Weights, path: Path) -> None:
    try:
        header = read_header(path)
        size = path.stat().st_size
    except BadBundle as error:
        raise BadWeights(str(error).replace("make the bundle", "copy the file")) from error
    if size != header.file_size:
        raise BadWeights(
            f"{path}: {size} bytes, its header says {header.file_size}; copy the file again"
        )
    for name, dtype in header.dtypes.items():
        if dtype not in FLOATS:
            raise BadWeights(
                f"{path}: {name} is {dtype}, so the weights are quantized; "
                "extract with unquantized ones"
            )
        weights.files[name] = path
    weights.shapes.update(header.shapes)
    weights.dtypes.update(header.dtypes)
    weights.sizes.update(header.sizes)


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise BadWeights(f"{path}: {error.strerror}; copy the file again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadWeights(f"{path}: {error}; copy the file again") from error
