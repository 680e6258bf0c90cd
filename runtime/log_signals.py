"""The signals of a log's matches, found in its events: of matches that go on, and of others."""

from __future__ import annotations

import msgspec

from games.base import Game
from games.errors import GamesError
from games.registry import load_recorded
from runtime.fold import Fold, advance, begin
from runtime.signals import SignalReport, Signals, Watch
from store.events import MatchStarted
from store.log import EventLog


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A log at one moment.

    Attributes:
        matches: How many it holds.
        under_way: How many of them have not ended.
        unread: How many cannot be followed: their game is not known here, or its rules changed.
        signals: What was seen in the others.
    """

    matches: int
    under_way: int
    unread: int
    signals: SignalReport


class LogSignals:
    """Looks through a log, and at each later look only at what was added.

    A run itself counts what it plays; here the whole of a match counts, from its first event.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._signals = Signals(say=False)
        self._games: dict[str, Game] = {}
        self._under_way: dict[str, tuple[Fold, Watch]] = {}
        self._done: set[str] = set()
        self._unread: set[str] = set()

    def look(self) -> LogStatus:
        """Take what the log has now.

        Raises:
            CorruptLog: A match is damaged.
        """
        for summary in self._log.matches():
            if summary.match not in self._done:
                try:
                    self._follow(summary.match)
                except GamesError:
                    self._under_way.pop(summary.match, None)
                    self._unread.add(summary.match)
                    self._done.add(summary.match)
        return LogStatus(
            matches=len(self._done) + len(self._under_way),
            under_way=len(self._under_way),
            unread=len(self._unread),
            signals=self._signals.report(),
        )

    def _follow(self, match: str) -> None:
        known = self._under_way.get(match)
        start = 0 if known is None else known[0].next_version
        for each in self._log.read(match, start=start):
            if known is None:
                known = self._begin(match, each.event)
                continue
            fold, watch = known
            watch.see(fold, each.event)
            known = advance(fold, each.event), watch
        assert known is not None  # the log has listed the match
        if known[0].ended is None:
            self._under_way[match] = known
        else:
            self._under_way.pop(match, None)
            self._done.add(match)

    def _begin(self, match: str, started: object) -> tuple[Fold, Watch]:
        assert isinstance(started, MatchStarted)  # no log takes another first event
        game = self._games.get(started.game)
        if game is None:
            game = self._games[started.game] = load_recorded(started.game)
        fold = begin(match, started, game.start(seats=len(started.seats), seed=started.seed))
        return fold, Watch(self._signals, self._log, fold)
