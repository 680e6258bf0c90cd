"""Goes through recorded matches again and compares, version by version.

Compared are the legality of every action, the state's hash, every seat's view, the bytes of every
request, every draw and what it chose, the choice that an agent's policy makes of the recorded
probabilities, forced actions, returns and the end. Answers come from the log; no model is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_process
import msgspec

from games.base import Game
from games.registry import RECORDED, load_recorded
from runtime.compare import Pair, compare_event, compare_truth
from runtime.errors import ReplayDiffers, WorkerFailed, first_of
from runtime.fold import Fold, begin
from runtime.recordings import Lost, open_recordings
from store.errors import CorruptLog
from store.events import MatchStarted
from store.log import Recorded

SHARES = 4
"""How many parts of a file each process gets at least, so that none waits long for the last."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was recorded.

    Attributes:
        version: The event in which it shows.
        field: The event's field, `views[1]` for one seat's view, `event` for an event that cannot
            come here, `version` for one that is missing, `log` for a damaged record.
        expected: What the record says, or what a whole record would say.
        found: What there is now.
    """

    match: str
    version: int
    field: str
    expected: str
    found: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One match gone through; one that has not `ended` can be resumed.

    A `session` of a server's client, whose turns are its requests, never ends.
    """

    match: str
    turns: int
    ended: bool
    session: bool
    differences: tuple[Difference, ...]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """Many matches gone through; the `sessions` among them are never `unfinished`."""

    matches: int
    turns: int
    unfinished: int
    sessions: int
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def replay_match(recorded: Sequence[Recorded], *, game: Game | None = None) -> Replayed:
    """Go through one match again.

    The comparison ends with the first version that differs: what comes after follows from it.

    Args:
        recorded: Its events from version 0; it need not have ended.
        game: The rules; None loads the game that the match names.

    Raises:
        GamesError: The game is not known here.
    """
    match = recorded[0].match
    fold, differences = _walk(recorded, game)
    return Replayed(
        match=match,
        turns=0 if fold is None else fold.turn,
        ended=fold is not None and fold.ended is not None,
        session=fold is not None and fold.started.game in RECORDED,
        differences=tuple(differences),
    )


def refold(recorded: Sequence[Recorded], *, game: Game) -> Fold:
    """Give the fold after all events of a match.

    Raises:
        ReplayDiffers: With this code they do not lead to where they led.
    """
    fold, differences = _walk(recorded, game)
    if differences:
        first = differences[0]
        raise ReplayDiffers(
            f"match {first.match}, version {first.version}: {first.field} was {first.expected} and"
            f" is {first.found}; go on with the code that recorded the match"
        )
    assert fold is not None
    return fold


async def replay_file(
    path: Path,
    *,
    match: str | None = None,
    processes: int = 1,
    on_replayed: Callable[[int], None] | None = None,
) -> ReplayReport:
    """Go through the matches of a log or of a portable file.

    Args:
        path: A log, or a file whose name ends in `.jsonl` or `.jsonl.zst`.
        match: The only match to take; None takes all.
        processes: How many share the work. The report is the same for any number.
        on_replayed: Called with the number of matches that were gone through since the last call.

    Raises:
        UnknownMatch: There is no such match.
        StoreError: The file cannot be read at all.
        GamesError: A game is not known here.
        WorkerFailed: One of several processes was ended from outside.
    """
    if match is not None:
        return await _replay_one(path, match)
    replayed = on_replayed or _unseen
    if processes == 1:
        return (await _replay_range(path, 0, sys.maxsize, replayed)).report
    async with open_recordings(path) as recordings:
        count, cap = recordings.count(), recordings.most_at_once
    share = max(1, min(cap, -(-count // (processes * SHARES))))
    # One more than there are: the last look finds what a file has behind its last match.
    starts = iter(range(0, count + 1, share))
    limiter = anyio.CapacityLimiter(processes)
    parts: dict[int, _Part] = {}

    async def work() -> None:
        for start in starts:
            parts[start] = part = await _replay_elsewhere(path, start, start + share, limiter)
            replayed(part.report.matches)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(processes):
                group.start_soon(work)
    except ExceptionGroup as failed:
        raise first_of(failed) from None
    return reduce(_Part.plus, (parts[start] for start in sorted(parts))).report


def _unseen(_matches: int) -> None:
    """Show nobody how far it is."""


class _Part(msgspec.Struct, frozen=True):
    """What some matches of a file came to; nothing behind a `last` part can be read."""

    report: ReplayReport = ReplayReport(
        matches=0, turns=0, unfinished=0, sessions=0, differences=()
    )
    last: bool = False

    def plus(self, after: _Part) -> _Part:
        """Add the part that follows."""
        if self.last:
            return self
        one, two = self.report, after.report
        report = ReplayReport(
            matches=one.matches + two.matches,
            turns=one.turns + two.turns,
            unfinished=one.unfinished + two.unfinished,
            sessions=one.sessions + two.sessions,
            differences=one.differences + two.differences,
        )
        return _Part(report, after.last)

    def with_match(self, replayed: Replayed, *, last: bool = False) -> _Part:
        """Add one match."""
        report = ReplayReport(
            matches=1,
            turns=replayed.turns,
            unfinished=int(not (replayed.ended or replayed.session)),
            sessions=int(replayed.session),
            differences=replayed.differences,
        )
        return self.plus(_Part(report, last))


async def _replay_one(path: Path, match: str) -> ReplayReport:
    async with open_recordings(path) as recordings:
        try:
            replayed = replay_match(recordings.read(match))
        except CorruptLog as damage:
            replayed = _lost(damage)
    return _Part().with_match(replayed).report


async def _replay_elsewhere(
    path: Path, start: int, stop: int, limiter: anyio.CapacityLimiter
) -> _Part:
    try:
        data = await anyio.to_process.run_sync(
            _replay_there, path, start, stop, cancellable=True, limiter=limiter
        )
    except anyio.BrokenWorkerProcess as error:
        raise WorkerFailed(
            f"{path}: the process that replayed matches {start} to {stop} ended; run it again,"
            " or with --processes 1"
        ) from error
    return msgspec.msgpack.decode(data, type=_Part)


def _replay_there(path: Path, start: int, stop: int) -> bytes:
    return msgspec.msgpack.encode(anyio.run(_replay_range, path, start, stop, _unseen))


async def _replay_range(
    path: Path, start: int, stop: int, on_replayed: Callable[[int], None]
) -> _Part:
    games: dict[str, Game] = {}
    part = _Part()
    async with open_recordings(path) as recordings:
        for recorded in recordings.range(start, stop):
            if isinstance(recorded, Lost):
                part = part.with_match(_lost(recorded.damage), last=recorded.last)
            else:
                part = part.with_match(replay_match(recorded, game=_game(recorded[0], games)))
            on_replayed(1)
            await anyio.lowlevel.checkpoint()  # so that it can be interrupted
    return part


def _lost(damage: CorruptLog) -> Replayed:
    difference = _difference(damage.match, damage.version, "log", "undamaged", damage.what)
    return Replayed(
        match=damage.match, turns=0, ended=True, session=False, differences=(difference,)
    )


def _game(first: Recorded, games: dict[str, Game]) -> Game | None:
    """Load each game of a log once."""
    if not isinstance(first.event, MatchStarted):
        return None
    name = first.event.game
    if name not in games:
        games[name] = load_recorded(name)
    return games[name]


def _walk(recorded: Sequence[Recorded], game: Game | None) -> tuple[Fold | None, list[Difference]]:
    """Fold the events up to the first one that differs."""
    fold: Fold | None = None
    factors: tuple[str, ...] = ()
    for each in recorded:
        version = 0 if fold is None else fold.next_version
        if each.version != version:
            pairs: list[Pair] = [("version", version, each.version)]
        elif fold is not None:
            after, pairs = compare_event(fold, each.event, factors=factors)
            fold = after or fold
        elif isinstance(each.event, MatchStarted):
            rules = game or load_recorded(each.event.game)
            factors = rules.facts.factors
            fold, pairs = _begin(each.match, each.event, rules)
        else:
            pairs = [("event", "match_started", str(each.event.__struct_config__.tag))]
        if pairs:
            return fold, [_difference(each.match, version, *pair) for pair in pairs]
    return fold, []


def _begin(match: str, started: MatchStarted, game: Game) -> tuple[Fold, list[Pair]]:
    state = game.start(seats=len(started.seats), seed=started.seed)
    facts = game.facts
    pairs = [
        ("game", started.game, facts.id),
        ("rules_version", started.rules_version, facts.rules_version),
        ("layout_version", started.layout_version, facts.layout_version),
        *compare_truth(state, started, len(started.seats)),
    ]
    return begin(match, started, state), [pair for pair in pairs if pair[1] != pair[2]]


def _difference(match: str, version: int, field: str, expected: Any, found: Any) -> Difference:
    return Difference(
        match=match, version=version, field=field, expected=_show(expected), found=_show(found)
    )


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
