from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkup import Memory
from engine.machine import card_memory, find_memory, find_toolkit, machine_memory

GIB = 1 << 30
SMI = "NVIDIA H200, 143771, 142000\nNVIDIA GeForce RTX 3090, 24576, 1024\n"


@pytest.mark.parametrize(
    ("visible", "card"),
    [
        ("", Memory("NVIDIA H200", 143771 << 20, 142000 << 20, gpu=True)),
        ("0,1", Memory("NVIDIA H200", 143771 << 20, 142000 << 20, gpu=True)),
        ("1", Memory("NVIDIA GeForce RTX 3090", 24 * GIB, GIB, gpu=True)),
        ("GPU-uuid", Memory("NVIDIA H200", 143771 << 20, 142000 << 20, gpu=True)),
        ("7", None),
    ],
)
def test_the_first_visible_card_counts(visible: str, card: Memory | None) -> None:
    assert card_memory(SMI, visible) == card


@pytest.mark.parametrize("listed", ["", "No devices were found\n", "Name, [N/A], [N/A]\n"])
def test_no_card_is_no_card(listed: str) -> None:
    assert card_memory(listed, "") is None


def test_a_machine_s_memory_counts_what_caches_files_as_free() -> None:
    text = "MemTotal:       24000000 kB\nMemFree:          100 kB\nMemAvailable:   20000000 kB\n"
    assert machine_memory(text) == Memory(
        "this machine (no NVIDIA GPU)", 24000000 << 10, 20000000 << 10, gpu=False
    )


def test_this_machine_has_memory() -> None:
    memory = find_memory()
    assert 0 < memory.free <= memory.total


def test_cuda_is_found_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("include/cuda_runtime.h", "bin/nvcc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    found = find_toolkit()
    assert found.headers == str(tmp_path / "include")
    assert found.compiler == str(tmp_path / "bin" / "nvcc")
    assert found.host_compiler == ""
