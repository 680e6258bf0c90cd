from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def ours():
    pytest.importorskip("vllm")
    return importlib.import_module("engine.llm.lora").DenseAdapter


@pytest.fixture(scope="module")
def stock():
    pytest.importorskip("vllm")
    return importlib.import_module("vllm.lora.punica_wrapper.punica_cpu").PunicaWrapperCPU


SLICES = (12, 8)
INPUTS, RANK = 10, 4


def added(wrapper_class, rows: list[int], *, slots: int = 1):
    """What a wrapper adds to zeros, and what it should add, for rows with adapter 1 or 0."""
    layers = importlib.import_module("vllm.lora.layers")
    source = torch.Generator().manual_seed(0)
    wrapper = wrapper_class(64, 8, "cpu")
    mapping = layers.LoRAMapping(tuple(rows), tuple(rows), is_prefill=True)
    wrapper.update_metadata(mapping, [1] + [None] * (slots - 1), slots + 1, 100)
    x = torch.randn(len(rows), INPUTS, generator=source)
    a = tuple(torch.randn(slots, 1, RANK, INPUTS, generator=source) for _ in SLICES)
    b = tuple(torch.randn(slots, 1, width, RANK, generator=source) for width in SLICES)
    for matrices in (*a, *b):
        matrices[1:] = 0
    y = torch.zeros(len(rows), sum(SLICES))
    wrapper.add_lora_linear(y, x, a, b, 1.0, SLICES)
    has = torch.tensor(rows)[:, None] > 0
    parts = [x @ a_[0, 0].T @ b_[0, 0].T for a_, b_ in zip(a, b, strict=True)]
    return y, torch.cat(parts, -1) * has


MIXES = {
    "all": [1] * 6,
    "none": [0] * 6,
    "first": [1, 1, 1, 0, 0, 0],
    "last": [0, 0, 1, 1],
    "mixed": [0, 1, 1, 0, 1, 0, 0, 1],
    "one": [1],
}


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES)
def test_rows_with_the_adapter_get_its_product_and_others_nothing(ours, rows):
    y, expected = added(ours, rows)
    assert torch.allclose(y, expected, atol=1e-5)
    assert not y[torch.tensor(rows) == 0].any()


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES)
def test_equals_vllms_own_products_where_those_are_right(ours, stock, rows):
    """With a second, empty slot the stock wrapper finds zeros for rows without adapter."""
    dense, _ = added(ours, rows, slots=2)
    gathered, _ = added(stock, rows, slots=2)
    assert torch.allclose(dense, gathered, atol=1e-5)


def test_vllms_own_products_are_wrong_in_a_mixed_batch(stock):
    """Why the replacement exists; if this fails, vLLM was repaired and the replacement can go."""
    y, expected = added(stock, MIXES["mixed"])
    assert not torch.allclose(y, expected, atol=1e-2)
