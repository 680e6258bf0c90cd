"""Real facts of an engine on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import EngineFailed
from engine.kernels import judge
from engine.probe import probe
from engine.settings import WorkerSettings
from tests.support.bundles import ORACLE, adapter_bundle
from tests.support.quantized import quantized_base

pytest.importorskip("vllm")


@pytest.mark.vllm
@pytest.mark.timeout(300)
def test_an_engine_says_what_it_runs_on(tmp_path: Path) -> None:
    from engine.rebase import rebase

    bundle = rebase(
        adapter_bundle(tmp_path / "b"),
        quantized_base(tmp_path / "q", "compressed-tensors"),
        tmp_path / "r",
        lambda *_: None,
    )
    facts = probe(bundle.path, WorkerSettings(), timeout_s=280, read_tokens=1000, reading_s=0.0)
    assert facts.attention
    assert facts.linear_attention
    assert facts.sampler
    assert len(facts.quantization) == 1
    assert "Kernel" in facts.quantization[0]
    assert facts.adapter == "DenseAdapter"
    # 8 layers of the tiny model and the adapter's 83,072 values
    assert facts.read_flops == 2 * (2_627_584 + 83_072)
    assert 1_000 < facts.read_tokens <= 1_512
    assert min(facts.flops, facts.bytes_s, facts.read_s) > 0
    checks = list(judge(facts))
    assert "error" not in {check.status for check in checks}


def test_an_engine_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=f"{ORACLE}: .*bundle.json"):
        probe(ORACLE, WorkerSettings(), timeout_s=110)
