"""The layers of the joint head, over the records on several states at once.

Records on one state share its features: they lie in memory once, and the queries of all these
records read them in one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.manifest import HeadConfig

_SCORES: Final = 1 << 25
"""Attention scores at once, of a query, a head and a token each: 128 MiB, and a few times that.

Rows do not see one another there, so that any number can be read part by part: a thousand options
over a long state would take what the cache leaves of a card, and end the engine.
"""


class StateFeatures(NamedTuple):
    """The head features of all records on one state: what they share is there once.

    Attributes:
        state: Of the tokens that all begin with, [S, W], any number format.
        rests: Of each record's other tokens, [T - S, W], one at least.
    """

    state: Tensor
    rests: Sequence[Tensor]


class Rows(NamedTuple):
    """Which rows, of options or of fields, belong to which of some records.

    Attributes:
        counts: Of each record.
        of_record: [R, longest]; the first again where a record has fewer.
        present: Whether that place is a row of its own, [R, longest].
        back: Where a row stands in there, flattened, [number].
    """

    counts: Sequence[int]
    of_record: Tensor
    present: Tensor
    back: Tensor

    @property
    def number(self) -> int:
        """How many."""
        return sum(self.counts)

    @property
    def longest(self) -> int:
        """Most rows of a record."""
        return max(self.counts)

    def per_record(self, x: Tensor) -> Tensor:
        """Arrange rows by record, [number, ...] to [R, longest, ...]."""
        return x[self.of_record]

    def per_row(self, x: Tensor) -> Tensor:
        """Undo it."""
        return x.flatten(0, 1)[self.back]

    @classmethod
    def of(cls, counts: Sequence[int], device: torch.device) -> Rows:
        """Lay out records of so many rows."""
        most, first = max(counts), [0, *accumulate(counts)]
        table = [
            [start + (place if place < count else 0) for place in range(most)]
            for start, count in zip(first, counts, strict=False)
        ]
        present = [[place < count for place in range(most)] for count in counts]
        back = [record * most + place for record, n in enumerate(counts) for place in range(n)]
        tensors = (to_device(torch.tensor(each), device) for each in (table, present, back))
        return cls(counts, *tensors)

    def split(self, most: int) -> Iterator[tuple[slice, slice, Rows]]:
        """Divide them into parts of at most `most` places; a record's rows may come apart.

        Yields:
            Which rows, of which records, and those rows laid out.
        """
        if len(self.counts) * self.longest <= most:
            yield slice(None), slice(None), self
            return
        parts: list[tuple[int, list[int]]] = [(0, [])]  # first record, and rows of each
        for record, count in enumerate(self.counts):
            left = count
            while left:
                taken = parts[-1][1]
                whole = max(left, *taken, 0) * (len(taken) + 1) <= most
                if whole or not taken:
                    taken.append(left if whole else min(left, most))
                    left -= taken[-1]
                if left:
                    parts.append((record, []))
        start = 0
        for first, taken in parts:
            end = start + sum(taken)
            own = Rows.of(taken, self.back.device)
            yield slice(start, end), slice(first, first + len(taken)), own
            start = end


class Layout(msgspec.Struct, frozen=True):
    """How the fields and options of several records lie one after another.

    Attributes:
        options_of_record: Numbers of them.
        record_of_field: [Q].
        field_of_option: [N].
        options: Of each field, as if it were a record.
        fields: Of each record.
        options_on_state, fields_on_state: Of the records on each state.
    """

    options_of_record: list[int]
    record_of_field: Tensor
    field_of_option: Tensor
    options: Rows
    fields: Rows
    options_on_state: list[Rows]
    fields_on_state: list[Rows]

    @classmethod
    def of(
        cls, counts: Sequence[list[int]], records: Sequence[int], device: torch.device
    ) -> Layout:
        """Lay out records of fields of so many options, so many records on each state."""
        flat = [count for record in counts for count in record]
        options, fields = [sum(record) for record in counts], [len(record) for record in counts]

        def on_state(rows: Sequence[int]) -> list[Rows]:
            taken = iter(rows)
            return [Rows.of(list(islice(taken, number)), device) for number in records]

        def spread(numbers: Sequence[int]) -> Tensor:
            indices = [index for index, number in enumerate(numbers) for _ in range(number)]
            return to_device(torch.tensor(indices), device)

        return cls(
            options_of_record=options,
            record_of_field=spread(fields),
            field_of_option=spread(flat),
            options=Rows.of(flat, device),
            fields=Rows.of(fields, device),
            options_on_state=on_state(options),
            fields_on_state=on_state(fields),
        )


class Memory:
    """What the records on one state attend to: the state, [S, W], and each its rest, [R, L, W].

    Shorter rests are filled up with zeros, which `hidden`, [R, 1, 1, L], keeps out of sight.
    """

    def __init__(self, features: StateFeatures, dtype: torch.dtype) -> None:
        self.state = features.state.to(dtype)
        self.rests = nn.utils.rnn.pad_sequence(
            [rest.to(dtype) for rest in features.rests], batch_first=True
        )
        lengths, longest = map(len, features.rests), self.rests.shape[1]
        hidden = [[0.0] * length + [-torch.inf] * (longest - length) for length in lengths]
        self.hidden = to_device(torch.tensor(hidden, dtype=dtype), self.state.device)[:, None, None]
        self._scales: tuple[Tensor, Tensor] | None = None

    def scales(self, eps: float) -> tuple[Tensor, Tensor]:
        """Give one over each token's standard deviation, the same for every layer.

        Returns:
            For the state, [S], and the rests, [R, L].
        """
        if self._scales is None:
            # torch's own `var` takes ten times as long on a CPU
            state, rests = (
                torch.native_layer_norm(part, part.shape[-1:], None, None, eps)[2].squeeze(-1)
                for part in (self.state, self.rests)
            )
            self._scales = state, rests
        return self._scales


class _Attention(nn.Module):
    """Multi-head attention; query, key and value projections are packed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, queries: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let queries, [..., n, W], see the memory, [..., T, W], projected to keys and values.

        Args:
            queries: Who looks.
            memory: At what.
            mask: What they may see, broadcast to [..., heads, n, T]; None: all.
        """
        weights = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        query, key, value = (
            F.linear(source, weight, bias).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for source, (weight, bias) in zip((queries, memory, memory), weights, strict=True)
        )  # each [..., heads, n or T, W / heads]
        seen = F.scaled_dot_product_attention(query, key, value, mask)
        return self.out_proj(seen.transpose(-2, -3).flatten(-2))

    def read(
        self, queries: Tensor, memory: Memory, rows: Rows, norm: nn.LayerNorm | None = None
    ) -> Tensor:
        """Let each record's queries see `norm` of its state and rest, in the cheaper of two forms.

        A score is bilinear in query and memory, and so the key projection can be applied to the
        few queries instead of to the many tokens; the weighted mean is linear, and so the value
        projection can wait until the tokens are summed up. All heads then read the same features.
        A layer normalization before them, r (m - mean(m)) gamma + beta, is a centring and a
        scaling by gamma, which go the same way, and one factor r for each token. What adds the
        same to the scores of all tokens (key bias, beta) has no effect.

        Per query and token this costs `heads` times more than keys of their own; it wins as long
        as projecting the tokens costs more than that.
        """
        query_weight, key_weight, value_weight = self.in_proj_weight.chunk(3)
        query_bias, key_bias, value_bias = self.in_proj_bias.chunk(3)
        query = F.linear(queries, query_weight, query_bias).unflatten(-1, (self.heads, -1))
        query = query * query.shape[-1] ** -0.5  # [n, heads, W / heads]
        parts = memory.state, memory.rests
        if rows.longest * (self.heads - 1) > queries.shape[-1]:
            normed = parts if norm is None else tuple(map(norm, parts))
            keys, values = (
                tuple(
                    F.linear(part, weight, bias).unflatten(-1, (self.heads, -1)) for part in normed
                )
                for weight, bias in ((key_weight, key_bias), (value_weight, value_bias))
            )
            value = _attend(query, keys, values, memory.hidden, rows)
            return self.out_proj(value.flatten(1))
        key_weight, value_weight = (
            weight.unflatten(0, (self.heads, -1)) for weight in (key_weight, value_weight)
        )
        absorbed = torch.einsum("nhd,hdw->nhw", query, key_weight)
        if norm is None:
            mean = _attend(absorbed, parts, parts, memory.hidden, rows)
        else:
            absorbed, scales = _centred(absorbed * norm.weight), memory.scales(norm.eps)
            mean = _attend(absorbed, parts, parts, memory.hidden, rows, scales)
            mean = _centred(mean) * norm.weight + norm.bias
        value = torch.einsum("nhw,hdw->nhd", mean, value_weight)
        return self.out_proj(value.flatten(1) + value_bias)


def _attend(
    queries: Tensor,
    keys: tuple[Tensor, ...],
    values: tuple[Tensor, ...],
    hidden: Tensor,
    rows: Rows,
    scales: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Give the weighted means of the values, [n, heads, d], for queries of the same shape.

    Args:
        queries: Of all records on a state.
        keys: Of the state, [S, d], and of the rests, [R, L, d]; or with a heads before d.
        values: Likewise.
        hidden: Added to the scores of the rests.
        rows: Which query is whose.
        scales: Factors of keys and values, for the state and the rests.
    """
    tokens = keys[0].shape[0] + keys[1].shape[1]
    found = [
        _attend_at_once(
            queries[own],
            (keys[0], keys[1][records]),
            (values[0], values[1][records]),
            hidden[records],
            part,
            scales and (scales[0], scales[1][records]),
        )
        for own, records, part in rows.split(max(1, _SCORES // (queries.shape[1] * tokens)))
    ]
    return torch.cat(found) if len(found) > 1 else found[0]


def _attend_at_once(
    queries: Tensor,
    keys: tuple[Tensor, ...],
    values: tuple[Tensor, ...],
    hidden: Tensor,
    rows: Rows,
    scales: tuple[Tensor, Tensor] | None,
) -> Tensor:
    head = "h" if keys[0].dim() == 3 else ""
    state = torch.einsum(f"nhd,s{head}d->nhs", queries, keys[0])
    rest = torch.einsum(f"rmhd,rl{head}d->rmhl", rows.per_record(queries), keys[1])
    if scales is not None:
        state, rest = state * scales[0], rest * scales[1][:, None, None]
    weights = torch.cat((state, rows.per_row(rest + hidden)), -1).softmax(-1)
    state, rest = weights.split((state.shape[-1], rest.shape[-1]), -1)
    rest = rows.per_record(rest)
    if scales is not None:
        state, rest = state * scales[0], rest * scales[1][:, None, None]
    return torch.einsum(f"nhs,s{head}d->nhd", state, values[0]) + rows.per_row(
        torch.einsum(f"rmhl,rl{head}d->rmhd", rest, values[1])
    )


class EvidenceLayer(nn.Module):
    """Lets each option gather evidence from the whole record; options do not see one another."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(config.width)
        self.memory_norm = nn.LayerNorm(config.width)
        self.attention = _Attention(config.width, config.heads)
        self.feedforward_norm = nn.LayerNorm(config.width)
        self.feedforward = feed_forward(config.width, config.feedforward, config.width)

    def forward(self, options: Tensor, memories: list[Memory], rows: list[Rows]) -> Tensor:
        """Give options, [N, W], what those on each state find in its memory."""
        queries = self.query_norm(options).split([each.number for each in rows])
        options = options + torch.cat(
            [
                self.attention.read(*args, self.memory_norm)
                for args in zip(queries, memories, rows, strict=True)
            ]
        )
        return options + self.feedforward(self.feedforward_norm(options))


class FieldLayer(nn.Module):
    """Lets the fields see one another, then the record."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.self_attn = _Attention(config.width, config.heads)
        self.norm2 = nn.LayerNorm(config.width)
        self.multihead_attn = _Attention(config.width, config.heads)
        self.norm3 = nn.LayerNorm(config.width)
        self.linear1 = nn.Linear(config.width, config.feedforward)
        self.linear2 = nn.Linear(config.feedforward, config.width)

    def forward(self, fields: Tensor, memories: list[Memory], layout: Layout) -> Tensor:
        """Give fields, [Q, W], what those of a record tell one another and the memory tells."""
        own = layout.fields.per_record(self.norm1(fields))
        seen = self.self_attn(own, own, layout.fields.present[:, None, None])
        fields = fields + layout.fields.per_row(seen)
        rows = layout.fields_on_state
        own = self.norm2(fields).split([each.number for each in rows])
        fields = fields + torch.cat(
            [self.multihead_attn.read(*args) for args in zip(own, memories, rows, strict=True)]
        )
        return fields + self.linear2(F.gelu(self.linear1(self.norm3(fields))))


def feed_forward(inputs: int, inner: int, outputs: int) -> nn.Sequential:
    """Make two linear layers with GELU between them."""
    # index 2 stands for the dropout of training, so that names are the release's: 0 and 3
    return nn.Sequential(
        nn.Linear(inputs, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, outputs)
    )


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Send what the host made, without waiting for the device."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
