"""What a machine has for a model: memory, and the tools that compile kernels. Imports no torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from engine.checkup import Memory
from engine.kernels import Toolkit

_QUERY: Final = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,memory.free",
    "--format=csv,noheader,nounits",
)
_PATIENCE: Final = 20.0  # seconds; the first call after a start wakes the card up
_MIB: Final = 1 << 20
_CUDA_HOMES: Final = ("/usr/local/cuda", "/opt/cuda", "/usr")


def find_memory() -> Memory:
    """Give the first card that CUDA would take, or the machine's memory if there is none."""
    try:
        done = subprocess.run(
            _QUERY, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return machine_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
    card = card_memory(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    return card or machine_memory(Path("/proc/meminfo").read_text(encoding="ascii"))


def card_memory(listed: str, visible: str) -> Memory | None:
    """Read the first visible card from nvidia-smi's table; None if it lists none."""
    cards: list[Memory] = []
    for line in listed.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 2)]
        if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
            cards.append(Memory(parts[0], int(parts[1]) * _MIB, int(parts[2]) * _MIB, gpu=True))
    first = visible.split(",")[0].strip()
    index = int(first) if first.isdigit() else 0
    return cards[index] if index < len(cards) else None


def machine_memory(meminfo: str) -> Memory:
    """Read the machine's memory from `/proc/meminfo`; what only caches files counts as free."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE))
    total, free = int(found["MemTotal"]), int(found["MemAvailable"])
    return Memory("this machine (no NVIDIA GPU)", total * 1024, free * 1024, gpu=False)


def find_toolkit() -> Toolkit:
    """Look for what compiles kernels, where torch, Triton and FlashInfer look for it."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), *_CUDA_HOMES]
    wheels = importlib.util.find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        homes += map(str, sorted(Path(folder).iterdir()))
    headers = [Path(home, "include") for home in homes if home]
    found = next((path for path in headers if (path / "cuda_runtime.h").exists()), None)
    compilers = [Path(home, "bin", "nvcc") for home in homes if home]
    python = Path(sysconfig.get_path("include"), "Python.h")
    return Toolkit(
        headers=str(found or ""),
        compiler=shutil.which("nvcc") or str(next((p for p in compilers if p.exists()), "")),
        host_compiler=shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or "",
        python_headers=str(python) if python.exists() else "",
    )
