"""Goes through recorded matches again and compares, version by version.

Compared are the legality of every action, the state's hash, every seat's view, the bytes of every
request, every draw and what it chose, the choice that an agent's policy makes of the recorded
probabilities, forced actions, returns and the end. Answers come from the log; no model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from games.base import Game
from games.registry import load_game
from runtime.compare import Pair, compare_event, compare_truth
from runtime.errors import ReplayDiffers
from runtime.fold import Fold, begin
from store.errors import CorruptLog, UnknownMatch
from store.events import MatchStarted
from store.export import read_export
from store.log import EventLog, Recorded
from store.sqlite import open_log

EXPORTS = (".jsonl", ".jsonl.zst")


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
    """One match gone through; one that has not `ended` can be resumed."""

    match: str
    turns: int
    ended: bool
    differences: tuple[Difference, ...]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """Many matches gone through."""

    matches: int
    turns: int
    unfinished: int
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
    on_replayed: Callable[[Replayed], None] | None = None,
) -> ReplayReport:
    """Go through the matches of a log or of a portable file, one at a time.

    Args:
        path: A log, or a file whose name ends in `.jsonl` or `.jsonl.zst`.
        match: The only match to take; None takes all.
        on_replayed: Called after each match.

    Raises:
        UnknownMatch: There is no such match.
        StoreError: The file cannot be read at all.
        GamesError: A game is not known here.
    """
    log = None if path.name.endswith(EXPORTS) else open_log(path, read_only=True)
    try:
        source = _of_export(path, match) if log is None else _of_log(log, match)
        return _report(source, on_replayed)
    finally:
        if log is not None:
            await log.close()


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
            rules = game or load_game(each.event.game)
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


def _report(
    source: Iterator[list[Recorded] | CorruptLog],
    on_replayed: Callable[[Replayed], None] | None,
) -> ReplayReport:
    games: dict[str, Game] = {}
    matches = turns = unfinished = 0
    differences: list[Difference] = []
    for recorded in source:
        if isinstance(recorded, CorruptLog):
            replayed = _damaged(recorded)
        else:
            replayed = replay_match(recorded, game=_game(recorded[0], games))
        matches += 1
        turns += replayed.turns
        unfinished += not replayed.ended
        differences += replayed.differences
        if on_replayed is not None:
            on_replayed(replayed)
    return ReplayReport(
        matches=matches, turns=turns, unfinished=unfinished, differences=tuple(differences)
    )


def _damaged(damage: CorruptLog) -> Replayed:
    difference = _difference(damage.match, damage.version, "log", "undamaged", damage.what)
    return Replayed(match=damage.match, turns=0, ended=True, differences=(difference,))


def _game(first: Recorded, games: dict[str, Game]) -> Game | None:
    """Load each game of a log once."""
    if not isinstance(first.event, MatchStarted):
        return None
    name = first.event.game
    if name not in games:
        games[name] = load_game(name)
    return games[name]


def _of_log(log: EventLog, match: str | None) -> Iterator[list[Recorded] | CorruptLog]:
    """Give matches, and for each that is damaged the damage."""
    if match is not None:
        yield _read(log, match)
        return
    whole = 0
    try:
        for recorded in log.scan():
            yield recorded
            whole += 1
    except CorruptLog:  # the fast way ends there; go on one by one
        try:
            for summary in islice(log.matches(), whole, None):
                yield _read(log, summary.match)
        except CorruptLog as damage:  # of the list itself: what comes after cannot be found
            yield damage


def _read(log: EventLog, match: str) -> list[Recorded] | CorruptLog:
    try:
        return log.read(match)
    except CorruptLog as damage:
        return damage


def _of_export(path: Path, match: str | None) -> Iterator[list[Recorded] | CorruptLog]:
    found = False
    try:
        for recorded in read_export(path):
            if match is None or recorded[0].match == match:
                found = True
                yield recorded
    except CorruptLog as damage:  # where the next match starts is not known
        found = True
        yield damage
    if match is not None and not found:
        raise UnknownMatch(f"{path} has no match {match!r}; name one that it has")
