"""The extraction of an adapter: from two checkpoints to a bundle, resumable after any kill.

All work happens in a folder beside the bundle's place, which is moved there when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from engine.adapter import (
    CONFIG,
    TENSORS,
    adapter_config,
    adapter_shapes,
    adapter_tensors,
    companions,
)
from engine.bundle import (
    HEAD_CONFIG,
    HEAD_TENSORS,
    Bundle,
    base_files,
    load_bundle,
    tokenizer_files,
    write_manifest,
)
from engine.errors import BadBundle, BadWeights, NotWritten
from engine.extract import compare, factors
from engine.extract.estimate import Estimate, Range, hashing_s
from engine.extract.files import write_bytes, write_file, write_tensors, written
from engine.extract.recorded import record_answer
from engine.extract.report import write_report
from engine.extract.weights import INDEX, Weights, check_roles, open_weights
from engine.manifest import Extraction, FileEntry, MatrixError, Part, file_entry, read_manifest

if TYPE_CHECKING:
    from torch import Tensor

Dtype = Literal["bfloat16", "float32"]
Progress = Callable[[str, int, int, str], None]
"""Called with the stage, what of it is done, all of it, and a note."""

_MODEL_LOADED: Final = 256 << 20
"""Bytes in float32 of the largest model that is loaded whole, to record what it answers."""

_SAVED_EVERY: Final = 5.0  # seconds of comparing that a kill may cost


class Refused(BadWeights):
    """The tuned weights hold what no adapter can.

    Attributes:
        findings: All of it.
    """

    def __init__(self, message: str, findings: list[compare.Finding]) -> None:
        super().__init__(message)
        self.findings = findings


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen about an extraction.

    Attributes:
        rank: The common rank; None: the highest that a matrix needs.
        dtype: Number format of the factors.
        device: Where to compute, cpu or cuda.
        allow_residual: Make a bundle also where it leaves something out.
        name: What people will call the model; None: the tuned folder's name.
    """

    rank: int | None = None
    dtype: Dtype = "bfloat16"
    device: str = "cpu"
    allow_residual: bool = False
    name: str | None = None


class Matrix(msgspec.Struct, frozen=True):
    """A factored matrix, as it is kept until all are done."""

    values: list[float]
    rank: int
    gap: float
    full: bool
    error: MatrixError


def extract(
    base: Path,
    tuned: Path,
    out: Path,
    options: Options,
    on_progress: Progress,
    on_estimate: Callable[[Range], None] = lambda left: None,
) -> Bundle:
    """Make a bundle of a base, the adapter that leads to the tuned weights, and their head.

    Memory stays below three times the largest matrix in float32, and 1 GiB. A run that was
    killed is taken up where it stopped; the result is the same to the last byte.

    Args:
        base: Folder of the base; the bundle names it and does not copy it.
        tuned: Folder of the tuned model in the release's layout.
        out: The bundle's folder; must not exist, be empty, or be the result of the same call.
        options: What may be chosen.
        on_progress: Told what is going on.
        on_estimate: Told how long it still takes, after two matrices of each shape, and again if
            that turns out wrong.

    Raises:
        BadWeights: The checkpoints are damaged; Refused if no adapter can hold the change.
        NotWritten: `out` is taken, or the disk is full.
    """
    base, tuned, out = base.resolve(), tuned.resolve(), out.resolve()
    check_roles(base, tuned)
    old, new = open_weights(base), open_weights(tuned)
    inputs = _identity(old, new, [options.dtype, options.device])
    job = _identity(old, new, [options])
    work = out.with_name(f".{out.name}.extract")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not _is_result(out, job):
            raise NotWritten(f"{out} is not empty; choose another --out or remove it")
        shutil.rmtree(work, ignore_errors=True)
        return load_bundle(out)
    with _claimed(work, inputs):
        try:
            bundle = _Job(old, new, work, options, on_progress, on_estimate).run(job)
        except Refused:  # the same command with --allow-residual goes on from here
            raise
        except BadWeights:
            shutil.rmtree(work, ignore_errors=True)
            raise
        with written(out):
            bundle.rename(out)
        shutil.rmtree(work, ignore_errors=True)
    return load_bundle(out)


class _Job:
    """One extraction in its working folder."""

    def __init__(
        self,
        base: Weights,
        tuned: Weights,
        work: Path,
        options: Options,
        on_progress: Progress,
        on_estimate: Callable[[Range], None],
    ) -> None:
        self.base = base
        self.tuned = tuned
        self.work = work
        self.options = options
        self.on_progress = on_progress
        self.on_estimate = on_estimate
        self.bundle = work / "bundle"

    def run(self, job: str) -> Path:
        """Do everything that is not done yet; gives the folder of the whole bundle."""
        changed, findings = self._compare()
        if not changed and not findings:
            raise BadWeights(f"{self.tuned.folder}: no tensor differs from the base; nothing to do")
        self._refuse(findings)
        matrices = {name: self._matrix(name) for name in self._in_order(changed)}
        matrices = dict(sorted(matrices.items()))
        rank = self.options.rank or self._common_rank(matrices)
        over = [
            compare.Finding(
                name,
                "a change of full rank" if matrix.full else f"a change of rank {matrix.rank}",
                self._cut(name, matrix, rank).weight,
            )
            for name, matrix in matrices.items()
            if matrix.rank > rank
        ]
        self._refuse(over, rank)
        known = self._hash_base()
        errors = {name: self._cut(name, matrix, rank) for name, matrix in matrices.items()}
        self._write_adapter(matrices, rank, known)
        self._copy(self.bundle / "head", (HEAD_TENSORS, HEAD_CONFIG))
        self._copy(self.bundle / "tokenizer", tokenizer_files(self.tuned.folder))
        left = {finding.tensor: finding.error for finding in findings}
        with written(self.bundle):
            bundle = write_manifest(
                self.bundle,
                name=self.options.name or self.tuned.folder.name,
                base=self.base.folder,
                head=self.bundle / "head",
                tokenizer=self.bundle / "tokenizer",
                adapter=self.bundle / "adapter",
                extraction=Extraction(
                    job=job,
                    tuned=str(self.tuned.folder),
                    matrices=errors,
                    left=left,
                    source={
                        name: file_entry(self.tuned.folder / name).sha256
                        for name in ("config.json", INDEX)
                        if (self.tuned.folder / name).exists()
                    },
                ),
                known=known,
            )
            unrecorded = record_answer(bundle, most=_MODEL_LOADED)
        write_report(
            self.bundle, matrices, errors, findings + over, rank=rank, unrecorded=unrecorded
        )
        return self.bundle

    def _compare(self) -> tuple[list[str], list[compare.Finding]]:
        """List the changed matrices, and what else differs."""
        state = self.work / "compared.json"
        changes: dict[str, float | None] = _load(state, dict[str, float | None]) or {}
        names = compare.common(self.base, self.tuned)
        total = sum(self.tuned.sizes[name] for name in names)
        done, saved = 0, time.monotonic()
        for name in names:
            if name not in changes:
                changes[name] = compare.change_of(self.base, self.tuned, name)
                if time.monotonic() - saved > _SAVED_EVERY:
                    write_bytes(state, msgspec.json.encode(changes))
                    saved = time.monotonic()
            done += self.tuned.sizes[name]
            self.on_progress("comparing (MB)", done // 10**6, total // 10**6, name)
        write_bytes(state, msgspec.json.encode(changes))
        found = {name: error for name, error in changes.items() if error is not None}
        findings = compare.structural(self.base, self.tuned)
        findings += filter(None, (compare.unadaptable(*item) for item in sorted(found.items())))
        known = {finding.tensor for finding in findings}
        return sorted(found.keys() - known), findings

    def _refuse(self, findings: list[compare.Finding], rank: int | None = None) -> None:
        if not findings or self.options.allow_residual:
            return
        first = findings[0]
        limit = f" of rank {rank}" if rank else ""
        raise Refused(
            f"{self.tuned.folder}: {len(findings)} tensors hold what no adapter{limit} can, the "
            f"first is {first.tensor} ({first.what}); --allow-residual leaves it out",
            findings,
        )

    def _in_order(self, changed: list[str]) -> Iterator[str]:
        """Give the matrices, those that are done first, and estimates of the rest on the way."""
        todo = {n: self.tuned.shapes[n] for n in changed if not self._state(n).exists()}
        yield from (name for name in changed if name not in todo)
        if todo and self.options.device == "cuda":
            factors.warm_up(self.options.device)
        estimate = Estimate(todo, hashing_s(sum(self.base.sizes.values())) if todo else 0.0)
        done = len(changed) - len(todo)
        for name in estimate.order(todo):
            self.on_progress("factoring (matrices)", done, len(changed), name)
            started = time.monotonic()
            yield name
            left = estimate.took(todo[name], time.monotonic() - started)
            if left is not None:
                self.on_estimate(left)
            done += 1
        self.on_progress("factoring (matrices)", done, len(changed), "")

    def _state(self, name: str) -> Path:
        return self.work / f"{name}.json"

    def _factors(self, name: str) -> Path:
        return self.work / f"{name}.safetensors"

    def _matrix(self, name: str) -> Matrix:
        """Factor a matrix, unless an earlier run did."""
        state = self._state(name)
        if (matrix := _load(state, Matrix)) is not None:
            return matrix
        options = self.options
        spectrum = factors.factor(
            self.base, self.tuned, name, device=options.device, dtype=options.dtype
        )
        a, b = spectrum.a, spectrum.b
        error = factors.measure(
            self.base, self.tuned, name, a, b, rank=spectrum.rank, device=options.device
        )
        shapes = {"a": tuple(a.shape), "b": tuple(b.shape)}
        pair = [("a", a), ("b", b)]
        write_tensors(self._factors(name), shapes, options.dtype, pair, metadata={})
        matrix = Matrix(spectrum.values, spectrum.rank, spectrum.gap, spectrum.full, error)
        write_bytes(state, msgspec.json.encode(matrix))
        return matrix

    def _common_rank(self, matrices: dict[str, Matrix]) -> int:
        """Give the highest rank that a low-rank change has."""
        low = [matrix.rank for matrix in matrices.values() if not matrix.full]
        if low:
            return max(1, *low)
        return min(factors.HIGHEST_RANK, *(min(self.tuned.shapes[name]) for name in matrices))

    def _cut(self, name: str, matrix: Matrix, rank: int) -> MatrixError:
        """Give what a matrix leaves out at the common rank."""
        a, b = self._pair(name)
        if len(a) <= rank:
            return matrix.error
        a, b = a[:rank], b[:, :rank]
        device = self.options.device
        return factors.measure(self.base, self.tuned, name, a, b, rank=matrix.rank, device=device)

    def _pair(self, name: str) -> tuple[Tensor, Tensor]:
        from safetensors import safe_open

        with safe_open(self._factors(name), framework="pt") as file:
            return file.get_tensor("a"), file.get_tensor("b")

    def _hash_base(self) -> dict[Path, FileEntry]:
        """Hash the base's files once; the adapter names them, and so does the manifest."""
        state = self.work / "base.json"
        entries = _load(state, dict[str, FileEntry]) or {}
        names = base_files(self.base.folder)
        for index, name in enumerate(names):
            self.on_progress("hashing the base (files)", index, len(names), name)
            if name not in entries:
                entries[name] = file_entry(self.base.folder / name)
                write_bytes(state, msgspec.json.encode(entries))
        self.on_progress("hashing the base (files)", len(names), len(names), "")
        return {self.base.folder / name: entries[name] for name in names}

    def _write_adapter(
        self, matrices: dict[str, Matrix], rank: int, known: dict[Path, FileEntry]
    ) -> None:
        import torch

        folder = self.bundle / "adapter"
        changed = [name.removesuffix(".weight") for name in matrices]
        unchanged = companions(changed)
        modules = sorted(changed + unchanged)
        with written(folder):
            folder.mkdir(parents=True, exist_ok=True)
        base = Part("", {path.name: entry for path, entry in known.items()}).hash

        def padded(module: str) -> dict[str, Tensor]:
            if module in unchanged:
                rows, columns = self.tuned.shapes[f"{module}.weight"]
                dtype = getattr(torch, self.options.dtype)
                a, b = (torch.zeros(*size, dtype=dtype) for size in ((rank, columns), (rows, rank)))
            else:
                a, b = self._pair(f"{module}.weight")
            return adapter_tensors(module, a[:rank], b[:, :rank], rank=rank)

        shapes = adapter_shapes(modules, self.tuned.shapes, rank=rank)
        tensors = (item for module in modules for item in padded(module).items())
        metadata = {"base": base}
        write_tensors(folder / TENSORS, shapes, self.options.dtype, tensors, metadata=metadata)
        write_bytes(folder / CONFIG, adapter_config(modules, rank=rank).encode())

    def _copy(self, folder: Path, names: Sequence[str]) -> None:
        with written(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            try:
                source = (self.tuned.folder / name).open("rb")
            except OSError as error:
                raise BadWeights(
                    f"{self.tuned.folder / name}: {error.strerror}; copy the file again"
                ) from error
            with source:
                write_file(
                    folder / name, lambda file, source=source: shutil.copyfileobj(source, file)
                )


def _identity(base: Weights, tuned: Weights, options: list[Any]) -> str:
    """Hash inputs, by name, size and time, and options."""
    digest = hashlib.sha256(msgspec.json.encode(options))
    for weights in (base, tuned):
        for path in sorted(weights.folder.iterdir()):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _is_result(out: Path, job: str) -> bool:
    try:
        extraction = read_manifest(out).extraction
    except BadBundle:
        return False
    return extraction is not None and extraction.job == job


@contextmanager
def _claimed(work: Path, inputs: str) -> Iterator[None]:
    """Hold the working folder; what an earlier run on other inputs left in it is removed."""
    place = work / "inputs"
    with written(work):
        work.mkdir(parents=True, exist_ok=True)
        folder = os.open(work, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NotWritten(f"{work}: another extraction works there; let it finish") from error
        if not place.exists() or place.read_text() != inputs:
            with written(work):
                for path in work.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_bytes(place, inputs.encode())
        yield
    finally:
        os.close(folder)


def _load(path: Path, kind: Any) -> Any:
    """Read what an earlier run left, if anything."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None
