from __future__ import annotations

import hashlib

import msgspec
import pytest

from games import BadGameParameters, IllegalAction, load_game
from games.adapters.pettingzoo import PettingZooGame
from games.layouts import LaidOut, Layout, laid_out, split_layouts
from games.testing import check

PINNED = {
    ("tictactoe", "plain", 1): "edab9d20c3c72095",
    ("tictactoe", "bare", 1): "7b52110e7fba4e1e",
    ("kuhn_poker", "plain", 1): "b6ac4874b65e7278",
    ("holdem", "plain", 1): "354b303319a10bff",
    ("holdem", "bare", 1): "9e8dc77fabe32abc",
    ("kuhn_poker", "bare", 1): "234d5ccd82d105f2",
    ("expedition", "plain", 1): "9ce1470b32a71efb",
    ("expedition", "bare", 1): "eb9353496369a8c8",
    ("openspiel:connect_four", "plain", 1): "f97f061591d656d5",
    ("openspiel:connect_four", "bare", 1): "9e76c07287643fd1",
    ("openspiel:connect_four", "hints", 1): "b0534dc5dc09beb9",
    ("openspiel:connect_four", "replies", 1): "92c73b5076df63ef",
    ("pettingzoo:classic/connect_four-v3", "plain", 1): "e12cb3ac28ef5e0f",
    ("pettingzoo:classic/connect_four-v3", "bare", 1): "817f1095dae756cf",
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
    "id",
    [
        "tictactoe(layout=bare)",
        "kuhn_poker(layout=bare)",
        "holdem(layout=bare,stack=9)",
        "expedition(rules=short,size=tiny,layout=bare)",
        "openspiel:tic_tac_toe(layout=bare)",
        "openspiel:tic_tac_toe(layout=hints)",
        "openspiel:tic_tac_toe(layout=replies)",
        "openspiel:goofspiel(imp_info=True,num_cards=3,layout=bare)",
        "pettingzoo:classic/tictactoe-v3(layout=bare)",
    ],
)
def test_every_layout_keeps_the_laws_of_games(id: str) -> None:
    assert load_game(id).facts.id == id
    assert check(load_game(id), seeds=2).matches == 2


def test_default_layout_is_the_game_itself() -> None:
    for id in ("tictactoe", "expedition", "openspiel:chess", "pettingzoo:classic/tictactoe-v3"):
        assert load_game(f"{id}(layout=plain)").facts == load_game(id).facts
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
            "has 2 seats, not 3 as layout=plain.bare.plain",
        ),
        ("expedition(layout=odd)", "layout=plain[|]bare; not layout=odd"),
        ("expedition(layout=plain+bare)", "has 1 seat, not 2"),
        ("tictactoe(layout=plain,layout=bare)", "layout comes twice; for two seats write a.b"),
        ("openspiel:chess(layout=odd)", "openspiel:chess has no layout 'odd'; it has plain, bare"),
        ("openspiel:leduc_poker(layout=hints)", "no layout 'hints'; it has plain, bare$"),
        ("openspiel:chess(layout=bare,layout=hints)", "layout comes twice"),
        ("pettingzoo:classic/rps-v2(layout=bare)", "has no layout 'bare'; it has plain$"),
    ],
)
def test_layout_that_is_none_is_refused(id: str, message: str) -> None:
    with pytest.raises(BadGameParameters, match=message):
        load_game(id)


def test_id_of_a_layout_keeps_the_other_parameters() -> None:
    assert laid_out("stones(heap=7,layout=a)", ["b", "b"]) == "stones(heap=7,layout=b)"
    assert laid_out("stones", ["a", "b"]) == "stones(layout=a+b)"
    assert laid_out("openspiel:chess", ["a"]) == "openspiel:chess(layout=a)"
    nested = "openspiel:repeated_game(stage_game=matrix_pd(layout=a),num_repetitions=2)"
    assert laid_out(nested, ["b"]) == f"{nested[:-1]},layout=b)"
    assert split_layouts(laid_out(nested, ["a", "b"])) == (nested, ("a", "b"))


def test_bare_journey_is_told_without_prospects() -> None:
    plain, bare = (
        load_game(f"expedition(size=tiny{more})").start(seats=1, seed=3)
        for more in ("", ",layout=bare")
    )
    while plain.actor is not None:
        assert plain.encode() == bare.encode()
        assert plain.view(0) == bare.view(0)
        assert plain.rebase().view(0) == bare.rebase().view(0)
        assert all(option.description for option in plain.options())
        assert not any(option.description for option in bare.options())
        action = (plain.options() or plain.outcomes())[0].id
        plain, bare = plain.apply(action), bare.apply(action)


def test_layouts_of_a_library_tell_more_or_less_of_the_same_match() -> None:
    ids = ("", "(layout=bare)", "(layout=hints)")
    states = [load_game(f"openspiel:tic_tac_toe{id}").start(seats=2, seed=1) for id in ids]
    for action in ("x(0,0)", "o(1,0)", "x(0,1)", "o(1,1)"):
        states = [state.apply(action) for state in states]
    plain, bare, hints = states
    assert len({state.encode() for state in states}) == 1
    assert plain.view(0) == hints.view(0)
    assert bare.view(0).public == "TIC TAC TOE\n\nPLAY\n"
    assert bare.view(0).private == plain.view(0).private
    told = {option.id: option.description for option in hints.options()}
    assert told.pop("x(0,2)") == "ends the match with a payoff of 1"
    assert set(told.values()) == {None}
    assert not any(option.description for option in plain.options())


def test_replies_tell_what_the_next_player_can_do_too() -> None:
    state = load_game("openspiel:tic_tac_toe(layout=replies)").start(seats=2, seed=1)
    for action in ("x(0,0)", "o(1,1)", "x(2,2)", "o(0,1)"):
        state = state.apply(action)
    told = {option.id: option.description for option in state.options()}
    assert told.pop("x(2,1)") is None  # the one that stops it
    assert set(told.values()) == {"lets player 1 win at once"}
    for action in ("x(2,1)", "o(0,2)"):
        state = state.apply(action)
    told = {option.id: option.description for option in state.options()}
    assert told.pop("x(2,0)") == "wins at once"  # and stops o(2,0)
    assert set(told.values()) == {"lets player 1 win at once"}


def test_environment_of_ones_own_has_layouts_too() -> None:
    make = pytest.importorskip("pettingzoo.classic.tictactoe_v3").env
    told = PettingZooGame(make=make, id="mine", rules="Three in a row.")
    bare = PettingZooGame(make=make, id="mine", rules="Three in a row.", layout="bare")
    assert (told.facts.id, bare.facts.id) == ("mine", "mine(layout=bare)")
    one, two = (game.start(seats=2, seed=1) for game in (told, bare))
    assert one.encode() == two.encode()
    assert "Three in a row." in one.view(0).public
    assert "Three in a row." not in two.view(0).public


def test_each_layout_is_checked_by_itself() -> None:
    message = r"check tictactoe\(layout=plain\) and tictactoe\(layout=bare\)"
    with pytest.raises(BadGameParameters, match=message):
        check(load_game("tictactoe(layout=plain+bare)"))


def test_layout_tells_what_it_has_a_text_for() -> None:
    layout = Layout(
        name="x", version=1, rules="", turns={"move": "{who} goes\n"}, options={"a": "is {n}"}
    )
    assert layout.turn("move", who="X") == "X goes\n"
    assert layout.describe(["a", "b"], n=3) == "is 3"
    assert layout.describe(["b"]) is None
