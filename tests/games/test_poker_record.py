from __future__ import annotations

import random

import pytest

from games.adapters.poker_record import read_hands
from games.adapters.poker_write import write_hand
from games.base import State
from games.errors import BadRecord
from games.registry import load_game
from tests.support.game_records import fault_of, played

pytest.importorskip("pokerkit", reason="hold'em needs pokerkit")


def hand(
    stacks: str,
    actions: str,
    *,
    blinds: str = "1, 2",
    antes: str = "0",
    bet: str = "2",
    more: str = "",
) -> str:
    """Write a hand of PHH; what all players have the same is given once, actions by semicolons."""
    seats = len(stacks.split(","))
    posted = [*blinds.split(", "), *["0"] * seats][:seats]
    ante = antes if "," in antes else ", ".join([antes] * seats)
    listed = ", ".join(f"'{action.strip()}'" for action in actions.split(";"))
    return (
        f"variant = 'NT'\nantes = [{ante}]\nblinds_or_straddles = [{', '.join(posted)}]\n"
        f"min_bet = {bet}\nstarting_stacks = [{stacks}]\nactions = [{listed}]\n{more}\n"
    )


def one(text: str) -> tuple[list[str], str, State]:
    [record] = read_hands(text)
    return played(record)


def fault(text: str) -> BadRecord:
    return fault_of(read_hands(text))


THREE = "d dh p1 AhAs; d dh p2 KhKs; d dh p3 QhQs; "
BOARD = "d db 2c7d9h; d db Js; d db 3c"

# Blinds 1 and 2 if nothing else is said; payouts reckoned by hand.
KNOWN = {
    "all fold": (
        hand("200, 200", "d dh p1 2c7d; d dh p2 AhAs; p2 cbr 6; p1 f"),
        (-2, 2),
    ),
    "side pot": (
        # 3 x 20 to the aces; 2 x 30 more to the kings; 50 go back to the queens.
        hand("20, 50, 100", f"{THREE} p3 cbr 100; p1 cc; p2 cc; {BOARD}"),
        (40, 10, -50),
    ),
    "two side pots, one of them shared": (
        # 4 x 10 to the aces; 3 x 20 more to both pairs of kings; 2 x 40 more to one of them alone.
        hand(
            "10, 30, 70, 70",
            "d dh p1 AhAs; d dh p2 KhKs; d dh p3 KdKc; d dh p4 QhQs;"
            f" p3 cbr 70; p4 cc; p1 cc; p2 cc; {BOARD}",
        ),
        (30, 0, 40, -70),
    ),
    "side pot behind a bet on the flop": (
        # 3 x 20 to the aces, all in before the flop; 2 x 30 more to the queens' set on the river.
        hand(
            "20, 200, 200",
            f"{THREE} p3 cbr 20; p1 cc; p2 cc; d db 2c7d9h; p2 cbr 30; p3 cc; d db Js; p2 cc;"
            " p3 cc; d db Qc; p2 cc; p3 cc",
        ),
        (-20, -50, 70),
    ),
    "antes of all": (
        # 3 antes of 1 and 3 x 6 to the aces.
        hand(
            "50, 50, 50",
            f"{THREE} p3 cbr 6; p1 cc; p2 cc; d db 2c7d9h; p1 cc; p2 cc; p3 cc; d db Js; p1 cc;"
            " p2 cc; p3 cc; d db 3c; p1 cc; p2 cc; p3 cc",
            antes="1",
        ),
        (14, -7, -7),
    ),
    "odd chip": (
        # The pot of 7 is shared by equal hands; the chip left over is the first player's.
        hand(
            "50, 50, 50",
            "d dh p1 AhKs; d dh p2 2h2s; d dh p3 AdKc; p3 cbr 4; p1 cc; p2 f; d db 7c8d9h;"
            " p1 cc; p3 cc; d db Js; p1 cc; p3 cc; d db 3c; p1 cc; p3 cc",
            blinds="1, 1",
            bet="1",
        ),
        (1, -1, 0),
    ),
    "straddle": (
        hand(
            "100, 100, 100, 100",
            "d dh p1 2c3c; d dh p2 4c5c; d dh p3 6c7c; d dh p4 AhAs; p4 cbr 12; p1 f; p2 f; p3 f",
            blinds="1, 2, 4",
            bet="4",
        ),
        (-1, -2, -4, 7),
    ),
    "six seats, three pots": (
        # 6 x 5 to the aces; 5 x 10 more to the kings; 3 x 25 more to the queens; p6 keeps 10.
        hand(
            "5, 15, 40, 15, 40, 50",
            "d dh p1 AhAs; d dh p2 KhKs; d dh p3 QhQs; d dh p4 ThTs; d dh p5 8h8s; d dh p6 6h6s;"
            f" p3 cbr 40; p4 cc; p5 cc; p6 cc; p1 cc; p2 cc; {BOARD}",
        ),
        (25, 35, 35, -15, -40, -40),
    ),
}


@pytest.mark.parametrize(("text", "won"), KNOWN.values(), ids=KNOWN)
def test_hands_with_known_payouts(text: str, won: tuple[int, ...]):
    _, reason, state = one(text)
    assert (state.returns(), reason) == (won, "")


@pytest.mark.parametrize(("text", "won"), KNOWN.values(), ids=KNOWN)
def test_stacks_at_the_end_are_held_against_the_rules(text: str, won: tuple[int, ...]):
    stacks = [int(stack) for stack in text.split("starting_stacks = [")[1].split("]")[0].split(",")]
    right = [stack + chips for stack, chips in zip(stacks, won, strict=True)]
    assert one(f"{text}finishing_stacks = {right}")[1] == ""
    wrong = [right[0] + 1, right[1] - 1, *right[2:]]
    found = fault(f"{text}finishing_stacks = {wrong}")
    assert found.place == "stacks"
    assert f"the rules with {'/'.join(map(str, right))}" in found.what


def test_a_hand_is_taken_over_as_it_was_played():
    text = hand(
        "100, 100, 100",
        f"{THREE} p3 cbr 7 # a raise; # a pause; p1 f; p2 cc; d db 2c7d9h; p2 cc; p3 cbr 11; p2 f",
        more="players = ['Ann', 'Bo', 'O''Hara']\nvenue = 'Home'\nday = 3\n_note = 1".replace(
            "''", ""
        ),
    )
    [record] = read_hands(text)
    labels, reason, state = played(record)
    assert labels == [
        *("Ah", "Kh", "Qh", "As", "Ks", "Qs", "raise to 7", "fold", "call"),
        *("2c", "7d", "9h", "check", "bet 11", "fold"),
    ]
    assert (reason, state.returns()) == ("", (-1.0, -7.0, 8.0))
    assert not isinstance(record, BadRecord)
    assert record.names == ("Ann", "Bo", "OHara")
    assert record.tags == {"venue": "Home", "day": "3"}
    assert record.game == (
        "holdem(ante=0,bet=2,blinds=1/2,sizes=min/50%/100%/200%/all-in/7/11,stack=100/100/100)"
    )


def test_amounts_with_decimals_are_whole_chips_of_their_unit():
    text = hand(
        "20.25, 50",
        "d dh p1 AhAs; d dh p2 KhKs; p2 cbr 1.25; p1 f",
        blinds="0.25, 0.50",
        bet="0.5",
        more="finishing_stacks = [19.75, 50.50]",
    )
    [record] = read_hands(text)
    labels, reason, state = played(record)
    assert (labels[4:], reason, state.returns()) == (["raise to 125", "fold"], "", (-50.0, 50.0))
    assert not isinstance(record, BadRecord)
    assert record.tags == {"unit": "0.01"}
    assert "blinds=25/50" in record.game


def test_cards_that_only_the_showdown_tells_are_known():
    river = "d db 2c7d9h; p1 cc; p2 cc; d db Js; p1 cc; p2 cc; d db 3c; p1 cc; p2 cc;"
    text = f"d dh p1 AhAs; d dh p2 ????; p2 cc; p1 cc; {river} p1 sm AhAs; p2 sm KdKs"
    labels, _, state = one(hand("50, 50", text))
    assert labels[:4] == ["Ah", "Kd", "As", "Ks"]
    assert state.returns() == (2.0, -2.0)


def test_an_unfinished_hand_is_taken_over_as_far_as_it_goes():
    text = hand("50, 50", "d dh p1 AhAs; d dh p2 KhKs; p2 cbr 6")
    labels, reason, _ = one(text)
    assert (labels[-1], reason) == ("raise to 6", "the recorded hand ends here")
    assert "before the hand does" in fault(f"{text}finishing_stacks = [48, 52]").what


DEAL = "d dh p1 AhAs; d dh p2 KhKs; "
LAST = "d db 2c7d9h; p1 cc; p2 cc; d db Js; p1 cc; p2 cc; d db 3c; p1 cc; p2 cc"
FAULTS = {
    "no TOML": ("variant = 'NT", "", "no hand of PHH"),
    "no hand": ("variant = 'NT'\n", "", "missing required field"),
    "text for a number": (hand("50, 50", DEAL, bet="'two'"), "", "min_bet"),
    "other game": (hand("50, 50", DEAL).replace("NT", "PO"), "variant", "'PO' is not NT"),
    "unknown cards": (hand("50, 50", "d dh p1 AhAs; d dh p2 ????; p2 f"), "player 2", "not known"),
    "infinite": (hand("50, inf", DEAL), "", "an amount is Infinity"),
    "too fine": (hand("50, 0.0000001", DEAL), "", "counted exactly"),
    "not equally many": (hand("50, 50", DEAL, antes="0, 0, 0"), "", "not equally many"),
    "seven seats": (hand(", ".join(["50"] * 7), "d dh p1 AhAs"), "", "2 to 6"),
    "dead blind": (hand("50, 50, 50", DEAL, blinds="0, 2"), "blinds", "posted by the first"),
    "late poster": (hand("50, 50, 50, 50", DEAL, blinds="1, 2, 0, 2"), "blinds", "1/2/0/2"),
    "ante of one": (hand("50, 50", DEAL, antes="0, 2"), "antes", "they differ"),
    "fractions": (hand("50, 50", f"{DEAL} p2 cbr x"), "action 3 'p2 cbr x'", "no action"),
    "who": (hand("50, 50", f"{DEAL} p3 f"), "action 3 'p3 f'", "'p3' is none of p1, p2"),
    "what": (hand("50, 50", f"{DEAL} p2 sd"), "action 3 'p2 sd'", "no action of hold'em"),
    "no card": (hand("50, 50", "d dh p1 AhXx"), "action 1", "'Xx' is no card"),
    "card twice": (hand("50, 50", "d dh p1 AhAs; d dh p2 AhKs"), "card Ah", "not legal here"),
    "not in turn": (hand("50, 50", f"{DEAL} p1 cc"), "player 1 cc", "player 2 is due here"),
    "card is due": (hand("50, 50", f"{DEAL} p2 cc; p1 cc; p1 cc"), "player 1", "a card is due"),
    "early card": (hand("50, 50", f"{DEAL} d db 2c7d9h"), "card 2c", "player 2 is due"),
    "low raise": (hand("50, 50", f"{DEAL} p2 cbr 3"), "player 2 cbr 3", "not legal here"),
    "idle fold": (hand("50, 50", f"{DEAL} p2 cc; p1 f"), "player 1 f", "not legal here"),
    "after the end": (hand("50, 50", f"{DEAL} p2 f; p1 cc"), "player 1 cc", "has ended"),
    "late hole card": (hand("50, 50", f"{DEAL} p2 f; d dh p1 2c"), "action 4", "hole cards"),
    "mucked winner": (
        hand("50, 50", f"{DEAL} p2 cc; p1 cc; {LAST}; p2 sm KhKs; p1 sm"),
        "stacks",
        "pokerkit ends with 48/52, the rules with 52/48",
    ),
}


@pytest.mark.parametrize(("text", "place", "what"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_by_action(text: str, place: str, what: str):
    found = fault(text)
    assert place in found.place
    assert what in found.what


@pytest.mark.parametrize(
    "bad",
    [
        "variant = 'NT",
        f"min_bet = {'1' * 5000}",
        f"players = {'[' * 5000}",
        hand("1e999999999999, 50", DEAL),
    ],
    ids=["text", "long number", "nested", "huge number"],
)
def test_one_hand_that_cannot_be_read_spoils_no_other(bad: str):
    sound = hand("50, 50", f"{DEAL} p2 f")
    records = list(read_hands(f"[1]\n{sound}\n[2]\n{bad}\n[3]\n{sound}"))
    assert [record.number for record in records] == [1, 2, 3]
    assert [isinstance(record, BadRecord) for record in records] == [False, True, False]
    assert played(records[2])[0][-1] == "fold"


@pytest.mark.parametrize("seats", [2, 3, 6])
@pytest.mark.parametrize("stakes", ["", "ante=1,blinds=1/2,stack=30", "blinds=1/2,stack={}"])
def test_what_is_written_is_read_again(seats: int, stakes: str):
    source = random.Random(seats)
    stacks = "/".join(str(20 + 15 * seat) for seat in range(seats))
    id = f"holdem({stakes.format(stacks)})" if stakes else "holdem"
    for _ in range(8):
        state = load_game(id).start(seats=seats, seed=0)
        labels: list[str] = []
        while state.actor is not None:
            labels.append(source.choice(state.options() or state.outcomes()).id)
            state = state.apply(labels[-1])
        names = [f"player '{seat}'" for seat in range(seats)]
        text = write_hand(state, names, {"event": "e", "month": "11", "unit": "1"})
        [record] = read_hands(text)
        assert not isinstance(record, BadRecord), record
        assert (list(record.names), record.tags) == (names, {"event": "e", "month": "11"})
        again, reason, last = played(record)
        assert (again, reason, last.returns()) == (labels, "", state.returns())
        check_with_pokerkit(text, [stack + won for stack, won in _stacks(state)])


def _stacks(state: State) -> list[tuple[int, int]]:
    table = state.table  # type: ignore[attr-defined]
    return list(zip(table.starting_stacks, map(int, state.returns()), strict=True))


def check_with_pokerkit(text: str, stacks: list[int]) -> None:
    """Play the file back by pokerkit's own reader."""
    from pokerkit import HandHistory

    *_, last = HandHistory.loads(text)
    assert not last.status
    assert last.stacks == stacks
