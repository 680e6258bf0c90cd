"""`bundle.json`: what a model bundle consists of, and whether the files are still those."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from engine.errors import BadBundle

VLLM_VERSION: Final = "0.28.0"
"""The only vLLM that bundles are made for and workers start with."""

MANIFEST: Final = "bundle.json"
FORMAT: Final = 1


class FileEntry(msgspec.Struct, frozen=True):
    """One file of a part: bytes and SHA-256."""

    size: int
    sha256: str


class Part(msgspec.Struct, frozen=True):
    """Files in one folder, by name."""

    path: str
    files: dict[str, FileEntry]

    @property
    def hash(self) -> str:
        """SHA-256 over names and hashes of the files."""
        lines = [f"{name} {entry.sha256}\n" for name, entry in sorted(self.files.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


class HeadConfig(msgspec.Struct, frozen=True):
    """Sizes of a head, as in the release's `joint_head_config.json`."""

    hidden_size: int
    width: int
    routing_layers: int
    layers: int
    heads: int
    feedforward: int


class BaseSummary(msgspec.Struct, frozen=True):
    """What else must fit the base.

    Attributes:
        window: The longest record in tokens.
    """

    hidden_size: int
    vocab_size: int
    window: int


class MatrixError(msgspec.Struct, frozen=True):
    """What a factored matrix leaves out, as Frobenius norms.

    Attributes:
        rank: Of the change itself; the adapter's common rank may be higher.
        change: ‖T − B − F‖ / ‖T − B‖ for tuned T, base B and factors' product F.
        weight: ‖T − B − F‖ / ‖T‖.
    """

    rank: int
    change: float
    weight: float


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """How an adapter was extracted, see `engine.extract`.

    Attributes:
        job: Hash of inputs and options; the same command finds its own result by it.
        tuned: Folder of the tuned weights.
        matrices: By tensor name, what each factored matrix leaves out.
        left: By tensor name, what the bundle does without: ‖T − B‖ / ‖T‖ there.
        source: SHA-256 of the tuned folder's configuration and index, by file name.
    """

    job: str
    tuned: str
    matrices: dict[str, MatrixError]
    left: dict[str, float] = {}
    source: dict[str, str] = {}


class Original(msgspec.Struct, frozen=True):
    """The base that an adapter was extracted from, in a bundle that names another one.

    Attributes:
        path: Where it was.
        hash: Of its files; the adapter names it.
    """

    path: str
    hash: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `bundle.json`.

    Attributes:
        arbitrary: The weights are random: choices mean nothing.
        vllm: The vLLM version that the bundle is for.
        adapter: None where the base itself holds the tuned weights.
        extraction: Where the adapter comes from, if it was extracted.
        original: The base that the adapter was made for, if it is not this one.
        quantization: How the base is quantized, if it is: method and bits.
        answer: Logits of the fixed question, see `engine.selftest`; empty if they are not known.
    """

    format: int
    name: str
    arbitrary: bool = False
    vllm: str
    summary: BaseSummary
    head_config: HeadConfig
    adapter_rank: int | None = None
    base: Part
    adapter: Part | None = None
    head: Part
    tokenizer: Part
    extraction: Extraction | None = None
    original: Original | None = None
    quantization: str | None = None
    answer: tuple[float, ...] = ()

    def parts(self) -> dict[str, Part]:
        """Give the parts that there are, by name."""
        parts = {"base": self.base, "adapter": self.adapter}
        parts |= {"head": self.head, "tokenizer": self.tokenizer}
        return {name: part for name, part in parts.items() if part is not None}


def read_manifest(path: Path) -> Manifest:
    """Read a bundle's manifest; raises BadBundle if there is none that this version reads."""
    file = path / MANIFEST
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadBundle(
            f"{path} is no model bundle ({MANIFEST}: {error.strerror}); "
            "`python tools/make_bundle.py --out FOLDER` makes a small one"
        ) from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBundle(f"{file}: {error}; make the bundle again") from error
    if manifest.format != FORMAT or manifest.vllm != VLLM_VERSION:
        raise BadBundle(
            f"{file}: format {manifest.format} for vLLM {manifest.vllm}, this version reads "
            f"format {FORMAT} for vLLM {VLLM_VERSION}; make the bundle again"
        )
    return manifest


def check_files(folder: Path, part: Part, *, hashed_up_to: int | None) -> None:
    """Compare files with what the manifest says of them.

    Args:
        folder: Where they are.
        part: What they should be.
        hashed_up_to: Bytes; of larger files only the size is compared. None: hash all.

    Raises:
        BadBundle: Names the first file that is missing or differs.
    """
    for name, expected in part.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
        if size != expected.size:
            raise BadBundle(
                f"{path}: {size} bytes, the manifest says {expected.size}; make the bundle again"
            )
        if (hashed_up_to is None or size <= hashed_up_to) and file_entry(path) != expected:
            raise BadBundle(
                f"{path}: its content is not what the manifest says (SHA-256); "
                "make the bundle again"
            )


def file_entry(path: Path) -> FileEntry:
    """Read a file's size and hash; raises BadBundle if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileEntry(file.tell(), digest)
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; give a complete folder") from error
