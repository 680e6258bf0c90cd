from __future__ import annotations

import builtins
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from games import CHANCE, BadGameParameters, IllegalAction, State, UnsupportedGame, load_game
from games.adapters.poker_table import (
    DECK,
    Stakes,
    act,
    copy_of,
    deal,
    next_to_be_dealt,
    raises,
    set_up,
    undealt,
)
from games.testing import check


def play(game: str, seats: int, cards: str, actions: str) -> State:
    """Play a hand: the cards in the order in which they are dealt, then what the players do."""
    state = load_game(game).start(seats=seats, seed=0)
    dealt, done = iter(cards.split()), iter(actions.split(", "))
    while state.actor is not None:
        state = state.apply(next(dealt) if state.actor == CHANCE else next(done))
    assert next(dealt, None) is None
    assert next(done, None) is None
    return state


def labels(state: State) -> list[str]:
    return [each.id for each in state.options() or state.outcomes()]


@pytest.mark.parametrize(
    ("stacks", "cards", "actions", "returns"),
    [
        pytest.param("200/200", "2c Ah 7d As", "raise to 6, fold", (-2, 2), id="all fold"),
        pytest.param(
            "200/200",
            "Kc Ah Kd As 2c 5d 9h Js 3c",
            "call, check, check, check, bet 10, call, check, check",
            (-12, 12),
            id="the better pair wins",
        ),
        pytest.param(
            "200/200/200",
            "Ah Ad 2c Kh Kd 7d Ks Qc Jh 3s",
            "raise to 10, call, call, check, check, check, check, check, bet 30, fold, fold",
            (-10, -10, 20),
            id="a bluff takes what two better hands give up",
        ),
        pytest.param(
            # Pots: 3 x 20, won by seat 0; 2 x 30 more, won by seat 1; 50 go back to seat 2.
            "20/50/100",
            "Ah Kh Qh As Ks Qs 2c 7d 9h Js 3c",
            "raise to 100, call, call",
            (40, 10, -50),
            id="the short stack wins the main pot, the next one the side pot",
        ),
        pytest.param(
            # Pots: 4 x 10 to seat 0; 3 x 20 more to seats 1 and 2; 2 x 40 more to seat 2 alone.
            "10/30/70/70",
            "Ah Kh Kd Qh As Ks Kc Qs 2c 7d 9h Js 3c",
            "raise to 70, call, call, call",
            (30, 0, 40 + 70 - 70, -70),
            id="three pots, one shared",
        ),
        pytest.param(
            "100/100/100",
            "Ah 2h Ad Ks 3d Kc 4c 9d Th Jc 5s",
            "raise to 10, raise to 30, fold, call, check, check, bet 40, call, check, check",
            (1, -2, 1),
            id="equal hands share what the third gave up",
        ),
    ],
)
def test_hands_with_known_payouts(
    stacks: str, cards: str, actions: str, returns: tuple[float, ...]
):
    sizes = "min/6/10/30/40/70/100/all-in"
    game = f"holdem(blinds=1/2,sizes={sizes},stack={stacks})"
    assert play(game, len(stacks.split("/")), cards, actions).returns() == returns


def test_antes_and_straddles_are_posted():
    game = "holdem(ante=1,blinds=1/2/4,stack=100)"
    state = load_game(game).start(seats=4, seed=0)
    assert state.view(0).public.endswith(
        "HAND\n"
        + "".join(f"Player {seat} posts an ante of 1.\n" for seat in range(4))
        + "".join(f"Player {seat} posts a blind of {2**seat}.\n" for seat in range(3))
    )
    for card in DECK[:8]:
        state = state.apply(card)
    assert (state.actor, labels(state)[:3]) == (3, ["fold", "call", "raise to 6"])
    larger = load_game("holdem(ante=1,bet=4,blinds=1/2/4,stack=100)").start(seats=4, seed=0)
    for card in DECK[:8]:
        larger = larger.apply(card)
    assert labels(larger)[2] == "raise to 8"


def test_one_call_asks_for_action_sizing_and_bluff():
    state = load_game("holdem").start(seats=2, seed=0)
    for card in ("Ah", "2c", "As", "7d"):
        state = state.apply(card)
    assert [question.id for question in state.questions()] == ["action", "sizing"]
    state = state.apply("raise to 6")
    action, sizing, bluff = state.questions()
    assert action.options == state.options()
    assert [each.id for each in action.options] == [
        "fold",
        "call",
        "raise to 10",
        "raise to 12",
        "raise to 18",
        "raise to 30",
        "raise to 200",
    ]
    assert action.options[1].description == "put in 4 for a pot of 12"
    assert action.options[-1].description == "put in 198 into a pot of 8, all that is left"
    assert (sizing.type, len(sizing.options)) == ("score", 6)
    assert (bluff.type, bluff.instructions[:22]) == ("noul", "Is player 1 bluffing: ")


def test_own_cards_are_seen_by_their_owner_alone():
    state = load_game("holdem").start(seats=3, seed=0)
    for card in ("Ah", "2c", "9d", "As", "7d", "9h"):
        state = state.apply(card)
    assert "Your cards: Ah As\n" in state.view(0).private
    others = state.view(1).text + state.view(2).text
    assert "Ah" not in others.replace("Ah is the ace", "")
    assert state.view(0).public == state.view(1).public


def test_what_is_shown_down_is_public():
    state = play("holdem", 2, "Kc Ah Kd As 2c 5d 9h Js 3c", "call" + ", check" * 7)
    assert state.view(0).public.endswith("Result: player 0 -2, player 1 +2.\n")
    assert "Player 1 shows Ah As.\n" in state.view(0).public


@pytest.mark.parametrize("seats", [2, 3, 6])
def test_every_law_is_kept(seats: int):
    report = check(load_game("holdem"), seeds=4, seats=seats, limit=50)
    assert (report.matches, report.unfinished) == (4, 0)


def test_a_copy_of_a_table_is_what_a_deep_copy_is_and_shares_nothing_that_changes():
    source = random.Random(5)
    for seats in (2, 4, 6):
        table = set_up(Stakes((50,), (1, 2), (1,), 2), seats)
        while table.status:
            assert vars(copy_of(table)) == vars(copy.deepcopy(table))
            before = repr(vars(table))
            if next_to_be_dealt(table) is None:
                amounts = raises(table)
                kinds = ("check", "fold", "raise") if table.can_fold() and amounts else ("check",)
                amount = source.choice(amounts) if amounts else 0
                after = act(table, source.choice(kinds), amount)
            else:
                after = _dealt(table, source)
            assert repr(vars(table)) == before
            table = after


def _dealt(table: Any, source: random.Random) -> Any:
    return deal(table, source.choice(undealt(table)))


def hands(seed: int) -> Iterator[State]:
    """Give the states of a hand of four with side pots in which somebody is to act."""
    source = random.Random(seed)
    state = load_game("holdem(stack=30/60/20/45)").start(seats=4, seed=0)
    while state.actor is not None:
        if state.actor != CHANCE:
            yield state
        state = state.apply(source.choice(labels(state)))


def test_a_state_drawn_for_a_seat_is_one_that_the_rules_lead_to():
    drawn = 0
    for seed in range(6):
        for state in hands(seed):
            seat, numbers = state.actor or 0, random.Random(seed)
            given = [numbers.random() for _ in range(8)]
            sample = state.resample(seat, given.__getitem__)
            assert sample.view(seat) == state.view(seat)
            assert sample.options() == state.options()
            again = load_game("holdem(stack=30/60/20/45)").start(seats=4, seed=0)
            trail = sample.encode().decode().split(" 4 ", 1)[1].rpartition(";")[0]
            for action in trail.split(";"):
                again = again.apply(action)
            drawn += again.encode() != state.encode()
            assert again.encode() == sample.encode()
            assert [again.view(each) for each in range(4)] == [
                sample.view(each) for each in range(4)
            ]
            one, two = vars(again.table), vars(sample.table)
            assert sorted(map(repr, one.pop("deck_cards"))) == sorted(
                map(repr, two.pop("deck_cards"))
            )
            assert repr(one) == repr(two)
    assert drawn > 20


def test_every_card_that_a_seat_cannot_see_is_as_likely_to_be_drawn():
    state = load_game("holdem").start(seats=2, seed=0)
    for action in ["Ah", "2c", "As", "7d"]:
        state = state.apply(action)
    seen = {card for card in ("Ah", "As", "2c", "7d") if card in state.view(1).private}
    samples = (state.resample(1, lambda which, at=each: (at + 0.5) / 50) for each in range(50))
    found = [sample.encode().decode().split()[2].split(";")[0] for sample in samples]
    assert sorted(found) == sorted(set(DECK) - seen)


def test_cards_that_lie_open_stay():
    """Seats 0 and 1 are all in and have shown; what seat 2 gave up, nobody has seen."""
    state = load_game("holdem(stack=9)").start(seats=3, seed=0)
    for action in ["Ah", "Kd", "7c", "As", "Kc", "7d"]:
        state = state.apply(action)
    for action in ("fold", "raise to 9", "call"):
        state = state.apply(action)
    sample = state.resample(0, lambda which: 0.0)
    cards = sample.encode().decode().split(" 3 ")[1].split(";")[:6]
    assert cards[:2] + cards[3:5] == ["Ah", "Kd", "As", "Kc"]
    assert [cards[2], cards[5]] == ["2c", "2d"]
    for seat in range(3):
        assert state.apply("9s").view(seat) == sample.apply("9s").view(seat)


def test_the_shared_random_source_is_left_alone():
    random.seed(3)  # noqa: TID251  that is what must not change
    before = random.getstate()
    play("holdem", 2, "Kc Ah Kd As 2c 5d 9h Js 3c", "call" + ", check" * 7)
    assert random.getstate() == before


def test_an_illegal_action_names_the_legal_ones():
    state = load_game("holdem").start(seats=2, seed=0)
    with pytest.raises(IllegalAction, match="'fold' is not a legal action here; legal: '2c'"):
        state.apply("fold")
    for card in ("Ah", "2c", "As", "7d"):
        state = state.apply(card)
    with pytest.raises(IllegalAction, match="'raise to 5'"):
        state.apply("raise to 5")


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("holdem(limit=no)", "takes ante, bet, blinds, layout, sizes, stack, not limit"),
        ("holdem(stack=many)", "stack=many is not whole numbers of chips from 1"),
        ("holdem(blinds=0/2)", "blinds=0/2 is not whole numbers of chips from 1"),
        ("holdem(stack=1.5)", "stack=1.5 is not"),
        ("holdem(sizes=half)", "sizes='half' is not min, all-in, 50% or a number"),
        ("holdem(stack=1/2/3,ante=1/1)", "3 stacks, 2 antes and 2 blinds do not fit"),
        ("holdem(stack=1/2/3/4/5/6/7)", "do not fit 2 to 6 seats"),
        ("holdem(bet=1/2)", "is one number"),
        ("holdem(stack=9/9,blinds=1/2/4)", "do not fit"),
    ],
)
def test_parameters_that_make_no_table_are_refused(game: str, message: str):
    with pytest.raises(BadGameParameters, match=message):
        load_game(game)


@pytest.mark.parametrize("seats", [1, 7])
def test_a_table_has_two_to_six_seats(seats: int):
    with pytest.raises(BadGameParameters, match=f"2 to 6 seats, not {seats}"):
        load_game("holdem").start(seats=seats, seed=0)


def test_without_pokerkit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    load: Callable[..., Any] = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "pokerkit":
            raise ModuleNotFoundError(name)
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UnsupportedGame, match=r"pip install 'ostinato\[poker\]'"):
        load_game("holdem")
