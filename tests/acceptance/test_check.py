"""`ostinato check`, and games that come as packages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.packages import ROOT, check_shown, installed

TEMPLATE = ROOT / "docs" / "your-game"

BROKEN = """
import os
from games import View, load_game
from tests.support.oddities import Odd, OddGame

class Shrinks(Odd):
    def view(self, seat):
        view = self.state.view(seat)
        return View("\\n".join(view.public.splitlines()[-8:]), view.private)

class Leaks(Odd):
    def view(self, seat):
        view = self.state.view(seat)
        return View(view.public, f"{view.private}All cards: {self.state.cards}")

class Unordered(Odd):
    def options(self):
        return tuple(set(self.state.options()))

class Ends(Odd):
    def apply(self, action):
        os.abort()

def load(kind):
    base = "kuhn_poker" if kind == "Leaks" else "tictactoe"
    return OddGame(load_game(base), globals()[kind])
"""


@pytest.fixture
def packages(tmp_path: Path) -> str:
    folder = tmp_path / "packages"
    return installed(folder, TEMPLATE, "ostinato.games", broken=BROKEN, entry="load")


def test_a_game_that_keeps_every_law(ostinato: Command):
    done = ostinato("check", "kuhn_poker", "--json")
    assert done.code == 0
    assert done.document["report"]["positions"] == 58
    assert done.document["turns_per_s"] > 0
    table = ostinato("check", "kuhn_poker", "--seeds", "2", "--seats", "2")
    assert "keeps every law" in table.stdout
    assert "turns a second" in table.stdout


@pytest.mark.parametrize(
    ("kind", "law", "difference"),
    [
        ("Shrinks", "'growth', seed 0, turn 2 after ", "the public text was 'TIC-TAC-TOE"),
        ("Leaks", "'leak', seed 0, turn ", "can tell"),
        ("Unordered", "'hash seed', seeds 0 to 2, some turn", "PYTHONHASHSEED=1 and 2 differs"),
        ("Ends", "'play', some seed and turn", "its process ended with SIGABRT"),
    ],
)
def test_a_broken_law_is_named_with_seed_turn_and_difference(
    ostinato: Command, packages: str, kind: str, law: str, difference: str
):
    done = ostinato("check", f"broken(kind={kind})", "--seeds", "3", PYTHONPATH=packages)
    message = done.refused("games/conformance")
    assert f"breaks the law {law}" in message
    assert difference in message


def test_the_template_is_a_game_as_soon_as_it_is_installed(ostinato: Command, packages: str):
    assert ostinato("check", "stones(heap=7)", PYTHONPATH=packages).code == 0
    played = ostinato(
        *("play", "stones", "--seat", "random", "--seat", "random", "--matches", "3"),
        *("--log", "stones.db", "--seed", "1"),
        PYTHONPATH=packages,
    )
    assert played.code == 0, played
    replayed = ostinato("replay", "stones.db", "--json", PYTHONPATH=packages)
    assert replayed.document["identical"] is True


def test_the_how_to_shows_the_template_and_it_is_short():
    check_shown(TEMPLATE / "stones.py", "your-game.md", most=60)


def test_a_game_that_is_not_there_is_refused(ostinato: Command):
    assert "no game 'nothing'" in ostinato("check", "nothing").refused("games/unknown_game")


def test_seats_that_no_match_has_are_no_broken_law(ostinato: Command):
    message = ostinato("check", "tictactoe", "--seats", 5).refused("runtime/bad_input")
    assert "tictactoe has 2 seats, not 5" in message
