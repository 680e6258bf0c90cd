from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def delta_rule():
    pytest.importorskip("vllm")
    return importlib.import_module("engine.llm.gdn").delta_rule


def one_by_one(query, key, value, decay, strength, state):
    """The delta rule as it is defined: token after token."""
    share = value.shape[1] // key.shape[1]
    unit = [x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (query, key)]
    query, key = (x.repeat_interleave(share, 1) for x in unit)
    query = query * query.shape[-1] ** -0.5
    outputs = []
    for q, k, v, g, b in zip(query, key, value, decay, strength, strict=True):
        state = state * g.exp()[:, None, None]
        change = (v - torch.einsum("hk,hkv->hv", k, state)) * b[:, None]
        state = state + torch.einsum("hk,hv->hkv", k, change)
        outputs.append(torch.einsum("hk,hkv->hv", q, state))
    return torch.stack(outputs), state


def draw(tokens, dtype, *, seed=0):
    source = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=dtype)

    return (
        normal(tokens, 2, 24),
        normal(tokens, 2, 24),
        normal(tokens, 6, 16),
        -normal(tokens, 6).abs() * 3,
        normal(tokens, 6).sigmoid(),
        normal(6, 24, 16),
    )


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 128, 200])
@pytest.mark.parametrize(
    ("dtype", "band"), [(torch.float64, 1e-13), (torch.float32, 1e-5)], ids=["64", "32"]
)
def test_chunks_equal_token_after_token(delta_rule, tokens, dtype, band):
    inputs = draw(tokens, dtype)
    for ours, defined in zip(delta_rule(*inputs), one_by_one(*inputs), strict=True):
        assert (ours - defined).abs().max() < band


@pytest.mark.parametrize("cut", [1, 17, 64, 99])
def test_a_sequence_in_two_parts_equals_it_in_one(delta_rule, cut):
    *rows, state = draw(100, torch.float64)
    whole, end = delta_rule(*rows, state)
    first, between = delta_rule(*(x[:cut] for x in rows), state)
    second, end_of_parts = delta_rule(*(x[cut:] for x in rows), between)
    assert (torch.cat((first, second)) - whole).abs().max() < 1e-13
    assert (end_of_parts - end).abs().max() < 1e-13


def test_a_token_that_forgets_everything_leaves_no_infinity(delta_rule):
    query, key, value, decay, strength, state = draw(130, torch.float32)
    decay[70] = -1e4
    outputs, end = delta_rule(query, key, value, decay, strength, state)
    assert outputs.isfinite().all()
    assert end.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["32", "16"])
@pytest.mark.parametrize("lengths", [[40], [1], [2], [33, 1, 2, 3, 90], [1, 1, 1]])
def test_all_sequences_at_once_are_convolved_as_vllm_does_one_by_one(dtype, lengths):
    pytest.importorskip("vllm")
    from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_fn_cpu

    from engine.llm.gdn import convolve

    source = torch.Generator().manual_seed(len(lengths))
    channels, width = 48, 4

    def normal(*shape):
        return torch.randn(*shape, generator=source).to(dtype)

    x, weight, bias = normal(sum(lengths), channels).t(), normal(channels, width), normal(channels)
    kept = normal(9, width - 1, channels).transpose(1, 2)
    starts = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
    slots = torch.tensor([7, 2, 5, 1, 8][: len(lengths)], dtype=torch.int32)
    for resumed in (slots > 4, slots > 0, slots < 0):
        for each in (None, bias):
            states = kept.clone(), kept.clone()
            found, expected = (
                function(
                    x,
                    weight,
                    each,
                    after,
                    starts,
                    cache_indices=slots,
                    has_initial_state=resumed,
                    activation="silu",
                )
                for function, after in zip((convolve, causal_conv1d_fn_cpu), states, strict=True)
            )
            torch.testing.assert_close(found, expected)
            assert states[0].equal(states[1])
