"""What scoring costs on a card: the head's own form, and the one with keys and values kept.

    python -m benchmarks.gpu.head [--rows FILE]

Random weights of the release's sizes. First both forms are checked to give the same logits. The
plain form keeps the keys and values of all six layers of every token, 12 x 1,024 numbers in bf16;
ours keeps 1,024 in float16. Times are of one record, host included: until the logits are there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu.asking import Rows
from benchmarks.gpu.shape import SHAPES
from engine.head import JointHead, find_places
from engine.tokens import RecordField

TOKENS = (1_000, 16_000, 32_000)
OPTIONS = (1, 6, 8, 64)
REPEATS = 30


def make_head(device: str) -> JointHead:
    """Draw a head of the 27B's sizes."""
    torch.manual_seed(0)
    with torch.device(device):
        head = JointHead(SHAPES["27b" if device == "cuda" else "tiny"].head)
    for name, parameter in head.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        elif "in_proj_bias" in name:
            torch.nn.init.zeros_(parameter)
    return head.requires_grad_(requires_grad=False).eval()


class Kept:
    """Keys and values of one record in one layer, [heads, T, width / heads] each."""

    def __init__(self, attention: Any, memory: Tensor, norm: Any) -> None:
        source = memory if norm is None else norm(memory)
        _, *weights = attention.in_proj_weight.chunk(3)
        _, *biases = attention.in_proj_bias.chunk(3)
        self.pair = [
            F.linear(source, weight, bias)
            .unflatten(-1, (attention.heads, -1))
            .transpose(0, 1)
            .bfloat16()
            .contiguous()
            for weight, bias in zip(weights, biases, strict=True)
        ]

    def read(self, attention: Any, queries: Tensor) -> Tensor:
        """Let the queries see them."""
        width = queries.shape[-1]
        query = F.linear(queries, attention.in_proj_weight[:width], attention.in_proj_bias[:width])
        query = query.unflatten(-1, (attention.heads, -1)).transpose(0, 1).bfloat16()
        found = F.scaled_dot_product_attention(query[None], *(each[None] for each in self.pair))
        return attention.out_proj(found[0].transpose(0, 1).flatten(1).to(queries.dtype))


def keep_all(head: JointHead, memory: Tensor) -> dict[int, Kept]:
    """Make the keys and values of all layers, as the plain form has them before a question."""
    kept = {}
    for layer in (*head.evidence_layers, *head.layers):
        evidence = hasattr(layer, "memory_norm")
        attention: Any = layer.attention if evidence else layer.multihead_attn
        kept[id(attention)] = Kept(attention, memory, layer.memory_norm if evidence else None)
    return kept


def timed(call: Any, device: str) -> list[float]:
    """Time a call until its result is on the host."""
    times = []
    for _ in range(REPEATS + 5):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        call()[0].tolist()
        times.append((time.perf_counter() - started) * 1e3)
    return times[5:]


@torch.inference_mode()
def main(arguments: argparse.Namespace) -> int:
    """Check, then measure; give the exit code."""
    rows, device = Rows(arguments.rows), "cuda" if torch.cuda.is_available() else "cpu"
    head = make_head(device)
    hidden_size, width = head.memory_projection.in_features, head.memory_projection.out_features
    lm_head = torch.randn(2048, hidden_size, device=device, dtype=torch.bfloat16)
    worst = 0.0
    for tokens in TOKENS if device == "cuda" else (200, 1_000):
        hidden = torch.randn(tokens, hidden_size, device=device, dtype=torch.bfloat16)
        memory = head.memory(hidden)
        for options in OPTIONS:
            start = tokens - 40 - 2 * options
            spans = tuple((start + 40 + 2 * k, start + 42 + 2 * k) for k in range(options))
            field = RecordField(1, (start, start + 40), spans)
            places = find_places([7] * tokens, (field,), lm_head, torch.float32)
            tail, features = hidden[start:], memory.half()

            def ours(features: Tensor = features, tail: Tensor = tail, places: Any = places) -> Any:
                return head.logits([features], [tail], [places])

            times = timed(ours, device)
            expected = ours()[0]
            rows.times("head", times, tokens=tokens, options=options, numbers=width)
            kept = keep_all(head, memory)
            attention: Any = type(head.evidence_layers[0].attention)
            stock = attention.read

            def plain(
                self: Any, queries: Tensor, _memory: Any, norm: Any = None, kept: Any = kept
            ) -> Tensor:
                return kept[id(self)].read(self, queries)

            attention.read = plain
            try:
                off = float((ours()[0] - expected).abs().max())
                times = timed(ours, device)
            finally:
                attention.read = stock
            worst = max(worst, off)
            rows.times("head, keys and values kept", times, tokens=tokens, options=options, off=off)
    times = timed(lambda: [head.memory(hidden[:8192])[0]], device)
    rows.times("features of a step", times, tokens=min(8192, len(hidden)))
    rows.write("head check", worst=worst, median=statistics.median(times))
    return int(not worst < 0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path)
    sys.exit(main(parser.parse_args()))
