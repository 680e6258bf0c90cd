from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm


def test_blocks_are_copied_as_vllm_copies_them():
    from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

    from engine.llm.copies import copy_blocks

    pairs = [(0, 5), (3, 6), (3, 1)]

    def copied(copy):
        first, second = torch.arange(8 * 24).byte(), torch.arange(8 * 40).byte().flip(0)
        # a layer of linear attention looks at two places of one storage, an attention layer at all
        shared = [first.view(8, 24)[:, :8].view(torch.float32), first.view(8, 24)[:, 8:20]]
        copy([shared, first.view(8, 24), second.view(8, 40)], 8, pairs)
        return first, second

    for found, expected in zip(
        copied(copy_blocks), copied(copy_kv_cache_blocks_inplace), strict=True
    ):
        assert found.equal(expected)


def test_the_model_runner_copies_with_it(monkeypatch):
    from vllm.v1.worker import gpu_model_runner

    copies = importlib.import_module("engine.llm.copies")
    monkeypatch.setattr(gpu_model_runner, "copy_kv_cache_blocks_inplace", None)
    copies.install()
    assert gpu_model_runner.copy_kv_cache_blocks_inplace is copies.copy_blocks
