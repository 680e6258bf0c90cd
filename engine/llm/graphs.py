"""Linear attention of small prefills from CUDA graphs.

vLLM captures what lies between attention layers, and linear attention for decoding alone: for a
prompt's tokens Python launches some fifteen kernels in each layer, which takes the host longer than
the device. Here a layer's launches are captured for each padded number of rows and of sequences
that occurs. What differs from step to step (where sequences begin, which states are theirs) lies in
buffers that stay where they are; the rows are where vLLM's own graph of that size left them. A
sequence that decodes beside others takes part as a prompt of one token.

The first step of a size runs without a graph on those buffers, so that nothing is compiled while
one is captured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.gdn import qwen_gdn_linear_attn
from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata

from engine.llm.settings import KEY

_CHUNK = 64
"""Tokens of a chunk of vLLM's kernels."""

_CONVOLVED = 8
"""Tokens of one program of vLLM's convolution."""

_SEQUENCES = (1, 2, 4, 8, 16)
"""Numbers of sequences that graphs are made for; fewer are filled up with empty ones."""

_LARGEST = 1024
"""Rows of a step above which the device is busy for longer than the host anyway."""

_MOST_SHAPES = 64
"""Of graphs in every layer; later shapes run as vLLM runs them."""


def install() -> Graphs:
    """Let vLLM's layers call `Graphs.run`; once for each process, before the model is built.

    Graphs are made of vLLM's Triton kernels: FlashInfer's, which it would prefer on some cards, are
    not written to be captured.
    """
    qwen_gdn_linear_attn._resolve_gdn_prefill_backend = lambda _: ("triton", "triton")
    layer: Any = qwen_gdn_linear_attn.QwenGatedDeltaNetAttention
    graphs = Graphs(layer._forward_core_fused_norm_packed)
    layer._forward_core_fused_norm_packed = lambda self, mixed_qkvz, ba, core_attn_out: graphs.run(
        self, mixed_qkvz, ba, core_attn_out
    )
    return graphs


class Graphs:
    """The graphs of all layers, by shape and place of what goes in.

    Args:
        forward: vLLM's own method of a layer.

    Attributes:
        largest: Rows of the largest step that is run from graphs.
    """

    def __init__(self, forward: Callable[..., None]) -> None:
        self.largest = _LARGEST
        self._forward = forward
        self._inputs: dict[tuple[str, int, int], StepInputs] = {}
        self._graphs: dict[tuple[Any, ...], torch.cuda.CUDAGraph | None] = {}
        self._shapes: set[tuple[int, int]] = set()
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def run(self, layer: Any, mixed_qkvz: Tensor, ba: Tensor, core_attn_out: Tensor) -> None:
        """Do what vLLM's method does, from a graph if the step is small enough."""
        context = get_forward_context()
        inputs = self._prepare(context, layer.prefix, len(mixed_qkvz))
        if inputs is None:
            self._forward(layer, mixed_qkvz, ba, core_attn_out)
            return
        tensors = (mixed_qkvz, ba, core_attn_out)
        key = (layer.prefix, id(inputs), *(each.data_ptr() for each in tensors))
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
            return
        held: Any = context.attn_metadata
        own, held[layer.prefix] = held[layer.prefix], inputs.metadata
        try:
            if key not in self._graphs:
                self._graphs[key] = None
                self._compute(layer, tensors, inputs)
            else:
                graph = self._graphs[key] = self._capture(layer, tensors, inputs)
                graph.replay()
        finally:
            held[layer.prefix] = own

    def _compute(self, layer: Any, tensors: tuple[Tensor, ...], inputs: StepInputs) -> None:
        self._forward(layer, *tensors)
        # vLLM's kernels leave rows behind the last token as they find them
        tensors[-1].masked_fill_(inputs.beyond, 0)

    def _capture(
        self, layer: Any, tensors: tuple[Tensor, ...], inputs: StepInputs
    ) -> torch.cuda.CUDAGraph:
        if self._stream is None:
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._compute(layer, tensors, inputs)
            finally:
                graph.capture_end()
        return graph

    def _prepare(self, context: Any, name: str, rows: int) -> StepInputs | None:
        """Fill the buffers for the step, once for all layers that share their metadata."""
        if context.cudagraph_runtime_mode != CUDAGraphMode.PIECEWISE or rows > self.largest:
            return None
        held = context.attn_metadata
        metadata: Any = held[name] if isinstance(held, dict) else None
        if (
            not isinstance(metadata, GDNAttentionMetadata)
            or not metadata.num_prefills
            or metadata.spec_sequence_masks is not None
            or torch.cuda.is_current_stream_capturing()
        ):
            return None
        prepared: StepInputs | None = getattr(metadata, KEY, None)
        if prepared is None:
            count = metadata.num_prefills + metadata.num_decodes
            sequences = next((each for each in _SEQUENCES if each >= count), None)
            if sequences is None or not self._admit(rows, sequences):
                return None
            # the first layer of a step to come here speaks for those of its group
            key = (name, rows, sequences)
            if key not in self._inputs:
                self._inputs[key] = StepInputs(rows, sequences, metadata)
            prepared = self._inputs[key]
            prepared.fill(metadata)
            setattr(metadata, KEY, prepared)
        return prepared

    def _admit(self, rows: int, sequences: int) -> bool:
        shape = (rows, sequences)
        if shape not in self._shapes and len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(shape)
        return shape in self._shapes


class StepInputs:
    """What vLLM's kernels need to know of a step's sequences, in buffers of one size.

    Args:
        rows: Of the step, padding included.
        sequences: Most of them.
        like: vLLM's metadata of one such step.

    Attributes:
        metadata: As vLLM's method takes it.
        beyond: Which rows lie behind the last token, [rows, 1, 1].
    """

    def __init__(self, rows: int, sequences: int, like: GDNAttentionMetadata) -> None:
        assert like.non_spec_query_start_loc is not None
        assert like.chunk_offsets is not None
        device = like.non_spec_query_start_loc.device

        def buffer(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self._starts = buffer(sequences + 1)
        self._states = buffer(sequences)
        self._resumed = buffer(sequences, dtype=torch.bool)
        chunks = -(-rows // _CHUNK) + sequences
        self._chunks = buffer(chunks, 2)
        # kernels are tuned anew, for seconds, where a type of number is another
        self._offsets = buffer(sequences + 1, dtype=like.chunk_offsets.dtype)
        programs = -(-rows // _CONVOLVED) + sequences
        self._of_program = buffer(programs)
        self._within = buffer(programs)
        self._order = torch.arange(max(rows, chunks), dtype=torch.int32, device=device)
        self.beyond = buffer(rows, 1, 1, dtype=torch.bool)
        # what lies behind the last chunk is a chunk of the last sequence that has no tokens
        self._no_chunk = torch.tensor([sequences - 1, rows], dtype=torch.int32, device=device)
        program = {
            "tot": programs,
            "mlist": None,
            "mlist_len": 0,
            "offsetlist": None,
            "batch_ptr": self._of_program,
            "token_chunk_offset_ptr": self._within,
        }
        self.metadata = dataclasses.replace(
            like,
            num_prefills=sequences,
            num_prefill_tokens=rows,
            num_decodes=0,
            num_decode_tokens=0,
            num_actual_tokens=rows,
            has_initial_state=self._resumed,
            non_spec_query_start_loc=self._starts,
            non_spec_state_indices_tensor=self._states,
            chunk_indices=self._chunks,
            chunk_offsets=self._offsets,
            prefill_query_start_loc=self._starts,
            prefill_state_indices=self._states,
            prefill_has_initial_state=self._resumed,
            nums_dict={_CONVOLVED: program},
            batch_ptr=self._of_program,
            token_chunk_offset_ptr=self._within,
        )

    def fill(self, metadata: Any) -> None:
        """Take over a step's sequences, without waiting for the device."""
        decodes = metadata.num_decodes
        count = decodes + metadata.num_prefills
        starts = metadata.non_spec_query_start_loc[: count + 1]
        self._starts[: count + 1].copy_(starts)
        self._starts[count + 1 :].copy_(starts[-1:].expand(len(self._starts) - count - 1))
        _fill(self._states, metadata.non_spec_state_indices_tensor[:count], 0)
        _fill(self._resumed, metadata.has_initial_state[:count], False)
        own = len(metadata.chunk_indices)
        order = self._order[:decodes]
        self._chunks[:decodes, 0].copy_(order)
        self._chunks[:decodes, 1].zero_()
        self._chunks[decodes : decodes + own].copy_(metadata.chunk_indices)
        self._chunks[decodes : decodes + own, 0].add_(decodes)
        self._chunks[decodes + own :].copy_(
            self._no_chunk.expand(len(self._chunks) - decodes - own, 2)
        )
        self._offsets[:decodes].copy_(order)
        ends = metadata.chunk_offsets[: metadata.num_prefills + 1]
        self._offsets[decodes : count + 1].copy_(ends)
        self._offsets[decodes : count + 1].add_(decodes)
        end = self._offsets[count : count + 1]
        self._offsets[count + 1 :].copy_(end.expand(len(self._offsets) - count - 1))
        programs = metadata.nums_dict[_CONVOLVED]["tot"]
        _fill(self._of_program, metadata.batch_ptr[:programs], -1)
        _fill(self._within, metadata.token_chunk_offset_ptr[:programs], 0)
        torch.ge(self._order[: len(self.beyond)], starts[-1], out=self.beyond.view(-1))


def _fill(target: Tensor, values: Tensor, rest: int) -> None:
    target[: len(values)].copy_(values)
    target[len(values) :].fill_(rest)
