"""Opens a recorded match at any version: its state, what each seat saw, what a decision asked."""

from __future__ import annotations

import msgspec

from engine.contract import encode_ask
from games.base import Game, View
from games.registry import load_recorded
from runtime.errors import BadInput, ReplayDiffers
from runtime.fold import Fold, advance, begin, state_hash
from runtime.recordings import Recordings
from runtime.requests import Request, derive_again
from runtime.snapshots import EVERY, Snapshots
from store.errors import UnknownMatch
from store.events import (
    ChanceDrawn,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    EpochStarted,
    MatchStarted,
    TurnTaken,
)
from store.log import Recorded


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A match just after one event.

    Attributes:
        recorded: The event.
        views: What each seat sees.
        asked: The decision that the event asks, answers or fails, else None.
        request: What that decision sent, derived again; its hash is the recorded one.
    """

    recorded: Recorded
    fold: Fold
    views: tuple[View, ...]
    asked: DecisionRequested | None
    request: Request | None

    @property
    def request_bytes(self) -> bytes | None:
        """The exact bytes of the request."""
        return None if self.request is None else encode_ask(self.request.ask)


def open_moment(
    recordings: Recordings,
    match: str,
    version: int,
    *,
    game: Game | None = None,
    snapshots: Snapshots | None = None,
) -> Moment:
    """Give a match just after the event at `version`.

    Args:
        recordings: Where it is.
        match: Its id.
        version: From 0.
        game: The rules; None loads the game that the match names.
        snapshots: Where folds of earlier looks are, and are kept.

    Raises:
        UnknownMatch: There is no such match.
        BadInput: The match has no such version.
        ReplayDiffers: With this code the match does not come to the recorded state or request.
        CorruptLog: An event on the way is damaged.
        GamesError: The game is not known here, or its rules forbid what was recorded.
    """
    fold, last = _fold(recordings, match, version, game, snapshots)
    event, state = last.event, fold.state
    if isinstance(event, MatchStarted | TurnTaken | ChanceDrawn | EpochStarted):
        _check(last, "state_hash", event.state_hash, state_hash(state))
    asked = request = None
    if isinstance(event, DecisionRequested | DecisionAnswered | DecisionFailed):
        asked = fold.asked[-1].request
        view = state.view(asked.seat)
        request = derive_again(view, asked)
        _check(last, "sha256", asked.sha256, request.sha256)
    views = tuple(state.view(seat) for seat in range(len(fold.started.seats)))
    return Moment(recorded=last, fold=fold, views=views, asked=asked, request=request)


def _fold(
    recordings: Recordings,
    match: str,
    version: int,
    game: Game | None,
    snapshots: Snapshots | None,
) -> tuple[Fold, Recorded]:
    """Fold the events up to `version`, from the nearest snapshot on."""
    fold = None
    if snapshots is not None and version >= EVERY:
        fold = snapshots.nearest(version, lambda at: _record(recordings, match, at))
    start = 0 if fold is None else fold.next_version - 1
    recorded = recordings.read(match, start=start, stop=version + 1)
    if not recorded or recorded[-1].version != version:
        raise _no_version(recordings, match, version)
    if fold is None:
        fold = _begin(recorded[0], game)
    for each in recorded[1:]:
        fold = advance(fold, each.event)
        if snapshots is not None:
            snapshots.offer(fold, each)
    return fold, recorded[-1]


def _begin(first: Recorded, game: Game | None) -> Fold:
    started = first.event
    assert isinstance(started, MatchStarted)  # no log and no file takes another first event
    rules = game or load_recorded(started.game)
    return begin(first.match, started, rules.start(seats=len(started.seats), seed=started.seed))


def _record(recordings: Recordings, match: str, version: int) -> Recorded | None:
    try:
        found = recordings.read(match, start=version, stop=version + 1)
    except UnknownMatch:
        return None
    return found[0] if found else None


def _no_version(recordings: Recordings, match: str, version: int) -> BadInput:
    last = recordings.read(match)[-1].version
    return BadInput(f"match {match} has versions 0 to {last}, not {version}; name one of these")


def _check(recorded: Recorded, field: str, expected: str, found: str) -> None:
    if expected != found:
        raise ReplayDiffers(
            f"match {recorded.match}, version {recorded.version}: {field} was {expected} and is"
            f" {found}; replay the match to see where it first differs"
        )
