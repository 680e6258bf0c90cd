from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from engine.adapter import fused_layers
from engine.errors import EngineFailed

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def lora():
    pytest.importorskip("vllm")
    return importlib.import_module("engine.llm.lora")


@pytest.fixture(scope="module")
def stock():
    pytest.importorskip("vllm")
    return importlib.import_module("vllm.lora.punica_wrapper.punica_cpu").PunicaWrapperCPU


INPUTS, RANK = 10, 4
SLICES = {
    "one": (12,),
    "gate and up": (12, 12),
    "q, k, v": (12, 8, 8),
    "q, k, v, z": (8, 8, 16, 16),
    "b, a": (2, 2),
}
MIXES = {
    "all": [1] * 6,
    "none": [0] * 6,
    "first": [1, 1, 1, 0, 0, 0],
    "last": [0, 0, 1, 1],
    "mixed": [0, 1, 1, 0, 1, 0, 0, 1],
    "one": [1],
}


class Layer:
    """A wrapped layer of random matrices, and a step's input."""

    def __init__(self, widths: tuple[int, ...], rows: list[int], slots: int = 1) -> None:
        source = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Any:
            return torch.randn(*shape, generator=source)

        self.widths, self.rows = widths, rows
        self.x, self.y = draw(len(rows), INPUTS), draw(len(rows), sum(widths))
        a = [draw(1, 1, RANK, INPUTS) for _ in widths]
        b = [draw(1, 1, width, RANK) for width in widths]
        self.a, self.b = (
            tuple(torch.cat([each] + [torch.zeros_like(each)] * (slots - 1)) for each in matrices)
            for matrices in (a, b)
        )

    def through(self, wrapper: Any, *, slots: int = 1) -> Any:
        layers = importlib.import_module("vllm.lora.layers")
        mapping = layers.LoRAMapping(tuple(self.rows), tuple(self.rows), is_prefill=True)
        wrapper.update_metadata(mapping, [1] + [None] * (slots - 1), slots + 1, 100)
        y = self.y.clone()
        wrapper.add_lora_linear(y, self.x, self.a, self.b, 1.0, self.widths)
        return y

    def expected(self) -> Any:
        parts = [self.x @ a[0, 0].T @ b[0, 0].T for a, b in zip(self.a, self.b, strict=True)]
        has = torch.tensor(self.rows)[:, None] > 0
        return torch.where(has, self.y + torch.cat(parts, -1), self.y)


def dense(lora: Any, *, adapters: int = 1) -> Any:
    config = SimpleNamespace(max_loras=adapters, lora_dtype=torch.float32)
    return lora.DenseAdapter(64, 8, "cpu", lora_config=config)


@pytest.mark.parametrize("widths", SLICES.values(), ids=SLICES)
@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES)
def test_rows_with_the_adapter_get_its_product_and_others_nothing(lora, widths, rows):
    layer = Layer(widths, rows)
    y = layer.through(dense(lora))
    assert torch.allclose(y, layer.expected(), atol=1e-5)
    without = torch.tensor(rows) == 0
    assert y[without].equal(layer.y[without])


@pytest.mark.parametrize("rows", MIXES.values(), ids=MIXES)
def test_equals_vllms_own_products_where_those_are_right(lora, stock, rows):
    """With a second, empty slot the stock wrapper finds zeros for rows without adapter."""
    found = Layer((12, 8), rows).through(dense(lora))
    gathered = Layer((12, 8), rows, slots=2).through(stock(64, 8, "cpu"), slots=2)
    assert torch.allclose(found, gathered, atol=1e-5)


def test_vllms_own_products_are_wrong_in_a_mixed_batch(stock):
    """Why the replacement exists; if this fails, vLLM was repaired and the replacement can go."""
    layer = Layer((12, 8), MIXES["mixed"])
    assert not torch.allclose(layer.through(stock(64, 8, "cpu")), layer.expected(), atol=1e-2)


def test_a_step_leaves_nothing_for_the_next(lora):
    wrapper = dense(lora)
    for rows in ([1] * 8, [0] * 8, [0, 0, 0, 1], [1, 0], [0] * 3):
        layer = Layer((12, 8), rows)
        assert torch.allclose(layer.through(wrapper), layer.expected(), atol=1e-5)


def test_the_compiler_takes_it_whole(lora):
    """As on a GPU: one graph for any number of rows, the sum added in place."""
    wrapper = dense(lora)

    def layer_of(x, w, a, b):
        y = x @ w.T
        wrapper.add_lora_linear(y, x, a, b, 1.0, (12, 8))
        return y * 2

    compiled = torch.compile(layer_of, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in MIXES.values():
        layer = Layer((12, 8), rows)
        layer.through(wrapper)
        weight = torch.randn(20, INPUTS)
        found = compiled(layer.x, weight, layer.a, layer.b)
        assert torch.allclose(found, layer_of(layer.x, weight, layer.a, layer.b), atol=1e-5)


def test_more_than_one_adapter_is_refused(lora):
    with pytest.raises(EngineFailed, match=r"2 adapters at once .* start a worker for each"):
        dense(lora, adapters=2)
    layers = importlib.import_module("vllm.lora.layers")
    with pytest.raises(EngineFailed, match="two adapters"):
        dense(lora).update_metadata(layers.LoRAMapping((1, 2), (1, 2)), [1], 2, 100)


def test_what_an_adapter_must_not_change_is_refused(lora):
    with pytest.raises(EngineFailed, match="embedding"):
        dense(lora).add_lora_embedding()
    with pytest.raises(EngineFailed, match="fully_sharded_loras"):
        dense(lora).add_shrink()


def test_layers_that_vllm_did_not_wrap_are_named(lora):
    manager = SimpleNamespace(modules={"a": 1, "b": 1})
    lora.require_wrapped(manager, ["a", "b"])
    with pytest.raises(EngineFailed, match=r"2 of 3 layers and to 0 others, first c;"):
        lora.require_wrapped(manager, ["a", "b", "c"])
    with pytest.raises(EngineFailed, match=r"1 of 1 layers and to 1 others, first b;"):
        lora.require_wrapped(manager, ["a"])


def test_slices_of_one_layer_are_named_once():
    prefix = "base_model.model.model.language_model.layers.5"
    names = [
        f"{prefix}.{matrix}.lora_{side}.weight"
        for matrix in (
            "linear_attn.in_proj_qkv",
            "linear_attn.in_proj_z",
            "linear_attn.in_proj_a",
            "linear_attn.out_proj",
            "mlp.gate_proj",
        )
        for side in "AB"
    ]
    layer = "language_model.model.layers.5."
    assert fused_layers(names) == [
        f"{layer}linear_attn.in_proj_ba",
        f"{layer}linear_attn.in_proj_qkvz",
        f"{layer}linear_attn.out_proj",
        f"{layer}mlp.gate_up_proj",
    ]
