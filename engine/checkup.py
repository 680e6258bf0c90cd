"""What is right and wrong with a model bundle, one line each, without loading it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from engine.adapter import TENSORS
from engine.bundle import (
    TOKENIZER,
    VLLM_VERSION,
    Bundle,
    base_tensors,
    check_adapter_fit,
    check_head,
    check_sizes,
    check_tokenizer,
    read_bundle,
    token_count,
    verify,
)
from engine.errors import DoesNotFit, EngineError
from engine.plan import plan, sizes_of
from engine.release import likeness
from engine.settings import GIB, WorkerSettings
from engine.tensors import read_header
from engine.tokens import PRE_TOKENIZER

Status = Literal["ok", "warning", "error"]

_NOT_TAKEN = ("not vLLM's", "free")
"""Parts of a plan that no worker takes."""

_MARKS_JOIN = r"[\p{L}\p{M}]+"
"""What the regex of newer loaders has instead of `\\p{L}+`: combining marks join letters."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a report; `remedy` says what to do unless all is well."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Check:
    """Say that all is well."""
    return Check(name=name, status="ok", detail=detail)


def warning(name: str, detail: str, remedy: str) -> Check:
    """Say what would be better otherwise."""
    return Check(name=name, status="warning", detail=detail, remedy=remedy)


class Memory(msgspec.Struct, frozen=True):
    """Bytes of what a model would be loaded into.

    Attributes:
        where: For people, e.g. "NVIDIA H200".
        total: All of it.
        free: What nobody uses now.
        gpu: Whether it is a card, which vLLM takes a share of; else the machine's memory.
    """

    where: str
    total: int
    free: int
    gpu: bool


def examine_bundle(path: Path, memory: Memory | None, settings: WorkerSettings) -> Iterator[Check]:
    """Check a bundle: files, each part against the base, the release it is of, and its room.

    Args:
        path: The bundle's folder.
        memory: Where it is to run; None if that is not known.
        settings: How a worker would load it.
    """
    try:
        bundle = read_bundle(path)
        verify(bundle)
    except EngineError as error:
        yield _failed("model", error)
        return
    note = "; its choices are arbitrary (random weights)" if bundle.arbitrary else ""
    yield ok("model", f"{bundle.name} {bundle.hash}, all hashes{note}")
    lines: tuple[tuple[str, Callable[[Bundle], None], Callable[[Bundle], str]], ...] = (
        ("base", check_sizes, _base),
        ("head", check_head, _head),
        ("adapter", check_adapter_fit, _adapter),
    )
    sound = True
    for name, check, describe in lines:
        try:
            check(bundle)
            yield ok(name, describe(bundle))
        except EngineError as error:
            sound = False
            yield _failed(name, error)
    yield _tokenizer(bundle)
    yield release_line(bundle)
    if sound and memory is not None:
        try:
            yield memory_line(bundle, memory, settings)
        except EngineError as error:
            yield _failed("memory", error)


def _failed(name: str, error: EngineError) -> Check:
    detail, _, remedy = str(error).partition("; ")
    return Check(name=name, status="error", detail=detail, remedy=remedy or "make the bundle again")


def _base(bundle: Bundle) -> str:
    manifest, summary = bundle.manifest, bundle.manifest.summary
    quantization = manifest.quantization or "not quantized"
    other = f"; the adapter was made for {manifest.original.path}" if manifest.original else ""
    return (
        f"hidden size {summary.hidden_size:,}, {summary.vocab_size:,} rows of vocabulary, window "
        f"{summary.window:,}, {quantization}, for vLLM {VLLM_VERSION}{other}"
    )


def _head(bundle: Bundle) -> str:
    config, shapes = bundle.manifest.head_config, read_header(bundle.head).shapes
    rows = base_tensors(bundle).shapes.get("lm_head.weight", (0, 0))
    return (
        f"{len(shapes)} tensors of width {config.width:,} for hidden size {config.hidden_size:,}; "
        f"lm_head has {rows[0]:,} rows of {rows[-1]:,}"
    )


def _adapter(bundle: Bundle) -> str:
    if bundle.adapter is None:
        return "none: the base holds the tuned weights"
    shapes = read_header(bundle.adapter / TENSORS).shapes
    values = sum(shape[0] * shape[1] for shape in shapes.values())
    return (
        f"{len(shapes) // 2} matrices at rank {bundle.adapter_rank}, {values:,} parameters, every "
        "name one that vLLM applies"
    )


def _tokenizer(bundle: Bundle) -> Check:
    """The release's form of the regex is used whatever the file says; the file is looked at too."""
    path = bundle.tokenizer / TOKENIZER
    try:
        check_tokenizer(bundle)
        tokens = token_count(path)
    except EngineError as error:
        return _failed("tokenizer", error)
    digest = bundle.manifest.tokenizer.files[TOKENIZER].sha256
    found = f"{digest[:12]}, {tokens:,} tokens"
    text = path.read_text(encoding="utf-8")
    own = msgspec.json.encode(PRE_TOKENIZER).decode().strip('"')
    if own in text:
        return ok("tokenizer", f"{found}, splits text as Qwen2 does")
    joins = msgspec.json.encode(_MARKS_JOIN).decode().strip('"') in text
    how = "joins combining marks to letters" if joins else "splits text in a way of its own"
    return warning(
        "tokenizer",
        f"{found}; its regex {how}, records are made with Qwen2's all the same",
        "take the tokenizer.json of the release",
    )


def release_line(bundle: Bundle) -> Check:
    """Say in a sentence whether this is a released model."""
    manifest = bundle.manifest
    digests = {
        name: entry.sha256
        for part in manifest.parts().values()
        for name, entry in part.files.items()
    }
    if bundle.adapter is not None:
        # the base is not the release's: of that, the extraction has what it was made from
        for name in [*manifest.base.files]:
            digests.pop(name)
        digests |= manifest.extraction.source if manifest.extraction else {}
    found = likeness(digests)
    if found.release is None:
        return ok(
            "release",
            "this is not a released Clef: its head is another one, so answers are its own",
        )
    release = f"{found.release.repository} at {found.release.revision[:7]}"
    if found.different:
        return warning(
            "release",
            f"the head is that of {release}, but other files are not: "
            + ", ".join(found.different),
            f"ostinato fetch {found.release.name}, then make the bundle again",
        )
    unseen = sorted(found.release.digests.keys() - set(found.same) - {"processor_config.json"})
    known = f"; not on record: {', '.join(unseen)}" if unseen else ""
    return ok(
        "release",
        f"this is the real release: {len(found.same)} files are those of {release}{known}",
    )


def memory_line(bundle: Bundle, memory: Memory, settings: WorkerSettings) -> Check:
    """Compare what the model takes with what is there and free; raises BadBundle."""
    settings = msgspec.structs.replace(settings, device="gpu" if memory.gpu else "cpu")
    sizes = sizes_of(bundle, settings)
    fixed = sizes.weights + sizes.adapter + sizes.head + sizes.workspace
    needs = (
        f"the model takes {fixed / GIB:.1f} GiB, {memory.free / GIB:.1f} of "
        f"{memory.total / GIB:.1f} GiB are free on {memory.where}"
    )
    try:
        # a card is vLLM's to divide, of a machine it gets what is free
        laid_out = plan(sizes, memory.total if memory.gpu else memory.free, settings)
    except DoesNotFit as error:
        return _failed("memory", error)
    wanted = sum(item.bytes for item in laid_out.items if item.name not in _NOT_TAKEN)
    if wanted > memory.free:
        return Check(
            name="memory",
            status="error" if fixed > memory.free else "warning",
            detail=f"{needs}; with its cache a worker wants {wanted / GIB:.1f} GiB",
            remedy="end what else uses it (nvidia-smi names it), or set a smaller kv_cache_memory",
        )
    return ok("memory", f"{needs}; room for {laid_out.context:,} tokens")
