"""A model bundle: a folder whose `bundle.json` says where base, adapter, head and tokenizer are.

Each part is a folder of files with size and SHA-256. Paths are relative to the bundle, or absolute
for a part that lives elsewhere, such as 55 GB of base weights. The bundle's hash is made from what
its parts contain, not from where they are: two machines agree on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.adapter import CONFIG as ADAPTER_CONFIG
from engine.adapter import TENSORS as ADAPTER_TENSORS
from engine.adapter import adapter_rank, check_adapter
from engine.errors import BadBundle
from engine.manifest import (
    FORMAT,
    MANIFEST,
    VLLM_VERSION,
    BaseSummary,
    Extraction,
    FileEntry,
    HeadConfig,
    Manifest,
    Original,
    Part,
    check_files,
    file_entry,
    read_manifest,
)
from engine.quantized import Tensors, meaning, read_quantization
from engine.tensors import Shapes, read_header

HEAD_TENSORS: Final = "joint_head.safetensors"
HEAD_CONFIG: Final = "joint_head_config.json"
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"

_HASHED_AT_LOAD = 256 << 20  # bytes; larger files are hashed by `verify` alone
_TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, "chat_template.jinja")
_BESIDE_TOKENIZER = (
    "processor_config.json",
    "config.json",  # without it beside the tokenizer vLLM tries for seconds to find it
)


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle whose parts are there and fit each other; see `load_bundle`.

    Attributes:
        path: The bundle's folder, absolute.
        hash: 12 hex digits of the content.
    """

    path: Path
    manifest: Manifest
    hash: str

    @property
    def name(self) -> str:
        """What people call the model."""
        return self.manifest.name

    @property
    def arbitrary(self) -> bool:
        """Whether the weights are random, so that choices mean nothing."""
        return self.manifest.arbitrary

    @property
    def window(self) -> int:
        """The longest record in tokens."""
        return self.manifest.summary.window

    @property
    def base(self) -> Path:
        """Folder of the base weights and their `config.json`."""
        return self.path / self.manifest.base.path

    @property
    def adapter(self) -> Path | None:
        """Folder of the adapter, if there is one."""
        return self.path / self.manifest.adapter.path if self.manifest.adapter else None

    @property
    def adapter_rank(self) -> int | None:
        """The adapter's common rank, if there is an adapter."""
        return self.manifest.adapter_rank

    @property
    def head(self) -> Path:
        """File of the head's tensors."""
        return self.path / self.manifest.head.path / HEAD_TENSORS

    @property
    def head_config(self) -> dict[str, int]:
        """Sizes of the head, as plain data."""
        return msgspec.to_builtins(self.manifest.head_config)

    @property
    def tokenizer(self) -> Path:
        """Folder of `tokenizer.json`."""
        return self.path / self.manifest.tokenizer.path

    @property
    def part_hashes(self) -> dict[str, str]:
        """12 hex digits for each part that there is."""
        return {name: part.hash[:12] for name, part in self.manifest.parts().items()}


def load_bundle(path: Path) -> Bundle:
    """Read and check a bundle: files there, sizes and hashes right, parts made for each other.

    Files above 256 MiB are checked by size only; `verify` hashes them too.

    Raises:
        BadBundle: Names the file or part at fault and the remedy.
    """
    bundle = read_bundle(path)
    for check in (check_sizes, check_head, check_tokenizer, check_adapter_fit):
        check(bundle)
    return bundle


def read_bundle(path: Path) -> Bundle:
    """Read a bundle whose files are there, without a look at how they fit each other.

    Raises:
        BadBundle: Names the file at fault and the remedy.
    """
    path = path.resolve()
    manifest = read_manifest(path)
    for part in manifest.parts().values():
        check_files(path / part.path, part, hashed_up_to=_HASHED_AT_LOAD)
    content = {name: part.hash for name, part in manifest.parts().items()}
    return Bundle(path=path, manifest=manifest, hash=_digest(content)[:12])


def verify(bundle: Bundle) -> None:
    """Hash every file of a bundle, however large; raises BadBundle at the first that differs."""
    for part in bundle.manifest.parts().values():
        check_files(bundle.path / part.path, part, hashed_up_to=None)


def write_manifest(
    folder: Path,
    *,
    name: str,
    base: Path,
    head: Path,
    tokenizer: Path | None = None,
    adapter: Path | None = None,
    arbitrary: bool = False,
    extraction: Extraction | None = None,
    original: Original | None = None,
    known: Mapping[Path, FileEntry] | None = None,
) -> Bundle:
    """Make a folder a bundle of parts that lie in it, or elsewhere; reads and hashes all of them.

    Args:
        folder: Where `bundle.json` is written, last and in one step.
        name: What people call the model.
        base: Folder with `config.json` and weights.
        head: Folder with the head's two files.
        tokenizer: Folder with `tokenizer.json`; the base's if None.
        adapter: Folder with PEFT files made for this base, see `engine.adapter.write_adapter`.
        arbitrary: The weights are random.
        extraction: Where the adapter comes from.
        original: The base that the adapter was made for, if it is another one.
        known: Files that were hashed just before and need not be read again.

    Raises:
        BadBundle: A part is incomplete, or does not fit the others.
    """
    folder = folder.resolve()

    def part(path: Path, names: list[str]) -> Part:
        path = path.resolve()
        inside = path.is_relative_to(folder)
        return Part(
            str(path.relative_to(folder) if inside else path),
            {name: hashed.get(path / name) or file_entry(path / name) for name in names},
        )

    hashed = known or {}
    tokenizer = tokenizer or base
    present = [name for name in _TOKENIZER_FILES if (tokenizer / name).exists()]
    quantization = read_quantization(_read_json(base / "config.json"))
    manifest = Manifest(
        format=FORMAT,
        name=name,
        arbitrary=arbitrary,
        vllm=VLLM_VERSION,
        summary=_summary(base),
        head_config=_head_config(head),
        adapter_rank=adapter_rank(adapter) if adapter else None,
        base=part(base, base_files(base)),
        adapter=part(adapter, [ADAPTER_CONFIG, ADAPTER_TENSORS]) if adapter else None,
        head=part(head, [HEAD_CONFIG, HEAD_TENSORS]),
        tokenizer=part(tokenizer, present or [TOKENIZER]),
        extraction=extraction,
        original=original,
        quantization=None if quantization is None else str(quantization),
    )
    _write(folder, manifest)
    return load_bundle(folder)


def with_answer(bundle: Bundle, logits: tuple[float, ...]) -> Bundle:
    """Record what the bundle's model answers to the fixed question; its hash stays."""
    manifest = msgspec.structs.replace(bundle.manifest, answer=logits)
    _write(bundle.path, manifest)
    return msgspec.structs.replace(bundle, manifest=manifest)


def _write(folder: Path, manifest: Manifest) -> None:
    staged = folder / f".{MANIFEST}"
    staged.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    staged.replace(folder / MANIFEST)


def tokenizer_files(folder: Path) -> list[str]:
    """List what a copy of a tokenizer takes from its folder: its files, and what vLLM reads too."""
    return [name for name in (*_TOKENIZER_FILES, *_BESIDE_TOKENIZER) if (folder / name).exists()]


def base_files(base: Path) -> list[str]:
    """List the files of a base that hold the model: its configuration and weights."""
    names = sorted(
        path.name
        for path in base.glob("model*.safetensors*")
        if path.name.endswith((".safetensors", ".safetensors.index.json"))
    )
    return ["config.json", *names]


def base_hash(base: Path) -> str:
    """Give the hash that an adapter for this base must name; reads all of it."""
    return Part("", {name: file_entry(base / name) for name in base_files(base)}).hash


def check_sizes(bundle: Bundle) -> None:
    """Check the base against what the manifest says of it; raises BadBundle."""
    manifest = bundle.manifest
    quantization = read_quantization(_read_json(bundle.base / "config.json"))
    described = None if quantization is None else str(quantization)
    if manifest.summary != _summary(bundle.base) or manifest.quantization != described:
        raise BadBundle(f"{bundle.path}: the summary is of another base; make the bundle again")
    if quantization is not None and "lm_head.weight" in base_tensors(bundle).quantized:
        raise BadBundle(
            f"{bundle.base}: its lm_head is quantized, and the scoring head reads the rows of it; "
            "take a base that leaves lm_head in 16 bits"
        )


def check_head(bundle: Bundle) -> None:
    """Check the head's sizes against the base's; raises BadBundle."""
    manifest, summary = bundle.manifest, bundle.manifest.summary
    if manifest.head_config != _head_config(bundle.head.parent):
        raise BadBundle(f"{bundle.head}: its sizes are not the manifest's; make the bundle again")
    if manifest.head_config.hidden_size != summary.hidden_size:
        raise BadBundle(
            f"{bundle.head}: the head is for hidden size {manifest.head_config.hidden_size}, "
            f"the base has {summary.hidden_size}; use the head with its own base"
        )


def check_tokenizer(bundle: Bundle) -> None:
    """Check the tokenizer's vocabulary against the base's; raises BadBundle."""
    summary = bundle.manifest.summary
    tokens = token_count(bundle.tokenizer / TOKENIZER)
    if tokens > summary.vocab_size:
        raise BadBundle(
            f"{bundle.tokenizer}: the tokenizer has {tokens} tokens, the base knows "
            f"{summary.vocab_size}; use the base's own tokenizer"
        )


def check_adapter_fit(bundle: Bundle) -> None:
    """Check the adapter's names and shapes against the base's; raises BadBundle."""
    manifest = bundle.manifest
    if (manifest.adapter is None) != (manifest.adapter_rank is None):
        raise BadBundle(f"{bundle.path}: an adapter and its rank belong together")
    if bundle.adapter is not None and manifest.adapter_rank is not None:
        check_adapter(
            bundle.adapter,
            rank=manifest.adapter_rank,
            base=manifest.original.hash if manifest.original else manifest.base.hash,
            base_shapes=base_tensors(bundle).shapes,
        )


def base_tensors(bundle: Bundle) -> Tensors:
    """Read the headers of the base's files; quantized matrices as those that they stand for."""
    shapes: Shapes = {}
    sizes: dict[str, int] = {}
    dtypes: dict[str, str] = {}
    for name in bundle.manifest.base.files:
        if name.endswith(".safetensors"):
            header = read_header(bundle.base / name)
            shapes |= header.shapes
            sizes |= header.sizes
            dtypes |= header.dtypes
    quantization = read_quantization(_read_json(bundle.base / "config.json"))
    return meaning(shapes, sizes, dtypes, quantization)


def _summary(base: Path) -> BaseSummary:
    path = base / "config.json"
    config = _read_json(path)
    text = config.get("text_config", config)
    try:
        return BaseSummary(
            hidden_size=text["hidden_size"],
            vocab_size=text["vocab_size"],
            window=text["max_position_embeddings"],
        )
    except (KeyError, TypeError) as error:
        raise BadBundle(f"{path}: no sizes of a language model in it ({error})") from error


def _head_config(head: Path) -> HeadConfig:
    path = head / HEAD_CONFIG
    try:
        return msgspec.convert(_read_json(path), HeadConfig)
    except msgspec.ValidationError as error:
        raise BadBundle(f"{path}: {error}; make the bundle again") from error


def token_count(path: Path) -> int:
    """Count the ids that a tokenizer can give, gaps included."""
    content = _read_json(path)
    try:
        ids = list(content["model"]["vocab"].values())
        ids += [token["id"] for token in content["added_tokens"]]
        return max(ids) + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBundle(f"{path}: no vocabulary in it; make the bundle again") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: {error}; make the bundle again") from error


def _digest(content: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
