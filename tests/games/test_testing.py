from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from games import (
    ConformanceError,
    Game,
    IllegalAction,
    Option,
    Outcome,
    Question,
    State,
    View,
    load_game,
    noul,
)
from games.kuhn_poker import KuhnState
from games.testing import check, main
from tests.support.oddities import Odd, OddGame

TICTACTOE, KUHN = load_game("tictactoe"), load_game("kuhn_poker")


def broken(game: Game, law: str, **arguments: Any) -> str:
    """Check that the kit names this law, and give the message."""
    with pytest.raises(ConformanceError, match=f"^{game.facts.id} breaks the law '{law}'") as error:
        check(game, **arguments)
    assert ", seed " in str(error.value)
    assert ", turn " in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "game",
    [
        "tictactoe",
        "kuhn_poker",
        "expedition(size=tiny)",
        "expedition(rules=short)",
        "openspiel:connect_four",
        "openspiel:leduc_poker",
        "openspiel:kuhn_poker(players=3)",
        "openspiel:liars_dice",
        "openspiel:hearts",
        "openspiel:2048",
        "openspiel:go(board_size=5)",
        "openspiel:turn_based_simultaneous_game(game=goofspiel(num_cards=4))",
    ],
)
def test_games_keep_every_law(game: str):
    report = check(load_game(game), seeds=10, limit=500)
    assert report.matches == 10
    assert report.unfinished == 0
    assert report.turns >= 10


@pytest.mark.parametrize(
    "game", ["openspiel:backgammon", "openspiel:chess", "openspiel:go", "expedition"]
)
def test_long_games_keep_every_law(game: str):
    assert check(load_game(game), seeds=1, limit=5).turns > 20


def test_all_play_is_gone_through_where_it_is_small():
    report = check(KUHN)
    assert (report.positions, report.information_sets, report.longest) == (58, 12, 5)
    assert report.followed > 100
    assert check(TICTACTOE, seeds=2, limit=200).positions is None


def test_what_was_played_and_shown_is_the_same_in_every_check():
    assert check(TICTACTOE, seeds=3, limit=5) == check(TICTACTOE, seeds=3, limit=5)
    other = OddGame(TICTACTOE, Renamed)
    assert check(other, seeds=3, limit=5).digest != check(TICTACTOE, seeds=3, limit=5).digest


class Renamed(Odd):
    def view(self, seat: int) -> View:
        return View(self.state.view(seat).public, f"seat {seat}")


# ---- what a seat may know -------------------------------------------------------------------


def kuhn_of(state: State) -> KuhnState:
    inner = state.state if isinstance(state, Odd) else state
    assert isinstance(inner, KuhnState)
    return inner


def knows(state: State, seat: int) -> tuple[Any, ...]:
    """Own card, how many are dealt, the betting; both cards when they are shown."""
    kuhn = kuhn_of(state)
    shown = kuhn.cards if "shows" in kuhn.play else ()
    return kuhn.cards[seat : seat + 1], len(kuhn.cards), kuhn.bets, shown


def test_equal_knowledge_gives_equal_views():
    assert check(KUHN, knows=knows).positions == 58


class ShowsAllCards(Odd):
    def view(self, seat: int) -> View:
        view = self.state.view(seat)
        return View(view.public, f"{view.private}All cards: {kuhn_of(self).cards}")


class ShowsCardAfterBet(Odd):
    def view(self, seat: int) -> View:
        kuhn, view = kuhn_of(self), self.state.view(seat)
        card = kuhn.cards[1 - seat] if "b" in kuhn.bets else ""
        return View(view.public, f"{view.private}Feels like {card}")


class ShowsFirstCardInPublic(Odd):
    def view(self, seat: int) -> View:
        kuhn, view = kuhn_of(self), self.state.view(seat)
        card = f"It is card {kuhn.cards[0]}.\n" if kuhn.cards else ""
        head, line, tail = view.public.partition("Player 0 is dealt a card.\n")
        return View(head + line + card + tail, view.private)


class ShowsEverythingInPublic(Odd):
    def __init__(self, state: State, told: str = "") -> None:
        super().__init__(state)
        self.told = told

    def apply(self, action: str) -> State:
        return type(self)(self.state.apply(action), f"{self.told}{action}\n")

    def view(self, seat: int) -> View:
        return View(self.told, "")


class DescribesByHiddenCard(Odd):
    def options(self) -> tuple[Option, ...]:
        if len(kuhn_of(self).cards) < 2:
            return ()
        higher = kuhn_of(self).cards[0] > kuhn_of(self).cards[-1]
        return tuple(Option(each.id, f"first is higher: {higher}") for each in self.state.options())


@pytest.mark.parametrize("odd", [ShowsAllCards, ShowsCardAfterBet])
def test_a_leak_is_found_by_taking_turns_differently(odd: type[Odd]):
    message = broken(OddGame(KUHN, odd), "leak")
    assert "can tell it from" in message or "which was hidden from it" in message


@pytest.mark.parametrize("odd", [ShowsAllCards, ShowsCardAfterBet, ShowsFirstCardInPublic])
def test_every_leak_is_found_where_knowledge_is_declared(odd: type[Odd]):
    assert "may not know more" in broken(OddGame(KUHN, odd), "leak", knows=knows)


class LooksAhead(Odd):
    """Gives a search the real match, and so the other's card."""

    def resample(self, seat: int, draw: Callable[[int], float]) -> State | None:
        return self


class DealsAnother(Odd):
    """Draws the seat's own card anew too."""

    def resample(self, seat: int, draw: Callable[[int], float]) -> State | None:
        kuhn = kuhn_of(self)
        return DealsAnother(msgspec.structs.replace(kuhn, cards=kuhn.cards[::-1]))


def test_what_is_drawn_for_a_search_is_made_of_what_its_seat_sees():
    assert "depends on what is hidden from it" in broken(OddGame(KUHN, LooksAhead), "resample")
    assert "has another view" in broken(OddGame(KUHN, DealsAnother), "resample")


def test_options_may_not_tell_what_the_view_hides():
    broken(OddGame(KUHN, DescribesByHiddenCard), "information")


def test_facts_say_whether_anything_is_hidden():
    assert "facts.hidden is False" in broken(OddGame(KUHN, hidden=False), "hidden")
    assert "facts.hidden is True" in broken(OddGame(KUHN, ShowsEverythingInPublic), "hidden")


# ---- one broken law each --------------------------------------------------------------------


class CountsTurnsOnTop(Odd):
    def view(self, seat: int) -> View:
        view = self.state.view(seat)
        return View(f"{view.public.count(': ')} moves\n{view.public}", view.private)


class Forgets(Odd):
    def view(self, seat: int) -> View:
        view = self.state.view(seat)
        return View("\n".join(view.public.splitlines()[-3:]), view.private)


class StartsAnewByItself(Odd):
    def view(self, seat: int) -> View:
        view = self.state.view(seat)
        return View(view.public, view.private, view.public.count(": "))


class TellsSeatsApartInPublic(Odd):
    def view(self, seat: int) -> View:
        view = self.state.view(seat)
        return View(f"Seat {seat}\n{view.public}", view.private)


class ChangesItself(Odd):
    def apply(self, action: str) -> State:
        self.state = self.state.apply(action)
        return self


class RepeatsLabels(Odd):
    def options(self) -> tuple[Option, ...]:
        options = self.state.options()
        return (*options, *options[:1])


class BlankLabel(Odd):
    def options(self) -> tuple[Option, ...]:
        return tuple(msgspec.structs.replace(each, id=" ") for each in self.state.options()[:1])


class AcceptsAnything(Odd):
    def apply(self, action: str) -> State:
        try:
            return super().apply(action)
        except IllegalAction:
            return self


class CountsRefusals(Odd):
    refused = 0

    def apply(self, action: str) -> State:
        try:
            return super().apply(action)
        except IllegalAction:
            self.refused += 1
            raise

    def encode(self) -> bytes:
        return self.state.encode() + bytes(self.refused)


class CountsViews(Odd):
    viewed = 0

    def view(self, seat: int) -> View:
        self.viewed += 1
        view = self.state.view(seat)
        return View(view.public, f"{view.private}{self.viewed}")


class DiffersPerMatch(Odd):
    started = 0

    def __init__(self, state: State, number: int | None = None) -> None:
        super().__init__(state)
        if number is None:
            type(self).started += 1
        self.number = self.started if number is None else number

    def apply(self, action: str) -> State:
        return type(self)(self.state.apply(action), self.number)

    def encode(self) -> bytes:
        return self.state.encode() + str(self.number).encode()


class TellsTooLittle(Odd):
    def encode(self) -> bytes:
        return str(self.state.actor).encode()


class LosesSum(Odd):
    def returns(self) -> tuple[float, ...]:
        return (1.0, 0.5)


class PaysNothingDefined(Odd):
    def returns(self) -> tuple[float, ...]:
        return (math.nan, 0.0)


class PaysOneSeat(Odd):
    def returns(self) -> tuple[float, ...]:
        return (0.0,)


class HasLoneSurrogate(Odd):
    def view(self, seat: int) -> View:
        return View(self.state.view(seat).public, "\ud800")


class AsksOtherOptions(Odd):
    def questions(self) -> tuple[Question, ...]:
        return tuple(
            msgspec.structs.replace(each, options=each.options[::-1])
            for each in self.state.questions()
        )


class AsksNothing(Odd):
    def questions(self) -> tuple[Question, ...]:
        return ()


class AsksReadOutFirst(Odd):
    def questions(self) -> tuple[Question, ...]:
        return (noul("winning", "Is it won?"), *self.state.questions())


class AsksTwiceByOneId(Odd):
    def questions(self) -> tuple[Question, ...]:
        return self.state.questions() * 2


class OffersAtTheEnd(Odd):
    def options(self) -> tuple[Option, ...]:
        return self.state.options() or (Option("again"),)


class SitsElsewhere(Odd):
    @property
    def actor(self) -> int | None:
        return None if self.state.actor is None else self.state.actor + 1


class Crashes(Odd):
    def apply(self, action: str) -> State:
        if self.state.apply(action).actor is None:
            raise KeyError(action)
        return super().apply(action)


class NeverWeighs(Odd):
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(Outcome(each.id, 0.0) for each in self.state.outcomes())


class OffersMany(Odd):
    def options(self) -> tuple[Option, ...]:
        return tuple(Option(f"cell {number}") for number in range(300))


class NeverBegins(Odd):
    actor = None

    def options(self) -> tuple[Option, ...]:
        return ()

    def questions(self) -> tuple[Question, ...]:
        return ()


class OffersNothing(Odd):
    def options(self) -> tuple[Option, ...]:
        return ()


class RebasesToTheTruth(Odd):
    def rebase(self) -> State:
        return type(self)(self.state.apply(self.state.options()[0].id)) if self.options() else self


@pytest.mark.parametrize(
    ("game", "law"),
    [
        (OddGame(TICTACTOE, CountsTurnsOnTop), "growth"),
        (OddGame(TICTACTOE, Forgets), "growth"),
        (OddGame(TICTACTOE, StartsAnewByItself), "growth"),
        (OddGame(TICTACTOE, TellsSeatsApartInPublic), "public"),
        (OddGame(TICTACTOE, ChangesItself), "immutable"),
        (OddGame(TICTACTOE, RepeatsLabels, max_options=10), "options"),
        (OddGame(TICTACTOE, BlankLabel), "options"),
        (OddGame(TICTACTOE, max_options=8), "options"),
        (OddGame(TICTACTOE, OffersMany), "options"),
        (OddGame(TICTACTOE, OffersNothing), "actor"),
        (OddGame(TICTACTOE, factors=("row", "column")), "options"),
        (OddGame(TICTACTOE, max_turns=4), "turns"),
        (OddGame(TICTACTOE, AcceptsAnything), "illegal"),
        (OddGame(TICTACTOE, CountsRefusals), "illegal"),
        (OddGame(TICTACTOE, CountsViews), "repeatable"),
        (OddGame(TICTACTOE, DiffersPerMatch), "replay"),
        (OddGame(TICTACTOE, TellsTooLittle), "encode"),
        (OddGame(TICTACTOE, LosesSum), "returns"),
        (OddGame(TICTACTOE, PaysNothingDefined), "returns"),
        (OddGame(TICTACTOE, PaysOneSeat), "returns"),
        (OddGame(TICTACTOE, max_return=0.5), "returns"),
        (OddGame(TICTACTOE, HasLoneSurrogate), "text"),
        (OddGame(TICTACTOE, AsksOtherOptions), "questions"),
        (OddGame(TICTACTOE, AsksNothing), "questions"),
        (OddGame(TICTACTOE, AsksReadOutFirst), "questions"),
        (OddGame(TICTACTOE, AsksTwiceByOneId), "questions"),
        (OddGame(TICTACTOE, OffersAtTheEnd), "actor"),
        (OddGame(TICTACTOE, SitsElsewhere), "actor"),
        (OddGame(TICTACTOE, NeverBegins), "actor"),
        (OddGame(KUHN, chance=False), "actor"),
        (OddGame(KUHN, NeverWeighs), "outcomes"),
        (OddGame(TICTACTOE, Crashes), "play"),
        (OddGame(TICTACTOE, RebasesToTheTruth, overflow="rebase"), "rebase"),
        (OddGame(TICTACTOE, RebasesToTheTruth), "rebase"),
        (OddGame(TICTACTOE, max_seats=1, min_seats=1), "seats"),
        (OddGame(TICTACTOE, min_seats=3), "facts"),
        (OddGame(TICTACTOE, max_options=0), "facts"),
        (OddGame(TICTACTOE, min_return=2.0), "facts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_law_is_named(game: Game, law: str):
    arguments = {"seats": 2} if law == "seats" else {}
    broken(game, law, seeds=5, limit=50, **arguments)


def test_the_message_names_the_seed_the_turn_and_what_differs():
    message = broken(OddGame(TICTACTOE, CountsTurnsOnTop), "growth")
    assert "seed 0, turn 1 after '" in message
    assert "was '0 moves" in message
    assert "is '1 moves" in message


# ---- two hash seeds -------------------------------------------------------------------------


def run(script: list[str], hash_seed: int) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, *script], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    "game", ["tictactoe", "kuhn_poker", "expedition(size=small)", "openspiel:leduc_poker"]
)
def test_nothing_depends_on_the_order_of_sets(game: str):
    digests = [run(["-m", "games.testing", game], seed) for seed in (1, 2)]
    assert len(digests[0].strip()) == 64
    assert digests[0] == digests[1]


def test_two_hash_seeds_show_what_goes_through_a_set():
    script = """
from games import load_game
from games.testing import check
from tests.support.oddities import Odd, OddGame
class Unordered(Odd):
    def options(self):
        return tuple(set(self.state.options()))
print(check(OddGame(load_game("tictactoe"), Unordered), seeds=2, limit=1).digest)
"""
    assert run(["-c", script], 1) != run(["-c", script], 2)


def test_the_command_names_the_fault(capsys: pytest.CaptureFixture[str]):
    assert main(["nothing"]) == 1
    assert capsys.readouterr().err.startswith("error: no game 'nothing'")
    with pytest.raises(SystemExit, match="2"):
        main([])
