from __future__ import annotations

import importlib
import types

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


KEYS, VALUES, SIZE, TAPS = 2, 4, 64, 4
WIDTH = (2 * KEYS + VALUES) * SIZE


class Layer:
    """What the operators ask of a layer of the model."""

    prefix = "layer"
    activation = "silu"
    head_k_dim = head_v_dim = SIZE

    def __init__(self, state: torch.dtype) -> None:
        source = torch.Generator().manual_seed(1)
        weight = torch.randn(WIDTH, 1, TAPS, generator=source) / 2
        self.conv1d = types.SimpleNamespace(weight=weight.bfloat16(), bias=None)
        self.A_log = torch.randn(VALUES, generator=source)
        self.dt_bias = torch.randn(VALUES, generator=source).bfloat16()
        # a step before left something in the slot of the second sequence
        self.kv_cache = (
            torch.randn(5, TAPS - 1, WIDTH, generator=source).bfloat16(),
            (torch.randn(5, VALUES, SIZE, SIZE, generator=source) / 8).to(state),
        )

    def rearrange_mixed_qkv(self, mixed):
        parts = mixed.split([KEYS * SIZE, KEYS * SIZE, VALUES * SIZE], dim=-1)
        return tuple(part.reshape(1, len(mixed), -1, SIZE) for part in parts)


@pytest.fixture
def operate(monkeypatch):
    """Runs one of the two operators on a step: two decodes, then a new and a resumed prompt."""
    pytest.importorskip("vllm")
    ours = importlib.import_module("engine.llm.gdn")
    theirs = importlib.import_module("vllm.model_executor.layers.mamba.ops.cpu.gdn_attention")
    metadata = importlib.import_module("vllm.v1.attention.backends.gdn_attn").GDNAttentionMetadata
    lengths = [1, 1, 70, 33]
    starts = torch.tensor([0, 1, 2, 72, 105], dtype=torch.int32)
    meta = metadata(
        num_prefills=2,
        num_prefill_tokens=103,
        num_decodes=2,
        num_decode_tokens=2,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        num_actual_tokens=sum(lengths),
        has_initial_state=torch.tensor([True, True, False, True]),
        non_spec_query_start_loc=starts,
        non_spec_state_indices_tensor=torch.tensor([3, 1, 0, 4], dtype=torch.int32),
    )

    def run(operator: str, state: torch.dtype):
        layer = Layer(state)
        context = types.SimpleNamespace(
            attn_metadata={"layer": meta}, no_compile_layers={"layer": layer}
        )
        for module in (ours, theirs):
            monkeypatch.setattr(module, "get_forward_context", lambda: context)
        source = torch.Generator().manual_seed(2)
        mixed, b, a = (
            torch.randn(sum(lengths), width, generator=source).bfloat16()
            for width in (WIDTH, VALUES, VALUES)
        )
        out = torch.zeros(sum(lengths), VALUES, SIZE, dtype=torch.bfloat16)
        stock = theirs.cpu_gdn_attention_core
        function = ours.attention_core if operator == "ours" else stock
        function(mixed, b, a, out, "layer")
        return out.float(), *(part.float() for part in layer.kv_cache)

    return run


def apart(one, other):
    return float((one - other).norm() / other.norm())


def test_equals_vllms_own_operator_where_that_one_works(operate):
    """It computes in bf16, this one in float32: they differ by its rounding."""
    found, expected = operate("ours", torch.float32), operate("stock", torch.float32)
    assert all(apart(*pair) < 0.01 for pair in zip(found, expected, strict=True))
    assert (found[1] == expected[1]).all()  # what the convolution keeps is copied


@pytest.mark.parametrize(("state", "band"), [(torch.float16, 1e-3), (torch.bfloat16, 6e-3)])
def test_states_in_16_bits_are_rounded_and_no_more(operate, state, band):
    found, expected = operate("ours", state), operate("ours", torch.float32)
    assert all(apart(*pair) < band for pair in zip(found, expected, strict=True))


def test_is_applied_only_where_vllms_own_refuses(operate):
    needed = importlib.import_module("engine.llm.gdn").needed
    assert not needed(torch.bfloat16, "float32")
    assert needed(torch.float32, "float32")
    assert needed(torch.bfloat16, "float16")
    with pytest.raises(RuntimeError, match="dtype"):
        operate("stock", torch.float16)
