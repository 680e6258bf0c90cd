"""Writes the golden texts: all that one match of each game shows, turn by turn.

`python -m tests.golden.regenerate` writes them all anew. Read the difference before you commit it:
a changed text needs a new `layout_version`, a changed rule a new `rules_version`.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from games import CHANCE, State, load_game
from games.registry import BUILT_IN

FOLDER = Path(__file__).parent
GAMES = (
    *BUILT_IN,
    "openspiel:connect_four",
    "openspiel:leduc_poker",
    "openspiel:goofspiel(num_cards=3)",
    "openspiel:chess(fen=6k1/4P1P1/6K1/8/8/8/8/8 w - - 0 1)",
    "pettingzoo:classic/connect_four-v3",
)


def path_of(game: str) -> Path:
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '_', game.lower()).strip('_')}.txt"


def playthrough(game: str, *, seed: int = 0) -> str:
    """Play at random and tell everything; of a public text only what it has gained."""
    rules = load_game(game)
    facts = msgspec.structs.asdict(rules.facts)
    lines = [*(f"{name}: {value!r}" for name, value in facts.items()), f"seed: {seed}"]
    state = rules.start(seats=rules.facts.max_seats, seed=seed)
    source = random.Random(seed)
    told = turn = 0
    while True:
        lines.extend(("", f"TURN {turn}"))
        lines.extend(_shown(state, rules.facts.max_seats, told))
        labels = [each.id for each in state.options() or state.outcomes()]
        if state.actor is None:
            return "\n".join(lines) + "\n"
        action = labels[int(source.random() * len(labels))]
        lines.append(f"ACTION {action!r}")
        told = len(state.view(0).public)
        state = state.apply(action)
        turn += 1


def _shown(state: State, seats: int, told: int) -> Iterator[str]:
    yield f"actor: {'chance' if state.actor == CHANCE else state.actor}"
    yield f"state: {state.encode().decode()}"
    yield f"returns: {state.returns()}"
    views = [state.view(seat) for seat in range(seats)]
    yield f"public text, epoch {views[0].epoch}, from character {told}:"
    yield _quoted(views[0].public[told:])
    for seat, view in enumerate(views):
        yield f"private text of seat {seat}:"
        yield _quoted(view.private)
    for outcome in state.outcomes():
        yield f"outcome {outcome.id!r}, weight {outcome.weight:g}"
    for question in state.questions():
        yield f"question {question.id!r}, {question.type}: {question.instructions}"
        for option in question.options:
            yield f"  {option.id!r}: {option.description}"


def _quoted(text: str) -> str:
    return textwrap.indent(text, "| ", lambda line: True).rstrip("\n")


if __name__ == "__main__":
    for name in GAMES:
        path_of(name).write_text(playthrough(name), encoding="utf-8")
