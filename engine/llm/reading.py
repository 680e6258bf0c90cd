"""Decision records while vLLM reads them: gather the hidden states, then score the options.

Knows torch and the head, not vLLM; `worker.py` feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from engine.head import JointHead
from engine.tokens import RecordField


class Reading:
    """One record on its way through the model.

    Rows are kept by position, so that chunks may come in any size and, after a preemption, once
    more. A row that never came is NaN, and so are then the logits.
    """

    def __init__(self, input_ids: Sequence[int], fields: Sequence[RecordField]) -> None:
        self.input_ids = input_ids
        self.fields = fields
        self.hidden: Tensor | None = None

    def take(self, start: int, rows: Tensor) -> bool:
        """Keep the rows of the positions from `start`; true if the last position is among them."""
        length = len(self.input_ids)
        if self.hidden is None:
            self.hidden = rows.new_full((length, rows.shape[-1]), torch.nan)
        end = min(start + len(rows), length)
        if start >= end:  # the model goes on writing behind the record
            return False
        self.hidden[start:end] = rows[: end - start]
        return end == length


class Reader:
    """All records that are being read, by vLLM's request ids.

    Args:
        head: The scoring network.
        lm_head: Rows of the output embedding, [vocabulary, hidden size], for lexical features.
    """

    def __init__(self, head: JointHead, lm_head: Tensor) -> None:
        self._head = head
        self._lm_head = lm_head
        self._readings: dict[str, Reading] = {}

    def __len__(self) -> int:
        return len(self._readings)

    def begin(self, request_id: str, input_ids: Sequence[int], fields: Any) -> None:
        """Expect a record; `fields` as `msgspec.to_builtins` made them."""
        self._readings[request_id] = Reading(
            input_ids, msgspec.convert(fields, tuple[RecordField, ...])
        )

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what ended or was given up; ids that are not records are ignored."""
        for request_id in request_ids:
            self._readings.pop(request_id, None)

    def step(
        self,
        request_ids: Iterable[str],
        counts: Mapping[str, int],
        starts: Mapping[str, int],
        hidden: Tensor,
    ) -> dict[str, Tensor]:
        """Take the rows of one engine step and score the records that it completed.

        Args:
            request_ids: The order of the requests in the batch.
            counts: Rows of each request.
            starts: Position of each request's first row.
            hidden: States after the final norm, [rows or more, hidden size]; valid in this step.

        Returns:
            The logits of all options of each completed record, one after another, on the way to
            the host: valid once the step's own output is.
        """
        logits: dict[str, Tensor] = {}
        row = 0
        for request_id in request_ids:
            count = counts[request_id]
            reading = self._readings.get(request_id)
            if reading is not None and reading.take(starts[request_id], hidden[row : row + count]):
                logits[request_id] = self._score(reading)
            row += count
        return logits

    def _score(self, reading: Reading) -> Tensor:
        assert reading.hidden is not None
        scores = self._head.score(reading.hidden, reading.input_ids, self._lm_head, reading.fields)
        return torch.cat([score.reshape(-1) for score in scores]).to("cpu", non_blocking=True)
