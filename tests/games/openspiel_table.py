"""Tries every game that OpenSpiel registers and writes the table of `docs/openspiel.md`.

`python -m tests.games.openspiel_table` tries them and writes the table; with `--json` it prints the
rows instead. Each game is tried in a process of its own, because some end it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import open_spiel.python.games  # noqa: F401  registers those written in Python
import pyspiel

from games import GamesError, load_game
from games.testing import check

PAGE = Path(__file__).parents[2] / "docs" / "openspiel.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
SECONDS = 120  # for one game

POKER = (
    "universal_poker(betting=nolimit,numPlayers=2,numRounds=2,blind=100 50,numSuits=4,numRanks=6,"
    "numHoleCards=1,numBoardCards=0 1,stack=1000 1000)"
)
EXAMPLES = {
    "add_noise": "add_noise(epsilon=0.1,game=kuhn_poker(),seed=1)",
    "cached_tree": "cached_tree(game=kuhn_poker())",
    "efg_game": "efg_game(filename=FILE)",
    "misere": "misere(game=tic_tac_toe())",
    "nfg_game": "nfg_game(filename=FILE)",
    "normal_form_extensive_game": "normal_form_extensive_game(game=kuhn_poker())",
    "repeated_game": "repeated_game(stage_game=matrix_pd(),num_repetitions=3)",
    "repeated_poker": "repeated_poker(max_num_hands=2,reset_stacks=True,rotate_dealer=True,"
    f"universal_poker_game_string={POKER})",
    "restricted_nash_response": "restricted_nash_response(game=kuhn_poker())",
    "start_at": "start_at(game=tic_tac_toe(),history=0;1)",
    "turn_based_simultaneous_game": "turn_based_simultaneous_game(game=goofspiel())",
    "zerosum": "zerosum(game=kuhn_poker())",
}
"""What stands for a game that nobody can load by its name alone."""

FILES = {
    "efg_game": 'EFG 2 R "One of two" { "A" "B" } ""\n\n'
    'p "" 1 1 "" { "left" "right" } 0\nt "" 1 "" { 1, -1 }\nt "" 2 "" { -1, 1 }\n',
    "nfg_game": 'NFG 1 R "Pennies" { "A" "B" } { 2 2 }\n\n1 -1 -1 1 -1 1 1 -1\n',
}


class Row(msgspec.Struct, frozen=True):
    """What became of one game; `refused` is why it cannot be played, else None."""

    name: str
    example: str
    kind: str
    seats: str = ""
    most_options: int = 0
    refused: str | None = None


def rows(*, seeds: int, most_turns: int) -> list[Row]:
    found: list[Row] = []
    for kind in sorted(pyspiel.registered_games(), key=lambda kind: kind.short_name):
        example = EXAMPLES.get(kind.short_name, kind.short_name)
        found.append(_alone(Row(kind.short_name, example, _kind(kind)), seeds, most_turns))
    return found


def table(found: list[Row]) -> str:
    count = Counter(row.refused is None for row in found)
    lines = [
        f"Of {len(found)} games, {count[True]} can be played and {count[False]} cannot.",
        "",
        "| game | kind | seats | most options | |",
        "| --- | --- | --- | ---: | --- |",
    ]
    for row in found:
        name = f"`{row.name}`" if row.example == row.name else f"`{row.example}`"
        verdict = "yes" if row.refused is None else f"no: {row.refused}"
        most = str(row.most_options or "")
        lines.append(f"| {name} | {row.kind} | {row.seats} | {most} | {verdict} |")
    return "\n".join(lines)


def page_with(found: list[Row]) -> str:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}"


def _kind(kind: Any) -> str:
    words = {
        "SIMULTANEOUS": "at once",
        "MEAN_FIELD": "mean field",
        "PERFECT_INFORMATION": "open",
        "IMPERFECT_INFORMATION": "hidden",
        "ONE_SHOT": "hidden",
        "EXPLICIT_STOCHASTIC": "chance",
        "SAMPLED_STOCHASTIC": "chance",
    }
    parts = (kind.information.name, kind.chance_mode.name, kind.dynamics.name)
    return ", ".join(words[part] for part in parts if part in words)


def _alone(row: Row, seeds: int, most_turns: int) -> Row:
    """Try a game in a child process; what ends the child is what the row then says."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        try:
            data = msgspec.json.encode(_tried(row, seeds, most_turns))
        except BaseException as error:  # the parent has to hear of it, whatever it is
            data = msgspec.json.encode(msgspec.structs.replace(row, refused=repr(error)))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(child, 0)[1]
    if not data:
        return msgspec.structs.replace(row, refused=f"it ended the process, status {status}")
    return msgspec.json.decode(data, type=Row)


def _tried(row: Row, seeds: int, most_turns: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / row.name
        file.write_text(FILES.get(row.name, ""))
        try:
            game = load_game(f"openspiel:{row.example}".replace("FILE", str(file)))
            check(game, seeds=seeds, limit=20, most_turns=most_turns)
        except GamesError as error:
            return msgspec.structs.replace(row, refused=str(error).partition(": ")[2])
    facts = game.facts
    return msgspec.structs.replace(
        row, seats=str(facts.max_seats), most_options=min(facts.max_options, 10**6)
    )


def main(arguments: list[str]) -> None:
    seeds, most_turns = (int(each) for each in arguments[-2:])
    found = rows(seeds=seeds, most_turns=most_turns)
    if "--json" in arguments:
        sys.stdout.write(msgspec.json.encode(found).decode())
    else:
        PAGE.write_text(page_with(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
