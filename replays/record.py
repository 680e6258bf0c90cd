"""Records the matches of this folder: `python replays/record.py` writes them all again.

A file at the top has to replay without a difference for as long as its game has the rules and the
layout version that it names. What is in `must_fail` a replay has to catch; the differences that it
has to find stand beside each file.

Times are written as zero, so that the same code writes the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import anyio
import msgspec

from engine.client import Engine
from engine.embedded import embedded
from engine.models import open_model
from games import kuhn_poker, load_game, tictactoe
from games.errors import BadRecord
from runtime.agents import make_agent
from runtime.imports import play as play_record
from runtime.imports import read_records
from runtime.match import Match
from runtime.replay import replay_match
from runtime.table import Seat, Table, Terms
from runtime.tally import Tally
from store.chain import GENESIS, link
from store.codec import encode
from store.events import SCHEMA, DecisionAnswered, Event
from store.export import export_matches
from store.log import Recorded, Stored
from store.memory import MemoryLog

FOLDER = Path(__file__).parent
MUST_FAIL = FOLDER / "must_fail"

SOUND = "mock:seed=1"
FAULTY = "mock:seed=1,fail=0.4"
SEED_DIAGONAL = 1
MATCHES = {
    SOUND: {
        "tictactoe": ("tictactoe", ["decision:temperature=0.8", "random"]),
        "kuhn_poker": ("kuhn_poker", ["decision", "decision:floor=0.3"]),
        "expedition": ("expedition(rules=short,size=small)", ["decision"]),
        "expedition_full": ("expedition", ["random"]),
        "holdem": ("holdem", ["decision", "random", "decision:temperature=0.8"]),
        "connect_four": ("openspiel:connect_four", ["decision", "random"]),
    },
    FAULTY: {"faults": ("tictactoe", ["decision", "decision"])},
}
"""Name, game and agents of each match, by the model that its decision agents ask."""

RECORDS = {
    "imported_chess": (
        "match.pgn",
        """\
[Event "Chess960"]
[White "first"]
[Black "second"]
[Result "1-0"]
[Variant "Chess960"]
[FEN "1r3k1r/pppppppp/8/8/8/8/PPPPPPPP/1R3K1R w HBhb - 0 1"]

1. O-O O-O-O {both ways} 2. e4 (2. d4 d5) e5 3. f4 exf4 4. Rxf4 1-0
""",
    ),
    "imported_hand": (
        "hand.phh",
        """\
variant = 'NT'
antes = [0, 0, 0]
blinds_or_straddles = [1, 2, 0]
min_bet = 2
starting_stacks = [20, 50, 100]
actions = ['d dh p1 AhAs', 'd dh p2 KhKs', 'd dh p3 QhQs', 'p3 cbr 100', 'p1 cc', 'p2 cc',
  'd db 2c7d9h', 'd db Js', 'd db 3c']
finishing_stacks = [60, 60, 50]
""",
    ),
}
"""Matches of other programs: name and content of a file."""


async def play(
    log: MemoryLog,
    name: str,
    game: str,
    agents: Sequence[str],
    *,
    engine: Engine | None = None,
    seed: int = 1,
) -> list[Event]:
    """Play one match and give its events."""
    table = Table(
        log=log,
        game=load_game(game),
        seats=tuple(Seat(agent, make_agent(agent)) for agent in agents),
        engine=engine,
        terms=Terms(fallback="random"),
        tally=Tally(),
    )
    await Match.new(table, name, seed=seed).run()
    return [each.event for each in log.read(name)]


async def write(folder: Path, name: str, events: Sequence[Event]) -> list[Recorded]:
    """Write events as a file of one match, without times, and give what it holds."""
    stored: list[Stored] = []
    digest = GENESIS
    for version, event in enumerate(events):
        if isinstance(event, DecisionAnswered):
            event = msgspec.structs.replace(event, queue_ms=0.0, engine_ms=0.0, total_ms=0.0)
        payload = encode(event)
        digest = link(digest, name.encode(), version, SCHEMA, 0, payload)
        stored.append(Stored(version, SCHEMA, 0, digest, payload))
    log = MemoryLog()
    await log.restore(name, stored)
    export_matches(log, folder / f"{name}.jsonl")
    return log.read(name)


async def write_imported(folder: Path) -> None:
    """Import the matches of other programs and write them."""
    with tempfile.TemporaryDirectory() as home:
        for name, (file, text) in RECORDS.items():
            path = Path(home) / file
            path.write_text(text)
            [record] = read_records(path)
            assert not isinstance(record, BadRecord), record
            await write(folder, name, play_record(record, file=file)[1])


async def write_failing(name: str, events: Sequence[Event]) -> None:
    """Write events that do not replay, and the differences beside them."""
    replayed = replay_match(await write(MUST_FAIL, name, events))
    assert replayed.differences, f"{name} replays; record another match"
    differences = msgspec.json.format(msgspec.json.encode(replayed.differences), indent=2)
    (MUST_FAIL / f"{name}.differences.json").write_bytes(differences + b"\n")


async def changed_rule() -> list[Event]:
    """Play by a rule that is no longer so: a diagonal did not win, and play went on."""
    with patch.object(tictactoe, "LINES", tictactoe.LINES[:6]):
        _forget_lines()
        events = await play(
            MemoryLog(), "changed_rule", "tictactoe", ["random", "random"], seed=SEED_DIAGONAL
        )
    _forget_lines()
    return events


def _forget_lines() -> None:
    tictactoe.winner.cache_clear()
    tictactoe._options.cache_clear()


async def changed_text() -> list[Event]:
    """Play with a text that is no longer so."""
    rules = kuhn_poker._RULES.replace("Two players.", "Two opponents.")
    with patch.object(kuhn_poker, "_RULES", rules):
        return await play(MemoryLog(), "changed_text", "kuhn_poker", ["random", "random"])


async def lost_event() -> list[Event]:
    """Leave a turn out; the chain is made for what is left, so that the file itself is sound."""
    events = await play(MemoryLog(), "lost_event", "tictactoe", ["random", "random"])
    del events[3]
    return events


async def main() -> None:
    """Write every file of this folder."""
    for spec, matches in MATCHES.items():
        log, model = MemoryLog(), open_model(spec)
        with tempfile.TemporaryDirectory() as home:
            async with embedded(model, home=Path(home), source=log.log_id) as engine:
                for name, (game, agents) in matches.items():
                    events = await play(log, name, game, agents, engine=engine)
                    await write(FOLDER, name, events)
    await write_imported(FOLDER)
    for failing in (changed_rule, changed_text, lost_event):
        await write_failing(failing.__name__, await failing())


if __name__ == "__main__":
    anyio.run(main)
