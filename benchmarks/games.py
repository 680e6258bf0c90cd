"""Steps a second of our games beside those of the libraries that have the same, in one run.

`python -m benchmarks.games`. A step is: which actions are legal, one of them at random, the state
after it. Views are not written in either.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import open_spiel.python.games  # noqa: F401  registers those written in Python
import pyspiel

from benchmarks.machine import machine_line
from games import load_game as ours

SECONDS = 1.0
ROUNDS = 5


def our_steps(game: str, *, seats: int = 2) -> Callable[[], int]:
    """Give what plays one match of ours and counts its steps."""
    rules, source = ours(game), random.Random(1)

    def play() -> int:
        state, steps = rules.start(seats=seats, seed=0), 0
        while state.actor is not None:
            labels = state.options() or state.outcomes()
            state, steps = state.apply(source.choice(labels).id), steps + 1
        return steps

    return play


def their_steps(game: str) -> Callable[[], int]:
    """Give what plays one match of OpenSpiel's and counts its steps."""
    rules, source = pyspiel.load_game(game), random.Random(1)

    def play() -> int:
        state: Any = rules.new_initial_state()
        steps = 0
        while not state.is_terminal():
            state.apply_action(source.choice(state.legal_actions()))
            steps += 1
        return steps

    return play


def rate(play: Callable[[], int], seconds: float = SECONDS) -> float:
    """Give steps a second."""
    started, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < seconds:
        steps += play()
    return steps / spent


def ratio(mine: Callable[[], int], theirs: Callable[[], int], *, seconds: float) -> float:
    """Give the best of several rounds, each beside the other: neighbours disturb both alike."""
    return max(rate(mine, seconds) / rate(theirs, seconds) for _ in range(ROUNDS))


PAIRS = (
    ("tictactoe", 2, "python_tic_tac_toe"),
    ("tictactoe", 2, "tic_tac_toe"),
    ("kuhn_poker", 2, "python_kuhn_poker"),
    ("openspiel:connect_four", 2, "connect_four"),
    ("holdem", 2, "python_pokerkit_wrapper"),
)


def main() -> None:
    """Print the table."""
    print(machine_line())
    print("| ours | steps/s | theirs | steps/s | ratio |\n| --- | ---: | --- | ---: | ---: |")
    for game, seats, other in PAIRS:
        mine, theirs = rate(our_steps(game, seats=seats)), rate(their_steps(other))
        print(f"| {game} | {mine:,.0f} | {other} | {theirs:,.0f} | {mine / theirs:.2f} |")


if __name__ == "__main__":
    main()
