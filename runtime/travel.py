"""Opens a recorded match at any version: its state, what each seat saw, what a decision asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.contract import encode_ask
from games.base import Game, View
from games.registry import load_recorded
from runtime.compare import compare_truth
from runtime.errors import BadInput, ReplayDiffers
from runtime.fold import Fold, advance, begin
from runtime.recordings import Recordings
from runtime.requests import Request, derive_again
from runtime.snapshots import MOVED, Keeper, Snapshots
from store.events import DecisionAnswered, DecisionFailed, DecisionRequested, MatchStarted
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
    home: Path | None = None,
) -> Moment:
    """Give a match just after the event at `version`.

    Args:
        recordings: Where it is.
        match: Its id.
        version: From 0.
        game: The rules; None loads the game that the match names.
        home: The data folder, which may have snapshots of the match and gets those that are
            missing on the way; None folds all events.

    Raises:
        UnknownMatch: There is no such match.
        BadInput: The match has no such version.
        ReplayDiffers: With this code the match does not come to the recorded state, views or
            request.
        CorruptLog: An event on the way is damaged.
        GamesError: The game is not known here, or its rules forbid what was recorded.
    """
    [first] = recordings.read(match, stop=1)
    fold, recorded = _nearest(recordings, first, version, home) or _start(
        recordings, first, version, game
    )
    moved = last = recorded[0]
    keeper = home and Keeper(home, fold, {0: first.hash, **_hashes(recorded)}.get)
    for last in recorded[1:]:
        fold = advance(fold, last.event)
        if isinstance(last.event, MOVED):
            moved = last
        if keeper:
            keeper.see(fold, last.event)
    state, seats = fold.state, len(fold.started.seats)
    assert isinstance(moved.event, MOVED)  # as the first event is, and that of every snapshot
    for pair in compare_truth(state, moved.event, seats):
        _check(moved, *pair)
    asked = request = None
    if isinstance(last.event, DecisionRequested | DecisionAnswered | DecisionFailed):
        asked = fold.asked[-1].request
        request = derive_again(state.view(asked.seat), asked)
        _check(last, "sha256", asked.sha256, request.sha256)
    views = tuple(map(state.view, range(seats)))
    return Moment(recorded=last, fold=fold, views=views, asked=asked, request=request)


def _nearest(
    recordings: Recordings, first: Recorded, version: int, home: Path | None
) -> tuple[Fold, list[Recorded]] | None:
    """Give the last sound snapshot, and the events from its last one up to `version`."""
    if home is None:
        return None
    for snapshot in Snapshots(home, first.hash).before(version):
        recorded = recordings.read(first.match, start=snapshot.version, stop=version + 1)
        if recorded and recorded[-1].version == version and snapshot.fits(recorded[0]):
            return snapshot.fold, recorded
    return None


def _start(
    recordings: Recordings, first: Recorded, version: int, game: Game | None
) -> tuple[Fold, list[Recorded]]:
    """Give the fold at a match's start, and its events up to `version`."""
    recorded = recordings.read(first.match, stop=version + 1)
    if not recorded or recorded[-1].version != version:
        end = recordings.read(first.match)[-1].version
        raise BadInput(
            f"match {first.match} has versions 0 to {end}, not {version}; name one of these"
        )
    started = first.event
    assert isinstance(started, MatchStarted)  # no log and no file takes another first event
    rules = game or load_recorded(started.game)
    state = rules.start(seats=len(started.seats), seed=started.seed)
    return begin(first.match, started, state), recorded


def _hashes(recorded: Sequence[Recorded]) -> dict[int, bytes]:
    return {each.version: each.hash for each in recorded}


def _check(recorded: Recorded, field: str, expected: object, found: object) -> None:
    if expected != found:
        raise ReplayDiffers(
            f"match {recorded.match}, version {recorded.version}: {field} was {expected} and is"
            f" {found}; replay the match to see where it first differs"
        )
