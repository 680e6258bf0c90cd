"""What the graphs' kernels are told of a step; the graphs themselves need a card."""

from __future__ import annotations

import importlib
from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.vllm

CHUNK, PROGRAM = 64, 8


@pytest.fixture(scope="module")
def graphs():
    pytest.importorskip("vllm")
    return importlib.import_module("engine.llm.graphs")


def ints(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def pieces(lengths: list[int], size: int) -> list[tuple[int, int]]:
    return [(index, k) for index, n in enumerate(lengths) for k in range(-(-n // size))]


def step(lengths: list[int], decodes: int) -> Any:
    """Make vLLM's metadata of a step; sequences that decode come first."""
    backend = importlib.import_module("vllm.v1.attention.backends.gdn_attn")
    count, prefills = len(lengths), lengths[decodes:]
    programs = pieces(lengths, PROGRAM)
    chunks = [-(-n // CHUNK) for n in prefills]
    return backend.GDNAttentionMetadata(
        num_prefills=count - decodes,
        num_prefill_tokens=sum(prefills),
        num_decodes=decodes,
        num_decode_tokens=decodes,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        num_actual_tokens=sum(lengths),
        has_initial_state=torch.arange(count) % 2 == 0,
        non_spec_query_start_loc=ints(list(accumulate(lengths, initial=0))),
        non_spec_state_indices_tensor=ints(list(range(7, 7 + count))),
        chunk_indices=ints(pieces(prefills, CHUNK)),
        chunk_offsets=torch.tensor(list(accumulate(chunks, initial=0))),
        nums_dict={PROGRAM: {"tot": len(programs)}},
        batch_ptr=ints([index for index, _ in programs] + [-1] * 50),
        token_chunk_offset_ptr=ints([k for _, k in programs] + [-1] * 50),
    )


STEPS = [
    (160, 1, [137], 0),
    (160, 4, [60, 1, 70], 0),
    (160, 4, [1, 1, 129, 2], 2),
    (512, 8, [1, 300, 64, 65], 1),
    (128, 1, [128], 0),
    (8, 4, [1, 1, 6], 2),
]


@pytest.mark.parametrize(("rows", "most", "lengths", "decodes"), STEPS)
def test_kernels_see_the_steps_sequences_and_nothing_else(graphs, rows, most, lengths, decodes):
    inputs = graphs.StepInputs(rows, most, step([rows], 0))
    for earlier in ([rows], lengths[::-1]):  # what an earlier step left makes no difference
        inputs.fill(step(earlier[:most], 0))
    metadata = step(lengths, decodes)
    inputs.fill(metadata)
    told, count, total = inputs.metadata, len(lengths), sum(lengths)

    starts = list(accumulate(lengths, initial=0))
    assert told.non_spec_query_start_loc.tolist() == starts + [total] * (most - count)
    empty = most - count
    assert told.non_spec_state_indices_tensor.tolist() == [*range(7, 7 + count)] + [0] * empty
    assert told.has_initial_state.tolist() == [i % 2 == 0 for i in range(count)] + [False] * empty

    chunks = [tuple(pair) for pair in told.chunk_indices.tolist()]
    own = pieces(lengths, CHUNK)
    assert chunks[: len(own)] == own
    for sequence, chunk in chunks[len(own) :]:  # has no tokens: begins behind its sequence's end
        begins = told.non_spec_query_start_loc[sequence] + chunk * CHUNK
        assert begins >= told.non_spec_query_start_loc[sequence + 1]
    assert len(chunks) >= max(len(pieces([rows - most + 1] + [1] * (most - 1), CHUNK)), len(own))
    offsets = list(accumulate((-(-n // CHUNK) for n in lengths), initial=0))
    assert told.chunk_offsets.tolist() == offsets + [offsets[-1]] * empty

    program = told.nums_dict[PROGRAM]
    told_programs = list(
        zip(
            program["batch_ptr"].tolist(),
            program["token_chunk_offset_ptr"].tolist(),
            strict=True,
        )
    )
    own = pieces(lengths, PROGRAM)
    assert told_programs[: len(own)] == own
    assert {index for index, _ in told_programs[len(own) :]} <= {-1}
    assert program["tot"] == len(told_programs)
    assert inputs.beyond.flatten().tolist() == [row >= total for row in range(rows)]
    assert (told.num_prefills, told.num_decodes, told.num_actual_tokens) == (most, 0, rows)


def test_buffers_stay_where_they_are(graphs):
    inputs = graphs.StepInputs(64, 2, step([64], 0))
    places = [
        getattr(inputs.metadata, name).data_ptr()
        for name in ("chunk_indices", "non_spec_query_start_loc", "prefill_state_indices")
    ]
    inputs.fill(step([20, 30], 0))
    assert places == [
        getattr(inputs.metadata, name).data_ptr()
        for name in ("chunk_indices", "non_spec_query_start_loc", "prefill_state_indices")
    ]
