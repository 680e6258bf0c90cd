"""Takes matches that were recorded elsewhere into a log: chess games of PGN, poker hands of PHH.

Each becomes a match of its own, played again by the game's rules and recorded with every state's
hash, so that it replays like one that was played here. Its id is made of what is recorded: the same
match again, from whatever file, is left alone. A match in which something is wrong is not taken
over, and the others are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import IO

import msgspec

from games.adapters.chess_record import read_games
from games.adapters.poker_record import read_hands
from games.base import CHANCE
from games.errors import BadRecord
from games.records import Record
from games.records.pgn_text import split_lines
from games.registry import load_game
from runtime.errors import BadInput
from runtime.fold import state_hash, view_hashes
from runtime.table import Terms
from store.errors import VersionConflict
from store.events import ChanceDrawn, Event, MatchEnded, MatchStarted, Source, TurnTaken
from store.files import reading
from store.log import EventLog

RECORDED = "recorded:"
"""What the name of a seat begins with whose player is not an agent of this project."""

CHESS = (".pgn", ".pgn.zst")
POKER = (".phh", ".phhs", ".phh.zst", ".phhs.zst")

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What a file came to.

    Attributes:
        imported: How many matches are new in the log.
        present: How many it had already.
        faults: Why each of the others was not taken over.
    """

    imported: int
    present: int
    faults: tuple[BadRecord, ...]


async def import_records(
    log: EventLog, path: Path, *, on_match: Callable[[], None] | None = None
) -> Imported:
    """Add the matches of a file to a log; each is there whole or not at all.

    Args:
        log: Where they go.
        path: A file whose name ends in one of `CHESS` or `POKER`.
        on_match: Called after each match of the file.

    Raises:
        BadInput: The file is no text, or holds no match.
        StoreError: It cannot be read, or the log cannot be written.
        UnsupportedGame: The library that knows the game's rules is missing.
    """
    imported = present = 0
    faults: list[BadRecord] = []
    for record in read_records(path):
        try:
            if isinstance(record, BadRecord):
                raise record
            match, events = play(record, file=path.name)
        except BadRecord as fault:
            faults.append(fault)
        else:
            try:
                await log.append(match, events, expected=0)
                imported += 1
            except VersionConflict:
                present += 1
        if on_match is not None:
            on_match()
    return Imported(imported=imported, present=present, faults=tuple(faults))


def read_records(path: Path) -> Generator[Record | BadRecord, None, None]:
    """Give the matches of a file in order, and why for each that cannot be read.

    Raises:
        BadInput: It is no text, or holds none.
        StoreError: It cannot be read.
    """
    found = False
    for record in _records(path):
        found = True
        yield record
    if not found:
        raise BadInput(f"{path} holds no match; name a file with PGN or PHH in it")


def _records(path: Path) -> Iterator[Record | BadRecord]:
    with reading(path) as file:
        if path.name.endswith(CHESS):
            yield from read_games(_lines(path, file))
        else:
            try:
                text = file.read().decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"{path}: byte {error.start} is not UTF-8; save it as UTF-8"
                ) from error
            yield from read_hands("\n".join(split_lines(text)))


def play(record: Record, *, file: str) -> tuple[str, list[Event]]:
    """Play a record by the rules; give the match's id and its events.

    Raises:
        BadRecord: It is not legal, or ends otherwise than it says.
    """
    game = load_game(record.game)
    seats = len(record.names)
    state = game.start(seats=seats, seed=0)
    facts, terms = game.facts, Terms()
    events: list[Event] = [
        MatchStarted(
            game=facts.id,
            rules_version=facts.rules_version,
            layout_version=facts.layout_version,
            seats=tuple(f"{RECORDED}{name}" for name in record.names),
            seed=0,
            fallback=terms.fallback,
            overflow=facts.overflow,
            deadline_s=terms.deadline_s,
            window=None,
            state_hash=state_hash(state),
            views=view_hashes(state, seats),
            source=Source(
                format=record.format, file=file, number=record.number, tags=dict(record.tags)
            ),
        )
    ]
    labels: list[str] = []
    for turn in count():
        label = record.label(state, turn)
        if label is None:
            break
        labels.append(label)
        actor, forced = state.actor, len(state.options()) == 1
        state = state.apply(label)
        truth, views = state_hash(state), view_hashes(state, seats)
        if actor == CHANCE:
            event = ChanceDrawn(outcome=label, draw=None, state_hash=truth, views=views)
        else:
            event = TurnTaken(
                seat=actor or 0,
                action=label,
                how="forced" if forced else "agent",
                state_hash=truth,
                views=views,
            )
        events.append(event)
    reason = record.finish(state)
    end = "truncated" if reason else "terminated"
    events.append(MatchEnded(end=end, returns=state.returns(), reason=reason))
    what = [facts.id, record.names, labels, sorted(record.tags.items())]
    return f"{record.format}-{hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]}", events


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    """Give a PGN file's lines: in UTF-8, or in Latin-1 as the standard has it."""
    for number, raw in enumerate(file):
        if number == 0 and raw.startswith(_UTF16):
            raise BadInput(f"{path}: it is in UTF-16; save it as UTF-8")
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line = raw.decode("latin-1")
        yield from split_lines(line.removesuffix("\n").removesuffix("\r"))
