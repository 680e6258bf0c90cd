from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from engine.errors import EngineMissing
from engine.llm import check
from engine.llm.check import missing, require_vllm


def versions(monkeypatch, **installed: str) -> None:
    def version(name: str) -> str:
        if name in installed:
            return installed[name]
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_absent(monkeypatch):
    versions(monkeypatch)
    with pytest.raises(EngineMissing, match=r"ostinato\[cpu\]"):
        require_vllm()


def test_another_version_is_refused_by_name(monkeypatch):
    versions(monkeypatch, vllm="0.32.0")
    with pytest.raises(EngineMissing, match=r"vLLM 0\.32\.0 is installed; only 0\.28\.0"):
        require_vllm()


def test_missing_names_are_listed():
    used = (
        ("msgspec", "Struct", ("__struct_fields__", "gone")),
        ("msgspec", "Gone", ("x",)),
        ("msgspec", "", ("json", "lost")),
    )
    assert missing(used) == ["msgspec.Struct.gone", "msgspec.Gone", "msgspec.lost"]


@pytest.mark.vllm
def test_the_installed_vllm_has_everything_that_is_used():
    pytest.importorskip("vllm")
    require_vllm()


@pytest.mark.vllm
def test_a_card_finds_both_model_runners_as_they_are_used():
    pytest.importorskip("vllm")
    assert missing(check._USED_ON_GPU) == []
    tables = ("vllm.v1.worker.gpu.block_table", "BlockTables", ("slot_mappings", "slot_map"))
    assert missing((tables,)) == ["vllm.v1.worker.gpu.block_table.BlockTables.slot_map"]


def test_the_environment_can_be_prepared_before_vllm_is_imported():
    """It reads its settings when it is imported; one is that logs go to standard error."""
    code = "import sys, engine.llm.backend, engine.llm.bench; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
