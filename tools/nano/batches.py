"""Batches of records of like length, in an order that depends on seed and step alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tools.nano.dataset import Array, Dataset, RecordData

BUCKETS: Final = (
    192,
    256,
    320,
    384,
    512,
    640,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    16512,
)
"""Lengths to which records are filled up; none is longer."""

LONG: Final = 8192
LONG_SHARE: Final = 0.1
"""At most so many batches are of records beyond `LONG`."""

CURRICULUM: Final = ((0.4, 1024), (0.65, 4096), (1.0, BUCKETS[-1]))
"""Up to which part of a stage, which lengths."""


class Batch(NamedTuple):
    """Records filled up on the right.

    Shapes: B records, T tokens, Q fields of a record, M options of a field, L tokens of a span.

    Attributes:
        ids: [B, T].
        lengths: [B].
        questions: Positions of the questions' tokens, -1 where there is none, [B, Q, L].
        options: Likewise, [B, Q, M, L].
        types: [B, Q].
        targets: Right probabilities, [B, Q, M]; all zero where there is no field.
        values: What best play gets after an option, NaN where it is no action, [B, Q, M].
        games, kinds: Indices, [B] and [B, Q].
        weights: How much each token counts for a language model, [B, T].
    """

    ids: Tensor
    lengths: Tensor
    questions: Tensor
    options: Tensor
    types: Tensor
    targets: Tensor
    values: Tensor
    games: Tensor
    kinds: Tensor
    weights: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """Send everything to a device."""
        return Batch(*(each.to(device, non_blocking=True) for each in self))


class Schedule:
    """Which records make which batch of which step.

    Args:
        lengths: Of all records.
        tokens: Of a batch, padding included; one record may have more.
        steps: Of the whole stage.
        seed: Another one, another order.
    """

    def __init__(self, lengths: Array, *, tokens: int, steps: int, seed: int) -> None:
        self._buckets = np.searchsorted(np.array(BUCKETS), lengths)
        self._usable = np.flatnonzero(lengths <= BUCKETS[-1])
        if not len(self._usable):
            raise ValueError(f"no record has {BUCKETS[-1]} tokens or fewer; generate more")
        self._shortest = BUCKETS[int(self._buckets[self._usable].min())]
        self._tokens, self._steps, self._seed = tokens, steps, seed

    def __iter__(self) -> Iterator[Array]:
        """Give the records of every step, by index."""
        step, epoch = 0, 0
        while step < self._steps:
            for indices in self._epoch(epoch, step / self._steps):
                if step == self._steps:
                    return
                yield indices
                step += 1
            epoch += 1

    def _epoch(self, epoch: int, done: float) -> list[Array]:
        """Put every record of the lengths that are due into one batch."""
        source = np.random.default_rng([self._seed, epoch])
        longest = max(self._shortest, next(most for until, most in CURRICULUM if done < until))
        short: list[Array] = []
        long: list[Array] = []
        for bucket, size in enumerate(BUCKETS):
            if size > longest:
                break
            members = self._usable[self._buckets[self._usable] == bucket]
            source.shuffle(members)
            each = max(1, self._tokens // size)
            parts = [members[i : i + each] for i in range(0, len(members), each)]
            (long if size > LONG else short).extend(parts)
        if not short:
            return long
        source.shuffle(order := np.arange(len(long)))
        most = int(len(short) * LONG_SHARE / (1 - LONG_SHARE))
        batches = short + [long[i] for i in order[:most]]
        source.shuffle(order := np.arange(len(batches)))
        return [batches[i] for i in order]


def in_order_of_length(lengths: Array, *, tokens: int) -> Iterator[Array]:
    """Give all records, by index, in batches of so many tokens, the shortest first."""
    order = np.argsort(lengths, kind="stable")
    sizes = np.searchsorted(np.array(BUCKETS), lengths[order])
    start = 0
    for end in range(1, len(order) + 1):
        # one that is longer than the longest of a batch comes by itself
        if end < len(order) and sizes[end] == sizes[start] < len(BUCKETS):
            size = BUCKETS[sizes[end]]
            if (end + 1 - start) * size <= tokens:
                continue
        yield order[start:end]
        start = end


def collate(records: Sequence[RecordData], *, answers: bool, answer_weight: float = 1.0) -> Batch:
    """Fill up records to one length.

    Args:
        records: Of one bucket.
        answers: Put the answers behind, as text for a language model.
        answer_weight: How much an answer's token counts beside another.
    """
    texts = [np.concatenate([r.input_ids, r.answer]) if answers else r.input_ids for r in records]
    tokens = next((size for size in BUCKETS if size >= max(map(len, texts))), max(map(len, texts)))
    batch, fields = len(records), max(1, *(len(r.fields) for r in records), 1)
    options = max([len(f.options) for r in records for f in r.fields], default=1)
    asked = max([f.question[1] - f.question[0] for r in records for f in r.fields], default=1)
    told = max([int(np.diff(f.options).max()) for r in records for f in r.fields], default=1)
    ids = np.zeros((batch, tokens), np.int64)
    weights = np.zeros((batch, tokens), np.float32)
    questions = np.full((batch, fields, max(asked, 1)), -1, np.int64)
    spans = np.full((batch, fields, options, max(told, 1)), -1, np.int64)
    types, kinds = np.zeros((2, batch, fields), np.int64)
    targets = np.zeros((batch, fields, options), np.float32)
    values = np.full((batch, fields, options), np.nan, np.float32)
    for row, (record, text) in enumerate(zip(records, texts, strict=True)):
        ids[row, : len(text)] = text
        weights[row, : len(record.input_ids)] = 1.0
        weights[row, len(record.input_ids) : len(text)] = answer_weight
        for place, field in enumerate(record.fields):
            types[row, place], kinds[row, place] = field.type, field.kind
            _fill(questions[row, place], field.question)
            for number, span in enumerate(field.options):
                _fill(spans[row, place, number], span)
            targets[row, place, : len(field.target)] = field.target
            values[row, place, : len(field.values)] = field.values
    lengths = np.array([len(text) for text in texts])
    games = np.array([record.game for record in records])
    arrays: tuple[Any, ...] = (
        ids, lengths, questions, spans, types, targets, values, games, kinds, weights
    )  # fmt: skip
    return Batch(*(torch.from_numpy(each) for each in arrays))


def _fill(row: Array, span: Any) -> None:
    row[: span[1] - span[0]] = np.arange(span[0], span[1])


def load(dataset: Dataset, indices: Array, *, answers: bool, answer_weight: float = 1.0) -> Batch:
    """Read records and put them into a batch."""
    records = [dataset.record(int(index)) for index in indices]
    return collate(records, answers=answers, answer_weight=answer_weight)
