"""Why a record was read anew where one before it had the same beginning."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

_REMEMBERED = 64
"""Records; older ones count as never seen."""


class Seen(msgspec.Struct):
    """A record that is read.

    Attributes:
        adapter: Name of its adapter, and the salt.
        hashes: One for each unit, of all tokens up to its end, adapter and salt included.
        state_start: Where its state starts; before that all records are alike.
        kept: Tokens up to its last stop; fewer, once it is given up before that.
        input_ids: Its tokens.
    """

    adapter: tuple[str, str]
    hashes: Sequence[bytes]
    state_start: int
    kept: int
    input_ids: Sequence[int]


class History:
    """The last records.

    Args:
        unit: Tokens that can be reused only together.
    """

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self._seen: deque[Seen] = deque(maxlen=_REMEMBERED)

    def why(self, record: Seen, reused: int, *, leaves: int | None = None) -> str:
        """Say why no more than `reused` tokens of the record were reused; empty if all were.

        Args:
            record: What is read.
            reused: Tokens found.
            leaves: Tokens up to where others can go on, if that is not the record's last stop.
        """
        reason = self._reason(record, reused)
        if leaves is not None:
            record.kept = leaves
        self._seen.append(record)
        return reason

    def _reason(self, record: Seen, reused: int) -> str:
        if reused >= record.kept // self._unit * self._unit:
            return "" if record.kept >= self._unit else f"shorter than {self._unit} tokens"

        def usable(seen: Seen) -> tuple[int, int]:
            common = self._common(seen, record)
            return common, seen.kept if seen.kept <= common else 0

        best = max(self._seen, key=usable, default=None)
        common = self._common(best, record) if best else 0
        if best is None or common <= record.state_start:
            return self._other_key(record)
        if reused >= min(common, best.kept):
            return ""  # what follows is new
        return "evicted" if common >= best.kept else self._changed(best, record)

    def _common(self, one: Seen, other: Seen) -> int:
        """Count the tokens of the units that both begin with, by bisection: hashes are chained."""
        low, high = 0, min(len(one.hashes), len(other.hashes))
        while low < high:
            middle = (low + high + 1) // 2
            if one.hashes[middle - 1] == other.hashes[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low * self._unit

    def _other_key(self, record: Seen) -> str:
        end = record.kept
        beginning = record.input_ids[:end]
        for seen in self._seen:
            if (
                seen.adapter != record.adapter
                and seen.input_ids[end - 1 : end] == beginning[-1:]  # a glance, for long ones
                and seen.input_ids[:end] == beginning
            ):
                return "other adapter" if seen.adapter[0] != record.adapter[0] else "other salt"
        return "first time"

    def _changed(self, one: Seen, other: Seen) -> str:
        pairs = zip(one.input_ids, other.input_ids, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
        return f"text changed at token {at}"
