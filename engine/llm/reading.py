"""Decision records while vLLM reads them: keep the features, then score the options.

Knows torch and the head, not vLLM; `worker.py` feeds it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import torch
from torch import Tensor

from engine.head import JointHead, Places, find_places
from engine.head_layers import StateFeatures
from engine.llm.features import FeaturePool
from engine.llm.plan import ReadPlan

_TOKENS: Final = 1 << 17
"""Tokens whose features are laid out for the head at once, unless one state alone has more.

At the release's width 0.8 GB: as many states as end in a step would take what the cache leaves.
"""


class Reading:
    """One record on its way through the model.

    States are kept from the first question on, by position, so that chunks may come in any size
    and, after a preemption, once more. A row that never came is NaN, and so are then the logits.
    """

    def __init__(self, length: int, places: Places, state: tuple[int, bytes]) -> None:
        self.length = length
        self.places = places
        self.state = state
        self.tail: Tensor | None = None

    def take(self, start: int, rows: Tensor) -> bool:
        """Keep the rows of the positions from `start`; true if the last position is among them."""
        end = min(start + len(rows), self.length)
        if start >= end:  # the model goes on writing behind the record
            return False
        first = self.places.start
        if end > first:
            if self.tail is None:
                self.tail = rows.new_full((self.length - first, rows.shape[-1]), torch.nan)
            begin = max(start, first)
            self.tail[begin - first : end - first] = rows[begin - start : end - start]
        return end == self.length


class Reader:
    """All records that are being read, by vLLM's request ids.

    Args:
        head: The scoring network.
        lm_head: Rows of the output embedding, [vocabulary, hidden size], for lexical features.
        pool: Where the features are kept.
    """

    def __init__(self, head: JointHead, lm_head: Tensor, pool: FeaturePool) -> None:
        self.pool = pool
        self._head = head
        self._lm_head = lm_head
        self._readings: dict[str, Reading] = {}

    def __len__(self) -> int:
        return len(self._readings)

    def begin(
        self, request_id: str, input_ids: Sequence[int], plan: ReadPlan, adapter: str
    ) -> None:
        """Expect a record that is read with an adapter."""
        places = find_places(input_ids, plan.fields, self._lm_head, torch.float32)
        content = hashlib.sha256(array("q", input_ids[: plan.state_end]))
        content.update(msgspec.msgpack.encode((adapter, plan.salt)))
        state = plan.state_end, content.digest()
        self._readings[request_id] = Reading(len(input_ids), places, state)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what ended or was given up; ids that are not records are ignored."""
        for request_id in request_ids:
            self._readings.pop(request_id, None)

    @torch.inference_mode()
    def step(
        self,
        request_ids: Iterable[str],
        counts: Mapping[str, int],
        starts: Mapping[str, int],
        hidden: Tensor,
        slots: Tensor,
        features_of: Callable[[str, int, int], Tensor],
    ) -> dict[str, Tensor]:
        """Take the rows of one engine step and score the records that it completed.

        The features of all rows are kept, also those of requests that are no records: they may
        have the same beginning, and to leave rows out would cost more than their product.

        Args:
            request_ids: The order of the requests in the batch.
            counts: Rows of each request.
            starts: Position of each request's first row.
            hidden: States after the final norm, [rows or more, hidden size]; valid in this step.
            slots: Where the rows lie in the cache, [rows].
            features_of: Gives the features of a request's tokens from one to another.

        Returns:
            The logits of all options of each completed record, one after another, on the way to
            the host: valid once the step's own output is.
        """
        self.pool.write(slots, self._head.memory(hidden[: len(slots)]))
        completed: dict[tuple[int, bytes], dict[str, Reading]] = {}  # by state
        row = 0
        for request_id in request_ids:
            count = counts[request_id]
            reading = self._readings.get(request_id)
            if reading is not None and reading.take(starts[request_id], hidden[row : row + count]):
                completed.setdefault(reading.state, {})[request_id] = reading
            row += count
        logits: dict[str, Tensor] = {}
        for portion in _portions(completed.values()):
            features: list[StateFeatures] = []
            for on_state in portion:
                end = next(iter(on_state.values())).state[0]
                rests = [features_of(name, end, each.length) for name, each in on_state.items()]
                features.append(StateFeatures(features_of(next(iter(on_state)), 0, end), rests))
            readings = {name: each for one in portion for name, each in one.items()}
            scored = self._score(features, list(readings.values()))
            logits |= zip(readings, scored, strict=True)
        return logits

    def _score(self, features: list[StateFeatures], readings: list[Reading]) -> list[Tensor]:
        tails = [reading.tail for reading in readings if reading.tail is not None]
        logits = self._head.logits(features, tails, [reading.places for reading in readings])
        return list(map(_to_host, logits))


def _portions(
    states: Iterable[dict[str, Reading]],
) -> Iterator[list[dict[str, Reading]]]:
    """Divide the records, by state, into what is scored at once."""
    portion: list[dict[str, Reading]] = []
    tokens = 0
    for on_state in states:
        own = sum(each.length - each.state[0] for each in on_state.values())
        own += next(iter(on_state.values())).state[0]
        if portion and tokens + own > _TOKENS:
            yield portion
            portion, tokens = [], 0
        portion.append(on_state)
        tokens += own
    if portion:
        yield portion


def _to_host(values: Tensor) -> Tensor:
    """Send what the device made, without waiting for it; only pinned memory allows that."""
    if values.device.type == "cpu":
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)
