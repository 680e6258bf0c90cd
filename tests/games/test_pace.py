from __future__ import annotations

from benchmarks.games import our_steps, ratio, their_steps


def test_tictactoe_takes_at_least_as_many_steps_as_openspiels_in_python():
    assert ratio(our_steps("tictactoe"), their_steps("python_tic_tac_toe"), seconds=0.1) >= 1
