from __future__ import annotations

from functools import cache

import pytest

from games import BadGameParameters, IllegalAction, Option, State, load_game
from games.tictactoe import CELLS, TicTacToeState

GAME = load_game("tictactoe")


def after(*actions: str) -> State:
    state = GAME.start(seats=2, seed=0)
    for action in actions:
        state = state.apply(action)
    return state


def described(state: State) -> dict[str, str | None]:
    return {option.id: option.description for option in state.options()}


def test_the_whole_tree_has_the_known_size():
    positions: dict[bytes, State] = {}

    @cache
    def games(board: bytes) -> tuple[int, int, int, int]:
        """Give how many games go on from here: all, won by X, won by O, drawn."""
        state = positions[board]
        if state.actor is None:
            won = state.returns()[0]
            return (1, int(won > 0), int(won < 0), int(won == 0))
        children = [state.apply(option.id) for option in state.options()]
        positions.update((child.encode(), child) for child in children)
        counts = [games(child.encode()) for child in children]
        return tuple(map(sum, zip(*counts, strict=True)))  # pyright: ignore[reportReturnType]

    start = GAME.start(seats=2, seed=0)
    positions[start.encode()] = start
    assert games(start.encode()) == (255_168, 131_184, 77_904, 46_080)
    assert len(positions) == 5_478
    assert sum(state.actor is None for state in positions.values()) == 958


def test_descriptions_tell_what_can_be_computed():
    # X X .
    # O O .
    # . . .
    assert described(after("top-left", "left", "top", "centre")) == {
        "top-right": "wins at once",
        "right": "stops three O",
        "bottom-left": "lets O win at once",
        "bottom": "lets O win at once",
        "bottom-right": "lets O win at once",
    }
    assert set(described(after()).values()) == {None}


def test_one_cell_can_win_and_stop():
    # X . X
    # O O .
    # . . .   and X to move; then O with the same row open
    state = after("top-left", "left", "top-right", "centre", "bottom")
    assert described(state)["right"] == "wins at once"
    assert described(state)["top"] == "stops three X"


def test_views_grow_by_one_line_a_turn_and_end_with_the_board():
    state = after("centre", "top-left")
    first, second = state.view(0), state.view(1)
    assert first.public == second.public
    assert first.public.endswith("MOVES\nX: centre\nO: top-left\n")
    assert first.private == "\nBOARD\nO . .\n. X .\n. . .\nYou play X.\n"
    assert second.private.endswith("You play O.\n")
    (question,) = state.questions()
    assert question.instructions == "Where should X play now?"
    assert question.options == state.options()


@pytest.mark.parametrize("line", [("top-left", "top", "top-right"), ("top", "centre", "bottom")])
def test_three_in_a_line_end_the_match(line: tuple[str, str, str]):
    a, b, c = line
    others = [cell for cell in CELLS if cell not in line][-2:]
    state = after(a, others[0], b, others[1], c)
    assert (state.actor, state.returns()) == (None, (1.0, -1.0))
    assert state.options() == state.outcomes() == state.questions() == ()
    with pytest.raises(IllegalAction, match="legal: none"):
        state.apply("right")


def test_the_state_names_who_is_to_act_at_each_ply():
    state = GAME.start(seats=2, seed=0)
    actions: list[str] = []
    for action in ("top", "centre", "left", "right", "bottom"):
        actions.append(action)
        state = state.apply(action)
        again = after(*actions)
        assert (again.encode(), again.actor) == (state.encode(), state.actor)
        assert state.encode().endswith(str(state.actor).encode())
        assert again.options() == state.options()


def test_a_label_that_is_not_offered_costs_no_turn():
    state = after("centre")
    before = state.encode(), state.view(0), state.view(1)
    for action in ("centre", "center", "", "4", "CENTRE"):
        with pytest.raises(IllegalAction, match="not a legal action here; legal: 'top-left'"):
            state.apply(action)
    assert (state.encode(), state.view(0), state.view(1)) == before
    assert state.apply("top").actor == 0


def test_states_cannot_be_changed():
    state = after("centre")
    assert isinstance(state, TicTacToeState)
    with pytest.raises(AttributeError):
        state.cells = "XXXXXXXXX"  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(state.options()[0], Option)


def test_two_seats():
    with pytest.raises(BadGameParameters, match="2 seats, not 3"):
        GAME.start(seats=3, seed=0)
