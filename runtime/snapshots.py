"""Folds of long matches kept outside the log, so that a late version is opened without the rest.

A snapshot is a cache: it is used only if the log still has the event that it was made after, by
its hash, and if its state still has the hash that this event recorded. Whatever is wrong with one,
the match is folded from an earlier point instead. Python's pickle holds them, because a state may
be any object of a game; they are read from the data folder alone, never from a match file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path

from runtime.fold import Fold, state_hash
from store.events import ChanceDrawn, EpochStarted, TurnTaken
from store.log import Recorded

EVERY = 100
"""Versions between two snapshots."""


class Snapshots:
    """The snapshots of one match."""

    def __init__(self, home: Path, match: str) -> None:
        name = hashlib.sha256(match.encode()).hexdigest()[:32]
        self._folder = home / "snapshots" / name
        self._kept = 0

    def nearest(self, version: int, record: Callable[[int], Recorded | None]) -> Fold | None:
        """Give the last sound fold whose last event is at or before `version`.

        Args:
            version: Of an event.
            record: Gives the event of the log at a version, None where it has none.
        """
        try:
            found = sorted(
                (int(file.stem), file)
                for file in self._folder.glob("*.pickle")
                if file.stem.isdecimal()
            )
        except OSError:
            return None
        for at, file in reversed(found):
            if at <= version and (fold := _load(file, record(at))) is not None:
                self._kept = at
                return fold
        return None

    def offer(self, fold: Fold, recorded: Recorded) -> None:
        """Keep the fold after an event if it is a turn's and far enough behind the last kept.

        One that cannot be kept is left out: it is only a cache.
        """
        due = recorded.version - self._kept >= EVERY
        if not due or not isinstance(recorded.event, TurnTaken | ChanceDrawn | EpochStarted):
            return
        self._kept = recorded.version
        file = self._folder / f"{recorded.version}.pickle"
        draft = file.with_suffix(f".{os.getpid()}")
        try:
            data = pickle.dumps((recorded.hash, fold), protocol=pickle.HIGHEST_PROTOCOL)
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(data)
            draft.replace(file)
        except (OSError, pickle.PicklingError, TypeError, AttributeError):
            draft.unlink(missing_ok=True)


def _load(file: Path, recorded: Recorded | None) -> Fold | None:
    if recorded is None or not isinstance(recorded.event, TurnTaken | ChanceDrawn | EpochStarted):
        return None
    try:
        digest, fold = pickle.loads(file.read_bytes())
        sound = digest == recorded.hash and state_hash(fold.state) == recorded.event.state_hash
    except Exception:  # bytes of any age and origin: whatever they raise, they are no snapshot
        return None
    return fold if sound else None
