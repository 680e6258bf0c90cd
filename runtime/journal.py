"""A match as the process that plays it holds it: its fold, and events on their way to the log."""

from __future__ import annotations

import anyio

from games.base import State
from runtime.fold import Fold, advance
from runtime.tally import Tally
from store.events import Event, MatchStarted
from store.log import EventLog


class Journal:
    """Collects events of one match and appends them together.

    `record` counts at once for everything in this process; `save` makes it durable, and has to
    come before anything outside learns of it.
    """

    def __init__(self, log: EventLog, fold: Fold, tally: Tally) -> None:
        self.fold = fold
        self._log = log
        self._tally = tally
        self._watch = tally.watch(log, fold)
        self._unsaved: list[Event] = []

    @classmethod
    def of_new_match(cls, log: EventLog, fold: Fold, tally: Tally) -> Journal:
        """Make the journal of a match whose first event is not in the log yet."""
        journal = cls(log, fold, tally)
        journal._unsaved.append(fold.started)
        return journal

    @property
    def new(self) -> bool:
        """Whether nothing of the match is in the log yet."""
        return bool(self._unsaved) and isinstance(self._unsaved[0], MatchStarted)

    def record(self, event: Event, state: State | None = None) -> None:
        """Take one event, with the state that it leads to if the caller has it."""
        self._watch.see(self.fold, event)
        self.fold = advance(self.fold, event, state)
        self._unsaved.append(event)
        self._tally.add(event)

    async def save(self) -> None:
        """Append what was recorded since the last time, all or nothing.

        Raises:
            VersionConflict: Somebody else appended to this match.
            LogUnavailable: The log cannot be written. The journal is of no more use.
        """
        while self._unsaved:  # an answer nobody waits for may come while this waits
            events, self._unsaved = self._unsaved, []
            expected = self.fold.next_version - len(events)
            # An agent may cancel its wait, and an append that is cut off may have happened or not.
            with anyio.CancelScope(shield=True):
                await self._log.append(self.fold.match, events, expected=expected)
