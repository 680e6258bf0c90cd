"""Writes matches of a log as other programs read them: chess as PGN, hold'em as PHH."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from games.adapters.chess_record import result_of, write_game
from games.adapters.poker_write import write_hand
from games.base import CHANCE, State
from games.layouts import split_layouts
from games.registry import load_game
from runtime.errors import BadInput
from runtime.imports import CHESS, POKER, RECORDED
from store.events import ChanceDrawn, EpochStarted, MatchStarted, TurnTaken
from store.files import replacing
from store.log import EventLog, Recorded

Format = Literal["pgn", "phh"]

GAMES: dict[Format, re.Pattern[str]] = {
    "pgn": re.compile(r"openspiel:chess(\(.*\))?"),
    "phh": re.compile(r"holdem(\(.*\))?"),
}
"""Of which games a file of the format can hold matches."""


class Written(NamedTuple):
    """How many matches were written, and how many were left out because they are of other games."""

    exported: int
    others: int


def format_of(path: Path) -> Format | None:
    """Give the format that a file's name stands for; None for none of these."""
    return "pgn" if path.name.endswith(CHESS) else "phh" if path.name.endswith(POKER) else None


def export_records(
    log: EventLog, path: Path, format: Format, matches: Sequence[str] | None = None
) -> Written:
    """Write matches of a log to a file, whole or not at all.

    Args:
        log: Where they are.
        path: An older one is replaced.
        format: What to write.
        matches: Ids; None for all that are of the format's games.

    Raises:
        BadInput: A match that was named is of another game, or there is none to write, or a file
            of one hand would have to hold more.
        UnknownMatch: An id is not in the log.
        CorruptLog: A match is damaged.
        GamesError: A match's rules are not known here, or forbid what was recorded.
        LogUnavailable: The file cannot be written.
    """
    fits = {each.match: GAMES[format].fullmatch(each.game) is not None for each in log.matches()}
    chosen = matches or [match for match, fit in fits.items() if fit]
    for match in chosen:
        if not fits.get(match, True):  # reading it says that it is unknown
            raise BadInput(f"match {match} is not of a game that {format} holds; leave it out")
    if not chosen:
        raise BadInput(f"the log has no match of a game that {format} holds; export to .jsonl")
    headed = format == "phh" and ".phhs" in path.name
    if format == "phh" and not headed and len(chosen) > 1:
        raise BadInput(f"{path} holds one hand and there are {len(chosen)}; name it .phhs")
    with replacing(path) as file:
        for number, match in enumerate(chosen, start=1):
            text = _text(format, log.read(match))
            file.write((f"[{number}]\n{text}\n" if headed else text).encode())
    return Written(len(chosen), 0 if matches else len(fits) - len(chosen))


def _text(format: Format, recorded: Sequence[Recorded]) -> str:
    started = recorded[0].event
    assert isinstance(started, MatchStarted)  # no log takes another first event
    names = [name.removeprefix(RECORDED) for name in started.seats]
    day = datetime.fromtimestamp(recorded[0].at_ms / 1000, UTC)
    source = started.source
    states = list(_states(recorded, started))
    last = states[-1]
    if format == "phh":
        own = {"event": recorded[0].match} | {
            name: str(getattr(day, name)) for name in ("day", "month", "year")
        }
        return write_hand(last, names, own if source is None else source.tags)
    own = {"Event": recorded[0].match, "Date": f"{day:%Y.%m.%d}"}
    tags = own if source is None else source.tags
    result = tags.get("Result", "*") if last.actor is not None else result_of(last.returns())
    moves = [each.event.action for each in recorded if isinstance(each.event, TurnTaken)]
    start = next(state for state in states if state.actor != CHANCE)
    return write_game(start, moves, names, tags, result)


def _states(recorded: Sequence[Recorded], started: MatchStarted) -> Iterator[State]:
    told_alike = split_layouts(started.game)[0]  # layouts change no action
    state = load_game(told_alike).start(seats=len(started.seats), seed=started.seed)
    yield state
    for each in recorded:
        match each.event:
            case TurnTaken() as event:
                state = state.apply(event.action)
            case ChanceDrawn() as event:
                state = state.apply(event.outcome)
            case EpochStarted():
                state = state.rebase()
            case _:
                continue
        yield state
