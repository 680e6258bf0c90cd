from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from games import CHANCE, BadGameParameters, IllegalAction, State, load_game

GAME = load_game("kuhn_poker")


def after(*actions: str) -> State:
    state = GAME.start(seats=2, seed=0)
    for action in actions:
        state = state.apply(action)
    return state


def walk(state: State) -> Iterator[State]:
    yield state
    for each in state.options() or state.outcomes():
        yield from walk(state.apply(each.id))


def test_the_whole_tree_has_the_known_size():
    states = list(walk(after()))
    assert len(states) == 58
    assert len({state.encode() for state in states}) == 58
    assert sum(state.actor == CHANCE for state in states) == 4
    assert sum(state.actor is None for state in states) == 30
    seats = [state.actor for state in states if state.actor in (0, 1)]
    assert (seats.count(0), seats.count(1)) == (12, 12)


def test_there_are_twelve_information_sets_of_two_states_each():
    sets: dict[tuple[int, str], list[State]] = defaultdict(list)
    for state in walk(after()):
        if state.actor in (0, 1):
            sets[state.actor, state.view(state.actor).text].append(state)
    assert len(sets) == 12
    assert {len(states) for states in sets.values()} == {2}
    for states in sets.values():
        assert len({(state.options(), state.questions()) for state in states}) == 1


def test_the_best_play_is_worth_a_known_number():
    """Kuhn 1950: -1/18 to the first player, here with a bluff on every third Jack."""
    bets_first = {"Jack": 1 / 3, "Queen": 0.0, "King": 1.0}
    calls_after = {"Jack": 0.0, "Queen": 2 / 3, "King": 1.0}
    bets_second = {"Jack": 1 / 3, "Queen": 0.0, "King": 1.0}
    calls_second = {"Jack": 0.0, "Queen": 1 / 3, "King": 1.0}

    def value(state: State, cards: tuple[str, ...], bets: str) -> float:
        if state.actor is None:
            return state.returns()[0]
        if state.actor == CHANCE:
            outcomes = state.outcomes()
            return sum(value(state.apply(o.id), (*cards, o.id), bets) for o in outcomes) / len(
                outcomes
            )
        table = {"": bets_first, "pb": calls_after, "p": bets_second, "b": calls_second}[bets]
        bet = table[cards[state.actor]]
        return bet * value(state.apply("bet"), cards, bets + "b") + (1 - bet) * value(
            state.apply("pass"), cards, bets + "p"
        )

    assert value(after(), (), "") == pytest.approx(-1 / 18)


def test_a_card_is_seen_by_its_player_alone_until_it_is_shown():
    for hidden in ("Jack", "Queen"):
        state = after("King", hidden, "bet")
        assert state.view(0) == after("King", "Jack", "bet").view(0)
        assert "King" not in state.view(1).private
        assert state.view(1).private.endswith(f"Your card is the {hidden}.\n")
    given_up = after("King", "Jack", "bet", "pass")
    assert given_up.view(1) == after("Queen", "Jack", "bet", "pass").view(1)
    shown = after("King", "Jack", "bet", "bet").view(1)
    assert shown.public.endswith("bet; player 0 shows the King, player 1 the Jack\n")


def test_deals_are_turns_of_chance():
    state = after()
    assert state.actor == CHANCE
    assert [outcome.id for outcome in state.outcomes()] == ["Jack", "Queen", "King"]
    assert [outcome.id for outcome in after("Queen").outcomes()] == ["Jack", "King"]
    assert state.questions() == state.options() == ()
    with pytest.raises(IllegalAction):
        state.apply("bet")
    with pytest.raises(IllegalAction):
        after("Queen").apply("Queen")
    assert after("Queen", "King").actor == 0


@pytest.mark.parametrize(
    ("actions", "returns"),
    [
        ("King Queen pass pass", (1.0, -1.0)),
        ("Jack Queen pass pass", (-1.0, 1.0)),
        ("King Queen bet pass", (1.0, -1.0)),
        ("Jack Queen bet pass", (1.0, -1.0)),
        ("Jack Queen bet bet", (-2.0, 2.0)),
        ("King Queen pass bet pass", (-1.0, 1.0)),
        ("King Queen pass bet bet", (2.0, -2.0)),
        ("King Queen pass", (0.0, 0.0)),
    ],
)
def test_payoffs(actions: str, returns: tuple[float, float]):
    assert after(*actions.split()).returns() == returns


def test_options_say_what_they_mean_here():
    assert [option.description for option in after("King", "Queen").options()] == [
        "put in nothing",
        "bet one more chip",
    ]
    assert [option.description for option in after("King", "Queen", "bet").options()] == [
        "give up the pot",
        "call for one more chip",
    ]


def test_two_seats():
    with pytest.raises(BadGameParameters, match="2 seats, not 1"):
        GAME.start(seats=1, seed=0)
