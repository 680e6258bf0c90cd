from __future__ import annotations

import hashlib

import msgspec
import pytest

from games import BadGameParameters, IllegalAction, load_game
from games.layouts import LaidOut, Layout, laid_out
from games.testing import check

PINNED = {
    ("tictactoe", "plain", 1): "edab9d20c3c72095",
    ("tictactoe", "bare", 1): "7b52110e7fba4e1e",
    ("kuhn_poker", "plain", 1): "b6ac4874b65e7278",
    ("holdem", "plain", 1): "354b303319a10bff",
    ("holdem", "bare", 1): "9e8dc77fabe32abc",
    ("kuhn_poker", "bare", 1): "234d5ccd82d105f2",
}
"""SHA-256 of each layout: a text that changes has to raise its version."""


def digest(layout: Layout) -> str:
    return hashlib.sha256(msgspec.json.encode(layout, order="sorted")).hexdigest()[:16]


@pytest.mark.parametrize("name", sorted({game for game, _, _ in PINNED}))
def test_texts_change_with_their_version_alone(name: str) -> None:
    game = load_game(name)
    assert isinstance(game, LaidOut)
    found = {
        (name, layout.name, layout.version): digest(layout) for layout in game.layouts.values()
    }
    assert found == {key: value for key, value in PINNED.items() if key[0] == name}


@pytest.mark.parametrize(
    "id", ["tictactoe(layout=bare)", "kuhn_poker(layout=bare)", "holdem(layout=bare,stack=9)"]
)
def test_every_layout_keeps_the_laws_of_games(id: str) -> None:
    assert load_game(id).facts.id == id
    assert check(load_game(id), seeds=4).matches == 4


def test_default_layout_is_the_game_itself() -> None:
    assert load_game("tictactoe(layout=plain)").facts == load_game("tictactoe").facts
    assert load_game("tictactoe(layout=bare+bare)").facts.id == "tictactoe(layout=bare)"


def test_layout_decides_what_options_say_and_nothing_else() -> None:
    plain, bare = load_game("tictactoe"), load_game("tictactoe(layout=bare)")
    one, two = plain.start(seats=2, seed=1), bare.start(seats=2, seed=1)
    for action in ("top-left", "left", "top", "centre"):
        one, two = one.apply(action), two.apply(action)
        assert [option.id for option in one.options()] == [option.id for option in two.options()]
        assert one.encode() == two.encode()
        assert one.view(0) == two.view(0)
    assert any(option.description for option in one.options())
    assert not any(option.description for option in two.options())


def test_seats_may_be_told_a_game_in_layouts_of_their_own() -> None:
    mixed = load_game("kuhn_poker(layout=plain+bare)")
    assert mixed.facts.id == "kuhn_poker(layout=plain+bare)"
    assert load_game(mixed.facts.id).facts == mixed.facts
    assert mixed.facts.layout_version == 2
    state = mixed.start(seats=2, seed=1)
    state = state.apply("King").apply("Jack")
    assert [option.description for option in state.options()] == [
        "put in nothing",
        "bet one more chip",
    ]
    assert state.questions()[0].options == state.options()
    state = state.apply("bet")
    assert [option.description for option in state.options()] == [None, None]
    assert "Your card is the King" in state.view(0).text
    assert "Your card is the Jack" in state.view(1).text
    with pytest.raises(IllegalAction):
        state.apply("fold")
    state = state.apply("bet")
    assert state.actor is None
    assert state.returns() == (2.0, -2.0)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("tictactoe(layout=odd)", "tictactoe has no layout 'odd'; it has plain, bare"),
        ("kuhn_poker(layout=plain+odd)", "kuhn_poker has no layout 'odd'"),
        ("tictactoe(layout=)", "has no layout ''"),
        (
            "tictactoe(layout=plain+bare+plain)",
            "has 2 to 2 seats, not 3 as layout=plain.bare.plain",
        ),
        ("expedition(layout=plain)", "not layout=plain"),
    ],
)
def test_layout_that_is_none_is_refused(id: str, message: str) -> None:
    with pytest.raises(BadGameParameters, match=message):
        load_game(id)


def test_id_of_a_layout_keeps_the_other_parameters() -> None:
    assert laid_out("stones(heap=7,layout=a)", ["b", "b"]) == "stones(heap=7,layout=b)"
    assert laid_out("stones", ["a", "b"]) == "stones(layout=a+b)"
    with pytest.raises(BadGameParameters, match="openspiel:chess has one layout alone"):
        laid_out("openspiel:chess", ["a"])


def test_layout_tells_what_it_has_a_text_for() -> None:
    layout = Layout(
        name="x", version=1, rules="", turns={"move": "{who} goes\n"}, options={"a": "is {n}"}
    )
    assert layout.turn("move", who="X") == "X goes\n"
    assert layout.describe(["a", "b"], n=3) == "is 3"
    assert layout.describe(["b"]) is None
