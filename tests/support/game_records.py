"""Goes through one game of a file of games, as the import does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from games.base import State
from games.errors import BadRecord
from games.records import Record
from games.registry import load_game


def played(record: Record | BadRecord) -> tuple[list[str], str, State]:
    """Give the labels, why the record ends, and the last state."""
    assert not isinstance(record, BadRecord), record
    state = load_game(record.game).start(seats=len(record.names), seed=0)
    labels: list[str] = []
    while (label := record.label(state, len(labels))) is not None:
        labels.append(label)
        state = state.apply(label)
    return labels, record.finish(state), state


def fault_of(records: Iterable[Record | BadRecord]) -> BadRecord:
    """Give what is wrong with the only record, found in reading or in playing it."""
    [record] = records
    if isinstance(record, BadRecord):
        return record
    with pytest.raises(BadRecord) as found:
        played(record)
    return found.value
